// The smallest CUDA program. Prints when the runtime is ready, and when it begins to exit.
#include "bench.h"

int main() {
    RT(cudaFree(0));
    double ready = now();
    printf("{\"ready\": %.6f, \"ends\": %.6f}\n", ready, now());
}
