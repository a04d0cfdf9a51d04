// Streams and events that are never destroyed. No memory.
#include "driver.h"

static volatile CUstream kept;

static APART void lose_handles(void) {
    CUstream stream;
    CUevent event;
    for (int round = 0; round < 3; round++) {
        CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        kept = stream;
    }
    for (int round = 0; round < 2; round++)
        CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CU(cuEventDestroy(event));
    FORGET(stream);
    FORGET(event);
}

int main(void) {
    open_device();
    lose_handles();
    clobber_stack();
    expect_kind("stream", 3, 0);
    expect_kind("event", 1, 0);
    expected("");
    return 0;
}
