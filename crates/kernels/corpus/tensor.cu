// Products on tensor cores, of values whose sums are exact. Compiled by nvcc.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;
#define KERNEL extern "C" __global__ void

KERNEL wmma_half_sums_in_half(const __half *a, const __half *b, __half *c) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, __half> sum;
    wmma::fill_fragment(sum, __float2half(0));
    wmma::load_matrix_sync(left, a, 16);
    wmma::load_matrix_sync(right, b, 16);
    wmma::mma_sync(sum, left, right, sum);
    wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
}

KERNEL wmma_bf16(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c) {
    wmma::fragment<wmma::matrix_a, 8, 32, 16, __nv_bfloat16, wmma::col_major> left;
    wmma::fragment<wmma::matrix_b, 8, 32, 16, __nv_bfloat16, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 8, 32, 16, float> sum;
    wmma::load_matrix_sync(sum, c, 32, wmma::mem_row_major);
    wmma::load_matrix_sync(left, a, 8);
    wmma::load_matrix_sync(right, b, 32);
    wmma::mma_sync(sum, left, right, sum);
    wmma::store_matrix_sync(c, sum, 32, wmma::mem_row_major);
}

KERNEL wmma_tf32(const float *a, const float *b, float *c) {
    wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 8, float> sum;
    wmma::fill_fragment(sum, 0);
    wmma::load_matrix_sync(left, a, 8);
    wmma::load_matrix_sync(right, b, 16);
    for (int i = 0; i < left.num_elements; i++) left.x[i] = wmma::__float_to_tf32(left.x[i]);
    wmma::mma_sync(sum, left, right, sum);
    wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
}

KERNEL mma_k8(const unsigned *a, const unsigned *b, float *c) {
    unsigned lane = threadIdx.x;
    float d[4];
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[2 * lane]), "r"(a[2 * lane + 1]), "r"(b[lane]), "f"(1.0f));
    for (int i = 0; i < 4; i++) c[4 * lane + i] = d[i];
}

KERNEL mma_bf16(const unsigned *a, const unsigned *b, float *c) {
    unsigned lane = threadIdx.x;
    float d[4];
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[4 * lane]), "r"(a[4 * lane + 1]), "r"(a[4 * lane + 2]), "r"(a[4 * lane + 3]), "r"(b[2 * lane]), "r"(b[2 * lane + 1]), "f"(0.0f));
    for (int i = 0; i < 4; i++) c[4 * lane + i] = d[i];
}

KERNEL mma_tf32(const float *a, const float *b, float *c) {
    unsigned lane = threadIdx.x, x[4], y[2];
    for (int i = 0; i < 4; i++) x[i] = __float_as_uint(a[4 * lane + i]);
    for (int i = 0; i < 2; i++) y[i] = __float_as_uint(b[2 * lane + i]);
    float d[4];
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]), "f"(2.0f));
    for (int i = 0; i < 4; i++) c[4 * lane + i] = d[i];
}

KERNEL mma_unsigned_bytes(const unsigned *a, const unsigned *b, int *c) {
    unsigned lane = threadIdx.x;
    int d[4];
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(a[2 * lane]), "r"(a[2 * lane + 1]), "r"(b[lane]), "r"(-3));
    for (int i = 0; i < 4; i++) c[4 * lane + i] = d[i];
}

KERNEL mma_doubles(const double *a, const double *b, double *c) {
    unsigned lane = threadIdx.x;
    double d[2];
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%4, %4};"
                 : "=d"(d[0]), "=d"(d[1]) : "d"(a[lane]), "d"(b[lane]), "d"(0.25));
    c[2 * lane] = d[0], c[2 * lane + 1] = d[1];
}

KERNEL load_matrices(const uint4 *from, uint4 *to) {
    __shared__ __align__(16) uint4 own[32];
    own[threadIdx.x] = from[threadIdx.x];
    __syncthreads();
    unsigned at = (unsigned)__cvta_generic_to_shared(&own[threadIdx.x]);
    uint4 a, b;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(a.x), "=r"(a.y), "=r"(a.z), "=r"(a.w) : "r"(at));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(b.x), "=r"(b.y), "=r"(b.z), "=r"(b.w) : "r"(at));
    to[2 * threadIdx.x] = a, to[2 * threadIdx.x + 1] = b;
}
