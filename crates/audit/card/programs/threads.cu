// Eight threads that have ended: each loses two blocks of four.
#include <pthread.h>

#include "runtime.h"

static APART void lose_two_free_two(void) {
    void *addresses[4];
    for (int index = 0; index < 4; index++)
        RT(cudaMalloc(&addresses[index], 256 * KIB));
    RT(cudaFree(addresses[1]));
    RT(cudaFree(addresses[3]));
    FORGET(addresses);
}

static void *work(void *unused) {
    (void)unused;
    lose_two_free_two();
    clobber_stack();
    return NULL;
}

int main(void) {
    pthread_t threads[8];
    for (int index = 0; index < 8; index++)
        if (pthread_create(&threads[index], NULL, work, NULL) != 0)
            exit(99);
    for (int index = 0; index < 8; index++)
        pthread_join(threads[index], NULL);
    clobber_stack();
    expect_memory(LOST, "device", 16, 16 * 256 * KIB);
    expected("\"mentions\": [\"lose_two_free_two\"], \"grows\": \"lose_two_free_two\"");
    return 0;
}
