/* Stands for a library of the driver: allocates and frees for the program. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Not inlined and not tail calls: the return address must be in this library. */
#define RESULT(type, call) do { type result = (call); __asm__ volatile("" : "+r"(result)); return result; } while (0)

void *driver_malloc(size_t size) { RESULT(void *, malloc(size)); }
void *driver_calloc(size_t count, size_t size) { RESULT(void *, calloc(count, size)); }
void *driver_realloc(void *block, size_t size) { RESULT(void *, realloc(block, size)); }
void *driver_reallocarray(void *block, size_t count, size_t size) { RESULT(void *, reallocarray(block, count, size)); }
void *driver_memalign(size_t align, size_t size) { RESULT(void *, memalign(align, size)); }
void *driver_aligned_alloc(size_t align, size_t size) { RESULT(void *, aligned_alloc(align, size)); }
void *driver_valloc(size_t size) { RESULT(void *, valloc(size)); }
void *driver_pvalloc(size_t size) { RESULT(void *, pvalloc(size)); }
int driver_posix_memalign(void **block, size_t align, size_t size) { RESULT(int, posix_memalign(block, align, size)); }
size_t driver_usable(void *block) { RESULT(size_t, malloc_usable_size(block)); }
void driver_free(void *block) { free(block); __asm__ volatile(""); }
char *driver_strdup(const char *text) { RESULT(char *, strdup(text)); }

/* Variables of the driver, and a thread of the driver with an address on its stack. */
static volatile uint64_t variable;
static __thread volatile uint64_t thread_local_variable;
volatile uint64_t *driver_variable(void) { return &variable; }
volatile uint64_t *driver_thread_local(void) { return &thread_local_variable; }
static volatile int waiting, finished;
static void *wait_with_address(void *address)
{
    volatile uint64_t local = (uint64_t)(uintptr_t)address ^ 0x5a5a5a5a5a5a5a5aull;
    waiting = 1;
    while (!finished)
        __asm__ volatile("" : : : "memory");
    return (void *)(uintptr_t)(local & 0);
}
pthread_t driver_thread(uint64_t masked)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, wait_with_address, (void *)(uintptr_t)masked) != 0)
        abort();
    while (!waiting)
        ;
    return thread;
}
void driver_thread_end(pthread_t thread)
{
    finished = 1;
    pthread_join(thread, NULL);
}
