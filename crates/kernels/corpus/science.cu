// Numerical kernels, in operations that are rounded exactly. Compiled by nvcc.
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
#define KERNEL extern "C" __global__ void

KERNEL n_body_exact(const float4 *bodies, float4 *forces, unsigned count) {
    extern __shared__ float4 tile[];
    float4 own = bodies[INDEX], sum = make_float4(0, 0, 0, 0);
    for (unsigned start = 0; start < count; start += blockDim.x) {
        tile[threadIdx.x] = bodies[start + threadIdx.x];
        __syncthreads();
        for (unsigned k = 0; k < blockDim.x; k++) {
            float x = tile[k].x - own.x, y = tile[k].y - own.y, z = tile[k].z - own.z;
            float square = fmaf(x, x, fmaf(y, y, fmaf(z, z, 0.01f)));
            float scale = __fdiv_rn(tile[k].w, square * __fsqrt_rn(square));
            sum.x = fmaf(x, scale, sum.x), sum.y = fmaf(y, scale, sum.y), sum.z = fmaf(z, scale, sum.z);
        }
        __syncthreads();
    }
    forces[INDEX] = sum;
}

KERNEL mandelbrot_single(unsigned *steps, unsigned width) {
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    float re = x * 0.03125f - 1.5f, im = y * 0.0625f - 1, a = 0, b = 0;
    unsigned count = 0;
    for (; count < 100 && fmaf(a, a, b * b) < 4; count++) {
        float next = fmaf(a, a, fmaf(-b, b, re));
        b = fmaf(2 * a, b, im), a = next;
    }
    steps[y * width + x] = count;
}

KERNEL julia(unsigned char *steps, unsigned width) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    // Fixed point.
    int a = (x << 9) - 16384, b = (y << 9) - 8192, count = 0;
    while (count < 255 && (long long)a * a + (long long)b * b < (4ll << 26)) {
        int next = (int)(((long long)a * a - (long long)b * b) >> 13) - 6554;
        b = (int)(((long long)a * b) >> 12) + 1475, a = next, count++;
    }
    steps[y * width + x] = count;
}

// A fast Fourier transform over the integers modulo a prime: exact.
__device__ unsigned power(unsigned base, unsigned exponent) {
    unsigned long long result = 1, own = base;
    for (; exponent; exponent /= 2, own = own * own % 998244353)
        if (exponent % 2) result = result * own % 998244353;
    return (unsigned)result;
}

KERNEL fft_modular(unsigned *values, unsigned log) {
    __shared__ unsigned own[256];
    const unsigned long long prime = 998244353;
    unsigned count = 1 << log;
    for (unsigned i = threadIdx.x; i < count; i += blockDim.x) own[__brev(i) >> (32 - log)] = values[i] % prime;
    for (unsigned half = 1; half < count; half *= 2) {
        __syncthreads();
        unsigned k = threadIdx.x % half, i = threadIdx.x / half * 2 * half + k;
        unsigned long long twiddle = power(power(3, 998244352 / (2 * half)), k), b = own[i + half] * twiddle % prime, a = own[i];
        own[i] = (a + b) % prime, own[i + half] = (a + prime - b) % prime;
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < count; i += blockDim.x) values[i] = own[i];
}

// Radix 4 in doubles, with factors that are exact.
KERNEL fft_radix_4(double2 *values) {
    double2 a = values[4 * INDEX], b = values[4 * INDEX + 1], c = values[4 * INDEX + 2], d = values[4 * INDEX + 3];
    double2 s = make_double2(a.x + c.x, a.y + c.y), t = make_double2(a.x - c.x, a.y - c.y);
    double2 u = make_double2(b.x + d.x, b.y + d.y), v = make_double2(b.y - d.y, d.x - b.x);
    values[4 * INDEX] = make_double2(s.x + u.x, s.y + u.y), values[4 * INDEX + 1] = make_double2(t.x + v.x, t.y + v.y);
    values[4 * INDEX + 2] = make_double2(s.x - u.x, s.y - u.y), values[4 * INDEX + 3] = make_double2(t.x - v.x, t.y - v.y);
}

KERNEL heat(float *a, float *b, unsigned side, unsigned rounds) {
    unsigned x = threadIdx.x, y = threadIdx.y;
    for (unsigned round = 0; round < rounds; round++) {
        float *from = round % 2 ? b : a, *to = round % 2 ? a : b;
        float own = from[y * side + x];
        if (x && y && x + 1 < side && y + 1 < side)
            own = fmaf(0.125f, from[y * side + x - 1] + from[y * side + x + 1] + from[(y - 1) * side + x] + from[(y + 1) * side + x], 0.5f * own);
        to[y * side + x] = own;
        __syncthreads();
    }
}

