/* Loads two libraries one after the other, the second where the first was, and allocates in each. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>

extern int cuInit(unsigned);
extern int cuDevicePrimaryCtxRetain(void **, int);
extern int cuCtxSetCurrent(void *);

static void *library;

static unsigned long __attribute__((noinline)) use_library(const char *path, size_t bytes) {
    library = dlopen(path, RTLD_NOW);
    if (library == NULL) exit(97);
    int (*allocate)(size_t) = (int (*)(size_t))dlsym(library, "allocate");
    struct link_map *map;
    if (allocate == NULL || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) exit(96);
    unsigned long base = map->l_addr;
    if (allocate(bytes) != 0) exit(95);
    return base;
}

int main(int argc, char **argv) {
    void *context;
    if (argc != 3 || cuInit(0) != 0) return 99;
    if (cuDevicePrimaryCtxRetain(&context, 0) != 0 || cuCtxSetCurrent(context) != 0) return 98;
    unsigned long first = use_library(argv[1], 1 << 20);
    if (dlclose(library) != 0) return 94;
    unsigned long second = use_library(argv[2], 2 << 20);
    puts(first == second ? "same" : "different");
    return 0;
}
