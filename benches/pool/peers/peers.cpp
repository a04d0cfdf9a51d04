// The allocators that `benches/pool` is compared with, as adaptors for the works of works.hpp. One program for each library,
// as their runtimes should not meet in one process:
//
//     -DPEER_DRIVER  cuMemAlloc; the driver's pool (cuMemAllocFromPoolAsync)
//     -DPEER_RMM     RMM's pool, arena and cuda_async resources
//     -DPEER_TORCH   PyTorch's caching allocator; PYTORCH_CUDA_ALLOC_CONF as in any program
//
// run.py builds and runs them:
//
//     peers-rmm --allocators "rmm pool,rmm arena" --works pair,churn,fill --kernels kernels --trace trace.txt
#include "works.hpp"

#ifdef PEER_RMM
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#endif
#ifdef PEER_TORCH
#include <c10/cuda/CUDACachingAllocator.h>
#endif

#include <optional>

namespace {

using bench::GiB;
using bench::Shape;

uint64_t reserved(CUmemoryPool pool) {
    cuuint64_t bytes = 0;
    DRIVER(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes));
    return bytes;
}

#ifdef PEER_DRIVER
// cuMemAlloc and cuMemFree.
struct Plain {
    static constexpr bool fixed = false, has_limit = false;
    uint64_t before = bench::free_bytes();
    explicit Plain(Shape) {}
    void *allocate(CUstream, size_t bytes) {
        CUdeviceptr block;
        DRIVER(cuMemAlloc(&block, bytes));
        return reinterpret_cast<void *>(block);
    }
    void free(CUstream, void *block, size_t) { DRIVER(cuMemFree(reinterpret_cast<CUdeviceptr>(block))); }
    uint64_t held() { return before - bench::free_bytes(); }
    void make_room() { DRIVER(cuCtxSynchronize()); }
};

// A pool of the driver that keeps what is freed.
struct DriverPool {
    static constexpr bool fixed = false, has_limit = false;
    CUmemoryPool pool;
    explicit DriverPool(Shape) {
        CUmemPoolProps props = {};
        props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        props.location.id = 0;
        DRIVER(cuMemPoolCreate(&pool, &props));
        cuuint64_t all = UINT64_MAX;
        DRIVER(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    }
    ~DriverPool() {
        cuCtxSynchronize();
        cuMemPoolDestroy(pool);
    }
    void *allocate(CUstream stream, size_t bytes) {
        CUdeviceptr block;
        DRIVER(cuMemAllocFromPoolAsync(&block, bytes, pool, stream));
        return reinterpret_cast<void *>(block);
    }
    void free(CUstream stream, void *block, size_t) { DRIVER(cuMemFreeAsync(reinterpret_cast<CUdeviceptr>(block), stream)); }
    uint64_t held() { return reserved(pool); }
    void make_room() {
        DRIVER(cuCtxSynchronize());
        DRIVER(cuMemPoolTrimTo(pool, 0));
    }
};
#endif

#ifdef PEER_RMM
constexpr size_t alignment = 256;

cuda::stream_ref reference(CUstream stream) { return cuda::stream_ref{reinterpret_cast<cudaStream_t>(stream)}; }

std::optional<size_t> limit_of(Shape shape) { return shape.limit ? std::optional<size_t>(shape.limit) : std::nullopt; }

template <class Resource>
struct Rmm {
    Resource resource;
    void *allocate(CUstream stream, size_t bytes) { return resource.allocate(reference(stream), bytes, alignment); }
    void free(CUstream stream, void *block, size_t bytes) { resource.deallocate(reference(stream), block, bytes, alignment); }
};

// pool_memory_resource over cudaMalloc.
struct RmmPool : Rmm<rmm::mr::pool_memory_resource> {
    static constexpr bool fixed = false, has_limit = true;
    explicit RmmPool(Shape shape) : Rmm{rmm::mr::pool_memory_resource(rmm::mr::cuda_memory_resource(), shape.initial, limit_of(shape))} {}
    uint64_t held() { return resource.pool_size(); }
    void make_room() { DRIVER(cuCtxSynchronize()); }
};

// arena_memory_resource over cudaMalloc: its size is fixed when it is created.
struct RmmArena : Rmm<rmm::mr::arena_memory_resource> {
    static constexpr bool fixed = true, has_limit = true;
    size_t bytes;
    explicit RmmArena(Shape shape)
        : Rmm{rmm::mr::arena_memory_resource(rmm::mr::cuda_memory_resource(), shape.initial)}, bytes(shape.initial) {}
    uint64_t held() { return bytes; }
    void make_room() { DRIVER(cuCtxSynchronize()); }
};

// cuda_async_memory_resource: a pool of the driver.
struct RmmAsync : Rmm<rmm::mr::cuda_async_memory_resource> {
    static constexpr bool fixed = false, has_limit = false;
    explicit RmmAsync(Shape) : Rmm{rmm::mr::cuda_async_memory_resource()} {}
    ~RmmAsync() { cuCtxSynchronize(); }
    uint64_t held() { return reserved(reinterpret_cast<CUmemoryPool>(resource.pool_handle())); }
    void make_room() {
        DRIVER(cuCtxSynchronize());
        DRIVER(cuMemPoolTrimTo(reinterpret_cast<CUmemoryPool>(resource.pool_handle()), 0));
    }
};
#endif

#ifdef PEER_TORCH
namespace caching = c10::cuda::CUDACachingAllocator;

struct Torch {
    static constexpr bool fixed = false, has_limit = false;
    caching::CUDAAllocator *allocator;
    explicit Torch(Shape) {
        static const bool once = (caching::init(1), true);
        (void)once;
        allocator = caching::get();
    }
    ~Torch() { make_room(); }
    void *allocate(CUstream stream, size_t bytes) {
        return allocator->raw_alloc_with_stream(bytes, reinterpret_cast<cudaStream_t>(stream));
    }
    void free(CUstream, void *block, size_t) { allocator->raw_delete(block); }
    uint64_t held() { return uint64_t(caching::getDeviceStats(0).reserved_bytes[0].current); }
    void make_room() {
        cuCtxSynchronize();
        caching::emptyCache();
    }
};
#endif

std::vector<std::string> words(const std::string &text) {
    std::vector<std::string> all;
    std::stringstream stream(text);
    for (std::string word; std::getline(stream, word, ',');) all.push_back(word);
    return all;
}

}  // namespace

