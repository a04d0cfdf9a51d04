// Programs in C++ that grow and programs that do not, by name.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

extern "C" {
int cuInit(unsigned);
int cuCtxCreate_v2(void **, unsigned, int);
int cuMemAlloc_v2(unsigned long long *, size_t);
int cuMemFree_v2(unsigned long long);
}

struct Buffer {
    unsigned long long address = 0;
    explicit Buffer(size_t bytes) { if (cuMemAlloc_v2(&address, bytes) != 0) std::exit(9); }
    ~Buffer() { cuMemFree_v2(address); }
    Buffer(const Buffer &) = delete;
};
using Owned = std::unique_ptr<Buffer>;

static void work() { Buffer temporary(100000); }

static std::map<int, Owned> results;

static void grows_map() {
    for (int i = 0; i < 60; i++) { work(); results[i] = std::make_unique<Buffer>(4096); }
}
static void grows_where_an_exception_skips_the_free() {
    for (int i = 0; i < 60; i++) {
        try {
            Buffer *buffer = new Buffer(4096);
            if (i % 3 == 0) throw std::string("refused");
            delete buffer;
        } catch (const std::string &) {
        }
        work();
    }
}
static void steady_map_with_few_keys() {
    for (int i = 0; i < 300; i++) { work(); results[i % 10] = std::make_unique<Buffer>(4096); }
}
static void steady_queue() {
    std::deque<Owned> queue;
    for (int i = 0; i < 300; i++) {
        queue.push_back(std::make_unique<Buffer>(4096));
        if (queue.size() > 16) queue.pop_front();
        work();
    }
}
static void steady_layers() {
    static std::vector<Owned> layers;
    for (int i = 0; i < 24; i++) layers.push_back(std::make_unique<Buffer>(4096));
    for (int i = 0; i < 100; i++) work();
}

#define PROGRAM(name) {#name, name}
static const struct { const char *name; void (*run)(); } programs[] = {
    PROGRAM(grows_map), PROGRAM(grows_where_an_exception_skips_the_free), PROGRAM(steady_map_with_few_keys),
    PROGRAM(steady_queue), PROGRAM(steady_layers),
};

int main(int argc, char **argv) {
    void *context;
    for (const auto &program : programs) {
        if (argc < 2) std::puts(program.name);
        else if (std::strcmp(program.name, argv[1]) == 0) {
            if (cuInit(0) != 0 || cuCtxCreate_v2(&context, 0, 0) != 0) return 9;
            program.run();
            return 0;
        }
    }
    return argc < 2 ? 0 : 8;
}
