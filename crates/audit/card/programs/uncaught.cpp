// An uncaught exception ends the process by std::terminate and abort.
#include <stdexcept>

#include "runtime.h"

int main() {
    lose_block(MIB);
    clobber_stack();
    expect_memory(LOST, "device", 1, MIB);
    expected("");
    throw std::runtime_error("not caught");
}
