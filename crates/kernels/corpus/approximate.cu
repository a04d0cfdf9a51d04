// Approximate instructions, compared in the kernel with doubles: 1 for each that is within the bound of the PTX manual.
// Compiled by nvcc.
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
#define KERNEL extern "C" __global__ void

// Whether the error relative to the exact value is at most 2^-bits.
__device__ bool within(float found, double exact, int bits) {
    return fabs((double)found - exact) <= ldexp(fabs(exact), -bits);
}

KERNEL approximate_ex2(const float *from, unsigned *to) {
    float own;
    asm("ex2.approx.f32 %0, %1;" : "=f"(own) : "f"(from[INDEX]));
    to[INDEX] = within(own, exp2((double)from[INDEX]), 22);
}

KERNEL approximate_lg2(const float *from, unsigned *to) {
    float own, a = from[INDEX] * 4;
    asm("lg2.approx.f32 %0, %1;" : "=f"(own) : "f"(a));
    to[INDEX] = within(own, log2((double)a), 22) || fabs(own - log2((double)a)) < 4e-7;
}

KERNEL approximate_rcp(const float *from, unsigned *to) {
    float own;
    asm("rcp.approx.f32 %0, %1;" : "=f"(own) : "f"(from[INDEX]));
    to[INDEX] = within(own, 1.0 / from[INDEX], 23);
}

KERNEL approximate_rsqrt(const float *from, unsigned *to) {
    float own;
    asm("rsqrt.approx.f32 %0, %1;" : "=f"(own) : "f"(from[INDEX]));
    to[INDEX] = within(own, 1.0 / sqrt((double)from[INDEX]), 22);
}

KERNEL approximate_sqrt(const float *from, unsigned *to) {
    float own;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(own) : "f"(from[INDEX]));
    to[INDEX] = within(own, sqrt((double)from[INDEX]), 22);
}

KERNEL approximate_sin_cos(const float *from, unsigned *to) {
    float sine, cosine, a = from[INDEX] - 1;
    asm("sin.approx.f32 %0, %1;" : "=f"(sine) : "f"(a));
    asm("cos.approx.f32 %0, %1;" : "=f"(cosine) : "f"(a));
    // The bound is absolute: 2^-20.5.
    to[INDEX] = (fabs(sine - sin((double)a)) < 6.8e-7) + 2 * (fabs(cosine - cos((double)a)) < 6.8e-7);
}

KERNEL approximate_tanh(const float *from, unsigned *to) {
    float own, a = from[INDEX] - 1.5f;
    asm("tanh.approx.f32 %0, %1;" : "=f"(own) : "f"(a));
    to[INDEX] = within(own, tanh((double)a), 10);
}

KERNEL approximate_division(const float *a, const float *b, unsigned *to) {
    float own;
    asm("div.full.f32 %0, %1, %2;" : "=f"(own) : "f"(a[INDEX]), "f"(b[INDEX]));
    to[INDEX] = within(own, (double)a[INDEX] / b[INDEX], 22);
}
