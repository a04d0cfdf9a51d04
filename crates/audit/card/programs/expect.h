// What the programs share: an address that is certainly lost or certainly held, and the line that says what
// the report must contain. No address is ever printed: it would stay in a buffer of stdio.
#ifndef EXPECT_H
#define EXPECT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB 1024L
#define MIB (1024L * 1024L)

// A function with a stack frame of its own, which ends before the address is searched for.
#define APART __attribute__((noinline, unused))

// Overwrites a variable that held an address. The compiler cannot leave the store out.
#define FORGET(variable)                                             \
    do {                                                             \
        memset((void *)&(variable), 0, sizeof(variable));            \
        __asm__ volatile("" : : "r"(&(variable)) : "memory");        \
    } while (0)

// Overwrites the stack below the caller's frame, where functions that returned have left copies, and the registers that
// a call does not preserve.
static APART void clobber_stack(void) {
    char dead[256 * 1024];
    memset(dead, 0, sizeof dead);
    __asm__ volatile("" : : "r"(dead) : "memory");
#ifdef __x86_64__
    __asm__ volatile("xor %%eax, %%eax; xor %%ecx, %%ecx; xor %%edx, %%edx; xor %%esi, %%esi; xor %%edi, %%edi;"
                     "xor %%r8d, %%r8d; xor %%r9d, %%r9d; xor %%r10d, %%r10d; xor %%r11d, %%r11d"
                     : : : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "cc");
    if (__builtin_cpu_supports("avx"))
        __asm__ volatile("vzeroall"
                         : : : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
                               "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
#endif
}

// The expectation: amounts of memory by fate, and amounts of memory and handles by kind.
enum fate { LOST, REACHABLE, DESTROYED, FATES };
static struct { long count, bytes; } expected_fates[FATES];
static struct { const char *name; long count, bytes; } expected_kinds[16];
static int expected_kind_count;

static inline void expect_kind(const char *kind, long count, long bytes) {
    int index = 0;
    while (index < expected_kind_count && strcmp(expected_kinds[index].name, kind) != 0)
        index++;
    if (index == expected_kind_count)
        expected_kinds[expected_kind_count++].name = kind;
    expected_kinds[index].count += count;
    expected_kinds[index].bytes += bytes;
}

static inline void expect_memory(enum fate fate, const char *kind, long count, long bytes) {
    expected_fates[fate].count += count;
    expected_fates[fate].bytes += bytes;
    expect_kind(kind, count, bytes);
}

// Prints the expectation as one line of JSON, through a static buffer: one from `malloc` may be the chunk that a program
// freed with an address in it, which would be in use again. `more` is further members, such as `"reports": 2`, or "".
static inline void expected(const char *more) {
    static const char *const names[FATES] = {"lost", "reachable", "destroyed"};
    static char buffer[4096];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    printf("{");
    for (int fate = 0; fate < FATES; fate++)
        printf("\"%s\": {\"count\": %ld, \"bytes\": %ld}, ", names[fate], expected_fates[fate].count,
               expected_fates[fate].bytes);
    printf("\"kinds\": {");
    for (int kind = 0; kind < expected_kind_count; kind++)
        printf("%s\"%s\": {\"count\": %ld, \"bytes\": %ld}", kind ? ", " : "", expected_kinds[kind].name,
               expected_kinds[kind].count, expected_kinds[kind].bytes);
    printf("}%s%s}\n", *more ? ", " : "", more);
    fflush(stdout);
}

// The program could not do what its report is compared for: exit code 99 is never a finding.
#define MUST(call, success)                                                              \
    do {                                                                                 \
        int result_ = (int)(call);                                                       \
        if (result_ != (int)(success)) {                                                 \
            fprintf(stderr, "%s:%d: %s returned %d\n", __FILE__, __LINE__, #call, result_); \
            exit(99);                                                                    \
        }                                                                                \
    } while (0)

// The program cannot run on this machine, which is said and not counted as a success.
static inline void skip(const char *reason) {
    printf("{\"skip\": \"%s\"}\n", reason);
    fflush(stdout);
    exit(0);
}

#endif
