// A program that knows nothing of CUDA and loads a library that leaks.
#include <dlfcn.h>

#include "expect.h"

int main(void) {
    void *library = dlopen("libleaky_library.so", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(99);
    }
    ((void (*)(int))dlsym(library, "leaky_open"))(3);
    clobber_stack();
    expect_memory(LOST, "device", 3, 3 * MIB);
    expected("\"mentions\": [\"leaky::load_model\", \"libleaky_library.so\"]");
    return 0;
}