KERNEL life(const unsigned char *from, unsigned char *to, int side) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, count = 0;
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++)
            if (dx || dy) count += from[(y + dy + side) % side * side + (x + dx + side) % side] & 1;
    to[y * side + x] = count == 3 || (count == 2 && from[y * side + x] & 1);
}

// Counts points in a circle: numbers by a multiply-with-carry generator.
KERNEL pi_by_chance(unsigned *inside, unsigned rounds) {
    unsigned long long state = 88172645463325252ull + INDEX * 1000003ull;
    unsigned found = 0;
    for (unsigned i = 0; i < rounds; i++) {
        state = (state & 0xffffffff) * 4294957665ull + (state >> 32);
        unsigned x = (unsigned)state >> 16, y = (unsigned)state & 0xffff;
        found += x * x + y * y < 0xfffe0001u && __umulhi(x * x, 4) + __umulhi(y * y, 4) < 4;
    }
    atomicAdd(inside, found);
}

// Kahan's sum, in order.
KERNEL kahan(const float *from, float *to, unsigned count) {
    float sum = 0, lost = 0;
    for (unsigned i = threadIdx.x; i < count; i += blockDim.x) {
        float own = __fsub_rn(from[i], lost), next = __fadd_rn(sum, own);
        lost = __fsub_rn(__fsub_rn(next, sum), own), sum = next;
    }
    to[2 * threadIdx.x] = sum, to[2 * threadIdx.x + 1] = lost;
}

KERNEL newton_root(const double *from, double *to) {
    double own = from[INDEX], root = own;
    for (int i = 0; i < 40; i++) root = __dmul_rn(0.5, __dadd_rn(root, __ddiv_rn(own, root)));
    to[INDEX] = root;
}

// Gauss's elimination of 8 equations per thread, in doubles.
KERNEL elimination(const double *from, double *to) {
    double m[8][9];
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 9; j++) m[i][j] = from[(i * 9 + j + threadIdx.x * 5) % 256] + (i == j ? 40 : 0);
    for (int k = 0; k < 8; k++)
        for (int i = 0; i < 8; i++) {
            if (i == k) continue;
            double f = __ddiv_rn(m[i][k], m[k][k]);
            for (int j = k; j < 9; j++) m[i][j] = fma(-f, m[k][j], m[i][j]);
        }
    for (int i = 0; i < 8; i++) to[threadIdx.x * 8 + i] = __ddiv_rn(m[i][8], m[i][i]);
}

KERNEL rounding_modes(const float *a, const float *b, float *to) {
    float x = a[INDEX], y = b[INDEX], *own = to + 20 * INDEX;
    own[0] = __fadd_rn(x, y), own[1] = __fadd_rz(x, y), own[2] = __fadd_ru(x, y), own[3] = __fadd_rd(x, y);
    own[4] = __fmul_rn(x, y), own[5] = __fmul_rz(x, y), own[6] = __fmul_ru(x, y), own[7] = __fmul_rd(x, y);
    own[8] = __fmaf_rn(x, y, x), own[9] = __fmaf_rz(x, y, x), own[10] = __fmaf_ru(x, y, x), own[11] = __fmaf_rd(x, y, x);
    own[12] = __fdiv_rn(x, y), own[13] = __fdiv_rz(x, y), own[14] = __fdiv_ru(x, y), own[15] = __fdiv_rd(x, y);
    own[16] = __fsqrt_rn(x), own[17] = __fsqrt_rz(x), own[18] = __fsqrt_ru(x), own[19] = __frcp_rd(y);
}

KERNEL double_rounding_modes(const double *a, const double *b, double *to) {
    double x = a[INDEX], y = b[INDEX], *own = to + 16 * INDEX;
    own[0] = __dadd_rn(x, y), own[1] = __dadd_rz(x, y), own[2] = __dadd_ru(x, y), own[3] = __dadd_rd(x, y);
    own[4] = __dmul_rz(x, y), own[5] = __dmul_ru(x, y), own[6] = __dmul_rd(x, y), own[7] = __fma_rz(x, y, x);
    own[8] = __fma_ru(x, y, x), own[9] = __fma_rd(x, y, x), own[10] = __ddiv_rz(x, y), own[11] = __ddiv_ru(x, y);
    own[12] = __ddiv_rd(x, y), own[13] = __dsqrt_rz(x), own[14] = __dsqrt_ru(x), own[15] = __drcp_rd(y);
}
