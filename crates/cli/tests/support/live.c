/* Allocates, prints its process id, and runs until its standard input ends. The first argument is what else it does. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern int cuInit(unsigned);
extern int cuDevicePrimaryCtxRetain(void **, int);
extern int cuCtxSetCurrent(void *);
extern int cuMemAlloc_v2(unsigned long long *, size_t);

static void *context;
static unsigned long long kept;
static volatile sig_atomic_t handled;

static void check(int code) {
    if (code != 0) exit(99);
}

static void __attribute__((noinline)) hold(size_t bytes) {
    check(cuMemAlloc_v2(&kept, bytes));
}

static void __attribute__((noinline)) lose(size_t bytes) {
    unsigned long long memory;
    check(cuMemAlloc_v2(&memory, bytes));
    memory = 0;
}

static void __attribute__((noinline)) allocate(void) {
    check(cuInit(0));
    check(cuDevicePrimaryCtxRetain(&context, 0));
    check(cuCtxSetCurrent(context));
    lose(1 << 20);
    hold(3 << 20);
}

/* Overwrites what the calls have left on the stack. */
static void __attribute__((noinline)) clear_stack(void) {
    volatile char bytes[65536];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = 0;
}

static void on_signal(int signal) {
    (void)signal;
    handled = 1;
}

static void wait_for_end(void) {
    char byte;
    while (read(0, &byte, 1) == 1) {
        if (byte == 'a') hold(2 << 20);
        if (byte == 'u') allocate();
    }
}

static void *wait_in_thread(void *nothing) {
    wait_for_end();
    return nothing;
}

/* Of the program, whatever its name. */
static void *wait_with_name(void *nothing) {
    pthread_setname_np(pthread_self(), "cuguard-live");
    wait_for_end();
    puts("its thread ends");
    fflush(stdout);
    return nothing;
}

static void say_ready(void) {
    printf("ready %d\n", getpid());
    fflush(stdout);
}

/* As launchers of distributed jobs: asks the driver for devices, and starts a process with a rank. */
static int launch(char *program) {
    check(cuInit(0));
    pid_t child = fork();
    if (child == 0) {
        setenv("RANK", "0", 1);
        execl(program, program, (char *)NULL);
        _exit(98);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "launcher") == 0) return launch(argv[0]);
    const char *what = argc > 1 ? argv[1] : "";
#define IS(name) (strcmp(what, name) == 0)
    if (IS("own handler before")) signal(SIGUSR2, on_signal);
    if (IS("ignored")) signal(SIGUSR2, SIG_IGN);
    if (IS("blocked")) {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, NULL);
    }
    if (!IS("unused")) allocate();
    if (IS("out of memory")) {
        unsigned long long memory;
        if (cuMemAlloc_v2(&memory, 1ull << 50) != 2) return 95;
    }
    clear_stack();
    if (IS("own handler after")) signal(SIGUSR2, on_signal);
    if (IS("exec")) {
        execl(argv[0], argv[0], "after exec", (char *)NULL);
        return 98;
    }
    if (IS("fork")) {
        pid_t child = fork();
        if (child == 0) {
            printf("child %d\n", getpid());
            fflush(stdout);
            pause();
            _exit(97);
        }
        say_ready();
        int status;
        waitpid(child, &status, 0);
        printf("child ended by %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : -1);
        fflush(stdout);
        wait_for_end();
        return 0;
    }
    int files[64];
    if (IS("closes all")) {
        for (int fd = 3; fd < 256; fd++) close(fd);
        for (int i = 0; i < 64; i++) files[i] = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    }
    if (IS("main thread ends")) {
        pthread_t thread;
        pthread_create(&thread, NULL, wait_in_thread, NULL);
        say_ready();
        pthread_exit(NULL);
    }
    if (IS("main thread ends, a thread has our name")) {
        pthread_t thread;
        pthread_create(&thread, NULL, wait_with_name, NULL);
        say_ready();
        pthread_exit(NULL);
    }
    say_ready();
    wait_for_end();
    if (IS("closes all"))
        for (int i = 0; i < 64; i++)
            if (files[i] >= 0 && lseek(files[i], 0, SEEK_END) != 0) return 96;
    if (handled) printf("handled\n");
    return 0;
}
