// A child that is started by fork and exec, and a process that replaces itself by exec while memory is alive.
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

static void execute(const char *role) {
    execl("/proc/self/exe", "executed", role, (char *)NULL);
    exit(99);
}

int main(int count, char **arguments) {
    const char *role = count > 1 ? arguments[1] : "parent";
    if (strcmp(role, "end") == 0)
        return 0;
    if (strcmp(role, "leaks") == 0) {
        open_device();
        lose_block(MIB);
        clobber_stack();
        return 0;
    }
    if (strcmp(role, "replaced") == 0) {
        open_device();
        lose_block(2 * MIB);
        clobber_stack();
        execute("end");
    }
    const char *roles[] = {"leaks", "replaced"};
    for (int child = 0; child < 2; child++) {
        pid_t process = fork();
        if (process == 0)
            execute(roles[child]);
        int status;
        if (process < 0 || waitpid(process, &status, 0) != process || status != 0)
            exit(99);
    }
    expect_memory(LOST, "device", 2, 3 * MIB);
    expected("\"reports\": 2");
    return 0;
}
