/* An address in blocks of the heap: which of them the program can reach, and how. The argument is the shape. */
extern "C" {
#include "search.h"
int cuLaunchHostFunc(void *, void (*)(void *), void *);
int cuStreamCreate(void **, unsigned);
int cuStreamSynchronize(void *);
}
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <time.h>

struct Node {
    Node *next, *other;
    volatile uint64_t memory;
};

struct Model {
    volatile uint64_t memory = 0;
    virtual ~Model() {}
};

static Node *volatile head;
static Node **volatile table;
static Model *volatile model;
static volatile uint64_t *volatile numbers;
static char *volatile edge;
static Node **shared;
static __thread Node *volatile slot;
static uint64_t held;
static sem_t begun, done;

#define APART __attribute__((noinline))

static APART Node *node(Node *next)
{
    Node *made = (Node *)malloc(sizeof *made);
    made->next = next;
    made->other = NULL;
    made->memory = 0;
    return made;
}

/* A list of nodes, the last of which has the address. */
static APART Node *list(int length, uint64_t masked)
{
    Node *first = NULL;
    for (int at = 0; at < length; at++) {
        first = node(first);
        if (at == 0)
            put(&first->memory, masked);
    }
    return first;
}

static APART void lose_list(int length, uint64_t masked)
{
    Node *volatile lost = list(length, masked);
    lost = NULL;
}

static APART void lose_ring(uint64_t masked)
{
    Node *volatile lost = list(3, masked);
    Node *at = lost;
    for (; at->next; at = at->next)
        at->next->other = at;
    at->next = lost;
    at = NULL;
    lost = NULL;
}

/* The node is only in a table of its own size class, or a larger one, that nothing leads to. */
static APART void lose_table(size_t count, uint64_t masked)
{
    Node **volatile lost = (Node **)calloc(count, sizeof(Node *));
    lost[count / 2] = list(1, masked);
    lost = NULL;
}

static APART void lose_model(uint64_t masked)
{
    Model *volatile lost = new Model;
    /* Or its table is never stored. */
    __asm__ volatile("" : : "r"(lost) : "memory");
    put(&lost->memory, masked);
    lost = NULL;
}

/* Held by both: a lost node and one in a global. */
static APART void both(uint64_t masked)
{
    lose_list(2, masked);
    head = list(1, masked);
}

/* Lost, directly behind the block of which `tzname` has the last word: that is in the header of what is lost. */
static APART void lose_behind_tzname(uint64_t masked)
{
    /* A program that names it has a copy. */
    char **names = (char **)dlsym(RTLD_DEFAULT, "tzname");
    for (char letter = 'A'; letter <= 'Z'; letter++) {
        char name[] = {'A', 'A', letter, '0', 0};
        setenv("TZ", name, 1);
        tzset();
        Node *volatile lost = list(1, masked);
        if (names && (char *)lost - names[0] == 16) {
            lost = NULL;
            return;
        }
        put(&lost->memory, 0);
    }
    exit(6);
}

static void *wait_with(void *argument)
{
    Node *volatile mine = (Node *)argument;
    (void)mine;
    sem_post(&begun);
    sem_wait(&done);
    return mine;
}

static void *wait_with_local(void *)
{
    slot = list(1, held);
    sem_post(&begun);
    sem_wait(&done);
    slot = NULL;
    return NULL;
}

static APART pthread_t thread(void *(*start)(void *), uint64_t masked)
{
    pthread_t made;
    held = masked;
    Node *mine = start == wait_with ? list(1, masked) : NULL;
    if (pthread_create(&made, NULL, start, mine) != 0)
        exit(6);
    sem_wait(&begun);
    return made;
}

static void callback(void *data)
{
    sem_post(&begun);
    sem_wait(&done);
    free(data);
}

/* Only the driver has the address of the node until the callback runs: it waits behind another. */
static APART void *enqueue(uint64_t masked)
{
    void *stream;
    if (cuStreamCreate(&stream, 1) != 0 || cuLaunchHostFunc(stream, callback, NULL) != 0 ||
        cuLaunchHostFunc(stream, callback, list(1, masked)) != 0)
        exit(6);
    sem_wait(&begun);
    return stream;
}

static APART void search_in_frame(uint64_t masked)
{
    Node *volatile mine = list(2, masked);
    search(masked);
    mine->next->memory = 0;
}

int main(int count, char **arguments)
{
    const char *shape = count > 1 ? arguments[1] : "";
    auto is = [&](const char *name) { return strcmp(shape, name) == 0; };
    sem_init(&begun, 0, 0);
    sem_init(&done, 0, 0);
    start_driver();
    uint64_t masked = allocate();
    if (is("lost node"))
        lose_list(1, masked);
    else if (is("lost list"))
        lose_list(1000, masked);
    else if (is("lost behind tzname"))
        lose_behind_tzname(masked);
    else if (is("lost ring"))
        lose_ring(masked);
    else if (is("lost table"))
        lose_table(50, masked);
    else if (is("lost large table"))
        lose_table(100000, masked);
    else if (is("lost object"))
        lose_model(masked);
    else if (is("list"))
        head = list(1, masked);
    else if (is("long list"))
        head = list(20000, masked);
    else if (is("both"))
        both(masked);
    else if (is("object")) {
        model = new Model;
        put(&model->memory, masked);
    } else if (is("object in a table")) {
        Model **all = (Model **)malloc(80 * sizeof *all);
        memset(all, 0, 80 * sizeof *all);
        all[70] = new Model;
        put(&all[70]->memory, masked);
        table = (Node **)all;
    } else if (is("inside")) {
        numbers = (uint64_t *)malloc(8000);
        put(&numbers[3], masked);
        numbers += 500;
    } else if (is("behind the end")) {
        /* As of a vector of which only the end is known. */
        numbers = (uint64_t *)malloc(408);
        put(&numbers[3], masked);
        numbers += 51;
    } else if (is("counted from one")) {
        numbers = (uint64_t *)malloc(400);
        put(&numbers[3], masked);
        numbers -= 1;
    } else if (is("pairs counted from one")) {
        table = (Node **)malloc(5000);
        numbers = (uint64_t *)malloc(400);
        put(&numbers[3], masked);
        numbers -= 2;
    } else if (is("tagged"))
        edge = (char *)list(1, masked) + 3;
    else if (is("stack"))
        return search_in_frame(masked), 0;
    else if (is("anonymous mapping")) {
        shared = (Node **)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        shared[9] = list(1, masked);
    } else if (is("stack of a thread") || is("thread-local of a thread")) {
        pthread_t other = thread(is("stack of a thread") ? wait_with : wait_with_local, masked);
        search(masked);
        sem_post(&done);
        pthread_join(other, NULL);
        return 0;
    } else if (is("callback")) {
        void *stream = enqueue(masked);
        search(masked);
        sem_post(&done);
        sem_post(&done);
        cuStreamSynchronize(stream);
        return 0;
    } else
        return 5;
    search(masked);
    return 0;
}
