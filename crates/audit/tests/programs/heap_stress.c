/* Blocks of the program and of a library of the driver, allocated, resized and freed by either, in several threads and
   across fork. Checks contents, alignment, zeros and sizes. Arguments: threads, rounds. */
#define _GNU_SOURCE
#include "heap_driver.h"
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCKS 512

struct block {
    unsigned char *memory;
    size_t size;
    unsigned char mark;
};

static int rounds;
static struct block handed_over[BLOCKS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define CHECK(condition) do { if (!(condition)) { printf("line %d: %s\n", __LINE__, #condition); fflush(stdout); _exit(1); } } while (0)

static uint64_t random_number(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return *state >> 33;
}

static size_t random_size(uint64_t *state)
{
    uint64_t kind = random_number(state) % 100;
    if (kind < 60)
        return random_number(state) % 256;
    if (kind < 90)
        return random_number(state) % 8192;
    if (kind < 98)
        return random_number(state) % 100000;
    return random_number(state) % 3000000;
}

static void check(const struct block *block)
{
    size_t at;
    for (at = 0; at < block->size; at += 1 + block->size / 64)
        CHECK(block->memory[at] == block->mark);
    if (block->size)
        CHECK(block->memory[block->size - 1] == block->mark);
}

static void fill(struct block *block, size_t from, uint64_t *state)
{
    if (from == 0)
        block->mark = (unsigned char)random_number(state);
    if (block->size > from)
        memset(block->memory + from, block->mark, block->size - from);
}

static void create(struct block *block, uint64_t *state)
{
    size_t align = (size_t)8 << random_number(state) % 10, at;
    void *memory = NULL;
    block->size = random_size(state);
    switch (random_number(state) % 8) {
    case 0: memory = malloc(block->size); align = 16; break;
    case 1: memory = driver_malloc(block->size); align = 16; break;
    case 2: memory = calloc(1, block->size); align = 0; break;
    case 3: memory = driver_calloc(block->size, 1); align = 0; break;
    case 4: CHECK(driver_posix_memalign(&memory, align, block->size) == 0); break;
    case 5: memory = driver_memalign(align, block->size); break;
    case 6: memory = driver_aligned_alloc(align, block->size); break;
    case 7: memory = driver_realloc(NULL, block->size); align = 16; break;
    }
    CHECK(memory != NULL);
    block->memory = memory;
    if (align == 0) {
        align = 16;
        for (at = 0; at < block->size; at++)
            CHECK(block->memory[at] == 0);
    }
    CHECK((uintptr_t)memory % align == 0);
    CHECK((random_number(state) % 2 ? malloc_usable_size : driver_usable)(memory) >= block->size);
    fill(block, 0, state);
}

static void resize(struct block *block, uint64_t *state)
{
    size_t size = random_size(state) + 1, old = block->size;
    check(block);
    switch (random_number(state) % 4) {
    case 0: block->memory = realloc(block->memory, size); break;
    case 1: block->memory = driver_realloc(block->memory, size); break;
    case 2: block->memory = reallocarray(block->memory, size, 1); break;
    case 3: block->memory = driver_reallocarray(block->memory, 1, size); break;
    }
    CHECK(block->memory != NULL);
    block->size = old < size ? old : size;
    check(block);
    block->size = size;
    fill(block, old < size ? old : size, state);
}

static void destroy(struct block *block, uint64_t *state)
{
    check(block);
    (random_number(state) % 2 ? free : driver_free)(block->memory);
    block->memory = NULL;
    block->size = 0;
}

static void *work(void *seed)
{
    struct block own[BLOCKS] = {{0}}, block;
    uint64_t state = (uintptr_t)seed;
    int round, at;
    for (round = 0; round < rounds; round++) {
        at = random_number(&state) % BLOCKS;
        if (!own[at].memory)
            create(&own[at], &state);
        else if (random_number(&state) % 3 == 0)
            resize(&own[at], &state);
        else
            destroy(&own[at], &state);
        /* Blocks change threads. */
        if (round % 8 == 0) {
            pthread_mutex_lock(&lock);
            block = handed_over[at];
            handed_over[at] = own[at];
            pthread_mutex_unlock(&lock);
            own[at] = block;
        }
    }
    for (at = 0; at < BLOCKS; at++)
        if (own[at].memory)
            destroy(&own[at], &state);
    return NULL;
}

static void edges(void)
{
    char *text = driver_strdup("a text of the driver");
    void *block = &text;
    CHECK(strcmp(text, "a text of the driver") == 0);
    free(text);
    text = realloc(driver_malloc(5), 100000);
    CHECK(text != NULL);
    driver_free(text);
    free(NULL);
    driver_free(NULL);
    CHECK(driver_usable(NULL) == 0);
    errno = 0;
    CHECK(driver_malloc(SIZE_MAX / 2) == NULL && errno == ENOMEM);
    CHECK(driver_calloc(SIZE_MAX / 2, 3) == NULL);
    CHECK(driver_reallocarray(NULL, SIZE_MAX / 2, 3) == NULL);
    CHECK(driver_posix_memalign(&block, 24, 100) == EINVAL);
    CHECK(driver_posix_memalign(&block, 4, 100) == EINVAL);
    CHECK(block == &text);
    block = driver_malloc(0);
    CHECK(block != NULL);
    free(block);
    block = driver_valloc(10);
    CHECK(block != NULL && (uintptr_t)block % 4096 == 0);
    free(block);
    block = driver_pvalloc(10);
    CHECK(block != NULL && (uintptr_t)block % 4096 == 0 && malloc_usable_size(block) >= 4096);
    free(block);
    block = driver_memalign(1 << 21, 100);
    CHECK(block != NULL && (uintptr_t)block % (1 << 21) == 0);
    free(block);
    CHECK(driver_realloc(driver_malloc(10), 0) == NULL);
    /* The driver's memory is apart from the program's. */
    block = malloc(100);
    text = driver_malloc(100);
    CHECK(((uintptr_t)block ^ (uintptr_t)text) >> 26 != 0);
    free(block);
    free(text);
}

int main(int count, char **arguments)
{
    pthread_t threads[64];
    int number = count > 1 ? atoi(arguments[1]) : 4, at, status;
    uint64_t state = 99;
    rounds = count > 2 ? atoi(arguments[2]) : 100000;
    edges();
    for (at = 0; at < number; at++)
        CHECK(pthread_create(&threads[at], NULL, work, (void *)(uintptr_t)(at + 1)) == 0);
    /* Children while the threads are in the allocators. */
    for (at = 0; at < 20; at++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            struct block block;
            for (at = 0; at < 200; at++) {
                create(&block, &state);
                resize(&block, &state);
                destroy(&block, &state);
            }
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    for (at = 0; at < number; at++)
        pthread_join(threads[at], NULL);
    for (at = 0; at < BLOCKS; at++)
        if (handed_over[at].memory)
            destroy(&handed_over[at], &state);
    puts("all blocks were intact");
    return 0;
}
