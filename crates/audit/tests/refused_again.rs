//! A call site whose allocations fail again: it is diagnosed again if the program went on in between.

use std::process::Command;

use crate::support::{assert_success, audited, compile, simulated_driver_folder, text};

/// Runs a program, which succeeds, and counts the diagnoses that are printed.
#[track_caller]
fn assert_diagnoses(program: &mut Command, expected: usize) {
    let output = program
        .env("LEAK_REPORT", "1")
        .output()
        .expect("the program can be started");
    assert_success(&output);
    let stderr = text(&output.stderr);
    let printed = stderr.matches("\nwhy: ").count();
    assert_eq!(printed, expected, "{program:?}: {stderr}");
}

/// It frees something, gets its memory, and later the rest of the memory is gone: that is what ends it.
const GOES_ON: &str = r#"
#include <stdio.h>
#include <stdlib.h>
extern int cuInit(unsigned);
extern int cuCtxCreate_v2(void **, unsigned, int);
extern int cuMemAlloc_v2(unsigned long long *, size_t);
extern int cuMemFree_v2(unsigned long long);
static void *context;
static __attribute__((noinline)) unsigned long long step(void) {
    unsigned long long memory = 0;
    return cuMemAlloc_v2(&memory, 1 << 30) ? 0 : memory;
}
int main(int argc, char **argv) {
    unsigned long long newest = 0, next;
    if (cuInit(0) || cuCtxCreate_v2(&context, 0, 0)) return 8;
    for (int round = 0; round < atoi(argv[1]); round++) {
        while ((next = step())) newest = next;
        if (step() || cuMemFree_v2(newest) || !(newest = step())) return 9;
    }
    return 0;
}"#;

#[test]
fn a_program_that_goes_on_is_diagnosed_again() {
    let driver = simulated_driver_folder();
    let linked = ["-Wl,--no-as-needed", "-l:libcuda.so.1"];
    let Some(program) = compile(&driver, "goes_on", GOES_ON, &linked) else {
        return;
    };
    for (rounds, diagnoses) in [("1", 1), ("2", 2), ("20", 3)] {
        assert_diagnoses(audited(&program, &driver).arg(rounds), diagnoses);
    }
}

/// One thread is refused memory again and again. Whether the program went on, other threads decide as well.
const BESIDE: &str = r#"
#include <pthread.h>
#include <stdlib.h>
extern int cuInit(unsigned);
extern int cuCtxCreate_v2(void **, unsigned, int);
extern int cuCtxSetCurrent(void *);
extern int cuMemAlloc_v2(unsigned long long *, size_t);
static void *context;
static void *ask(void *bytes) {
    unsigned long long memory;
    cuCtxSetCurrent(context);
    cuMemAlloc_v2(&memory, (size_t)bytes);
    return NULL;
}
static __attribute__((noinline)) void on_a_thread(size_t bytes) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, ask, (void *)bytes)) exit(9);
    pthread_join(thread, NULL);
}
int main(int argc, char **argv) {
    if (cuInit(0) || cuCtxCreate_v2(&context, 0, 0)) return 8;
    for (int round = 0; round < 2; round++) {
        if (argv[1][0] == 'r') ask((void *)((size_t)1 << 50));
        else on_a_thread((size_t)1 << 50);
        if (argv[1][0] != 'f') on_a_thread(4096);
    }
    return 0;
}"#;

#[test]
fn what_other_threads_allocate_is_going_on() {
    let driver = simulated_driver_folder();
    let linked = ["-Wl,--no-as-needed", "-l:libcuda.so.1", "-pthread"];
    let Some(program) = compile(&driver, "beside", BESIDE, &linked) else {
        return;
    };
    // A thread that asks again, without an allocation of its own in between, retries: that is one request.
    for (what, diagnoses) in [("fails", 1), ("allocates", 2), ("retries", 1)] {
        assert_diagnoses(audited(&program, &driver).arg(what), diagnoses);
    }
}

/// Runs a list of steps: `l` loads a module with a variable of 768 MiB, `u` unloads the one that was loaded last, `0` and `1` launch a
/// graph that allocates as much, `f` frees what was launched last.
const STEPS: &str = r#"
#include <stdlib.h>
extern int cuInit(unsigned);
extern int cuCtxCreate_v2(void **, unsigned, int);
extern int cuMemFree_v2(unsigned long long);
extern int cuMemAllocAsync(unsigned long long *, size_t, void *);
extern int cuStreamCreate(void **, unsigned);
extern int cuStreamBeginCapture_v2(void *, int);
extern int cuStreamEndCapture(void *, void **);
extern int cuGraphInstantiateWithFlags(void **, void *, unsigned long long);
extern int cuGraphLaunch(void *, void *);
extern int cuModuleLoadData(void **, const void *);
extern int cuModuleUnload(void *);
static void *context, *stream, *module, *execs[2];
static unsigned long long memory[2], launched;
static const char text[] = ".version 6.4\n.target sm_52\n.address_size 64\n.global .align 4 .b8 big[805306368];\n";
int main(int argc, char **argv) {
    if (cuInit(0) || cuCtxCreate_v2(&context, 0, 0) || cuStreamCreate(&stream, 1)) return 7;
    for (int i = 0; i < 2; i++) {
        void *graph;
        if (cuStreamBeginCapture_v2(stream, 2) || cuMemAllocAsync(&memory[i], 805306368, stream)
            || cuStreamEndCapture(stream, &graph) || cuGraphInstantiateWithFlags(&execs[i], graph, 0)) return 8;
    }
    for (const char *step = argv[1]; *step; step++) {
        if (*step == 'u' && cuModuleUnload(module)) return 9;
        if (*step == 'f' && cuMemFree_v2(launched)) return 10;
        if (*step == 'l') cuModuleLoadData(&module, text);
        if (*step == '0' || *step == '1')
            if (!cuGraphLaunch(execs[*step - '0'], stream)) launched = memory[*step - '0'];
    }
    return 0;
}"#;

#[test]
fn a_load_or_a_launch_that_succeeds_is_going_on() {
    let driver = simulated_driver_folder();
    let linked = ["-Wl,--no-as-needed", "-l:libcuda.so.1"];
    let Some(program) = compile(&driver, "steps", STEPS, &linked) else {
        return;
    };
    for (steps, diagnoses) in [
        ("ll", 1),
        ("lll", 1),
        ("llul", 1),
        ("llull", 2),
        ("01", 1),
        ("011", 1),
        ("01f1", 1),
        ("01f10", 2),
    ] {
        let mut command = audited(&program, &driver);
        command.arg(steps).env("CUGUARD_SIM", "memory=1GiB");
        assert_diagnoses(&mut command, diagnoses);
    }
}
