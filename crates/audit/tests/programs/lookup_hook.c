/* A preloaded library with a `dlsym` of its own, as some tools have them. */
#define _GNU_SOURCE
#include <dlfcn.h>

int looked_up;

void *dlsym(void *handle, const char *name) {
    static void *(*next)(void *, const char *);
    if (!next) next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", SYMBOL_VERSION);
    looked_up++;
    return next(handle, name);
}