int main(int count, char **arguments) {
    bench::Options options;
    std::vector<std::string> works = {"pair", "churn", "threads", "fill", "free", "trace"}, allocators;
    for (int i = 1; i < count; ++i) {
        std::string name = arguments[i];
        auto value = [&]() -> std::string {
            if (++i < count) return arguments[i];
            std::fprintf(stderr, "peers: %s without a value\n", name.c_str());
            std::exit(2);
        };
        if (name == "--test") options.brief = true;
        else if (name == "--kernels") options.kernels = value();
        else if (name == "--trace") options.trace = value();
        else if (name == "--seconds") options.seconds = std::atof(value().c_str());
        else if (name == "--fill-gib") options.fill = std::strtoull(value().c_str(), nullptr, 10) * GiB;
        else if (name == "--works") works = words(value());
        else if (name == "--allocators") allocators = words(value());
        else {
            std::fprintf(stderr, "peers: there is no option %s\n", name.c_str());
            return 2;
        }
    }
    try {
        bench::primary_context();
    } catch (const std::exception &error) {
        std::fprintf(stderr, "peers: %s\n", error.what());
        return 1;
    }
    auto wanted = [&](const char *name) {
        return allocators.empty() || std::find(allocators.begin(), allocators.end(), name) != allocators.end();
    };
#ifdef PEER_DRIVER
    if (wanted("driver pool")) bench::run<DriverPool>(options, works, "driver pool");
    if (wanted("cuMemAlloc")) bench::run<Plain>(options, works, "cuMemAlloc");
#endif
#ifdef PEER_RMM
    if (wanted("rmm pool")) bench::run<RmmPool>(options, works, "rmm pool");
    if (wanted("rmm arena")) bench::run<RmmArena>(options, works, "rmm arena");
    if (wanted("rmm async")) bench::run<RmmAsync>(options, works, "rmm async");
#endif
#ifdef PEER_TORCH
    const char *settings = std::getenv("PYTORCH_CUDA_ALLOC_CONF");
    const bool expandable = settings && std::strstr(settings, "expandable_segments:True");
    const char *name = expandable ? "torch expandable" : "torch";
    if (wanted(name)) bench::run<Torch>(options, works, name);
#endif
    std::fflush(stdout);
    // Static objects of the libraries would call the driver when it may be shut down already.
    std::_Exit(0);
}
