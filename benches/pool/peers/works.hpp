// The works of the benchmark `pool`, for any allocator that an adaptor describes. `benches/pool` has the same works in
// Rust, with the same sizes, the same order and the same names of figures.
//
// An adaptor is a class with
//     Adaptor(Shape shape)                          a fresh pool
//     void *allocate(CUstream stream, size_t bytes) throws an exception when it is refused
//     void free(CUstream stream, void *block, size_t bytes)
//     uint64_t held()                               bytes of the device that it holds
//     void make_room()                              what its manual advises against fragmentation
//     static constexpr bool fixed                   it holds what it was created with, whatever is live
#pragma once

#include <cuda.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace bench {

constexpr size_t KiB = 1024, MiB = 1024 * KiB, GiB = 1024 * MiB;

// How an adaptor begins: with `initial` bytes, and with no more than `limit` (0: no limit).
struct Shape {
    size_t initial;
    size_t limit;
};

// The driver refused a call.
struct Refused : std::runtime_error {
    using std::runtime_error::runtime_error;
};

inline void check(CUresult code, const char *call) {
    if (code == CUDA_SUCCESS) return;
    const char *name = nullptr;
    cuGetErrorName(code, &name);
    throw Refused(std::string(call) + ": " + (name ? name : "?"));
}
#define DRIVER(call) ::bench::check(call, #call)

// The options of a run.
struct Options {
    bool brief = false;
    std::string kernels = "kernels";  // the folder with spin.ptx
    std::string trace;
    double seconds = 1e9;  // no case of `fill` begins later
    size_t fill = 60 * GiB;
};

using Clock = std::chrono::steady_clock;

inline double nanoseconds(Clock::time_point since) {
    return std::chrono::duration<double, std::nano>(Clock::now() - since).count();
}

inline double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

// The same numbers as `Numbers` of the Rust benchmarks.
struct Numbers {
    uint64_t state;
    uint64_t next(uint64_t below) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return state % below;
    }
};

// One figure: a line of JSON.
inline void figure(const char *work, const std::string &what, const std::string &allocator, const char *figure, double value) {
    std::printf("{\"work\":\"%s\",\"case\":\"%s\",\"allocator\":\"%s\",\"figure\":\"%s\",\"value\":%.6g}\n", work, what.c_str(),
                allocator.c_str(), figure, value);
    std::fflush(stdout);
}

// What could not be measured, and why.
inline void note(const char *work, const std::string &what, const std::string &allocator, std::string text) {
    text = text.substr(0, text.find('\n')).substr(0, 160);
    for (char &c : text)
        if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < 32) c = ' ';
    std::printf("{\"work\":\"%s\",\"case\":\"%s\",\"allocator\":\"%s\",\"note\":\"%s\"}\n", work, what.c_str(), allocator.c_str(),
                text.c_str());
    std::fflush(stdout);
}

struct Stream {
    CUstream raw = nullptr;
    Stream() { DRIVER(cuStreamCreate(&raw, CU_STREAM_NON_BLOCKING)); }
    Stream(Stream &&other) noexcept : raw(other.raw) { other.raw = nullptr; }
    Stream(const Stream &) = delete;
    ~Stream() {
        if (raw) cuStreamDestroy(raw);
    }
};

// The primary context of device 0, which the runtime's libraries use too.
inline CUcontext primary_context() {
    CUdevice device;
    CUcontext context;
    DRIVER(cuInit(0));
    DRIVER(cuDeviceGet(&device, 0));
    DRIVER(cuDevicePrimaryCtxRetain(&context, device));
    DRIVER(cuCtxSetCurrent(context));
    return context;
}

inline uint64_t free_bytes() {
    size_t free = 0, total = 0;
    DRIVER(cuMemGetInfo(&free, &total));
    return free;
}

// ---- pair, churn ----------------------------------------------------------------------------------------------------

