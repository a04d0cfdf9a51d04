/* Ends as its first argument says, after a call of the driver unless the name starts with "unused". */
#define _GNU_SOURCE
#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
extern int cuInit(unsigned);
extern int cuDevicePrimaryCtxRetain(void **, int);
extern int cuCtxSetCurrent(void *);
extern int cuMemAlloc_v2(unsigned long long *, size_t);
extern int cuMemFree_v2(unsigned long long);
extern int cuCtxSynchronize(void);

static void check(int code, const char *what) {
    if (code != 0) {
        fprintf(stderr, "%s failed with %d\n", what, code);
        exit(99);
    }
}

static void expect(int is, int wanted, const char *what) {
    if (is != wanted) {
        printf("%s: %d and not %d\n", what, is, wanted);
        fflush(stdout);
        _exit(98);
    }
}

static void use_driver(void) {
    check(cuInit(0), "cuInit");
}

static void *context;

/* Clears the stack below the caller's frame, and the registers that functions need not preserve. */
static void __attribute__((noinline)) clear_remains(void) {
    volatile char below[64 << 10];
    for (size_t i = 0; i < sizeof below; i++) below[i] = 0;
#ifdef __x86_64__
    __asm__ volatile("xor %%eax, %%eax; xor %%ecx, %%ecx; xor %%edx, %%edx; xor %%esi, %%esi; xor %%edi, %%edi\n"
                     "xor %%r8d, %%r8d; xor %%r9d, %%r9d; xor %%r10d, %%r10d; xor %%r11d, %%r11d\n"
                     "pxor %%xmm0, %%xmm0; pxor %%xmm1, %%xmm1; pxor %%xmm2, %%xmm2; pxor %%xmm3, %%xmm3\n"
                     "pxor %%xmm4, %%xmm4; pxor %%xmm5, %%xmm5; pxor %%xmm6, %%xmm6; pxor %%xmm7, %%xmm7\n"
                     "pxor %%xmm8, %%xmm8; pxor %%xmm9, %%xmm9; pxor %%xmm10, %%xmm10; pxor %%xmm11, %%xmm11\n"
                     "pxor %%xmm12, %%xmm12; pxor %%xmm13, %%xmm13; pxor %%xmm14, %%xmm14; pxor %%xmm15, %%xmm15"
                     ::: "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11");
#endif
}

/* The last address that was leaked. Masked, it is not found. */
static volatile unsigned long long masked;
#define MASK 0x5555555555555555ull

static void __attribute__((noinline)) allocate(size_t bytes) {
    volatile unsigned long long memory = 0;
    check(cuMemAlloc_v2((unsigned long long *)&memory, bytes), "cuMemAlloc");
    masked = memory ^ MASK;
    memory = 0;
}

/* Allocates on the first device, and forgets the address. The context is reachable. */
static void __attribute__((noinline)) leak(size_t bytes) {
    check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    allocate(bytes);
    clear_remains();
}

static void __attribute__((noinline)) fill_stack(void) {
    volatile unsigned long long below[8 << 10];
    for (size_t i = 0; i < sizeof below / sizeof *below; i++) below[i] = masked ^ MASK;
}

static void __attribute__((noinline)) fill_stack_below(void) {
    volatile char above[512];
    for (size_t i = 0; i < sizeof above; i++) above[i] = 0;
    fill_stack();
    for (size_t i = 0; i < sizeof above; i++) above[i] = 0;
}

/* Leaves the address everywhere below the frames of the program, as a call does that has returned. */
static void leave_remains(void) {
    fill_stack_below();
#ifdef __x86_64__
    __asm__ volatile("xor %%eax, %%eax; xor %%ecx, %%ecx; xor %%edx, %%edx" ::: "rax", "rcx", "rdx");
#endif
}

static unsigned long long alternate_stack[8 << 10];

/* On the stack of signal handlers, which the program is not on. */
static void leave_remains_on_alternate_stack(void) {
    stack_t stack = {.ss_sp = alternate_stack, .ss_size = sizeof alternate_stack};
    check(sigaltstack(&stack, NULL), "sigaltstack");
    for (size_t i = 0; i < sizeof alternate_stack / sizeof *alternate_stack; i++) alternate_stack[i] = masked ^ MASK;
    clear_remains();
}

/* The thread that does not return from its call, when it is about to make it. */
static volatile pid_t caller;

static int is_waiting(pid_t thread) {
    char name[64], text[256] = "";
    snprintf(name, sizeof name, "/proc/self/task/%d/stat", thread);
    FILE *file = fopen(name, "r");
    expect(file != NULL && fgets(text, sizeof text, file) != NULL, 1, "stat");
    fclose(file);
    return strstr(text, ") S ") != NULL;
}

