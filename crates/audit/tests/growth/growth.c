/* Programs that grow and programs that do not, by name. A round of work is an allocation and its free: `work`. */

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef int CUresult;
typedef unsigned long long CUdeviceptr;
typedef void *CUcontext, *CUstream;
CUresult cuInit(unsigned);
CUresult cuCtxCreate_v2(CUcontext *, unsigned, int);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuCtxDestroy_v2(CUcontext);
CUresult cuMemAlloc_v2(CUdeviceptr *, size_t);
CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuMemAllocHost_v2(void **, size_t);
CUresult cuMemAllocAsync(CUdeviceptr *, size_t, CUstream);
CUresult cuMemFreeAsync(CUdeviceptr, CUstream);
CUresult cuGraphCreate(void **, unsigned);
CUresult cuGraphInstantiateWithFlags(void **, void *, unsigned long long);
CUresult cuGraphLaunch(void *, CUstream);

#define APART __attribute__((noinline))
#define CHECK(call) do { if ((call) != 0) { puts(#call); exit(9); } } while (0)
#define REPEAT(times) for (int i = 0; i < (times); i++)

static CUcontext context;
static CUdeviceptr kept[4096];
static int count;

/* ---- how blocks are allocated ---- */

static APART CUdeviceptr allocate(size_t bytes) {
    CUdeviceptr address;
    CHECK(cuMemAlloc_v2(&address, bytes));
    return address;
}
static APART void work(void) {
    CUdeviceptr address;
    CHECK(cuMemAlloc_v2(&address, 100000));
    CHECK(cuMemFree_v2(address));
}
static APART void keep(void) {
    CHECK(cuMemAlloc_v2(&kept[count], 4096));
    count++;
}
/* Leaves the address nowhere. */
static APART void lose(void) {
    CUdeviceptr address;
    CHECK(cuMemAlloc_v2(&address, 4096));
    address = 0;
    __asm__ volatile("" : : "r"(&address) : "memory");
}
static void free_oldest(void) {
    CHECK(cuMemFree_v2(kept[0]));
    memmove(kept, kept + 1, --count * sizeof *kept);
    kept[count] = 0;
}
static void free_newest(void) {
    CHECK(cuMemFree_v2(kept[--count]));
    kept[count] = 0;
}
static void free_all(void) {
    while (count > 0) free_newest();
}
static void pause_for(int milliseconds) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    while (nanosleep(&time, &time) != 0 && errno == EINTR) {}
}
static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

/* ---- programs that grow ---- */

static void grows_leak(void) { REPEAT(50) { lose(); work(); } }
static void grows_leak_at_once(void) { REPEAT(2000) lose(); }
static void grows_leak_then_idle(void) { REPEAT(50) { lose(); pause_for(2); } pause_for(100); }
static void grows_leak_then_work(void) { REPEAT(60) lose(); REPEAT(1000) work(); }
static void grows_leak_now_and_then(void) { REPEAT(200) { work(); if (i % 20 == 7) lose(); } }

static void grows_kept(void) { REPEAT(50) { keep(); work(); } }
static void grows_kept_in_few_rounds(void) { REPEAT(6) { keep(); REPEAT(3) work(); } }
static void grows_kept_now_and_then(void) { REPEAT(300) { work(); if (i % 13 == 0) keep(); } }
static void grows_kept_in_pairs(void) { REPEAT(40) { keep(); keep(); REPEAT(3) work(); } }
static void grows_kept_slowly(void) { REPEAT(6) { keep(); pause_for(600); } }
static void grows_kept_after_a_start(void) { pause_for(300); REPEAT(100) work(); REPEAT(30) { keep(); work(); } }
static void grows_kept_then_other_work(void) { REPEAT(50) { keep(); REPEAT(4) work(); } REPEAT(100) work(); }

static APART void step(int is_kept) {
    CUdeviceptr address = allocate(2048);
    work();
    if (is_kept) kept[count++] = address; else CHECK(cuMemFree_v2(address));
}
static void grows_late(void) { REPEAT(400) step(0); REPEAT(60) step(1); }
static void grows_in_every_tenth_step(void) { REPEAT(300) step(i % 10 == 0); }

/* A function that allocates for all others. */
static APART CUdeviceptr checked_alloc(size_t bytes) {
    CUdeviceptr address = 0;
    CHECK(cuMemAlloc_v2(&address, bytes));
    return address;
}
static CUdeviceptr model[50];
static APART void load_model(void) { REPEAT(50) model[i] = checked_alloc(8192); }
static APART void keep_result(void) { kept[count++] = checked_alloc(4096); }
static void grows_beside_a_model_that_shrinks(void) {
    load_model();
    REPEAT(50) { keep_result(); CHECK(cuMemFree_v2(model[i])); model[i] = 0; work(); }
}
static APART void lose_result(void) {
    CUdeviceptr address = checked_alloc(4096);
    address = 0;
    __asm__ volatile("" : : "r"(&address) : "memory");
}
static void grows_lost_beside_a_model(void) { load_model(); REPEAT(20) { lose_result(); work(); } }

