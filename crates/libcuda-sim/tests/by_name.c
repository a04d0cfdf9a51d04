/* A C program that looks up every function by name, as programs do that are not linked against the
 * driver: the library with dlopen, cuGetProcAddress with dlsym, the rest with that. */

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef int CUresult;
typedef CUresult Init(unsigned flags);
typedef CUresult DeviceGetCount(int *count);
typedef CUresult GetProcAddress(const char *name, void **function, int version,
                                unsigned long long flags);
typedef CUresult GetProcAddress2(const char *name, void **function, int version,
                                 unsigned long long flags, unsigned *status);

static void check(int truth, const char *what) {
    if (!truth) {
        fprintf(stderr, "not so: %s\n", what);
        exit(1);
    }
}
#define CHECK(truth) check(truth, #truth)

/* Calls cuInit, which must be the library's own, and then another function. */
static void start(void *library, void *init, void *count) {
    int devices = 0;
    CHECK(init == dlsym(library, "cuInit"));
    CHECK(count != NULL);
    CHECK(((DeviceGetCount *)count)(&devices) == 3); /* not initialized */
    CHECK(((Init *)init)(0) == 0);
    CHECK(((DeviceGetCount *)count)(&devices) == 0);
    CHECK(devices == 1);
}

int main(int argc, char **argv) {
    int newer = argc > 1 && argv[1][0] == '2';
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    GetProcAddress *first;
    GetProcAddress2 *second;
    void *init = NULL, *count = NULL, *again = NULL;
    unsigned status = 99;
    CHECK(library != NULL);
    first = (GetProcAddress *)dlsym(library, "cuGetProcAddress");
    second = (GetProcAddress2 *)dlsym(library, "cuGetProcAddress_v2");
    CHECK(first != NULL);
    CHECK(second != NULL);

    if (newer) {
        CHECK(second("cuInit", &init, 12000, 0, &status) == 0);
        CHECK(status == 0);
        CHECK(second("cuDeviceGetCount", &count, 12000, 0, NULL) == 0);
        /* Without a version suffix it is the one of the requested version. */
        CHECK(second("cuGetProcAddress", &again, 12000, 0, &status) == 0);
        CHECK(again == (void *)second);
        CHECK(second("cuGetProcAddress", &again, 11030, 0, &status) == 0);
        CHECK(again == (void *)first);
        /* Unknown: success, null, and a status. */
        again = library;
        CHECK(second("nonsense", &again, 12000, 0, &status) == 0);
        CHECK(status == 1 && again == NULL);
        again = library;
        CHECK(second("cuMemAllocAsync", &again, 2000, 0, &status) == 0);
        CHECK(status == 2 && again == NULL);
        CHECK(second("nonsense", &again, 12000, 0, NULL) == 0);
        status = 99;
        CHECK(second(NULL, &again, 12000, 0, &status) == 1); /* invalid value */
        CHECK(second("cuInit", NULL, 12000, 0, &status) == 1);
        CHECK(second("nonsense", NULL, 12000, 0, &status) == 1);
        CHECK(status == 99);
        /* Every function is the one that the library exports. */
        CHECK(second("cuMemAlloc", &again, 12000, 0, &status) == 0);
        CHECK(again == dlsym(library, "cuMemAlloc_v2"));
        CHECK(second("cuMemcpyAsync", &again, 12000, 2, &status) == 0);
        CHECK(again == dlsym(library, "cuMemcpyAsync_ptsz"));
    } else {
        CHECK(first("cuInit", &init, 11030, 0) == 0);
        CHECK(first("cuGetProcAddress", &again, 11030, 0) == 0);
        CHECK(again == (void *)first);
        CHECK(((GetProcAddress *)again)("cuDeviceGetCount", &count, 11030, 0) == 0);
        again = library;
        CHECK(first("nonsense", &again, 11030, 0) == 500); /* not found */
        CHECK(again == library);                           /* nothing is written */
        CHECK(first(NULL, &again, 11030, 0) == 1); /* invalid value */
        CHECK(first("cuInit", NULL, 11030, 0) == 1);
    }
    start(library, init, count);
    printf("all functions were found by name\n");
    return 0;
}
