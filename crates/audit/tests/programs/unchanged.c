/* Does what its argument says, and returns 0 where the library has changed nothing. Without one it frees plain memory on a
 * stream. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuCtxSynchronize(void);
int cuMemAlloc_v2(unsigned long long *, size_t);
int cuMemFreeAsync(unsigned long long, void *);

static void *context;
static unsigned long long memory;

static void require(int holds, const char *what)
{
    if (!holds) {
        printf("%s\n", what);
        fflush(stdout);
        _exit(3);
    }
}

static void use_driver(void)
{
    require(!cuInit(0) && !cuDevicePrimaryCtxRetain(&context, 0) && !cuCtxSetCurrent(context), "the driver");
}

static void set_limit(rlim_t bytes)
{
    struct rlimit limit;
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = bytes;
    require(setrlimit(RLIMIT_AS, &limit) == 0, "setrlimit");
}

/* What the process has of the address space. */
static rlim_t address_space(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    require(file && fscanf(file, "%lu", &pages) == 1, "statm");
    fclose(file);
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

static void *sleep_long(void *unused)
{
    for (;;) pause();
    return unused;
}

static int sleep_in_callback(struct dl_phdr_info *info, size_t size, void *ready)
{
    (void)info, (void)size;
    *(volatile int *)ready = 1;
    for (;;) pause();
    return 0;
}

static void *hold_lock(void *ready)
{
    dl_iterate_phdr(sleep_in_callback, ready);
    return NULL;
}

/* A handler of a signal that the program sends with an address. */
static void read_value(int signal, siginfo_t *info, void *unused)
{
    (void)signal, (void)unused;
    *(volatile int *)info->si_value.sival_ptr += 1;
}

/* A child kills this process if it hangs. */
static void watch(void)
{
    pid_t parent = getpid();
    if (fork() == 0) {
        for (int i = 0; i < 300 && getppid() == parent; i++) usleep(100 * 1000);
        if (getppid() == parent) kill(parent, SIGKILL);
        _exit(0);
    }
}

/* Waits for a SIGTERM of another process. */
static void be_terminated(void)
{
    pid_t parent = getpid();
    if (fork() == 0) {
        kill(parent, SIGTERM);
        _exit(0);
    }
    for (;;) pause();
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    watch();
#define IS(name) (strcmp(what, name) == 0)
    if (IS("limit")) {
        set_limit((rlim_t)4 << 30);
        void *block = malloc(64 << 20);
        require(block != NULL, "malloc");
        free(block);
        return 0;
    }
    if (IS("no thread")) {
        /* Less than the stack of the thread. */
        struct rlimit limit;
        getrlimit(RLIMIT_AS, &limit);
        set_limit(address_space() + (6 << 20));
        int code = cuInit(0);
        require(setrlimit(RLIMIT_AS, &limit) == 0 || limit.rlim_cur == RLIM_INFINITY, "setrlimit");
        set_limit(limit.rlim_max);
        require(code == 0, "cuInit");
        be_terminated();
    }
    use_driver();
    if (IS("")) {
        require(!cuMemAlloc_v2(&memory, 6 << 20) && !cuMemFreeAsync(memory, NULL) && !cuCtxSynchronize(), "cuMemFreeAsync");
        return 0;
    }
    if (IS("diagnosis in a file")) {
        close(2);
        require(open("data", O_RDWR | O_CREAT | O_TRUNC, 0600) == 2, "the descriptor");
        require(write(2, "DATA\n", 5) == 5, "write");
        require(cuMemAlloc_v2(&memory, (size_t)1 << 46) == 2, "out of memory");
        require(write(2, "MORE\n", 5) == 5, "write");
        return 0;
    }
    if (IS("diagnosis into a pipe")) {
        int ends[2];
        require(pipe(ends) == 0 && dup2(ends[1], 2) == 2, "pipe");
        close(ends[0]);
        close(ends[1]);
        require(cuMemAlloc_v2(&memory, (size_t)1 << 46) == 2, "out of memory");
        return 0;
    }
    if (IS("full pipe") || IS("full pipe that blocks")) {
        /* Nobody reads standard error. The diagnosis, the report and the reason that there is none have no room. */
        int ends[2];
        char bytes[4096] = {0};
        require(pipe(ends) == 0 && dup2(ends[1], 2) == 2, "pipe");
        fcntl(2, F_SETFL, fcntl(2, F_GETFL) | O_NONBLOCK);
        while (write(2, bytes, sizeof bytes) > 0)
            continue;
        if (IS("full pipe that blocks")) fcntl(2, F_SETFL, fcntl(2, F_GETFL) & ~O_NONBLOCK);
        require(cuMemAlloc_v2(&memory, (size_t)1 << 46) == 2, "out of memory");
        be_terminated();
    }
    if (IS("taken signal")) {
        pthread_t thread;
        struct sigaction action = {0};
        require(!pthread_create(&thread, NULL, sleep_long, NULL), "pthread_create");
        int (*report)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "cuguard_audit_report");
        if (report) report();
        /* Any real-time signal may be the one. */
        action.sa_sigaction = read_value;
        action.sa_flags = SA_SIGINFO;
        for (int signal = SIGRTMAX - 3; signal < SIGRTMAX; signal++)
            require(sigaction(signal, &action, NULL) == 0, "sigaction");
        return 0;
    }
    if (IS("locked")) {
        pthread_t thread;
        volatile int ready = 0;
        require(!pthread_create(&thread, NULL, hold_lock, (void *)&ready), "pthread_create");
        while (!ready) usleep(1000);
        be_terminated();
    }
    return 4;
}
