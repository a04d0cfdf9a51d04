// y = a * x + y, single precision.

extern "C" __global__ void saxpy(float a, const float *x, float *y, unsigned long long count) {
    unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    unsigned long long first = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned long long i = first; i < count; i += stride) y[i] = a * x[i] + y[i];
}
