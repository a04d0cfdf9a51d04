#define WAY 2
#include "driver.h"
#include <signal.h>

int main(int count, char **arguments) {
    Handle context;
    CUdeviceptr memory;
    load_driver();
    /* Functions of the C library that the audit library stands before. */
    if (signal(SIGUSR2, SIG_IGN) == SIG_ERR || signal(SIGUSR2, SIG_DFL) != SIG_IGN) return 5;
    DO(cuInit(0));
    DO(cuCtxCreate_v2(&context, 0, 0));
    DO(cuMemAlloc_v2(&memory, 100));
    if (count == 1) LIVE("device", 1, 100);
    DO(cuMemFree_v2(memory));
    if (count == 1) LIVE("device", 0, 0);
    int *looked_up = dlsym(RTLD_DEFAULT, "looked_up");
    if (!looked_up || *looked_up == 0) return 6;
    (void)arguments;
    printf("%d checks passed\n", checks);
    return 0;
}
