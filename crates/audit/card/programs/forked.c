// The children use CUDA, the parent does not: one child returns from main, one calls exit, one calls _exit.
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

static void child(void) {
    open_device();
    lose_block(MIB);
    clobber_stack();
}

int main(void) {
    for (int ending = 0; ending < 3; ending++) {
        pid_t process = fork();
        if (process == 0) {
            child();
            if (ending == 0)
                return 0;
            if (ending == 1)
                exit(0);
            _exit(0);
        }
        int status;
        if (process < 0 || waitpid(process, &status, 0) != process || status != 0)
            exit(99);
    }
    expect_memory(LOST, "device", 3, 3 * MIB);
    expected("\"reports\": 3");
    return 0;
}
