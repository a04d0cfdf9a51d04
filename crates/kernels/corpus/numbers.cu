// Kernels with half precision and functions of the mathematical library.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

extern "C" __global__ void half_axpy(__half a, const __half2 *x, __half2 *y, unsigned count) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = __hfma2(__half2half2(a), x[i], y[i]);
}

extern "C" __global__ void half_functions(const __half *from, float *to) {
    __half own = from[threadIdx.x];
    float sum = __half2float(hsqrt(__habs(own))) + __half2float(hrcp(own)) + __half2float(__hmax(own, __float2half(0.5f)));
    to[threadIdx.x] = sum + __half2int_rn(own) + (__hgt(own, __float2half(2.0f)) ? 100 : 0);
}

extern "C" __global__ void bf16_dot(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *to, unsigned count) {
    float sum = 0;
    for (unsigned i = threadIdx.x; i < count; i += 32) sum += __bfloat162float(a[i]) * __bfloat162float(b[i]);
    for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(~0u, sum, by);
    if (threadIdx.x == 0) *to = sum;
}

extern "C" __global__ void fp8(const float *from, float *to) {
    __nv_fp8_e4m3 a(from[threadIdx.x]);
    __nv_fp8_e5m2 b(from[threadIdx.x]);
    to[2 * threadIdx.x] = float(a);
    to[2 * threadIdx.x + 1] = float(b);
}

extern "C" __global__ void singles(const float *from, float *to) {
    float a = from[threadIdx.x];
    float *own = to + 14 * threadIdx.x;
    own[0] = sinf(a), own[1] = cosf(a), own[2] = tanf(a), own[3] = expf(a), own[4] = logf(fabsf(a)), own[5] = powf(fabsf(a), 1.7f);
    own[6] = erff(a), own[7] = tanhf(a), own[8] = cbrtf(a), own[9] = atan2f(a, 2), own[10] = fmodf(a, 0.7f), own[11] = asinhf(a);
    own[12] = floorf(a) + rintf(a) * 100, own[13] = hypotf(a, 3);
}

extern "C" __global__ void doubles(const double *from, double *to) {
    double a = from[threadIdx.x];
    double *own = to + 10 * threadIdx.x;
    own[0] = sin(a), own[1] = exp(a), own[2] = log(fabs(a)), own[3] = pow(fabs(a), 1.7), own[4] = tanh(a), own[5] = sqrt(fabs(a));
    own[6] = 1 / a, own[7] = atan(a), own[8] = cbrt(a), own[9] = fmod(a, 0.7);
}

extern "C" __global__ void rounding(const float *from, int *to) {
    float a = from[threadIdx.x];
    int *own = to + 8 * threadIdx.x;
    own[0] = __float2int_rn(a), own[1] = __float2int_ru(a), own[2] = (int)a, own[3] = __float_as_int(__fmul_ru(a, 1.1f));
    own[4] = __float_as_int(__fdiv_rz(a, 3)), own[5] = __float_as_int(__fsqrt_rd(fabsf(a))), own[6] = (int)llrintf(a * 1e6f);
    own[7] = __float_as_int((float)__double2float_rd(a * 1.1));
}
