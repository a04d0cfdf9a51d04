// A shared library that leaks: `library.c` loads it.
#include "runtime.h"

namespace leaky {
APART void load_model(int layers) {
    for (int layer = 0; layer < layers; layer++)
        lose_block(MIB);
}
} // namespace leaky

extern "C" void leaky_open(int layers) {
    leaky::load_model(layers);
    clobber_stack();
}
