/* What the dynamic linker finds, before and after the driver is loaded. Prints the same with and without the audit library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const char *const NAMES[] = {"cuInit",        "cuMemAlloc_v2",   "cuGetProcAddress_v2", "cuDriverGetVersion",
                                    "cuMemAllocBad", "cuTexObjectCreate", "cuGreenCtxCreate",  "cublasCreate_v2",
                                    "cu",            "",                "malloc",              "no_such_name"};

static void look(const char *where, void *handle) {
    for (unsigned i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        dlerror();
        void *found = dlsym(handle, NAMES[i]);
        const char *error = dlerror();
        /* The message names the library that was searched. */
        printf("%s %s: %s, %s\n", where, NAMES[i], found ? "found" : "not found",
               error ? strstr(error, "undefined symbol") : "no error");
    }
}

int main(void) {
    look("default", RTLD_DEFAULT);
    look("next", RTLD_NEXT);
    look("program", dlopen(NULL, RTLD_NOW));
    void *libc = dlopen("libc.so.6", RTLD_NOW);
    look("libc", libc);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    look("driver", driver);
    /* In no global scope. */
    look("default", RTLD_DEFAULT);
    look("next", RTLD_NEXT);
    look("libc", libc);
    dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    look("global default", RTLD_DEFAULT);
    look("global next", RTLD_NEXT);
    look("global program", dlopen(NULL, RTLD_NOW));
    /* A message that was there before a lookup that succeeds. */
    dlsym(libc, "no_such_name");
    dlsym(driver, "cuMemAlloc_v2");
    printf("%s\n", dlerror() ? "error" : "no error");
    return 0;
}
