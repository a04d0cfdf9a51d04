// The kernels of the benchmark. kernels.ptx is made of it by scripts/kernel-corpus.sh.

extern "C" __global__ void saxpy(float a, const float *x, float *y, size_t count) {
    size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
        y[i] = a * x[i] + y[i];
}

extern "C" __global__ void product(const float *a, const float *b, float *c, unsigned side) {
    __shared__ float left[16][16], right[16][16];
    unsigned row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    for (unsigned tile = 0; tile < side; tile += 16) {
        left[threadIdx.y][threadIdx.x] = a[row * side + tile + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(tile + threadIdx.y) * side + column];
        __syncthreads();
        for (int k = 0; k < 16; k++)
            sum += left[threadIdx.y][k] * right[k][threadIdx.x];
        __syncthreads();
    }
    c[row * side + column] = sum;
}

extern "C" __global__ void reduction(const unsigned *words, unsigned *sum, unsigned count) {
    unsigned own = 0;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        own += words[i];
    for (int by = 16; by > 0; by /= 2)
        own += __shfl_xor_sync(0xffffffff, own, by);
    if (threadIdx.x % 32 == 0)
        atomicAdd(sum, own);
}

extern "C" __global__ void histogram(const unsigned char *bytes, unsigned *bins, unsigned count) {
    __shared__ unsigned own[256];
    own[threadIdx.x] = 0;
    __syncthreads();
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        atomicAdd(&own[bytes[i]], 1);
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);
}
