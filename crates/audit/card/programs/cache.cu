// Two caches that kernels use: one is never emptied and grows, the other holds the 16 newest entries and does not.
#include <cstring>
#include <deque>
#include <map>

#include "runtime.h"

static __global__ void fill(float *values, int count, float value) {
    for (int index = threadIdx.x; index < count; index += blockDim.x) values[index] = value;
}

static std::map<int, float *> *volatile unbounded;
static std::deque<float *> *volatile newest;

static APART float *compute(int key) {
    float *values;
    RT(cudaMalloc(&values, MIB));
    fill<<<1, 256>>>(values, 1024, (float)key);
    return values;
}

static APART void use(float *values) {
    for (int round = 0; round < 4; round++) fill<<<1, 256>>>(values, 1024, (float)round);
    RT(cudaDeviceSynchronize());
}

static APART void look_up(int key) {
    auto found = unbounded->find(key);
    if (found == unbounded->end()) found = unbounded->emplace(key, compute(key)).first;
    use(found->second);
}

static APART void look_up_newest(int key) {
    if (newest->size() == 16) {
        RT(cudaFree(newest->front()));
        newest->pop_front();
    }
    newest->push_back(compute(key));
    use(newest->back());
}

int main(int argc, char **argv) {
    unbounded = new std::map<int, float *>;
    newest = new std::deque<float *>;
    bool grows = argc > 1 && strcmp(argv[1], "unbounded") == 0;
    for (int key = 0; key < 120; key++) {
        if (grows) look_up(key);
        else look_up_newest(key);
    }
    clobber_stack();
    expect_memory(REACHABLE, "device", grows ? 120 : 16, (grows ? 120 : 16) * MIB);
    expected(grows ? "\"grows\": \"look_up\"" : "");
    return 0;
}
