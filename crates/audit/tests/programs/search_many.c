/* Many threads that allocate and free while the process is searched, and many addresses. Arguments: threads, searches,
   addresses. Every second address is held in the heap, in blocks of a table. */
#include "search.h"
#include <pthread.h>

static volatile int finished;
static uint64_t *volatile *volatile held;

static void *churn(void *unused)
{
    void *blocks[256] = {0};
    unsigned state = (unsigned)(uintptr_t)&unused;
    int at;
    while (!finished) {
        state = state * 1103515245u + 12345u;
        at = state >> 16 & 255;
        free(blocks[at]);
        blocks[at] = malloc(state >> 8 & 4095);
    }
    for (at = 0; at < 256; at++)
        free(blocks[at]);
    return NULL;
}

int main(int count, char **arguments)
{
    int threads = atoi(arguments[1]), searches = atoi(arguments[2]), at, found;
    size_t addresses = strtoul(arguments[3], NULL, 10), index, size = addresses * 100 + 4096;
    pthread_t ids[256];
    uint64_t *masked = malloc(16 * addresses);
    char *text = malloc(size), *line;
    held = calloc(addresses, sizeof *held);
    if (count != 4 || !masked || !held || !text)
        return 1;
    /* Not the driver's: any number will do. */
    for (index = 0; index < addresses; index++) {
        masked[2 * index] = (0x123000000000ull + 512 * index) ^ MASK;
        masked[2 * index + 1] = 512;
        if (index % 2 == 0) {
            held[index] = malloc(24);
            put(held[index], masked[2 * index]);
        }
    }
    for (at = 0; at < threads; at++)
        if (pthread_create(&ids[at], NULL, churn, NULL) != 0)
            return 2;
    for (at = 0; at < searches; at++) {
        wipe();
        found = cuguard_audit_search(masked, addresses, MASK, 120, text, size);
        line = text;
        for (index = 0; index < addresses; index++) {
            /* From where depends on whether a thread was stopped while it changed the heap. */
            const char *expected = index % 2 ? "lost\n" : "reachable: ";
            if (strncmp(line, expected, strlen(expected)) != 0) {
                size_t length = strlen(text);
                printf("address %zu of search %d: %.60s\n%s\n", index, at, line, text + (length > 300 ? length - 300 : 0));
                return 3;
            }
            line = strchr(line, '\n') + 1;
        }
        if ((size_t)found != (addresses + 1) / 2)
            return 4;
        printf("%d of %zu found; %s", found, addresses, line);
        fflush(stdout);
    }
    finished = 1;
    for (at = 0; at < threads; at++)
        pthread_join(ids[at], NULL);
    puts("all threads ran on");
    return 0;
}
