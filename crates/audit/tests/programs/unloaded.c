/* A library for unloads.c. INNER is the name of the function that loses BYTES bytes; without BYTES it uses no CUDA, and has as
 * many functions as there is room for. All of them have the same code at the same offsets but for that. */
#include <stddef.h>

#ifdef BYTES
int cuMemAlloc_v2(unsigned long long *, size_t);

static __attribute__((noinline)) void INNER(void) {
    unsigned long long memory;
    cuMemAlloc_v2(&memory, BYTES);
    memory = 0;
    __asm__ volatile("" : : "r"(&memory) : "memory");
}

void enter(void) {
    INNER();
    __asm__ volatile("");
}
#else
#define IDLE(name) int INNER##name(int x) { for (int i = 0; i < x; i++) x ^= i * 77; return x; }
#define NAMED(name) IDLE(name)
NAMED(_1) NAMED(_2) NAMED(_3) NAMED(_4) NAMED(_5) NAMED(_6) NAMED(_7) NAMED(_8)
void enter(void) {}
#endif
