// `host_memory GIB`: that much host memory, touched, and a thousand device blocks of which half are lost. Prints when it
// begins to exit.
#include <sys/mman.h>

#include <thread>

#include "bench.h"

static void *volatile kept[1000];

int main(int words, char **arguments) {
    if (words != 2)
        return 99;
    size_t bytes = (size_t)atol(arguments[1]) << 30;
    unsigned long *memory = (unsigned long *)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 99;
    size_t threads = std::max(1u, std::thread::hardware_concurrency()), part = bytes / sizeof *memory / threads;
    std::vector<std::thread> fillers;
    for (size_t thread = 0; thread < threads; thread++)
        fillers.emplace_back([=] {
            unsigned long state = 88172645463325252ul + thread;
            for (size_t index = thread * part; index < (thread + 1) * part; index++) {
                state ^= state << 13, state ^= state >> 7, state ^= state << 17;
                memory[index] = state;
            }
        });
    for (std::thread &filler : fillers)
        filler.join();
    for (int index = 0; index < 1000; index++) {
        void *address;
        RT(cudaMalloc(&address, 64 << 10));
        kept[index] = index % 2 ? address : NULL;
    }
    printf("{\"ends\": %.6f}\n", now());
}
