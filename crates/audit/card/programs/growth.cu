// A list that grows all the time: reachable, and a suspect for growth. Two seconds, so that there are samples.
#include <time.h>

#include "runtime.h"

static void *volatile blocks[200];

static APART void remember(int index) {
    void *address;
    RT(cudaMalloc(&address, MIB));
    blocks[index] = address;
    FORGET(address);
}

int main(void) {
    for (int index = 0; index < 200; index++) {
        remember(index);
        struct timespec pause = {0, 10 * 1000 * 1000};
        nanosleep(&pause, NULL);
    }
    clobber_stack();
    expect_memory(REACHABLE, "device", 200, 200 * MIB);
    expected("\"grows\": \"remember\"");
    return 0;
}
