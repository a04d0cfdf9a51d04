//! Growth in recordings: the same as in the report of the run.

use crate::record::{open, record};
use crate::support::audited::{compile, output, stderr, subfolder};
use crate::support::reporting::shown;

/// What grew is freed when the process exits, which takes longer than the run.
const FREED_AT_EXIT: &str = "
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>
typedef unsigned long long CUdeviceptr;
int cuInit(unsigned), cuCtxCreate_v2(void **, unsigned, int), cuMemAlloc_v2(CUdeviceptr *, size_t), cuMemFree_v2(CUdeviceptr);
static CUdeviceptr kept[100];
static void free_all(void) {
    for (int i = 0; i < 100; i++) {
        cuMemFree_v2(kept[i]);
        usleep(2000);
    }
}
static CUdeviceptr __attribute__((noinline)) grow(void) {
    CUdeviceptr address = 0;
    if (cuMemAlloc_v2(&address, 1 << 20)) exit(3);
    return address;
}
static void __attribute__((noinline)) pass(void) {
    CUdeviceptr address;
    if (cuMemAlloc_v2(&address, 1 << 20) || cuMemFree_v2(address)) exit(4);
}
int main(void) {
    void *context;
    if (cuInit(0) || cuCtxCreate_v2(&context, 0, 0)) return 2;
    atexit(free_all);
    for (int i = 0; i < 100; i++) {
        kept[i] = grow();
        pass();
    }
    return 0;
}
";

#[test]
fn what_is_freed_at_exit_does_not_hide_growth() {
    let folder = subfolder("record-freed-at-exit");
    let Some(program) = compile(&folder.join("grows"), FREED_AT_EXIT, &[]) else {
        return;
    };
    let file = folder.join("run.cgr");
    let run = output(&mut record(&file, &program, ""));
    let printed = stderr(&run);
    assert!(run.status.success(), "{printed}");
    let first = printed.lines().find(|line| line.contains("growing"));
    let first = first.unwrap_or_else(|| panic!("{printed}"));
    assert!(first.ends_with("; 1 call site growing"), "{printed}");
    let recording = open(&file);
    let exit = recording.exit_begins.expect("the exit began");
    let last = recording.events.last().expect("events").time;
    assert!(exit < last, "{exit} {last}");
    let report = shown(&["report", file.to_str().expect("it is text")]);
    let first = report.lines().next().expect("a line");
    assert!(first.contains("1 call site growing"), "{report}");
}

/// Blocks are kept, and kernels are launched in between, as by the CUDA runtime: with a function that is looked up.
const LAUNCHES: &str = "
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
typedef unsigned long long CUdeviceptr;
int cuInit(unsigned), cuCtxCreate_v2(void **, unsigned, int), cuMemAlloc_v2(CUdeviceptr *, size_t);
typedef int launch(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static CUdeviceptr kept[50];
int main(int count, char **arguments) {
    void *context;
    void *driver = dlopen(\"libcuda.so.1\", RTLD_NOW);
    launch *launch = driver ? dlsym(driver, \"cuLaunchKernel\") : NULL;
    if (!launch || cuInit(0) || cuCtxCreate_v2(&context, 0, 0)) return 2;
    for (int i = 0; i < 50; i++) {
        if (cuMemAlloc_v2(&kept[i], 1 << 20)) return 3;
        /* There is no such kernel: the call counts all the same. */
        for (int k = 0; k < 10; k++) launch(0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0);
    }
    for (int k = 0; k < atoi(arguments[count - 1]); k++) launch(0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0);
    return 0;
}
";

#[test]
fn launches_count_in_a_recording_as_in_the_run() {
    let folder = subfolder("record-launches");
    let Some(program) = compile(&folder.join("launches"), LAUNCHES, &[]) else {
        return;
    };
    // Work that goes on for long without a further block ends the growth.
    for (launches_then, growing) in [("0", true), ("10000", false)] {
        let file = folder.join(format!("{launches_then}.cgr"));
        let run = output(&mut record(&file, &program, launches_then));
        let printed = stderr(&run);
        assert!(run.status.success(), "{printed}");
        let of_run = printed.contains("; 1 call site growing");
        let report = shown(&["report", file.to_str().expect("it is text")]);
        let first = report.lines().next().expect("a line");
        let of_report = first.contains("1 call site growing");
        assert_eq!(
            (of_run, of_report),
            (growing, growing),
            "{launches_then}: {printed}\n{report}"
        );
    }
}
