/* Has a context on device 0 alone, and memory elsewhere. Does what each byte of its standard input says, with a line after each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long ptr;
/* CUmemPoolProps of the header. */
struct pool_props {
    int alloc_type, handle_types, location_type, location_id;
    void *security_attributes;
    size_t max_size;
    unsigned short usage;
    unsigned char reserved[54];
};
extern int cuInit(unsigned);
extern int cuDevicePrimaryCtxRetain(void **, int);
extern int cuCtxSetCurrent(void *);
extern int cuStreamCreate(void **, unsigned);
extern int cuStreamBeginCapture_v2(void *, int);
extern int cuStreamEndCapture(void *, void **);
extern int cuDeviceGetDefaultMemPool(void **, int);
extern int cuMemPoolCreate(void **, const struct pool_props *);
extern int cuMemAllocFromPoolAsync(ptr *, size_t, void *, void *);
extern int cuEventCreate(void **, unsigned);
extern int cuEventDestroy_v2(void *);
extern int cuMemCreate(ptr *, size_t, const void *, ptr);

static void *stream;

static void check(int code) {
    if (code != 0) exit(99);
}

static void from_pool(void *pool) {
    ptr memory;
    check(cuMemAllocFromPoolAsync(&memory, 4 << 20, pool, stream));
}

static void act(char byte) {
    void *pool, *event, *graph;
    struct pool_props props;
    /* CUmemAllocationProp: pinned memory of device 0. */
    int physical[8] = {1, 0, 1, 0};
    ptr handle;
    switch (byte) {
    case 'd':
        check(cuDeviceGetDefaultMemPool(&pool, 1));
        from_pool(pool);
        break;
    case 'h':
        memset(&props, 0, sizeof props);
        props.alloc_type = 1;
        props.location_type = 2;
        check(cuMemPoolCreate(&pool, &props));
        from_pool(pool);
        break;
    case 'c': check(cuStreamBeginCapture_v2(stream, 0)); break;
    case 'e': check(cuEventCreate(&event, 0)); check(cuEventDestroy_v2(event)); break;
    /* A capture allows physical memory: this is refused, and diagnosed. */
    case 'm': if (cuMemCreate(&handle, (size_t)1 << 50, physical, 0) != 2) exit(98); break;
    case 'C': check(cuStreamEndCapture(stream, &graph)); break;
    default: exit(97);
    }
}

int main(void) {
    void *context;
    check(cuInit(0));
    check(cuDevicePrimaryCtxRetain(&context, 0));
    check(cuCtxSetCurrent(context));
    check(cuStreamCreate(&stream, 1));
    printf("ready %d\n", getpid());
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) == 1) {
        act(byte);
        printf("done %c\n", byte);
        fflush(stdout);
    }
    return 0;
}
