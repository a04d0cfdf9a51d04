/* Searches and ends with threads in signal handlers, on alternate stacks, in system calls. The argument names the shape. */
#define _GNU_SOURCE
#include "search.h"
#include <pthread.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

volatile uint64_t held;
static uint64_t masked_address;
static volatile int ready;

static int is(const char *shape, const char *name) { return strcmp(shape, name) == 0; }

static void wait_until_ready(void)
{
    while (!ready)
        usleep(1000);
    usleep(20000);
}

/* Sets an alternate stack with this much room besides the kernel's signal frame, above a page without access. */
static void set_small_stack(size_t room)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), frame = getauxval(AT_MINSIGSTKSZ);
    char *memory = mmap(NULL, 32 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t stack = {.ss_sp = memory + page, .ss_size = (frame ? frame : 2048) + room};
    if (mprotect(memory, page, PROT_NONE) != 0 || sigaltstack(&stack, NULL) != 0)
        exit(6);
}

static void *wait_on_small_stack(void *room)
{
    set_small_stack((size_t)room);
    ready = 1;
    while (ready)
        pause();
    return NULL;
}

static void wait_beside(void *(*function)(void *), void *argument)
{
    pthread_t thread;
    pthread_create(&thread, NULL, function, argument);
    wait_until_ready();
}

/* SIGTERM comes to the other thread. This one does not see it. */
static void end_by_signal(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    kill(getpid(), SIGTERM);
    sleep(50);
    puts("the main thread runs on");
    fflush(stdout);
    sleep(50);
}

static const char *in_handler;

static void on_signal(int signal)
{
    (void)signal;
    if (is(in_handler, "searches"))
        search(masked_address);
    else if (is(in_handler, "exits"))
        exit(0);
    ready = 1;
    while (is(in_handler, "waits"))
        pause();
}

/* Holds the address in a frame that a handler interrupts. Its alternate stack is an array in the frame of the caller. */
static __attribute__((noinline)) void hold_interrupted(void)
{
    volatile uint64_t local = 0;
    put(&local, masked_address);
    raise(SIGUSR1);
    local = 0;
}

static __attribute__((noinline)) void *handle_on_array(void *argument)
{
    char array[131072];
    stack_t stack = {.ss_sp = array, .ss_size = sizeof array};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    (void)argument;
    if (sigaltstack(&stack, NULL) != 0 || sigaction(SIGUSR1, &action, NULL) != 0)
        exit(6);
    hold_interrupted();
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, NULL);
    return NULL;
}

static void *run_code(void *code)
{
    ready = 1;
    ((void (*)(void))code)();
    return NULL;
}

/* Code without end that can be executed and not read, where the processor has protection keys. */
static void *execute_only(void)
{
    unsigned char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
#if defined(__x86_64__)
    /* nop, nop, nop, nop; jmp to the first. Not at the start of the page: the bytes in front of it are code, too. */
    code += 64;
    memcpy(code, "\x90\x90\x90\x90\xeb\xfa", 6);
#else
    /* b to itself */
    memcpy(code, "\x00\x00\x00\x14", 4);
#endif
    if (mprotect((void *)((uintptr_t)code & ~(uintptr_t)4095), 4096, PROT_EXEC) != 0)
        exit(6);
    __builtin___clear_cache((char *)code, (char *)code + 6);
    return code;
}

int main(int count, char **arguments)
{
    const char *shape = count > 1 ? arguments[1] : "";
    start_driver();
    masked_address = allocate();
    in_handler = count > 2 ? arguments[2] : "";
    if (is(shape, "small stack, search")) {
        wait_beside(wait_on_small_stack, (void *)(size_t)1024);
        search(masked_address);
    } else if (is(shape, "small stack, SIGTERM")) {
        wait_beside(wait_on_small_stack, (void *)(size_t)4096);
        end_by_signal();
    } else if (is(shape, "handler on an array")) {
        handle_on_array(NULL);
    } else if (is(shape, "another thread's handler on an array")) {
        wait_beside(handle_on_array, NULL);
        search(masked_address);
    } else if (is(shape, "execute-only code")) {
        wait_beside(run_code, execute_only());
        search(masked_address);
    } else {
        printf("no such shape: %s\n", shape);
        return 5;
    }
    return 0;
}
