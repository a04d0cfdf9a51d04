// One lost block, and the end that the argument names. The sanitizer sees only those that run exit handlers.
#include <signal.h>
#include <unistd.h>

#include "driver.h"

static APART void deeper(void) {
    lose_block(MIB);
}

int main(int count, char **arguments) {
    const char *end = count > 1 ? arguments[1] : "return";
    open_device();
    deeper();
    clobber_stack();
    expect_memory(LOST, "device", 1, MIB);
    expected("\"mentions\": [\"deeper\"]");
    if (strcmp(end, "exit") == 0)
        exit(3);
    if (strcmp(end, "_exit") == 0)
        _exit(4);
    if (strcmp(end, "quick_exit") == 0)
        quick_exit(5);
    if (strcmp(end, "abort") == 0)
        abort();
    if (strcmp(end, "sigterm") == 0)
        raise(SIGTERM);
    if (strcmp(end, "sigint") == 0)
        raise(SIGINT);
    if (strcmp(end, "sighup") == 0)
        raise(SIGHUP);
    return 0;
}
