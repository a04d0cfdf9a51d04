// Compiled by clang, without the headers of CUDA.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define X __nvvm_read_ptx_sreg_tid_x()
#define INDEX (__nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + X)
#define KERNEL extern "C" __global__ void

KERNEL clang_saxpy(float a, const float *x, float *y, unsigned count) {
    if (INDEX < count) y[INDEX] = a * x[INDEX] + y[INDEX];
}

KERNEL clang_reduce(const unsigned *from, unsigned *to) {
    __shared__ unsigned own[128];
    own[X] = from[INDEX];
    for (unsigned by = 64; by; by /= 2) {
        __syncthreads();
        if (X < by) own[X] += own[X + by];
    }
    if (X == 0) to[__nvvm_read_ptx_sreg_ctaid_x()] = own[0];
}

KERNEL clang_shuffles(const int *from, int *to) {
    int own = from[X];
    for (int by = 16; by; by /= 2) own += __nvvm_shfl_sync_bfly_i32(~0u, own, by, 31);
    to[X] = own + __nvvm_vote_ballot_sync(~0u, from[X] & 1);
}

KERNEL clang_histogram(const unsigned *from, unsigned *counts) { __nvvm_atom_add_gen_i((int *)&counts[from[INDEX] % 32], 1); }

struct Pair {
    double value;
    short key;
    char text[5];
};

KERNEL clang_structures(struct Pair given, struct Pair *to) {
    struct Pair own[3];
    for (int i = 0; i < 3; i++) {
        own[i] = given;
        own[i].key += i * X;
        own[i].text[i] = 'A' + X % 26;
    }
    to[X].value = own[X % 3].value, to[X].key = own[X % 3].key;
    for (int i = 0; i < 5; i++) to[X].text[i] = own[X % 3].text[i];
}

KERNEL clang_switch(const unsigned *from, unsigned *to) {
    unsigned own = from[INDEX];
    switch (own % 8) {
    case 0: own = own / 3; break;
    case 1: own = own % 7; break;
    case 2: own ^= own >> 5; break;
    case 3: own *= 17; break;
    case 4: own = __builtin_popcount(own); break;
    case 5: own = __builtin_clz(own | 1); break;
    case 6: own = -own; break;
    default: own = __builtin_bswap32(own);
    }
    to[INDEX] = own;
}

__device__ unsigned gcd(unsigned a, unsigned b) { return b ? gcd(b, a % b) : a; }

KERNEL clang_gcd(const unsigned *a, const unsigned *b, unsigned *to) { to[INDEX] = gcd(a[INDEX] % 10000, b[INDEX] % 10000); }

KERNEL clang_doubles(const double *a, const double *b, double *to) {
    to[INDEX] = a[INDEX] / b[INDEX] + __builtin_fma(a[INDEX], b[INDEX], 0.5);
}

KERNEL clang_wide(const unsigned long long *a, const unsigned long long *b, unsigned long long *to) {
    unsigned __int128 product = (unsigned __int128)a[INDEX] * b[INDEX];
    to[2 * INDEX] = (unsigned long long)product, to[2 * INDEX + 1] = (unsigned long long)(product >> 64);
}

KERNEL clang_tiles(const float *a, const float *b, float *c) {
    __shared__ float left[8][8], right[8][8];
    unsigned x = X % 8, y = X / 8;
    float sum = 0;
    for (unsigned k = 0; k < 32; k += 8) {
        left[y][x] = a[y * 32 + k + x], right[y][x] = b[(k + y) * 8 + x];
        __syncthreads();
        for (unsigned i = 0; i < 8; i++) sum += left[y][i] * right[i][x];
        __syncthreads();
    }
    c[y * 8 + x] = sum;
}
