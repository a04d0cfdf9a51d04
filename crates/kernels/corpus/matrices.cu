// Products of matrices on tensor cores: by fragments, and by the instruction itself.
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

extern "C" __global__ void product_of_halves(const __half *a, const __half *b, float *c, unsigned side) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 1.0f);
    for (unsigned k = 0; k < side; k += 16) {
        wmma::load_matrix_sync(left, a + blockIdx.y * 16 * side + k, side);
        wmma::load_matrix_sync(right, b + blockIdx.x * 16 * side + k, side);
        wmma::mma_sync(sum, left, right, sum);
    }
    for (int i = 0; i < sum.num_elements; i++) sum.x[i] *= 2;
    wmma::store_matrix_sync(c + blockIdx.y * 16 * side + blockIdx.x * 16, sum, side, wmma::mem_row_major);
}

extern "C" __global__ void product_of_bytes(const signed char *a, const signed char *b, int *c) {
    wmma::fragment<wmma::matrix_a, 32, 8, 16, signed char, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 32, 8, 16, signed char, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 32, 8, 16, int> sum;
    wmma::fill_fragment(sum, 0);
    wmma::load_matrix_sync(left, a, 16);
    wmma::load_matrix_sync(right, b, 8);
    wmma::mma_sync(sum, left, right, sum);
    wmma::store_matrix_sync(c, sum, 8, wmma::mem_row_major);
}

extern "C" __global__ void product_of_doubles(const double *a, const double *b, double *c) {
    wmma::fragment<wmma::matrix_a, 8, 8, 4, double, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 8, 8, 4, double, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 8, 8, 4, double> sum;
    wmma::load_matrix_sync(sum, c, 8, wmma::mem_row_major);
    wmma::load_matrix_sync(left, a, 4);
    wmma::load_matrix_sync(right, b, 8);
    wmma::mma_sync(sum, left, right, sum);
    wmma::store_matrix_sync(c, sum, 8, wmma::mem_col_major);
}

// 16 times 16 times 8, with operands from shared memory by ldmatrix.
extern "C" __global__ void product_by_instruction(const __half *a, const __half *b, float *c) {
    __shared__ __align__(16) __half left[16 * 16], right[16 * 8];
    for (unsigned i = threadIdx.x; i < 256; i += 32) left[i] = a[i];
    for (unsigned i = threadIdx.x; i < 128; i += 32) right[i] = b[i];
    __syncwarp();
    unsigned x[4], y[2], lane = threadIdx.x;
    unsigned at = __cvta_generic_to_shared(&left[lane % 16 * 16 + lane / 16 * 8]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(at));
    at = __cvta_generic_to_shared(&right[lane % 16 * 8]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(y[0]), "=r"(y[1]) : "r"(at));
    float d[4];
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]), "f"(0.5f));
    for (int i = 0; i < 4; i++) c[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = d[i];
}

// 16 times 32 times 8.
extern "C" __global__ void product_of_bytes_by_instruction(const signed char *a, const signed char *b, int *c) {
    unsigned x[4], y[2], lane = threadIdx.x, row = lane / 4, column = lane % 4 * 4;
    for (int i = 0; i < 4; i++) x[i] = *(const unsigned *)&a[(row + i % 2 * 8) * 32 + column + i / 2 * 16];
    // The second matrix by columns.
    for (int i = 0; i < 2; i++) y[i] = *(const unsigned *)&b[row * 32 + column + i * 16];
    int d[4];
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]), "r"(7));
    for (int i = 0; i < 4; i++) c[(row + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = d[i];
}
