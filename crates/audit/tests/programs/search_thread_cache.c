/* Blocks that threads freed before they ended are allocated again: they keep the mark of glibc's thread cache. Each holds an
   address. Prints how many of the addresses are found. */
#define _GNU_SOURCE
#include "search.h"
#include <malloc.h>
#include <pthread.h>

#define OLD 4000
#define NEW 200

static uint64_t masked[NEW], ranges[2 * NEW];
static uint64_t *blocks[OLD], *volatile held[NEW];
static char text[NEW * 64];

/* A few of them, all of which the thread cache has room for. They are no neighbours. */
static void *free_some(void *count)
{
    static int first;
    int at;
    first += 1000;
    for (at = 0; at < (intptr_t)count; at++)
        free(blocks[first + 100 * at]);
    return NULL;
}

int main(int count, char **arguments)
{
    /* How large the blocks are, and in which word of them the address is. The words before it keep what they have. */
    size_t size = count > 1 ? strtoul(arguments[1], NULL, 10) : 0;
    int word = count > 2 ? atoi(arguments[2]) : 0, at, lost = 0;
    char *line;
    start_driver();
    for (at = 0; at < NEW; at++)
        masked[at] = allocate();
    for (at = 0; at < OLD; at++)
        blocks[at] = malloc(size);
    /* 17 in all. `malloc` returns one of a bin of the arena, with the mark, and moves seven to its own thread cache; and so
       twice; then the last one, whose link is that of the last in a thread cache. */
    for (at = 0; at < 3; at++) {
        pthread_t thread;
        pthread_create(&thread, NULL, free_some, (void *)(intptr_t)(at < 2 ? 6 : 5));
        pthread_join(thread, NULL);
    }
    for (at = 0; at < NEW; at++) {
        held[at] = malloc(size);
        put(&held[at][word], masked[at]);
        ranges[2 * at] = masked[at];
        ranges[2 * at + 1] = SIZE;
    }
    wipe();
    if (!cuguard_audit_search || cuguard_audit_search(ranges, NEW, MASK, 60, text, sizeof text) < 0)
        return 2;
    for (line = text; line; line = strchr(line + 1, '\n'))
        lost += strncmp(line[0] == '\n' ? line + 1 : line, "lost", 4) == 0;
    printf("%d of %d addresses are lost\n", lost, NEW);
    return 0;
}