#define SITE(number) static APART void site_##number(void) { lose(); __asm__ volatile(""); }
SITE(0) SITE(1) SITE(2) SITE(3) SITE(4) SITE(5) SITE(6) SITE(7)
static void grows_at_many_call_sites(void) {
    void (*sites[])(void) = {site_0, site_1, site_2, site_3, site_4, site_5, site_6, site_7};
    REPEAT(64) { sites[i % 8](); work(); }
}

static void grows_pinned(void) {
    static void *pinned[40];
    REPEAT(40) { CHECK(cuMemAllocHost_v2(&pinned[i], 4096)); work(); }
}
static void grows_stream_ordered(void) {
    REPEAT(40) {
        CUdeviceptr other;
        CHECK(cuMemAllocAsync(&kept[i], 4096, NULL));
        CHECK(cuMemAllocAsync(&other, 4096, NULL));
        CHECK(cuMemFreeAsync(other, NULL));
    }
}
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *keeps(void *argument) {
    CHECK(cuCtxSetCurrent(context));
    REPEAT(40) {
        pthread_mutex_lock(&lock);
        keep();
        pthread_mutex_unlock(&lock);
        work();
    }
    return argument;
}
static void grows_on_threads(void) {
    pthread_t threads[4];
    REPEAT(4) pthread_create(&threads[i], NULL, keeps, NULL);
    REPEAT(4) pthread_join(threads[i], NULL);
}
/* A list that is never cut. */
struct entry { struct entry *next; CUdeviceptr block; };
static struct entry *entries;
static APART void insert(void) {
    struct entry *entry = malloc(sizeof *entry);
    entry->next = entries;
    entry->block = allocate(4096);
    entries = entry;
}
static void grows_cache(void) { REPEAT(80) { work(); insert(); } }
static void grows_until_freed_at_exit(void) { atexit(free_all); REPEAT(50) { keep(); work(); } }
static void grows_until_freed_at_the_end(void) {
    REPEAT(20) { keep(); work(); }
    pause_for(4000);
    REPEAT(20) { keep(); work(); }
    free_all();
}
static void grows_until_the_context_ends(void) {
    REPEAT(25) { keep(); work(); }
    pause_for(4000);
    REPEAT(25) { keep(); work(); }
    CHECK(cuCtxDestroy_v2(context));
}

/* The work of each round is graphs. */
static void grows_between_graphs(void) {
    static void *graph, *exec;
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    REPEAT(50) { keep(); REPEAT(2) CHECK(cuGraphLaunch(exec, NULL)); }
}

/* ---- programs that do not ---- */