template <class Adaptor>
void pair(const Options &options, const std::string &name) {
    const int rounds = options.brief ? 5 : 51, count = options.brief ? 50 : 10000;
    Adaptor pool(Shape{1 * GiB, 0});
    Stream stream;
    std::vector<double> times;
    for (int round = -1; round < rounds; ++round) {
        auto begin = Clock::now();
        for (int i = 0; i < count; ++i) pool.free(stream.raw, pool.allocate(stream.raw, MiB), MiB);
        if (round >= 0) times.push_back(nanoseconds(begin) / count);
    }
    figure("pair", "1 MiB", name, "ns", median(times));
}

// 256 B to 1 MiB, each doubling as likely; of all sizes, or powers of two alone.
inline size_t churn_size(Numbers &numbers, bool powers) {
    if (powers) return size_t(256) << numbers.next(13);
    size_t base = size_t(256) << numbers.next(12);
    return base + 1 + numbers.next(base);
}

template <class Adaptor>
void churn(const Options &options, const std::string &name) {
    const size_t live = 1000;
    const int rounds = options.brief ? 3 : 31, count = options.brief ? 100 : 20000;
    for (bool powers : {false, true}) {
        Adaptor pool(Shape{4 * GiB, 0});
        Stream stream;
        Numbers numbers{0x2545f4914f6cdd1d};
        std::vector<std::pair<void *, size_t>> blocks(live);
        for (auto &block : blocks) {
            size_t bytes = churn_size(numbers, powers);
            block = {pool.allocate(stream.raw, bytes), bytes};
        }
        std::vector<double> times;
        // The first rounds fill caches.
        for (int round = -4; round < rounds; ++round) {
            auto begin = Clock::now();
            for (int i = 0; i < count; ++i) {
                auto &block = blocks[numbers.next(live)];
                size_t bytes = churn_size(numbers, powers);
                pool.free(stream.raw, block.first, block.second);
                block = {pool.allocate(stream.raw, bytes), bytes};
            }
            if (round >= 0) times.push_back(nanoseconds(begin) / count);
        }
        for (auto &block : blocks) pool.free(stream.raw, block.first, block.second);
        figure("churn", powers ? "1000 live, powers of two" : "1000 live, any size", name, "ns", median(times));
    }
}

// ---- threads --------------------------------------------------------------------------------------------------------

template <class Adaptor>
void threads(const Options &options, const std::string &name) {
    const int rounds = options.brief ? 3 : 15, count = options.brief ? 50 : 1000, number = 16;
    CUcontext context;
    DRIVER(cuCtxGetCurrent(&context));
    for (bool own : {true, false}) {
        Adaptor pool(Shape{4 * GiB, 0});
        std::vector<Stream> streams(own ? number : 1);
        std::vector<std::vector<double>> times(number);
        std::vector<std::string> errors(number);
        std::barrier together(number);
        std::vector<std::thread> all;
        for (int t = 0; t < number; ++t)
            all.emplace_back([&, t] {
                cuCtxSetCurrent(context);
                CUstream stream = streams[own ? t : 0].raw;
                for (int round = -2; round < rounds; ++round) {
                    together.arrive_and_wait();
                    auto begin = Clock::now();
                    try {
                        for (int i = 0; i < count; ++i) pool.free(stream, pool.allocate(stream, MiB), MiB);
                    } catch (const std::exception &error) {
                        errors[t] = error.what();
                    }
                    if (round >= 0) times[t].push_back(nanoseconds(begin) / count);
                }
            });
        for (auto &thread : all) thread.join();
        const char *what = own ? "16 threads, own streams" : "16 threads, one stream";
        auto error = std::find_if(errors.begin(), errors.end(), [](auto &text) { return !text.empty(); });
        if (error != errors.end()) {
            note("threads", what, name, *error);
            continue;
        }
        std::vector<double> means;
        for (int round = 0; round < rounds; ++round) {
            double sum = 0;
            for (auto &of : times) sum += of[round];
            means.push_back(sum / number);
        }
        figure("threads", what, name, "ns", median(means));
    }
}

