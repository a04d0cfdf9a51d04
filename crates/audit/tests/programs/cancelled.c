/* Threads that are cancelled around calls of the driver. The first argument says where. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef unsigned long long CUdeviceptr;
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(CUdeviceptr *, size_t);
int cuMemFree_v2(CUdeviceptr);

#define CHECK(call) do { if ((call) != 0) exit(2); } while (0)

/* The first of the C library's own. */
#define SIGNAL_OF_CANCELLATION 32

static void *context;

static void set_up(void) {
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
}

static void allocate_and_free(void) {
    CUdeviceptr memory;
    CHECK(cuMemAlloc_v2(&memory, 4096));
    CHECK(cuMemFree_v2(memory));
}

/* Requests that end the thread at the next cancellation point. */
static void request_end(void) {
    pthread_cancel(pthread_self());
}

static void *first_use(void *unused) {
    (void)unused;
    request_end();
    set_up();
    allocate_and_free();
    pthread_testcancel();
    return NULL;
}

static void *refused(void *unused) {
    (void)unused;
    CHECK(cuCtxSetCurrent(context));
    request_end();
    CUdeviceptr memory;
    if (cuMemAlloc_v2(&memory, 1ull << 45) == 0) exit(3);
    allocate_and_free();
    pthread_testcancel();
    return NULL;
}

static void *report(void *unused) {
    (void)unused;
    request_end();
    int (*report)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "cuguard_audit_report");
    if (report && report() != 0) exit(4);
    pthread_testcancel();
    return NULL;
}

/* Cancelled at any instruction. */
static volatile int started;
static volatile pid_t thread_id;
static void *asynchronous(void *unused) {
    (void)unused;
    int before;
    thread_id = syscall(SYS_gettid);
    CHECK(cuCtxSetCurrent(context));
    allocate_and_free();
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before);
    started = 1;
    for (;;) {
        CUdeviceptr memory;
        cuMemAlloc_v2(&memory, 4096);
        cuMemFree_v2(memory);
    }
}

static void *end(void *unused) {
    (void)unused;
    request_end();
    exit(7);
}

static void expect_cancelled(pthread_t thread) {
    void *result = NULL;
    if (pthread_join(thread, &result) || result != PTHREAD_CANCELED) exit(5);
}

int main(int count, char **arguments) {
    const char *where = count > 1 ? arguments[1] : "";
    pthread_t thread;
    if (strcmp(where, "first use") != 0) set_up();
    /* `pthread_cancel` sends a signal, unless cancellation is disabled; it may be disabled before the signal arrives. */
    int by_signal = strcmp(where, "signal") == 0;
    if (by_signal || strcmp(where, "asynchronous") == 0) {
        for (int i = 0; i < 50; i++) {
            started = 0;
            pthread_create(&thread, NULL, asynchronous, NULL);
            while (!started) usleep(100);
            /* The first call installs the handler. */
            if (by_signal && i > 0) syscall(SYS_tgkill, getpid(), thread_id, SIGNAL_OF_CANCELLATION);
            else pthread_cancel(thread);
            expect_cancelled(thread);
        }
    } else if (strcmp(where, "exit") == 0) {
        pthread_create(&thread, NULL, end, NULL);
        for (;;) pause();
    } else {
        void *(*work)(void *) = strcmp(where, "first use") == 0 ? first_use : strcmp(where, "refused") == 0 ? refused : report;
        pthread_create(&thread, NULL, work, NULL);
        expect_cancelled(thread);
    }
    /* The library and the driver still work. */
    CHECK(cuCtxSetCurrent(context));
    allocate_and_free();
    puts("still works");
    return 0;
}
