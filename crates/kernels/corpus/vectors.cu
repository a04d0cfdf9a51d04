// Operations on vectors. Compiled by nvcc.
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
#define KERNEL extern "C" __global__ void

KERNEL saxpy(float a, const float *x, float *y, unsigned count) {
    if (INDEX < count) y[INDEX] = a * x[INDEX] + y[INDEX];
}

KERNEL daxpy(double a, const double *x, double *y, unsigned count) {
    for (unsigned i = INDEX; i < count; i += gridDim.x * blockDim.x) y[i] = a * x[i] + y[i];
}

KERNEL add_int4(const int4 *a, const int4 *b, int4 *c, unsigned count) {
    if (INDEX < count) c[INDEX] = make_int4(a[INDEX].x + b[INDEX].x, a[INDEX].y - b[INDEX].y, a[INDEX].z * b[INDEX].z, a[INDEX].w ^ b[INDEX].w);
}

KERNEL reverse_bytes(const unsigned *from, unsigned *to, unsigned count) {
    if (INDEX < count) to[INDEX] = __byte_perm(from[count - 1 - INDEX], 0, 0x0123);
}

KERNEL gather(const unsigned *at, const double *from, double *to, unsigned count) {
    if (INDEX < count) to[INDEX] = from[at[INDEX] % count];
}

KERNEL scatter(const unsigned *from, unsigned *to, unsigned count) {
    if (INDEX < count) to[(INDEX * 7 + 3) % count] = from[INDEX];
}

KERNEL clamp_bytes(const short *from, unsigned char *to, unsigned count) {
    if (INDEX < count) to[INDEX] = min(max((int)from[INDEX], 0), 255);
}

KERNEL grey(const uchar4 *from, unsigned char *to, unsigned count) {
    if (INDEX < count) to[INDEX] = (77 * from[INDEX].x + 150 * from[INDEX].y + 29 * from[INDEX].z) >> 8;
}

KERNEL polynomial(const float *from, float *to, unsigned count) {
    if (INDEX >= count) return;
    float x = from[INDEX], sum = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) sum = fmaf(sum, x, 0.125f * (k + 1));
    to[INDEX] = sum;
}

KERNEL divide(const float *a, const float *b, float *to, unsigned count) {
    if (INDEX < count) to[INDEX] = a[INDEX] / b[INDEX] + sqrtf(a[INDEX]) + 1 / b[INDEX];
}

KERNEL divide_doubles(const double *a, const double *b, double *to, unsigned count) {
    if (INDEX < count) to[INDEX] = a[INDEX] / b[INDEX] + sqrt(a[INDEX]) + 1 / b[INDEX];
}

KERNEL compare(const float *a, const float *b, unsigned *to, unsigned count) {
    if (INDEX >= count) return;
    float x = a[INDEX], y = b[INDEX];
    to[INDEX] = (x < y) | (x <= y) << 1 | (x == y) << 2 | (x != y) << 3 | (x > y) << 4 | isnan(x) << 5 | isinf(y) << 6 | signbit(x) << 7;
}

KERNEL long_division(const unsigned long long *a, const unsigned long long *b, unsigned long long *to, unsigned count) {
    if (INDEX >= count) return;
    unsigned long long d = b[INDEX] >> (INDEX % 64) | 1;
    to[2 * INDEX] = a[INDEX] / d;
    to[2 * INDEX + 1] = a[INDEX] % d;
}

KERNEL signed_division(const int *a, const int *b, int *to, unsigned count) {
    if (INDEX >= count) return;
    int d = (b[INDEX] >> (INDEX % 31)) & 0x7fffffff | 1;
    to[2 * INDEX] = a[INDEX] / d;
    to[2 * INDEX + 1] = a[INDEX] % d;
}

__constant__ float weights[5] = {0.0625f, 0.25f, 0.375f, 0.25f, 0.0625f};

KERNEL stencil(const float *from, float *to, int count) {
    int i = INDEX;
    if (i >= count) return;
    float sum = 0;
    for (int k = -2; k <= 2; k++) sum += weights[k + 2] * from[min(max(i + k, 0), count - 1)];
    to[i] = sum;
}

KERNEL running_maximum(const int *from, int *to, unsigned count) {
    if (INDEX >= count) return;
    int found = from[INDEX];
    for (unsigned k = 1; k < 16 && INDEX + k < count; k++) found = max(found, from[INDEX + k]);
    to[INDEX] = found;
}
