/* A library that allocates. INNER is the name of its function, SHIFT moves its code, so that call sites have other addresses. */
#include <stddef.h>

extern int cuMemAlloc_v2(unsigned long long *, size_t);

__asm__(".text\n.skip " SHIFT ", 0x90\n");

__attribute__((noinline)) int INNER(size_t bytes) {
    unsigned long long memory;
    int code = cuMemAlloc_v2(&memory, bytes);
    __asm__ volatile("" : "+r"(code));
    return code;
}

int allocate(size_t bytes) {
    int code = INNER(bytes);
    __asm__ volatile("" : "+r"(code));
    return code;
}
