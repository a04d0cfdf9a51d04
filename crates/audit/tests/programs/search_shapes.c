/* Holds the address of a block in one way, which the argument names, and prints where it is found. */
#define _GNU_SOURCE
#include "search.h"
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct record {
    int kind;
    struct record *next;
    volatile uint64_t memory;
};

volatile uint64_t exported_variable;
/* As a C++ compiler names `model::cache`. */
volatile uint64_t cpp_variable __asm__("_ZN5model5cacheE");
static volatile uint64_t array[8];
static struct record structure;
static __thread volatile uint64_t slot;
static struct record *volatile list;

static int is(const char *shape, const char *name) { return strcmp(shape, name) == 0; }
static int in_register(const char *shape) { return is(shape, "register") || is(shape, "vector register"); }

/* A second thread that holds the address. */
static pthread_barrier_t barrier, done;
static volatile uint64_t shared_masked;
static volatile int finished;
static const char *held_as;
/* The register has the address. */
static volatile int loaded;
static pthread_key_t key;

/* Leaves the address in a frame that ended, below what the calls that follow use. */
static __attribute__((noinline)) void leave_behind(uint64_t masked)
{
    volatile uint64_t frame[4096];
    put(&frame[8], masked);
    __asm__ volatile("" : : "r"(frame) : "memory");
}

static void *hold(void *argument)
{
    volatile uint64_t local = 0;
    struct record *blocks[32];
    int at;
    (void)argument;
    /* In the thread's own arena: the first block starts it. */
    for (at = 0; at < 32; at++)
        blocks[at] = malloc(at % 2 ? 5000 : 40);
    if (strstr(held_as, "heap of a thread"))
        for (at = 10; at < 30; at++)
            put(&blocks[at]->memory, shared_masked);
    if (is(held_as, "freed in the heap of a thread"))
        for (at = 10; at < 30; at++)
            free(blocks[at]);
    memset(blocks, 0, sizeof blocks);
    if (is(held_as, "stack of a thread") || is(held_as, "stack of a thread that blocks signals"))
        put(&local, shared_masked);
    if (strstr(held_as, "blocks signals")) {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, NULL);
    }
    if (is(held_as, "dead frame of a thread that blocks signals"))
        leave_behind(shared_masked);
    if (is(held_as, "thread-local of a thread"))
        put(&slot, shared_masked);
    if (is(held_as, "thread-specific"))
        pthread_setspecific(key, (void *)(uintptr_t)(shared_masked ^ MASK));
    pthread_barrier_wait(&barrier);
    if (is(held_as, "register")) {
        /* Spins with the address in a register, and nowhere else. */
#if defined(__x86_64__)
        __asm__ volatile("mov %1, %%r13\n\txor %2, %%r13\n\tmovl $1, %0\n1:\tpause\n\tcmpl $0, %3\n\tje 1b\n\txor %%r13, %%r13"
                         : "=m"(loaded) : "m"(shared_masked), "r"(MASK), "m"(finished) : "r13", "cc", "memory");
#elif defined(__aarch64__)
        __asm__ volatile("ldr x20, %1\n\teor x20, x20, %2\n\tmov w21, #1\n\tstr w21, %0\n1:\tyield\n\tldr w21, %3\n\t"
                         "cbz w21, 1b\n\tmov x20, xzr"
                         : "=m"(loaded) : "m"(shared_masked), "r"(MASK), "m"(finished) : "x20", "x21", "memory");
#endif
    } else if (is(held_as, "vector register")) {
#if defined(__x86_64__)
        __asm__ volatile("mov %1, %%r13\n\txor %2, %%r13\n\tmovq %%r13, %%xmm9\n\txor %%r13, %%r13\n\tmovl $1, %0\n"
                         "1:\tpause\n\tcmpl $0, %3\n\tje 1b\n\tpxor %%xmm9, %%xmm9"
                         : "=m"(loaded) : "m"(shared_masked), "r"(MASK), "m"(finished) : "r13", "xmm9", "cc", "memory");
#elif defined(__aarch64__)
        __asm__ volatile("ldr x20, %1\n\teor x20, x20, %2\n\tfmov d20, x20\n\tmov x20, xzr\n\tmov w21, #1\n\tstr w21, %0\n"
                         "1:\tyield\n\tldr w21, %3\n\tcbz w21, 1b\n\tmovi v20.2d, #0"
                         : "=m"(loaded) : "m"(shared_masked), "r"(MASK), "m"(finished) : "x20", "x21", "v20", "memory");
#endif
    } else {
        pthread_barrier_wait(&done);
    }
    local = 0;
    return NULL;
}

/* Searches in a child of fork, which has none of the other threads. */
static void search_in_child(uint64_t masked)
{
    int status = 1;
    pid_t child = fork();
    if (child == 0) {
        search(masked);
        _exit(0);
    }
    if (waitpid(child, &status, 0) != child || status != 0)
        exit(6);
}

static void end(pthread_t thread)
{
    finished = 1;
    if (!in_register(held_as))
        pthread_barrier_wait(&done);
    pthread_join(thread, NULL);
}