static void steady_work(void) { REPEAT(300) work(); }
static void steady_nothing(void) {}
static void steady_loads(void) { REPEAT(60) keep(); }
static void steady_loads_slowly(void) { REPEAT(40) { keep(); pause_for(5); } }
static void steady_loads_then_works(void) { REPEAT(60) keep(); REPEAT(300) work(); }
static void steady_loads_with_staging_then_works(void) { REPEAT(30) { work(); keep(); } REPEAT(300) work(); }
static void steady_loads_and_frees(void) { REPEAT(60) keep(); free_all(); }
static void cache_of(int capacity, int rounds) {
    REPEAT(rounds) { if (count == capacity) free_oldest(); keep(); work(); }
}
static void steady_cache(void) { cache_of(32, 500); }
static void steady_small_cache(void) { cache_of(5, 100); }
static void steady_cache_full_late(void) { cache_of(60, 100); }
static void steady_cache_of_bytes(void) {
    unsigned seed = 7;
    REPEAT(800) {
        seed = seed * 1664525 + 1013904223;
        int most = 20 + (seed >> 28);
        while (count >= most) free_oldest();
        keep();
        work();
    }
}
static void steady_cache_emptied(void) { REPEAT(350) { if (count == 100) free_all(); keep(); work(); } }
static void steady_up_and_down(void) {
    double begin = now();
    REPEAT(100) { keep(); work(); }
    double time = now() - begin;
    REPEAT(50) { free_newest(); free_newest(); pause_for(2 + time * 1000 / 50); }
}
static void steady_two_buffers(void) { keep(); REPEAT(200) { keep(); work(); free_oldest(); } }
static void steady_four_lost(void) { REPEAT(4) { lose(); REPEAT(20) work(); } }
static void steady_grows_in_place(void) {
    for (size_t bytes = 4096; bytes < 16 << 20; bytes *= 2) {
        CUdeviceptr larger = allocate(bytes);
        if (count) free_oldest();
        kept[count++] = larger;
    }
}
static void steady_workspaces(void) { REPEAT(500) { if (i < 24 && i % 2 == 0) keep(); work(); } }
static void *works(void *argument) {
    CHECK(cuCtxSetCurrent(context));
    CUdeviceptr own = allocate(4096);
    REPEAT(60) work();
    CHECK(cuMemFree_v2(own));
    return argument;
}
static void steady_on_threads(void) {
    pthread_t threads[8];
    REPEAT(8) pthread_create(&threads[i], NULL, works, NULL);
    REPEAT(8) pthread_join(threads[i], NULL);
}
static APART void batch(void) { CUdeviceptr block = checked_alloc(4096); CHECK(cuMemFree_v2(block)); }
static void steady_behind_a_helper(void) { load_model(); REPEAT(300) batch(); }
static void steady_epochs(void) { REPEAT(40) { for (int j = 0; j < 10; j++) { keep(); work(); } free_all(); } }
static void steady_phases(void) {
    REPEAT(30) { keep(); work(); }
    free_all();
    REPEAT(40) { kept[count++] = allocate(8192); work(); }
    free_all();
    REPEAT(50) work();
}
static APART void recurse(int depth) {
    CUdeviceptr block = allocate(4096);
    if (depth) recurse(depth - 1);
    CHECK(cuMemFree_v2(block));
}
static void steady_recursion(void) { REPEAT(50) recurse(12); }
static void steady_delayed_frees(void) { cache_of(20, 400); free_all(); }
static void steady_reuse(void) { REPEAT(20) keep(); REPEAT(300) { free_oldest(); work(); keep(); } }
static void steady_stream_ordered(void) {
    REPEAT(200) { CUdeviceptr one; CHECK(cuMemAllocAsync(&one, 4096, NULL)); CHECK(cuMemFreeAsync(one, NULL)); }
}

#define PROGRAM(name) {#name, name}
static const struct { const char *name; void (*run)(void); } programs[] = {
    PROGRAM(grows_leak), PROGRAM(grows_leak_at_once), PROGRAM(grows_leak_then_idle), PROGRAM(grows_leak_then_work),
    PROGRAM(grows_leak_now_and_then), PROGRAM(grows_kept), PROGRAM(grows_kept_in_few_rounds), PROGRAM(grows_kept_now_and_then),
    PROGRAM(grows_kept_in_pairs), PROGRAM(grows_kept_slowly), PROGRAM(grows_kept_after_a_start), PROGRAM(grows_kept_then_other_work),
    PROGRAM(grows_late), PROGRAM(grows_in_every_tenth_step), PROGRAM(grows_beside_a_model_that_shrinks),
    PROGRAM(grows_lost_beside_a_model), PROGRAM(grows_at_many_call_sites), PROGRAM(grows_pinned), PROGRAM(grows_stream_ordered),
    PROGRAM(grows_on_threads), PROGRAM(grows_cache), PROGRAM(grows_until_freed_at_exit), PROGRAM(grows_until_freed_at_the_end),
    PROGRAM(grows_until_the_context_ends), PROGRAM(grows_between_graphs),
    PROGRAM(steady_work), PROGRAM(steady_nothing), PROGRAM(steady_loads), PROGRAM(steady_loads_slowly),
    PROGRAM(steady_loads_then_works), PROGRAM(steady_loads_with_staging_then_works), PROGRAM(steady_loads_and_frees),
    PROGRAM(steady_cache), PROGRAM(steady_small_cache), PROGRAM(steady_cache_full_late), PROGRAM(steady_cache_of_bytes),
    PROGRAM(steady_cache_emptied), PROGRAM(steady_up_and_down), PROGRAM(steady_two_buffers), PROGRAM(steady_four_lost),
    PROGRAM(steady_grows_in_place), PROGRAM(steady_workspaces), PROGRAM(steady_on_threads), PROGRAM(steady_behind_a_helper),
    PROGRAM(steady_epochs), PROGRAM(steady_phases), PROGRAM(steady_recursion), PROGRAM(steady_delayed_frees),
    PROGRAM(steady_reuse), PROGRAM(steady_stream_ordered),
};

int main(int argc, char **argv) {
    const int all = sizeof programs / sizeof *programs;
    if (argc < 2) {
        REPEAT(all) puts(programs[i].name);
        return 0;
    }
    CHECK(cuInit(0));
    CHECK(cuCtxCreate_v2(&context, 0, 0));
    REPEAT(all) {
        if (strcmp(programs[i].name, argv[1]) == 0) {
            programs[i].run();
            return 0;
        }
    }
    return 8;
}
