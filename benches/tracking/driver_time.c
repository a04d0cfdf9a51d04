// A driver that forwards to the real one and reports how long it took: for the section `threads` of the
// benchmark `tracking`, which shows with it how much of a pair is the driver's and how much is not.
//
//     cc -O2 -shared -fPIC -o libdriver_time.so benches/tracking/driver_time.c \
//         -Wl,--no-as-needed -l:libcuda.so.1
//     CUGUARD_DRIVER=./libdriver_time.so cargo bench --bench tracking -- threads
//
// What is not defined here, the loader finds in libcuda.so.1, which this library needs.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

typedef int (*Allocate)(unsigned long long *, unsigned long, void *);
typedef int (*Free)(unsigned long long, void *);
typedef int (*Init)(unsigned);

static Allocate allocate;
static Free release;
// Each thread has its own, so that counting does not slow others down.
static __thread unsigned long long inside;

__attribute__((constructor)) static void find(void) {
    allocate = (Allocate)dlsym(RTLD_NEXT, "cuMemAllocAsync");
    release = (Free)dlsym(RTLD_NEXT, "cuMemFreeAsync");
}

static unsigned long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

// A library without it is not taken for a driver.
int cuInit(unsigned flags) { return ((Init)dlsym(RTLD_NEXT, "cuInit"))(flags); }

// The nanoseconds that the calling thread has spent in the two functions.
unsigned long long driver_time(void) { return inside; }

int cuMemAllocAsync(unsigned long long *address, unsigned long bytes, void *stream) {
    unsigned long long start = now();
    int code = allocate(address, bytes, stream);
    inside += now() - start;
    return code;
}

int cuMemFreeAsync(unsigned long long address, void *stream) {
    unsigned long long start = now();
    int code = release(address, stream);
    inside += now() - start;
    return code;
}
