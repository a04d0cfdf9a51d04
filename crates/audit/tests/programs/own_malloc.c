/* A malloc that never frees: of a program, or with `-DLIBRARY` of a library. */
#include "search.h"
#include <errno.h>
#include <stdalign.h>

static alignas(64) unsigned char memory[256 << 20];
static size_t used;

static void *take(size_t align, size_t size)
{
    /* The size is in front. */
    size_t start = __atomic_fetch_add(&used, size + align + 32, __ATOMIC_RELAXED);
    unsigned char *block = memory + (start + 32 + align - 1) / align * align;
    if (start + size + align + 32 > sizeof memory) {
        errno = ENOMEM;
        return NULL;
    }
    ((size_t *)block)[-2] = size;
    return block;
}

void *malloc(size_t size) { return take(16, size); }
void free(void *block) { (void)block; }
void *calloc(size_t count, size_t size) { return take(16, count * size); }
void *aligned_alloc(size_t align, size_t size) { return take(align < 16 ? 16 : align, size); }
void *memalign(size_t align, size_t size) { return aligned_alloc(align, size); }
size_t malloc_usable_size(void *block) { return block ? ((size_t *)block)[-2] : 0; }

int posix_memalign(void **block, size_t align, size_t size)
{
    *block = aligned_alloc(align, size);
    return *block ? 0 : ENOMEM;
}

void *realloc(void *block, size_t size)
{
    void *moved = malloc(size);
    size_t old = malloc_usable_size(block);
    if (moved && block)
        memcpy(moved, block, old < size ? old : size);
    return moved;
}

#ifndef LIBRARY
volatile uint64_t variable;

int main(void)
{
    uint64_t masked;
    start_driver();
    masked = allocate();
    search(masked);
    put(&variable, masked);
    search(masked);
    return 0;
}
#endif
