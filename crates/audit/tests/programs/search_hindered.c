/* Holds the address of a block where something hinders the search, which the argument names, and prints where it is
   found. */
#define _GNU_SOURCE
#include "search.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

volatile uint64_t held;
static uint64_t masked_address;

static int is(const char *shape, const char *name) { return strcmp(shape, name) == 0; }

/* The system call fails from now on, as in a sandbox. */
static void forbid(int number)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        exit(4);
}

/* All file descriptors that the process may have are in use. */
static void use_descriptors(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 64;
    setrlimit(RLIMIT_NOFILE, &limit);
    while (open("/dev/null", O_RDONLY) >= 0)
        continue;
}

/* Waits until a thread is in this state. */
static void wait_for_state(int thread, char wanted)
{
    char path[64], text[512], *state = NULL;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    while (!state || state[2] != wanted) {
        int file = open(path, O_RDONLY);
        ssize_t length = read(file, text, sizeof text - 1);
        close(file);
        text[length > 0 ? length : 0] = 0;
        state = strrchr(text, ')');
        usleep(1000);
    }
}

/* The thread that is about to wait in a system call. */
static volatile int waiter;

/* Waits until it does. */
static void wait_for_waiter(void)
{
    while (!waiter)
        usleep(1000);
    wait_for_state(waiter, 'S');
}

/* Searches when the main thread is a zombie. */
static void *after_main(void *argument)
{
    (void)argument;
    wait_for_state(getpid(), 'Z');
    search(masked_address);
    exit(0);
}

static int ends[2];

/* Waits in a system call with the address in a register, and nowhere else. */
static void *wait_with_register(void *argument)
{
    sigset_t all;
    char byte;
    (void)argument;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    waiter = (int)syscall(SYS_gettid);
#if defined(__x86_64__)
    __asm__ volatile("mov %2, %%r13\n\txor %3, %%r13\n\txor %%eax, %%eax\n\tmov %0, %%edi\n\tmov %1, %%rsi\n\t"
                     "mov $1, %%edx\n\tsyscall\n\txor %%r13, %%r13"
                     : : "m"(ends[0]), "r"(&byte), "m"(masked_address), "r"(MASK)
                     : "r13", "rax", "rdi", "rsi", "rdx", "rcx", "r11", "memory");
#elif defined(__aarch64__)
    __asm__ volatile("ldr x20, %2\n\teor x20, x20, %3\n\tmov x8, #63\n\tldr w0, %0\n\tmov x1, %1\n\t"
                     "mov x2, #1\n\tsvc #0\n\tmov x20, xzr"
                     : : "m"(ends[0]), "r"(&byte), "m"(masked_address), "r"(MASK)
                     : "x20", "x8", "x0", "x1", "x2", "memory");
#endif
    return NULL;
}

static void with_register(void)
{
    pthread_t thread;
    if (pipe(ends) != 0)
        exit(6);
    pthread_create(&thread, NULL, wait_with_register, NULL);
    wait_for_waiter();
    search(masked_address);
    close(ends[1]);
    pthread_join(thread, NULL);
}

static volatile int received;
static sigset_t waited;

static void *wait_for_signals(void *argument)
{
    int signal = 0;
    (void)argument;
    pthread_sigmask(SIG_BLOCK, &waited, NULL);
    waiter = (int)syscall(SYS_gettid);
    if (sigwait(&waited, &signal) != 0)
        exit(7);
    received = signal;
    return NULL;
}

/* Searches while a thread waits for signals, and then has it wait for one. */
static void beside_sigwait(int all)
{
    pthread_t thread;
    sigemptyset(&waited);
    if (all)
        sigfillset(&waited);
    sigaddset(&waited, SIGTERM);
    pthread_create(&thread, NULL, wait_for_signals, NULL);
    wait_for_waiter();
    search(masked_address);
    usleep(20000);
    if (received)
        printf("the program got signal %d\n", received);
    pthread_kill(thread, SIGTERM);
    pthread_join(thread, NULL);
    printf("the program got signal %d\n", received);
}

/* The report is made on another thread, which cannot stop this one. */
static void exit_with_signals_blocked(void)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    wipe();
    exit(0);
}

int main(int count, char **arguments)
{
    const char *shape = count > 1 ? arguments[1] : "";
    start_driver();
    masked_address = allocate();
    if (count > 2)
        put(&held, masked_address);
    if (is(shape, "all descriptors used")) {
        use_descriptors();
        search(masked_address);
    } else if (is(shape, "no process_vm_readv")) {
        forbid(SYS_process_vm_readv);
        search(masked_address);
    } else if (is(shape, "no reading")) {
        forbid(SYS_process_vm_readv);
        forbid(SYS_pread64);
        search(masked_address);
    } else if (is(shape, "register of a thread that blocks signals")) {
        with_register();
    } else if (is(shape, "a thread waits for all signals")) {
        beside_sigwait(1);
    } else if (is(shape, "a thread waits for a signal")) {
        beside_sigwait(0);
    } else if (is(shape, "exit with signals blocked")) {
        exit_with_signals_blocked();
    } else if (is(shape, "main thread ended")) {
        pthread_t thread;
        pthread_create(&thread, NULL, after_main, NULL);
        /* Its stack stays, and is searched. */
        wipe();
        pthread_exit(NULL);
    } else {
        printf("no such shape: %s\n", shape);
        return 5;
    }
    return 0;
}
