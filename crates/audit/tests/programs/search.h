/* For programs that ask the audit library which addresses they hold. They keep addresses masked, so that the variable
   that remembers one is not found itself. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MASK 0x5a5a5a5a5a5a5a5aull
#define SIZE 4096

typedef uint64_t CUdeviceptr;
int cuInit(unsigned);
int cuCtxCreate_v2(void **, unsigned, int);
int cuMemAlloc_v2(CUdeviceptr *, size_t);
/* Found only where the audit library is preloaded. */
int cuguard_audit_search(const uint64_t *, size_t, uint64_t, unsigned, char *, size_t) __attribute__((weak));

/* Clears what earlier calls left in the stack below the caller, and in registers. */
static __attribute__((noinline, unused)) void wipe(void)
{
    volatile char dead[32768];
    memset((void *)dead, 0, sizeof dead);
    __asm__ volatile("" : : "r"(dead) : "memory");
}

/* Allocates device memory. Its address stays in no variable. */
static __attribute__((noinline, unused)) uint64_t allocate(void)
{
    volatile CUdeviceptr address = 0;
    uint64_t masked;
    if (cuMemAlloc_v2((CUdeviceptr *)&address, SIZE) != 0)
        abort();
    masked = address ^ MASK;
    address = 0;
    return masked;
}

static __attribute__((noinline, unused)) void put(volatile uint64_t *variable, uint64_t masked)
{
    *variable = masked ^ MASK;
}

/* Prints where the address is found. */
static __attribute__((noinline, unused)) void search(uint64_t masked)
{
    static char text[4096];
    uint64_t range[2] = {masked, SIZE};
    wipe();
    if (!cuguard_audit_search) {
        puts("the audit library is not loaded");
        exit(1);
    }
    if (cuguard_audit_search(range, 1, MASK, 60, text, sizeof text) < 0)
        exit(2);
    fputs(text, stdout);
    fflush(stdout);
}

static __attribute__((unused)) void start_driver(void)
{
    void *context;
    if (cuInit(0) != 0 || cuCtxCreate_v2(&context, 0, 0) != 0)
        exit(3);
}
