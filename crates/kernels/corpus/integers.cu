// Integer instructions and bits. Compiled by NVRTC.
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
#define KERNEL extern "C" __global__ void

KERNEL bit_counts(const unsigned *from, unsigned *to) {
    unsigned own = from[INDEX] >> INDEX % 32;
    to[4 * INDEX] = __popc(own), to[4 * INDEX + 1] = __clz(own), to[4 * INDEX + 2] = __ffs(own), to[4 * INDEX + 3] = __brev(own);
}

KERNEL long_bit_counts(const unsigned long long *from, unsigned long long *to) {
    unsigned long long own = from[INDEX] >> INDEX % 64;
    to[4 * INDEX] = __popcll(own), to[4 * INDEX + 1] = __clzll(own), to[4 * INDEX + 2] = __ffsll(own), to[4 * INDEX + 3] = __brevll(own);
}

KERNEL high_products(const unsigned *a, const unsigned *b, unsigned *to) {
    to[4 * INDEX] = __umulhi(a[INDEX], b[INDEX]), to[4 * INDEX + 1] = __mulhi((int)a[INDEX], (int)b[INDEX]);
    to[4 * INDEX + 2] = __umul24(a[INDEX], b[INDEX]), to[4 * INDEX + 3] = __mul24((int)a[INDEX], (int)b[INDEX]);
}

KERNEL long_high_products(const unsigned long long *a, const unsigned long long *b, unsigned long long *to) {
    to[2 * INDEX] = __umul64hi(a[INDEX], b[INDEX]), to[2 * INDEX + 1] = __mul64hi((long long)a[INDEX], (long long)b[INDEX]);
}

KERNEL funnel_shifts(const unsigned *a, const unsigned *b, unsigned *to) {
    unsigned by = INDEX % 40;
    to[4 * INDEX] = __funnelshift_l(a[INDEX], b[INDEX], by), to[4 * INDEX + 1] = __funnelshift_lc(a[INDEX], b[INDEX], by);
    to[4 * INDEX + 2] = __funnelshift_r(a[INDEX], b[INDEX], by), to[4 * INDEX + 3] = __funnelshift_rc(a[INDEX], b[INDEX], by);
}

KERNEL permutations(const unsigned *a, const unsigned *b, unsigned *to) {
    to[2 * INDEX] = __byte_perm(a[INDEX], b[INDEX], b[INDEX] ^ a[INDEX] >> 7), to[2 * INDEX + 1] = __byte_perm(a[INDEX], b[INDEX], 0x3715);
}

KERNEL dot_products(const int *a, const int *b, int *to) {
    to[4 * INDEX] = __dp4a(a[INDEX], b[INDEX], 5), to[4 * INDEX + 1] = __dp4a((unsigned)a[INDEX], (unsigned)b[INDEX], 7u);
    to[4 * INDEX + 2] = __dp2a_lo(a[INDEX], b[INDEX], -1), to[4 * INDEX + 3] = __dp2a_hi(a[INDEX], b[INDEX], -2);
}

KERNEL differences(const int *a, const int *b, unsigned *to) {
    to[3 * INDEX] = __sad(a[INDEX], b[INDEX], 3u), to[3 * INDEX + 1] = __usad(a[INDEX], b[INDEX], 4u);
    to[3 * INDEX + 2] = __hadd(a[INDEX], b[INDEX]) ^ __urhadd(a[INDEX], b[INDEX]);
}

KERNEL packed_bytes(const unsigned *a, const unsigned *b, unsigned *to) {
    unsigned x = a[INDEX], y = b[INDEX];
    to[6 * INDEX] = __vadd4(x, y), to[6 * INDEX + 1] = __vavgu2(x, y), to[6 * INDEX + 2] = __vmaxs4(x, y);
    to[6 * INDEX + 3] = __vcmpgtu2(x, y), to[6 * INDEX + 4] = __vaddss2(x, y), to[6 * INDEX + 5] = __vsetles4(x, y);
}

// Numbers of 256 bits: products by rows with carries.
KERNEL long_products(const unsigned *a, const unsigned *b, unsigned *to) {
    unsigned product[16] = {};
    for (int i = 0; i < 8; i++) {
        unsigned carry = 0;
        for (int j = 0; j < 8; j++) {
            unsigned long long sum = (unsigned long long)a[8 * INDEX + i] * b[8 * INDEX + j] + product[i + j] + carry;
            product[i + j] = (unsigned)sum, carry = sum >> 32;
        }
        product[i + 8] = carry;
    }
    for (int i = 0; i < 16; i++) to[16 * INDEX + i] = product[i];
}

KERNEL carry_chain(const unsigned *a, const unsigned *b, unsigned *to) {
    unsigned d[4], carry;
    asm("add.cc.u32 %0, %5, %9;\n\taddc.cc.u32 %1, %6, %10;\n\taddc.cc.u32 %2, %7, %11;\n\taddc.cc.u32 %3, %8, %12;\n\taddc.u32 %4, 0, 0;"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]), "=r"(carry)
        : "r"(a[4 * INDEX]), "r"(a[4 * INDEX + 1]), "r"(a[4 * INDEX + 2]), "r"(a[4 * INDEX + 3]), "r"(b[4 * INDEX]), "r"(b[4 * INDEX + 1]),
          "r"(b[4 * INDEX + 2]), "r"(b[4 * INDEX + 3]));
    for (int i = 0; i < 4; i++) to[5 * INDEX + i] = d[i];
    to[5 * INDEX + 4] = carry;
}

KERNEL bit_fields(const unsigned *a, const unsigned *b, unsigned *to) {
    unsigned own, x = a[INDEX], y = b[INDEX], at = INDEX % 37, len = INDEX % 11 * 4;
    asm("bfe.u32 %0, %1, %2, %3;" : "=r"(own) : "r"(x), "r"(at), "r"(len));
    to[5 * INDEX] = own;
    asm("bfe.s32 %0, %1, %2, %3;" : "=r"(own) : "r"(x), "r"(at), "r"(len));
    to[5 * INDEX + 1] = own;
    asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(own) : "r"(x), "r"(y), "r"(at), "r"(len));
    to[5 * INDEX + 2] = own;
    asm("bfind.s32 %0, %1;" : "=r"(own) : "r"(x >> at % 32));
    to[5 * INDEX + 3] = own;
    asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(own) : "r"(x), "r"(y), "r"(at));
    to[5 * INDEX + 4] = own;
}