// ---- fill -----------------------------------------------------------------------------------------------------------

// Takes the rest of the device, so that only what a pool frees can serve it.
struct Ballast {
    std::vector<CUdeviceptr> blocks;
    explicit Ballast(uint64_t leave) {
        for (uint64_t step = 16 * GiB; step >= 32 * MiB;) {
            uint64_t free = free_bytes();
            CUdeviceptr block;
            if (free < leave + step || cuMemAlloc(&block, step) != CUDA_SUCCESS)
                step /= 2;
            else
                blocks.push_back(block);
        }
    }
    ~Ballast() {
        for (CUdeviceptr block : blocks) cuMemFree(block);
    }
};

inline std::string size_name(size_t bytes) {
    if (bytes >= MiB) return std::to_string(bytes / MiB) + " MiB";
    return std::to_string(bytes / KiB) + " KiB";
}

template <class Adaptor>
void fill_case(const Options &options, const std::string &name, size_t bytes, bool random) {
    const std::string what = size_name(bytes) + (random ? ", half at random" : ", every other");
    const uint64_t before = free_bytes();
    Adaptor pool(Shape{Adaptor::fixed ? options.fill + GiB : 0, Adaptor::fixed ? options.fill + GiB : 0});
    Stream stream;
    std::vector<void *> blocks;
    const size_t number = options.fill / bytes;
    blocks.reserve(number);
    auto begin = Clock::now();
    try {
        while (blocks.size() < number) blocks.push_back(pool.allocate(stream.raw, bytes));
    } catch (const std::exception &error) {
        note("fill", what, name, "refused while filling, at block " + std::to_string(blocks.size()) + ": " + error.what());
    }
    DRIVER(cuCtxSynchronize());
    figure("fill", what, name, "fill ms", nanoseconds(begin) / 1e6);
    figure("fill", what, name, "held over live", double(before - free_bytes()) / double(blocks.size() * bytes));
    Ballast ballast(options.fill / 120);

    Numbers numbers{0x9e3779b97f4a7c15};
    size_t freed = 0;
    begin = Clock::now();
    size_t frees = 0;
    for (size_t i = 0; i < blocks.size(); ++i)
        if (random ? numbers.next(2) == 0 : i % 2 == 0) {
            pool.free(stream.raw, blocks[i], bytes);
            blocks[i] = nullptr;
            freed += bytes;
            ++frees;
        }
    figure("fill", what, name, "free ns", nanoseconds(begin) / double(frees));
    DRIVER(cuCtxSynchronize());

    // 95 %, and where that is refused what else can be had.
    double share = 0;
    for (double wanted : {0.95, 0.75, 0.5, 0.25, 0.1, 0.05}) {
        const size_t large = size_t(double(freed) * wanted) / 256 * 256;
        void *block = nullptr;
        begin = Clock::now();
        for (bool again : {false, true}) {
            try {
                if (again) pool.make_room();
                block = pool.allocate(stream.raw, large);
                cuStreamSynchronize(stream.raw);
                break;
            } catch (const std::exception &) {
            }
        }
        const double time = nanoseconds(begin) / 1e6;
        if (wanted == 0.95) figure("fill", what, name, "had 95 %", block ? 1 : 0);
        if (block) {
            share = wanted;
            figure("fill", what, name, "large ms", time);
            pool.free(stream.raw, block, large);
            break;
        }
    }
    figure("fill", what, name, "share of freed", share);
    for (void *block : blocks)
        if (block) pool.free(stream.raw, block, bytes);
    DRIVER(cuCtxSynchronize());
}

