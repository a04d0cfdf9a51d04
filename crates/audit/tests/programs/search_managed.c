/* Holds the address of a block of device memory in managed memory, in the way that the argument names. */
#include "search.h"
#include <sys/mman.h>

#define MIB (1 << 20)

int cuCtxDestroy_v2(void *);
int cuMemAllocManaged(CUdeviceptr *, size_t, unsigned);
/* Found only where the audit library is preloaded. */
int cuguard_audit_report(void) __attribute__((weak));

volatile uint64_t held;

static int is(const char *shape, const char *name) { return strcmp(shape, name) == 0; }

/* Allocates managed memory. Its address stays in no variable. */
static __attribute__((noinline)) uint64_t allocate_managed(size_t size)
{
    volatile CUdeviceptr address = 0;
    uint64_t masked;
    if (cuMemAllocManaged((CUdeviceptr *)&address, size, 1) != 0)
        abort();
    masked = address ^ MASK;
    address = 0;
    return masked;
}

/* Writes an address into a word of a block. */
static __attribute__((noinline)) void put_into(uint64_t masked_block, size_t word, uint64_t masked)
{
    put((volatile uint64_t *)(uintptr_t)(masked_block ^ MASK) + word, masked);
}

static __attribute__((noinline)) void forbid_reading(uint64_t masked_block, size_t size)
{
    if (mprotect((void *)(uintptr_t)(masked_block ^ MASK), size, PROT_NONE) != 0)
        exit(4);
}

static __attribute__((noinline)) void unmap(uint64_t masked_block, size_t size)
{
    if (munmap((void *)(uintptr_t)(masked_block ^ MASK), size) != 0)
        exit(10);
}

/* All of the host memory that is available. */
static size_t available(void)
{
    char line[256];
    size_t kibibytes = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && fgets(line, sizeof line, file) && sscanf(line, "MemAvailable: %zu", &kibibytes) != 1)
        continue;
    if (kibibytes == 0)
        exit(6);
    fclose(file);
    return kibibytes << 10;
}

int main(int count, char **arguments)
{
    const char *shape = count > 1 ? arguments[1] : "";
    uint64_t device, first, second;
    void *other = NULL;
    start_driver();
    device = allocate();
    if (is(shape, "destroyed") && cuCtxCreate_v2(&other, 0, 0) != 0)
        return 8;
    first = allocate_managed(is(shape, "too large") ? available() : 3 * MIB + 24);
    if (!strstr(shape, "lost"))
        put(&held, first);
    if (is(shape, "held") || is(shape, "lost") || is(shape, "too large")) {
        put_into(first, 1, device);
    } else if (is(shape, "destroyed")) {
        put_into(first, 1, device);
        if (cuCtxDestroy_v2(other) != 0)
            return 9;
    } else if (is(shape, "on demand")) {
        put_into(first, 1, device);
        wipe();
        if (!cuguard_audit_report || cuguard_audit_report() != 0)
            return 7;
        /* What the report at the end finds. */
        held = 0;
    } else if (is(shape, "last word")) {
        put_into(first, (3 * MIB + 16) / 8, device);
    } else if (is(shape, "chain")) {
        second = allocate_managed(MIB);
        put_into(first, 77, second);
        put_into(second, 5, device);
        /* It does not hold itself. */
        put_into(second, 6, second);
    } else if (is(shape, "list")) {
        uint64_t last = first;
        /* Too large for gaps between mappings of the dynamic linker, which has addresses of their borders. */
        for (int node = 0; node < 100; node++) {
            uint64_t next = allocate_managed(MIB / 2);
            put_into(last, 8, next);
            last = next;
        }
        put_into(last, 8, device);
    } else if (is(shape, "lost cycle")) {
        second = allocate_managed(MIB);
        put_into(first, 1, second);
        put_into(second, 1, first);
        put_into(second, 2, device);
    } else if (is(shape, "two blocks")) {
        second = allocate_managed(MIB);
        put_into(second, 1, device);
    } else if (is(shape, "unreadable") || is(shape, "unreadable and lost")) {
        put_into(first, 1, device);
        forbid_reading(first, 4096);
    } else if (is(shape, "unmapped")) {
        put_into(first, 1, device);
        /* Small, so that hardly a new mapping has these addresses. */
        unmap(first, 4096);
    } else {
        printf("no such shape: %s\n", shape);
        return 5;
    }
    wipe();
    return 0;
}
