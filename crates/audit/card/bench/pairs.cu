// Allocation and free, in pairs of 1 MiB: `pairs malloc COUNT`, `pairs async COUNT`. Prints the median of nine rounds. With a
// third word, `turns`, it runs and prints a round for each line of standard input.
#include <cstring>

#include "bench.h"

static double round_of(bool ordered, int count, cudaStream_t stream) {
    double began = now();
    for (int index = 0; index < count; index++) {
        void *address;
        if (ordered) {
            RT(cudaMallocAsync(&address, 1 << 20, stream));
            RT(cudaFreeAsync(address, stream));
        } else {
            RT(cudaMalloc(&address, 1 << 20));
            RT(cudaFree(address));
        }
    }
    double ended = now();
    RT(cudaStreamSynchronize(stream));
    return (ended - began) / count * 1e9;
}

static void print(double nanoseconds) {
    printf("{\"value\": %.1f}\n", nanoseconds);
    fflush(stdout);
}

int main(int words, char **arguments) {
    bool in_turns = words == 4 && strcmp(arguments[3], "turns") == 0;
    if (words != 3 && !in_turns)
        return 99;
    bool ordered = strcmp(arguments[1], "async") == 0;
    int count = atoi(arguments[2]);
    cudaStream_t stream;
    RT(cudaStreamCreate(&stream));
    keep_pool();
    round_of(ordered, count, stream);
    if (in_turns) {
        char line[8];
        while (fgets(line, sizeof line, stdin)) {
            // Not timed: others have used the processor's caches meanwhile.
            round_of(ordered, count / 10, stream);
            print(round_of(ordered, count, stream));
        }
    } else {
        std::vector<double> rounds;
        for (int round = 0; round < 9; round++)
            rounds.push_back(round_of(ordered, count, stream));
        print(median(rounds));
    }
    RT(cudaStreamDestroy(stream));
}
