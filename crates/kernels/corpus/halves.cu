// Half precision and bfloat16. Compiled by nvcc.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
#define KERNEL extern "C" __global__ void

KERNEL half_saxpy(const __half *x, __half *y) {
    y[INDEX] = __hfma(__float2half(1.5f), x[INDEX], y[INDEX]);
}

KERNEL half_pairs(const __half2 *a, const __half2 *b, __half2 *to) {
    __half2 x = a[INDEX], y = b[INDEX];
    to[4 * INDEX] = __hadd2_rn(x, y), to[4 * INDEX + 1] = __hsub2_rn(x, y), to[4 * INDEX + 2] = __hmul2_rn(x, y);
    to[4 * INDEX + 3] = __hmin2(__hmax2(x, y), __float2half2_rn(2));
}

KERNEL half_saturated(const __half *a, const __half *b, __half *to) {
    to[2 * INDEX] = __hadd_sat(a[INDEX], b[INDEX]), to[2 * INDEX + 1] = __hfma_relu(a[INDEX], b[INDEX], a[INDEX]);
}

KERNEL half_compare(const __half *a, const __half *b, unsigned *to) {
    __half x = a[INDEX], y = b[INDEX];
    to[INDEX] = __hlt(x, y) | __hle(x, y) << 1 | __heq(x, y) << 2 | __hneu(x, y) << 3 | __hgtu(x, y) << 4 | __hisnan(x) << 5;
}

KERNEL half_convert(const float *from, unsigned short *to) {
    float own = from[INDEX];
    to[4 * INDEX] = __half_as_ushort(__float2half_rn(own)), to[4 * INDEX + 1] = __half_as_ushort(__float2half_rz(own));
    to[4 * INDEX + 2] = __half_as_ushort(__float2half_ru(own)), to[4 * INDEX + 3] = __half_as_ushort(__float2half_rd(own));
}

KERNEL half_integers(const __half *from, int *to) {
    __half own = from[INDEX];
    to[4 * INDEX] = __half2int_rn(own), to[4 * INDEX + 1] = __half2int_rz(own);
    to[4 * INDEX + 2] = __half2short_ru(own), to[4 * INDEX + 3] = __half2uint_rd(own);
}

KERNEL half_sums(const __half2 *from, float *to) {
    float2 own = __half22float2(from[INDEX]);
    float sum = own.x + own.y;
    for (int by = 16; by; by /= 2) sum += __shfl_xor_sync(~0u, sum, by);
    to[INDEX] = sum;
}

KERNEL half_product(const __half *a, const __half *b, __half *c, unsigned side) {
    unsigned x = threadIdx.x, y = threadIdx.y;
    __half sum = __float2half(0);
    for (unsigned k = 0; k < side; k++) sum = __hfma(a[y * side + k], b[k * side + x], sum);
    c[y * side + x] = sum;
}

KERNEL half_atomics(const __half2 *from, __half2 *sums, __nv_bfloat162 *other) {
    atomicAdd(&sums[threadIdx.x % 4], __half2(1, 2));
    atomicAdd(&other[threadIdx.x % 4], __nv_bfloat162(1, 0.5f));
    if (threadIdx.x == 0) atomicAdd(&sums[4], from[0]);
}

KERNEL bf16_arithmetic(const __nv_bfloat16 *a, const __nv_bfloat16 *b, __nv_bfloat16 *to) {
    __nv_bfloat16 x = a[INDEX], y = b[INDEX];
    to[4 * INDEX] = __hadd_rn(x, y), to[4 * INDEX + 1] = __hmul_rn(x, y), to[4 * INDEX + 2] = __hfma(x, y, x), to[4 * INDEX + 3] = __hmax(x, y);
}

KERNEL bf16_convert(const float *from, unsigned short *to) {
    to[2 * INDEX] = __bfloat16_as_ushort(__float2bfloat16_rn(from[INDEX]));
    to[2 * INDEX + 1] = __bfloat16_as_ushort(__float2bfloat16_rz(from[INDEX]));
}