template <class Adaptor>
void fill(const Options &options, const std::string &name) {
    const auto begin = Clock::now();
    for (bool random : {false, true})
        for (size_t bytes : {64 * MiB, 9 * MiB, 3 * MiB, 1 * MiB, 512 * KiB, 64 * KiB}) {
            const std::string what = size_name(bytes) + (random ? ", half at random" : ", every other");
            if (nanoseconds(begin) > options.seconds * 1e9) {
                note("fill", what, name, "not run: no time left");
                continue;
            }
            try {
                fill_case<Adaptor>(options, name, bytes, random);
            } catch (const std::exception &error) {
                note("fill", what, name, error.what());
            }
        }
}

// ---- free -----------------------------------------------------------------------------------------------------------

template <class Adaptor>
void free_while_busy(const Options &options, const std::string &name) {
    std::ifstream file(options.kernels + "/spin.ptx");
    if (!file) throw Refused("cannot read " + options.kernels + "/spin.ptx");
    std::stringstream text;
    text << file.rdbuf();
    CUmodule module;
    CUfunction spin;
    DRIVER(cuModuleLoadData(&module, text.str().c_str()));
    DRIVER(cuModuleGetFunction(&spin, module, "spin"));
    {
        Adaptor pool(Shape{4 * GiB, 0});
        Stream own, other;
        std::vector<std::pair<void *, size_t>> blocks;
        for (int i = 0; i < 64; ++i) blocks.push_back({pool.allocate(own.raw, MiB), MiB});
        for (int i = 0; i < 4; ++i) blocks.push_back({pool.allocate(own.raw, 64 * MiB), 64 * MiB});
        DRIVER(cuCtxSynchronize());
        unsigned long long length = 1500000000;
        void *arguments[] = {&length};
        DRIVER(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, other.raw, arguments, nullptr));
        std::vector<double> frees, reuses;
        for (auto &block : blocks) {
            auto begin = Clock::now();
            pool.free(own.raw, block.first, block.second);
            frees.push_back(nanoseconds(begin) / 1e3);
        }
        const bool busy = cuStreamQuery(other.raw) == CUDA_ERROR_NOT_READY;
        for (auto &block : blocks) {
            auto begin = Clock::now();
            block.first = pool.allocate(own.raw, block.second);
            reuses.push_back(nanoseconds(begin) / 1e3);
        }
        const bool still_busy = cuStreamQuery(other.raw) == CUDA_ERROR_NOT_READY;
        const char *what = "1.5 s kernel on another stream";
        figure("free", what, name, "us, longest", *std::max_element(frees.begin(), frees.end()));
        figure("free", what, name, "us, median", median(frees));
        figure("free", what, name, "reuse us, longest", *std::max_element(reuses.begin(), reuses.end()));
        if (!busy) note("free", what, name, "the frees waited for the kernel");
        else if (!still_busy) note("free", what, name, "the allocations after the frees waited for the kernel");
        for (auto &block : blocks) pool.free(own.raw, block.first, block.second);
        DRIVER(cuCtxSynchronize());
    }
    cuModuleUnload(module);
}

// ---- trace ----------------------------------------------------------------------------------------------------------

// A recorded trace: one number a line. `SIZE` or `SIZE,STREAM` allocates, `-N` frees the Nth last of all allocations.
struct Trace {
    struct Event {
        size_t bytes;     // 0: a free
        uint32_t block;   // number of the allocation
        uint32_t stream;
    };
    std::vector<Event> events;
    std::vector<size_t> sizes;
    std::vector<uint32_t> streams_of;
    size_t streams = 1;
    uint64_t peak = 0;

    explicit Trace(const std::string &path) {
        std::ifstream file(path);
        if (!file) throw Refused("cannot read the trace " + path);
        std::string line;
        uint64_t live = 0;
        while (std::getline(file, line)) {
            if (line.empty() || line[0] == '#') continue;
            if (line[0] == '-') {
                uint32_t block = uint32_t(sizes.size() - std::stoull(line.substr(1)));
                events.push_back({0, block, streams_of[block]});
                live -= sizes[block];
            } else {
                char *end;
                size_t bytes = std::strtoull(line.c_str(), &end, 10);
                uint32_t stream = *end == ',' ? uint32_t(std::strtoul(end + 1, nullptr, 10)) : 0;
                events.push_back({bytes, uint32_t(sizes.size()), stream});
                sizes.push_back(bytes);
                streams_of.push_back(stream);
                streams = std::max<size_t>(streams, stream + 1);
                peak = std::max(peak, live += bytes);
            }
        }
    }
};

