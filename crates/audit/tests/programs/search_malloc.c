/* An address in a block of the heap whose end `malloc` itself points to: a chunk's header begins in the last 8 bytes of the block
   before it. The arguments: `lost`, or `kept` by the address of the block's last element; the block's size; what is behind it. */
#include "search.h"
#include <pthread.h>
#include <semaphore.h>

#define APART __attribute__((noinline))
#define NUMBERS(size) (volatile uint64_t *)calloc(1, size)
/* Fewer blocks in a row may fill a gap. */
#define IN_A_ROW 100
/* What a thread cache keeps of one size. */
#define CACHED 7
/* Blocks that the search's threads do not use: too small, and larger than the reserve. */
#define SMALL 240
#define LARGE 10000
#define RESERVE 8000
/* Alignment of the heaps of other arenas than the main one. */
#define HEAP (64ul << 20)

static volatile uint64_t *volatile last;
static void *volatile kept[4];
static size_t size;
static int is_kept;
static uint64_t held;
static sem_t begun, done;

static size_t chunk(size_t bytes)
{
    return bytes <= 24 ? 32 : (bytes + 8 + 15) / 16 * 16;
}

/* Puts the address into a block, of which only the last element is kept: it is in the block's last 8 bytes. */
static APART void fill(volatile uint64_t *block)
{
    put(&block[0], held);
    if (is_kept)
        last = (volatile uint64_t *)((char *)block + chunk(size) - 16);
}

/* The last block of the arena: only the top is behind it. */
static APART void at_the_end(void)
{
    volatile uint64_t *block = NUMBERS(size), *before;
    for (int row = 0; row < IN_A_ROW; row++) {
        before = block;
        block = NUMBERS(size);
        if ((char *)block - (char *)before != (long)chunk(size))
            row = 0;
    }
    fill(block);
}

/* A block of these bytes, which is not merged with another when it is freed; the address is in the one in front of it. */
static APART void *in_front(size_t bytes)
{
    volatile uint64_t *block;
    void *behind;
    do {
        block = NUMBERS(size);
        behind = calloc(1, bytes);
        kept[0] = calloc(1, 24);
    } while ((char *)behind - (char *)block != (long)chunk(size));
    fill(block);
    return behind;
}

/* In a list of the arena: fills the thread cache first. */
static APART void free_behind_cache(size_t bytes)
{
    void *cached[CACHED];
    void *behind = in_front(bytes);
    for (int at = 0; at < CACHED; at++) {
        cached[at] = calloc(1, bytes);
        kept[1] = calloc(1, 24);
    }
    for (int at = 0; at < CACHED; at++)
        free(cached[at]);
    free(behind);
    memset(cached, 0, sizeof cached);
}

/* In a bin for its size, which a request that it is too small for sorts it into. */
static APART void sort(void)
{
    kept[2] = malloc(2 * LARGE);
}

/* Cuts the block off a free one: the rest is the arena's last remainder. */
static APART void cut_off(size_t bytes)
{
    void *whole = calloc(1, bytes);
    kept[0] = calloc(1, 24);
    free(whole);
    fill(NUMBERS(size));
    whole = NULL;
}

/* Allocates what is left of it. */
static APART void use_rest(size_t bytes)
{
    kept[2] = calloc(1, chunk(bytes) - chunk(size) - 8);
}

/* Which bins have chunks stands in front of an arena's first block: here bin 76 alone, which looks like the size of a chunk of
   4 KiB, behind which another one begins. A free block is in front of that. */
static APART void looks_like_a_chunk(void)
{
    enum { BORDER = 0x1890, FREED = 1800, BLOCKS = 9 };
    void *freed[BLOCKS];
    volatile uint64_t *block = NUMBERS(size);
    uint64_t at = ((uint64_t)block & (HEAP - 1)) - 16 + chunk(size), first = BORDER - chunk(FREED);
    fill(block);
    while (at + 64 <= first) {
        kept[0] = calloc(1, 24);
        at += chunk(24);
    }
    kept[1] = calloc(1, first - at - 8);
    for (int number = 0; number < BLOCKS; number++) {
        freed[number] = calloc(1, FREED);
        kept[2] = calloc(1, 24);
    }
    for (int number = 1; number < BLOCKS; number++)
        free(freed[number]);
    free(freed[0]);
    memset(freed, 0, sizeof freed);
    sort();
}

/* The search's threads have memory of `malloc`: it comes from a free block of its own, which fits best. */
static APART void place(const char *shape)
{
    void *reserve;
    if (strcmp(shape, "like a chunk") == 0) {
        looks_like_a_chunk();
        wipe();
        return;
    }
    reserve = calloc(1, RESERVE);
    kept[3] = calloc(1, 24);
    if (strcmp(shape, "top") == 0)
        at_the_end();
    else if (strcmp(shape, "fast bin") == 0)
        free_behind_cache(40);
    else if (strcmp(shape, "unsorted") == 0)
        free_behind_cache(SMALL);
    else if (strcmp(shape, "small bin") == 0)
        free_behind_cache(SMALL), sort();
    else if (strcmp(shape, "large bin") == 0)
        free(in_front(LARGE)), sort();
    else if (strcmp(shape, "remainder") == 0)
        cut_off(LARGE);
    else if (strcmp(shape, "remainder in use") == 0)
        cut_off(LARGE), use_rest(LARGE);
    else
        exit(5);
    free(reserve);
    reserve = NULL;
    wipe();
}

static void *run(void *shape)
{
    place(shape);
    wipe();
    sem_post(&begun);
    sem_wait(&done);
    return NULL;
}

/* What a search allocates for its threads, later ones have. */
static APART void search_once(void)
{
    char text[64];
    uint64_t range[2] = {held, SIZE};
    if (cuguard_audit_search)
        cuguard_audit_search(range, 1, MASK, 60, text, sizeof text);
}

int main(int count, char **arguments)
{
    char *shape;
    pthread_t thread;
    if (count < 4)
        return 5;
    is_kept = strcmp(arguments[1], "kept") == 0;
    size = strtoul(arguments[2], NULL, 10);
    shape = arguments[3];
    sem_init(&begun, 0, 0);
    sem_init(&done, 0, 0);
    start_driver();
    held = allocate();
    search_once();
    if (count == 4) {
        place(shape);
        search(held);
        return 0;
    }
    if (pthread_create(&thread, NULL, run, shape) != 0)
        return 6;
    sem_wait(&begun);
    if (strcmp(arguments[4], "ended") == 0) {
        sem_post(&done);
        pthread_join(thread, NULL);
    }
    search(held);
    if (strcmp(arguments[4], "ended") != 0) {
        sem_post(&done);
        pthread_join(thread, NULL);
    }
    return 0;
}
