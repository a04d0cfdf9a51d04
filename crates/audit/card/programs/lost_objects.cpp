// Objects that are never deleted, with the memory that they own: lost with them, though the addresses are still in the heap. A list
// of which the program keeps the first node, and an object that a global keeps. A lost struct that is the
// last block that is allocated: `malloc` itself points to its end.
#include <vector>

#include "runtime.h"

struct Buffer {
    void *memory = nullptr;
    explicit Buffer(size_t bytes) { RT(cudaMalloc(&memory, bytes)); }
    virtual ~Buffer() { cudaFree(memory); }
};

struct Model {
    std::vector<Buffer *> layers;
    virtual ~Model() {
        for (Buffer *layer : layers)
            delete layer;
    }
};

struct Node {
    Node *next;
    Buffer buffer;
};

struct Named {
    char name[16];
    void *memory;
};

static Model *volatile kept;
static Node *volatile first;

static APART Model *load(int layers, size_t bytes) {
    Model *model = new Model;
    for (int layer = 0; layer < layers; layer++)
        model->layers.push_back(new Buffer(bytes));
    return model;
}

static APART void forget_model() {
    Model *model = load(4, MIB);
    FORGET(model);
}

static APART void keep() {
    kept = load(3, 2 * MIB);
    for (int node = 0; node < 5; node++)
        first = new Node{first, Buffer(3 * MIB)};
}

static APART void forget_last() {
    void *memory;
    RT(cudaMalloc(&memory, 7 * MIB));
    Named *named = (Named *)calloc(1, sizeof *named);
    named->memory = memory;
    FORGET(memory);
    FORGET(named);
}

int main() {
    // The driver starts threads when it is first used: they begin with copies of the registers of this one, which may have the
    // address of an object.
    RT(cudaFree(nullptr));
    forget_model();
    keep();
    forget_last();
    clobber_stack();
    expect_memory(LOST, "device", 4, 4 * MIB);
    expect_memory(LOST, "device", 1, 7 * MIB);
    expect_memory(REACHABLE, "device", 3, 6 * MIB);
    expect_memory(REACHABLE, "device", 5, 15 * MIB);
    expected("\"mentions\": [\"a lost `Buffer` object of\", \"a lost heap block of 24 B\", \"global `kept` in lost_objects\", \"`Model` object of\", \"global `first` in\"]");
    return 0;
}