static void in_thread(const char *shape, int end_first, void (*look)(uint64_t))
{
    pthread_t thread;
    uint64_t masked = shared_masked = allocate();
    held_as = shape;
    pthread_key_create(&key, NULL);
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_barrier_init(&done, NULL, 2);
    pthread_create(&thread, NULL, hold, NULL);
    pthread_setname_np(thread, "holder");
    pthread_barrier_wait(&barrier);
    while (in_register(shape) && !loaded)
        usleep(1000);
    usleep(20000);
    if (end_first)
        end(thread);
    look(masked);
    if (!end_first)
        end(thread);
}

/* Has a child that shares this process's memory ended by a signal. */
static __attribute__((noinline)) void end_child(void)
{
    int status;
    pid_t child = vfork();
    if (child == 0) {
        kill(getpid(), SIGTERM);
        _exit(7);
    }
    if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status))
        exit(8);
}

/* Holds the address in a frame that is deeper than the handler of that signal. */
static __attribute__((noinline)) void search_deeper(uint64_t masked)
{
    volatile uint64_t frame[8192];
    put(&frame[8], masked);
    search(masked);
    frame[8] = 0;
}

/* Frees a holder, behind which another block keeps it from the end of the heap. */
static void freed(size_t size, int count)
{
    struct record *records[64], *behind;
    uint64_t masked = allocate();
    int at;
    for (at = 0; at < count; at++)
        records[at] = malloc(size);
    behind = malloc(size);
    for (at = 0; at < count; at++)
        put(&records[at]->memory, masked);
    for (at = 0; at < count; at++)
        free(records[at]);
    memset(records, 0, sizeof records);
    search(masked);
    free(behind);
}

int main(int count, char **arguments)
{
    const char *shape = count > 1 ? arguments[1] : "";
    uint64_t masked;
    start_driver();
    masked = allocate();
    if (is(shape, "only in the driver")) {
        search(masked);
    } else if (is(shape, "global")) {
        put(&exported_variable, masked);
        search(masked);
    } else if (is(shape, "global of C++")) {
        put(&cpp_variable, masked);
        search(masked);
    } else if (is(shape, "static array")) {
        put(&array[3], masked);
        search(masked);
    } else if (is(shape, "inside a struct")) {
        put(&structure.memory, masked);
        search(masked);
    } else if (is(shape, "interior")) {
        put(&exported_variable, masked);
        exported_variable += SIZE - 1;
        search(masked);
    } else if (is(shape, "behind the end")) {
        put(&exported_variable, masked);
        exported_variable += SIZE;
        search(masked);
    } else if (is(shape, "overwritten")) {
        put(&exported_variable, masked);
        exported_variable = allocate();
        search(masked);
    } else if (is(shape, "thread-local")) {
        put(&slot, masked);
        search(masked);
    } else if (is(shape, "heap")) {
        list = malloc(sizeof *list);
        put(&list->memory, masked);
        search(masked);
    } else if (is(shape, "large block")) {
        list = malloc(1 << 20);
        put(&list[1000].memory, masked);
        search(masked);
    } else if (is(shape, "anonymous mapping")) {
        list = mmap(NULL, 1 << 24, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        put(&list[100000].memory, masked);
        search(masked);
    } else if (is(shape, "shared memory")) {
        int file = memfd_create("table", 0);
        if (ftruncate(file, 1 << 16) != 0)
            return 4;
        list = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (list == MAP_FAILED)
            return 4;
        put(&list[100].memory, masked);
        search(masked);
    } else if (is(shape, "stack")) {
        volatile uint64_t local = 0;
        put(&local, masked);
        search(masked);
        local = 0;
    } else if (is(shape, "stack after a child was ended")) {
        end_child();
        search_deeper(masked);
    } else if (is(shape, "freed holder")) {
        freed(sizeof(struct record), 1);
    } else if (is(shape, "freed holders in fast bins")) {
        freed(48, 64);
    } else if (is(shape, "freed holder of 5000 bytes")) {
        freed(5000, 1);
    } else if (is(shape, "freed holders of 5000 bytes")) {
        freed(5000, 64);
    } else if (is(shape, "freed holder at the end of the heap")) {
        list = malloc(5000);
        put(&list[100].memory, masked);
        free(list);
        list = NULL;
        search(masked);
    } else if (is(shape, "freed large block")) {
        list = malloc(1 << 20);
        put(&list[1000].memory, masked);
        free(list);
        list = NULL;
        search(masked);
    } else if (is(shape, "in a child")) {
        put(&exported_variable, masked);
        search_in_child(masked);
    } else if (is(shape, "stack of a thread of the parent")) {
        in_thread("stack of a thread", 0, search_in_child);
    } else if (is(shape, "stack of a thread that ended")) {
        in_thread("stack of a thread", 1, search);
    } else if (is(shape, "stack of a thread") || is(shape, "thread-local of a thread") || in_register(shape) ||
               is(shape, "thread-specific") || is(shape, "heap of a thread") ||
               is(shape, "freed in the heap of a thread") || strstr(shape, "of a thread that blocks signals")) {
        in_thread(shape, 0, search);
    } else {
        printf("no such shape: %s\n", shape);
        return 5;
    }
    return 0;
}
