/* Modules and libraries of which the program keeps only a part: a function, a kernel, an address inside of a variable. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *Handle;
int cuInit(unsigned);
int cuCtxCreate_v2(Handle *, unsigned, int);
int cuModuleLoadData(Handle *, const void *);
int cuModuleUnload(Handle);
int cuModuleGetFunction(Handle *, Handle, const char *);
int cuModuleGetGlobal_v2(uint64_t *, size_t *, Handle, const char *);
int cuLibraryLoadData(Handle *, const void *, void *, void *, unsigned, void *, void *, unsigned);
int cuLibraryGetKernel(Handle *, Handle, const char *);
int cuLibraryGetModule(Handle *, Handle);
int cuKernelGetFunction(Handle *, Handle);

#define DO(call) do { int code = (call); if (code != 0) { printf("%s: %d\n", #call, code); exit(9); } } while (0)
#define APART static __attribute__((noinline))
static const char PTX[] = ".version 6.4\n.target sm_52\n.address_size 64\n.visible .global .align 4 .b8 table[64];\n"
                          ".visible .entry empty() { ret; }\n";

static volatile Handle context, function, kernel, kernel_function, module;
static volatile uint64_t variable;

APART Handle load(void) {
    Handle loaded;
    DO(cuModuleLoadData(&loaded, PTX));
    return loaded;
}

APART Handle load_library(void) {
    Handle loaded;
    DO(cuLibraryLoadData(&loaded, PTX, NULL, NULL, 0, NULL, NULL, 0));
    return loaded;
}

APART void by_function(void) { DO(cuModuleGetFunction((Handle *)&function, load(), "empty")); }

APART void by_variable(void) {
    size_t size;
    DO(cuModuleGetGlobal_v2((uint64_t *)&variable, &size, load(), "table"));
    if (size != 64) exit(8);
    variable += 60;
}

APART void by_kernel(void) { DO(cuLibraryGetKernel((Handle *)&kernel, load_library(), "empty")); }

APART void by_kernel_function(void) {
    Handle found;
    DO(cuLibraryGetKernel(&found, load_library(), "empty"));
    DO(cuKernelGetFunction((Handle *)&kernel_function, found));
}

APART void by_module(void) { DO(cuLibraryGetModule((Handle *)&module, load_library())); }

APART void lose_all(void) { load(); }

APART void lose_function(void) {
    Handle found;
    DO(cuModuleGetFunction(&found, load(), "empty"));
}

/* Its function is no part of what has the same handle afterwards. */
APART void unload(void) {
    Handle loaded = load(), found;
    DO(cuModuleGetFunction(&found, loaded, "empty"));
    DO(cuModuleUnload(loaded));
}

APART void clobber(void) {
    volatile char stack[65536];
    memset((void *)stack, 0, sizeof stack);
}

int main(void) {
    DO(cuInit(0));
    DO(cuCtxCreate_v2((Handle *)&context, 0, 0));
    by_function();
    by_variable();
    by_kernel();
    by_kernel_function();
    by_module();
    lose_all();
    lose_function();
    unload();
    clobber();
    return 0;
}