/* Does not return from its call, which a library before the driver gets. */
static void *call_without_end(void *hold) {
    ((void (*)(unsigned long long))hold)(masked);
    void *own;
    check(cuDevicePrimaryCtxRetain(&own, 0), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(own), "cuCtxSetCurrent");
    caller = gettid();
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    return NULL;
}

static unsigned long long freed_late;

/* Runs with the destructors of all libraries, after exit handlers. */
static void __attribute__((destructor)) free_late(void) {
    if (freed_late) check(cuMemFree_v2(freed_late), "cuMemFree");
    freed_late = 0;
}

/* Leaks below so many frames. */
static int __attribute__((noinline)) leak_below(int frames) {
    if (frames == 0) {
        leak(1 << 20);
        return 0;
    }
    return leak_below(frames - 1) + 1;
}

static const char *self;

/* The exit code of a child, or 1000 + the signal. */
static int wait_for(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* A fork that the C library does not see. */
static pid_t system_fork(void) {
    return syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

/* A fork that runs no handlers of the C library, before 2.34 of the system's. */
static pid_t fork_without_handlers(void) {
    pid_t (*own)(void) = (pid_t (*)(void))dlsym(RTLD_DEFAULT, "_Fork");
    return own ? own() : system_fork();
}

/* A child that hangs, on a lock of a thread which it does not have, ends with this code. By a system call: no handler of
   an exit runs. */
enum { HANGS = 95, LONGEST = 60 };

static void too_long(int signal) {
    (void)signal;
    syscall(SYS_exit_group, HANGS);
}

static void own_handler(int signal) {
    (void)signal;
    _exit(5);
}

/* The flags of a handler in the kernel. */
static unsigned long kernel_flags(int signal) {
    struct { void *handler; unsigned long flags; void *restorer; unsigned long mask; } action = {0};
    expect(syscall(SYS_rt_sigaction, signal, NULL, &action, sizeof action.mask), 0, "rt_sigaction");
    return action.flags;
}

static void *exit_in_thread(void *code) {
    exit((int)(long)code);
}

static void *work(void *unused) {
    (void)unused;
    void *own;
    check(cuDevicePrimaryCtxRetain(&own, 0), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(own), "cuCtxSetCurrent");
    for (;;) {
        unsigned long long memory = 0;
        void *host = malloc(1000);
        check(cuMemAlloc_v2(&memory, 1000), "cuMemAlloc");
        check(cuMemFree_v2(memory), "cuMemFree");
        free(host);
    }
}

static void *end_later(void *unused) {
    (void)unused;
    usleep(50 * 1000);
    return NULL;
}

static void exit_at_once(void) {
    _exit(7);
}

static void be_terminated(void) {
    raise(SIGTERM);
}

static void *cancel(void *thread) {
    expect(pthread_cancel(*(pthread_t *)thread), 0, "pthread_cancel");
    return NULL;
}

static int exit_in_callback(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)info, (void)size, (void)unused;
    exit(28);
}

static int underscore_exit_in_callback(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)info, (void)size, (void)unused;
    _exit(29);
}

static void start_threads(void) {
    pthread_t thread;
    for (int i = 0; i < 4; i++) {
        pthread_create(&thread, NULL, work, NULL);
    }
    usleep(20 * 1000);
}

static pid_t spawn(const char *end) {
    pid_t child;
    char *arguments[] = {(char *)self, (char *)end, NULL};
    expect(posix_spawn(&child, self, NULL, NULL, arguments, environ), 0, "posix_spawn");
    return child;
}

