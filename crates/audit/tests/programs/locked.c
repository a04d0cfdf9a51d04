/* Calls the driver on a thread while another holds the dynamic linker's lock: in a constructor of a library, which waits for
 * that thread. Compiled twice: as the library (PLUGIN), and as the program that loads it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int cuInit(unsigned);
int cuMemAlloc_v2(unsigned long long *, size_t);
int cuMemFree_v2(unsigned long long);
int cuCtxSynchronize(void);

#ifdef PLUGIN
static void *call(void *what) {
    unsigned long long memory = 0;
    if (!strcmp(what, "report")) {
        cuMemAlloc_v2(&memory, 1000);
        return NULL;
    }
    /* As often as a thread looks for an interpreter, and more. */
    for (int i = 0; i < 20; i++) {
        if (cuMemAlloc_v2(&memory, 1000) || cuMemFree_v2(memory)) return (void *)1;
    }
    /* The driver starts a thread of its own, and waits for it. */
    return (void *)(long)cuCtxSynchronize();
}

static void __attribute__((constructor)) construct(void) {
    pthread_t thread;
    void *result = (void *)2;
    struct timespec until;
    char *what = getenv("WHAT");
    if (pthread_create(&thread, NULL, call, what)) return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    int code = pthread_timedjoin_np(thread, &result, &until);
    if (code || result) {
        printf("the thread has not returned: %d, %p\n", code, result);
        fflush(stdout);
        syscall(SYS_exit_group, 7);
    }
    int (*report)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "cuguard_audit_report");
    if (!strcmp(what, "report") && report) {
        alarm(20);
        printf("reported: %d\n", report());
        alarm(0);
    }
}
#else
int main(int argc, char **argv) {
    (void)argc;
    char *what = getenv("WHAT");
#ifdef LINKED
    unsigned long long memory = 0;
    if (strcmp(what, "first")) {
        if (cuInit(0) || cuMemAlloc_v2(&memory, 10) || cuMemFree_v2(memory)) return 1;
    }
#endif
    (void)what;
    if (!dlopen(argv[1], RTLD_NOW)) {
        puts(dlerror());
        return 2;
    }
    puts("loaded");
    return 0;
}
#endif
