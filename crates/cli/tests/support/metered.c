/* Uses two devices. Prints its process id, then does what each byte of its standard input says, with a line after each. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef unsigned long long ptr;
extern int cuInit(unsigned);
extern int cuDevicePrimaryCtxRetain(void **, int);
extern int cuCtxSetCurrent(void *);
extern int cuMemAlloc_v2(ptr *, size_t);
extern int cuMemFree_v2(ptr);
extern int cuMemAllocHost_v2(void **, size_t);
extern int cuMemAllocAsync(ptr *, size_t, void *);
extern int cuMemFreeAsync(ptr, void *);
extern int cuStreamCreate(void **, unsigned);
extern int cuDeviceGetDefaultMemPool(void **, int);
extern int cuMemPoolSetAttribute(void *, int, void *);
extern int cuMemPoolGetAttribute(void *, int, void *);

static void *contexts[2], *pool;
static ptr kept[16], ordered;
static int count;

static void check(int code) {
    if (code != 0) exit(99);
}

static void on(int device) {
    check(cuCtxSetCurrent(contexts[device]));
}

static void __attribute__((noinline)) load(size_t bytes) {
    check(cuMemAlloc_v2(&kept[count++], bytes));
}

static void __attribute__((noinline)) step(size_t bytes) {
    check(cuMemAllocAsync(&ordered, bytes, NULL));
}

static void act(char byte) {
    void *host, *stream;
    ptr memory, reserved, used;
    switch (byte) {
    case 'l': on(0); load(1 << 20); break;
    case 'f': on(0); check(cuMemFree_v2(kept[--count])); break;
    case 'o': on(1); step(2 << 20); break;
    case 'O': on(1); check(cuMemFreeAsync(ordered, NULL)); break;
    case 'h': on(0); check(cuMemAllocHost_v2(&host, 1 << 16)); break;
    case 's': on(1); check(cuStreamCreate(&stream, 0)); break;
    case 'r': on(1); if (cuMemAlloc_v2(&memory, 1ull << 50) != 2) exit(98); break;
    /* Changes nothing. */
    case 'n': on(0); check(cuMemFree_v2(0)); break;
    case 'q':
        check(cuMemPoolGetAttribute(pool, 5, &reserved));
        check(cuMemPoolGetAttribute(pool, 7, &used));
        printf("unused %llu\n", reserved - used);
        fflush(stdout);
        break;
    default: exit(97);
    }
}

int main(int argc, char **argv) {
    check(cuInit(0));
    for (int device = 0; device < 2; device++) check(cuDevicePrimaryCtxRetain(&contexts[device], device));
    ptr all = ~0ull;
    check(cuDeviceGetDefaultMemPool(&pool, 1));
    check(cuMemPoolSetAttribute(pool, 4, &all));
    on(0);
    printf("ready %d\n", getpid());
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) == 1) {
        act(byte);
        printf("done %c\n", byte);
        fflush(stdout);
    }
    return argc > 1 ? atoi(argv[1]) : 0;
}