int main(int argc, char **argv) {
    self = argv[0];
    const char *end = argc > 1 ? argv[1] : "";
#define IS(name) (strcmp(end, name) == 0)
    if (IS("unused")) return 3;
    if (IS("unused _exit")) _exit(3);
    if (IS("unused SIGTERM")) raise(SIGTERM);
    if (IS("unused exec")) execl(self, self, "return", (char *)NULL);
    if (IS("unused fork")) {
        /* The child alone uses the driver. */
        pid_t child = fork();
        if (child == 0) {
            use_driver();
            _exit(4);
        }
        expect(wait_for(child), 4, "child");
        return 3;
    }
    if (IS("unused _Fork") || IS("unused clone")) {
        /* The child alone uses the driver. No handler of fork has run in it. */
        pid_t child = IS("unused clone") ? system_fork() : fork_without_handlers();
        if (child == 0) {
            use_driver();
            leak(4096);
            exit(4);
        }
        expect(wait_for(child), 4, "child");
        child = fork_without_handlers();
        if (child == 0) exit(5);
        expect(wait_for(child), 5, "child");
        return 3;
    }
    if (IS("unused, outlived by a child")) {
        /* The child ends when standard input does. */
        int ready[2];
        char letter = 'x';
        expect(pipe(ready), 0, "pipe");
        if (fork() == 0) {
            use_driver();
            leak(4096);
            expect(write(ready[1], &letter, 1), 1, "write");
            expect(read(0, &letter, 1), 0, "read");
            exit(4);
        }
        close(ready[1]);
        expect(read(ready[0], &letter, 1), 1, "read");
        return 3;
    }
    if (IS("unused exec of many")) {
        for (int i = 0; i < 3; i++) {
            expect(wait_for(spawn("return")), 3, "child");
        }
        return 0;
    }
    if (IS("default is seen")) {
        /* The handler is not seen, and can be replaced, restored and ignored. */
        use_driver();
        struct sigaction old;
        sigaction(SIGTERM, NULL, &old);
        expect(old.sa_handler == SIG_DFL, 1, "sigaction shows the default");
        expect(signal(SIGTERM, own_handler) == SIG_DFL, 1, "signal shows the default");
        expect(signal(SIGTERM, SIG_IGN) == own_handler, 1, "signal shows a handler");
        raise(SIGTERM);
        expect(signal(SIGTERM, SIG_DFL) == SIG_IGN, 1, "signal shows that it is ignored");
        old.sa_handler = SIG_DFL;
        old.sa_flags = 0;
        sigaction(SIGTERM, &old, NULL);
        raise(SIGTERM);
    }
    use_driver();
    const char *last = argv[argc - 1];
    if (last[0] == '+') leak(1 << 20);
    if (strcmp(last, "+alternate stack") == 0) leave_remains_on_alternate_stack();
    if (strcmp(last, "+remains") == 0) leave_remains();
    if (IS("leak")) {
        leak(1 << 20);
        return 3;
    }
    if (IS("freed in a destructor") || IS("freed in an exit handler")) {
        leak(4096);
        check(cuMemAlloc_v2(&freed_late, 1 << 20), "cuMemAlloc");
        if (IS("freed in an exit handler")) {
            atexit(free_late);
            atexit(free_late);
        }
        return 3;
    }
    if (IS("illegal address")) {
        /* With a driver whose device has failed. */
        unsigned long long memory;
        leak(4096);
        check(cuMemAlloc_v2(&memory, 1 << 20), "cuMemAlloc");
        expect(cuCtxSynchronize(), 700, "cuCtxSynchronize");
        expect(cuMemFree_v2(memory), 700, "cuMemFree");
        return 27;
    }
    if (IS("leak deep down")) {
        leak_below(60);
        return 3;
    }
    if (IS("leak after output")) {
        leak(1 << 20);
        printf("printed");
        return 3;
    }
    if (IS("leak in children")) {
        leak(1 << 20);
        expect(wait_for(spawn("leak")), 3, "child");
        expect(wait_for(spawn("leak")), 3, "child");
        expect(wait_for(spawn("return")), 3, "child");
        return 4;
    }
    if (IS("forked use")) {
        /* The driver does not work in the child, which must not hang or report. */
        leak(4096);
        pid_t child = fork();
        if (child == 0) {
            unsigned long long memory = 0;
            int code = cuMemAlloc_v2(&memory, 4096);
            cuMemFree_v2(memory);
            exit(code);
        }
        expect(wait_for(child), 3, "child");
        return 26;
    }
    if (IS("_Fork") || IS("clone")) {
        /* Children without handlers of fork, of a process that uses the driver: they must neither hang nor report, and what
           they allocate is none of the parent's. */
        leak(4096);
        signal(SIGALRM, too_long);
        for (int kind = 0; kind < 6; kind++) {
            pid_t child = IS("clone") ? system_fork() : fork_without_handlers();
            if (child == 0) {
                alarm(LONGEST);
                unsigned long long memory = 0;
                if (kind == 0) exit(40);
                if (kind == 1) _exit(41);
                if (kind == 2) raise(SIGTERM);
                if (kind == 3) execl(self, self, "unused", (char *)NULL);
                /* Whether it works is the driver's affair. */
                cuMemAlloc_v2(&memory, 1 << 20);
                if (kind == 5) raise(SIGTERM);
                exit(44);
            }
            int codes[] = {40, 41, 1000 + SIGTERM, 3, 44, 1000 + SIGTERM};
            expect(wait_for(child), codes[kind], "child");
        }
        return 31;
    }
    if (IS("_Fork with threads")) {
        /* Other threads may hold any lock when the child is made. It may end, and execute another program. */
        start_threads();
        signal(SIGALRM, too_long);
        for (int i = 0; i < 60; i++) {
            pid_t child = fork_without_handlers();
            if (child == 0) {
                alarm(LONGEST);
                if (i % 3 == 0) execl(self, self, "unused", (char *)NULL);
                if (i % 3 == 1) raise(SIGTERM);
                _exit(3);
            }
            expect(wait_for(child), i % 3 == 1 ? 1000 + SIGTERM : 3, "child");
        }
        return 32;
    }
    if (IS("return")) return 3;
    if (IS("exit")) exit(4);
    if (IS("_exit")) _exit(5);
    if (IS("_Exit")) _Exit(6);
    if (IS("quick_exit")) quick_exit(7);
    if (IS("abort")) abort();
    if (IS("assert")) assert(argc == 77);
    if (IS("SIGTERM")) raise(SIGTERM);
    if (IS("SIGINT")) kill(getpid(), SIGINT);
    if (IS("SIGHUP")) raise(SIGHUP);
    if (IS("SIGPIPE")) raise(SIGPIPE);
    if (IS("SIGKILL")) raise(SIGKILL);
    /* Any signal by its number. */
    if (IS("signal")) raise(atoi(argv[2]));
    if (IS("own real-time signal")) {
        /* A handler of the program's own stays, and the default comes back. */
        expect(signal(SIGRTMIN + 3, own_handler) == SIG_DFL, 1, "signal shows the default");
        raise(SIGRTMIN + 3);
    }
    if (IS("own handler")) {
        signal(SIGTERM, own_handler);
        raise(SIGTERM);
    }
    if (IS("ignored")) {
        signal(SIGTERM, SIG_IGN);
        raise(SIGTERM);
        return 8;
    }
    if (IS("SIGTERM with threads")) {
        start_threads();
        kill(getpid(), SIGTERM);
        pause();
    }
    if (IS("wait")) {
        start_threads();
        printf("ready\n");
        fflush(stdout);
        for (;;) pause();
    }
    if (IS("exit with threads")) {
        start_threads();
        exit(9);
    }
    if (IS("exit while another calls")) {
        pthread_t thread;
        pthread_create(&thread, NULL, call_without_end, dlsym(RTLD_DEFAULT, "hold"));
        while (caller == 0 || !is_waiting(caller)) usleep(1000);
        exit(11);
    }
    if (IS("exit in a thread")) {
        pthread_t thread;
        pthread_create(&thread, NULL, exit_in_thread, (void *)10L);
        for (;;) pause();
    }
    if (IS("pthread_exit")) {
        pthread_t thread;
        pthread_create(&thread, NULL, end_later, NULL);
        pthread_exit(NULL);
    }
    if (IS("main is cancelled")) {
        pthread_t thread, self_thread = pthread_self();
        pthread_create(&thread, NULL, end_later, NULL);
        pthread_create(&thread, NULL, cancel, &self_thread);
        for (;;) pause();
    }
    if (IS("main is not cancelled")) {
        /* Cancellation is disabled, and the other threads have ended. */
        pthread_t thread, self_thread = pthread_self();
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
        pthread_create(&thread, NULL, cancel, &self_thread);
        pthread_join(thread, NULL);
        usleep(200 * 1000);
        return 3;
    }
    /* With a lock of the dynamic linker held. */
    if (IS("exit in a callback")) dl_iterate_phdr(exit_in_callback, NULL);
    if (IS("_exit in a callback")) dl_iterate_phdr(underscore_exit_in_callback, NULL);
    if (IS("exit in a constructor")) dlopen(argv[2], RTLD_NOW);
    if (IS("_exit while exiting")) {
        atexit(exit_at_once);
        exit(1);
    }
    if (IS("SIGTERM while exiting")) {
        atexit(be_terminated);
        exit(1);
    }
    if (IS("exec")) {
        char *arguments[] = {(char *)self, "unused", NULL};
        execv(self, arguments);
    }
    if (IS("exec of a user")) execl(self, self, "return", (char *)NULL);
    if (IS("execlp")) execlp("sh", "sh", "-c", "exit $0$1$2$3$4$5$6", "1", "2", "", "", "", "", "", (char *)NULL);
    if (IS("execle")) {
        char *environment[] = {"CODE=13", NULL};
        execle("/bin/sh", "sh", "-c", "exit $CODE", (char *)NULL, environment);
    }
    if (IS("execvp")) {
        char *arguments[] = {"sh", "-c", "exit 14", NULL};
        execvp("sh", arguments);
    }
    if (IS("exec of nothing")) {
        execl("/does/not/exist", "x", (char *)NULL);
        expect(errno, ENOENT, "errno");
        execlp("does-not-exist", "x", (char *)NULL);
        expect(errno, ENOENT, "errno");
        return 15;
    }
    if (IS("exec of a folder")) {
        execl("/", "x", (char *)NULL);
        expect(errno, EACCES, "errno");
        return 15;
    }
    if (IS("exec of no program")) {
        /* Executable by its mode, and no program. */
        char name[] = "/tmp/cuguard-ends-XXXXXX";
        int file = mkstemp(name);
        expect(write(file, "\177ELF nothing", 12), 12, "write");
        fchmod(file, 0700);
        close(file);
        char *arguments[] = {name, NULL};
        execve(name, arguments, environ);
        expect(errno, ENOEXEC, "errno");
        unlink(name);
        return 16;
    }
    if (IS("fork")) {
        /* The child does not use the driver. */
        pid_t child = fork();
        if (child == 0) exit(4);
        expect(wait_for(child), 4, "child");
        child = fork();
        if (child == 0) raise(SIGTERM);
        expect(wait_for(child), 1000 + SIGTERM, "child");
        return 17;
    }
    if (IS("default is restored")) {
        unsigned long flags = kernel_flags(SIGTERM);
        expect(flags != 0, 1, "there is a handler");
        for (int i = 0; i < 4; i++) {
            sighandler_t (*set)(int, sighandler_t) = ((sighandler_t(*[])(int, sighandler_t)){signal, ssignal, sysv_signal, sigset})[i];
            expect(set(SIGTERM, own_handler) == SIG_DFL, 1, "it shows the default");
            expect(set(SIGTERM, SIG_DFL) == own_handler, 1, "it shows a handler");
            expect(kernel_flags(SIGTERM), flags, "the flags");
            expect(set(SIGTERM, SIG_DFL) == SIG_DFL, 1, "it shows the default");
            expect(set(SIGSEGV, SIG_DFL) == SIG_DFL, 1, "it shows the default");
            expect(kernel_flags(SIGSEGV) & SA_SIGINFO, 0, "no handler of a crash");
            expect(set(1000, SIG_DFL) == SIG_ERR, 1, "there is no such signal");
            expect(errno, EINVAL, "errno");
        }
        /* Blocks a signal, and restores its disposition and the mask. */
        sigset_t mask;
        expect(sigset(SIGTERM, SIG_HOLD) == SIG_DFL, 1, "sigset shows the default");
        expect(sigset(SIGTERM, SIG_HOLD) == SIG_HOLD, 1, "sigset shows that it is blocked");
        expect(sigset(SIGTERM, SIG_DFL) == SIG_HOLD, 1, "sigset shows that it is blocked");
        sigprocmask(SIG_BLOCK, NULL, &mask);
        expect(sigismember(&mask, SIGTERM), 0, "not blocked");
        expect(kernel_flags(SIGTERM), flags, "the flags");
        raise(SIGTERM);
    }
    if (IS("vfork")) {
        pid_t child = vfork();
        if (child == 0) _exit(4);
        expect(wait_for(child), 4, "child");
        child = vfork();
        if (child == 0) {
            execl(self, self, "unused", (char *)NULL);
            _exit(97);
        }
        expect(wait_for(child), 3, "child");
        return 18;
    }
    if (IS("children")) {
        /* Two children that use the driver, by different ways; and one that does not. */
        pid_t child = fork();
        if (child == 0) execl(self, self, "_exit", (char *)NULL);
        expect(wait_for(child), 5, "child");
        expect(wait_for(spawn("SIGTERM")), 1000 + SIGTERM, "child");
        expect(wait_for(spawn("unused")), 3, "child");
        int status = system("exit 6");
        expect(WEXITSTATUS(status), 6, "system");
        return 19;
    }
    if (IS("close all")) {
        for (int i = 0; i < 1000; i++) close(i);
        return 20;
    }
    if (IS("other file as stderr")) {
        close(2);
        expect(open(argv[2], O_RDWR | O_CREAT, 0600), 2, "open");
        return 21;
    }
    if (IS("log as stderr")) {
        if (!freopen(argv[2], "w", stderr)) return 97;
        return 22;
    }
    if (IS("chdir")) {
        expect(chdir("/"), 0, "chdir");
        return 23;
    }
    if (IS("stdio")) {
        /* Not flushed by the program. */
        printf("printed");
        return 24;
    }
    if (IS("setenv")) {
        setenv("LEAK_REPORT", "0", 1);
        return 25;
    }
    printf("unknown end %s\n", end);
    return 97;
}