// Replays it; returns the most that the pool held, or 0 without `watch`.
template <class Adaptor>
uint64_t replay(const Trace &trace, Adaptor &pool, const std::vector<Stream> &streams, bool watch) {
    std::vector<void *> blocks(trace.sizes.size());
    uint64_t live = 0, most = 0, events = 0;
    auto clear = [&] {
        for (size_t i = 0; i < blocks.size(); ++i)
            if (blocks[i]) pool.free(streams[trace.streams_of[i]].raw, blocks[i], trace.sizes[i]);
    };
    try {
        for (auto &event : trace.events) {
            CUstream stream = streams[event.stream].raw;
            if (event.bytes) {
                blocks[event.block] = pool.allocate(stream, event.bytes);
                live += event.bytes;
            } else {
                pool.free(stream, blocks[event.block], trace.sizes[event.block]);
                blocks[event.block] = nullptr;
                live -= trace.sizes[event.block];
            }
            if (watch && (++events % 64 == 0 || live * 100 > trace.peak * 95)) most = std::max(most, pool.held());
        }
    } catch (...) {
        clear();
        throw;
    }
    clear();
    return most;
}

template <class Adaptor>
void trace(const Options &options, const std::string &name) {
    const char *what = "PyTorch training";
    if (options.trace.empty()) return note("trace", what, name, "not run: no trace given");
    Trace trace(options.trace);
    std::vector<Stream> streams(trace.streams);
    const double peak = double(trace.peak);
    if (!Adaptor::fixed) {
        Adaptor pool(Shape{0, 0});
        uint64_t most = replay(trace, pool, streams, true);
        auto begin = Clock::now();
        replay(trace, pool, streams, false);
        figure("trace", what, name, "ns", nanoseconds(begin) / double(trace.events.size()));
        figure("trace", what, name, "live GiB", peak / double(GiB));
        figure("trace", what, name, "held over live", double(most) / peak);
    }
    if (!Adaptor::has_limit) return;
    // The smallest size with which it serves the whole trace.
    auto serves = [&](double factor) {
        size_t bytes = size_t(peak * factor) / (2 * MiB) * (2 * MiB);
        try {
            Adaptor pool(Shape{bytes, bytes});
            replay(trace, pool, streams, false);
            return true;
        } catch (const std::exception &) {
            return false;
        }
    };
    double fails = 0.99, works = 2.0;
    if (!serves(works)) return note("trace", what, name, "refused with twice the live bytes");
    while (works - fails > 0.005) {
        double middle = (works + fails) / 2;
        (serves(middle) ? works : fails) = middle;
    }
    figure("trace", what, name, Adaptor::fixed ? "held over live" : "smallest limit over live", works);
}

// ---- the command ----------------------------------------------------------------------------------------------------

template <class Adaptor>
void run(const Options &options, const std::vector<std::string> &works, const std::string &name) {
    using Work = void (*)(const Options &, const std::string &);
    const std::pair<const char *, Work> all[] = {
        {"pair", pair<Adaptor>}, {"churn", churn<Adaptor>},         {"threads", threads<Adaptor>},
        {"fill", fill<Adaptor>}, {"free", free_while_busy<Adaptor>}, {"trace", trace<Adaptor>},
    };
    for (auto &[known, work] : all) {
        if (std::find(works.begin(), works.end(), known) == works.end()) continue;
        try {
            work(options, name);
        } catch (const std::exception &error) {
            note(known, "", name, error.what());
        }
    }
}

}  // namespace bench
