//! Allocations that the driver refuses for lack of memory: the diagnosis, and what the reports have of it.

use std::path::PathBuf;

use crate::support::{Folder, assert_success, compile, run, simulated_driver_folder, text};
use serde_json::{Value, json};

const SOURCE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
extern int cuInit(unsigned);
extern int cuCtxCreate_v2(void **, unsigned, int);
extern int cuMemAlloc_v2(unsigned long long *, size_t);
static void *context;
static __attribute__((noinline)) void ask(size_t bytes) {
    unsigned long long memory;
    int code = cuMemAlloc_v2(&memory, bytes);
    if (code != 2) { printf("%d\n", code); exit(9); }
}
static __attribute__((noinline)) void ask_elsewhere(void) { ask((size_t)1 << 50); }
int main(void) {
    if (cuInit(0) || cuCtxCreate_v2(&context, 0, 0)) return 8;
    for (size_t i = 0; i < 3; i++) ask((size_t)1 << (45 + i));
    ask_elsewhere();
    return 0;
}"#;

fn program(driver: &Folder) -> Option<PathBuf> {
    let linked = ["-Wl,--no-as-needed", "-l:libcuda.so.1"];
    compile(driver, "refused", SOURCE, &linked)
}

#[test]
fn refused_allocations_are_in_the_report() {
    let driver = simulated_driver_folder();
    let Some(program) = program(&driver) else {
        return;
    };
    let output = run(&program, &driver, &[("LEAK_REPORT", "json")]);
    assert_success(&output);
    let stderr = text(&output.stderr);
    let line = stderr.lines().find(|line| line.starts_with('{'));
    let report: Value = serde_json::from_str(line.expect("a report")).expect("JSON");
    assert_eq!(report["refused_count"], 4, "{report:#}");
    let refused = report["refused"].as_array().expect("a list");
    let [first, second] = &refused[..] else {
        panic!("{report:#}")
    };
    assert_eq!(first["function"], "cuMemAlloc_v2");
    assert_eq!(first["kind"], "device");
    let bytes =
        |one: &Value| [&one["count"], &one["bytes"], &one["largest_bytes"]].map(Value::clone);
    assert_eq!(
        bytes(first),
        [json!(3), json!(1_u64 << 45), json!(1_u64 << 47)]
    );
    assert_eq!(
        bytes(second),
        [json!(1), json!(1_u64 << 50), json!(1_u64 << 50)]
    );
    assert_eq!(
        second["stack"][1]["function"], "ask_elsewhere",
        "{second:#}"
    );
    // The diagnosis is what was printed, once for each call site.
    for one in refused {
        let diagnosis = one["diagnosis"].as_str().expect("a text");
        assert!(diagnosis.contains("larger than the device"), "{diagnosis}");
        assert_eq!(stderr.matches(diagnosis).count(), 1, "{stderr}");
    }
}

/// As PyTorch does: its allocator frees what it caches, and retries from another line.
#[test]
fn a_retry_is_the_same_request() {
    let retries = r#"
static unsigned long long small;
static __attribute__((noinline)) int ask(size_t bytes) {
    unsigned long long memory;
    return cuMemAlloc_v2(&memory, bytes);
}
static __attribute__((noinline)) int try_twice(size_t bytes) {
    if (ask(bytes) != 2) return 1;
    return ask(bytes);
}
static __attribute__((noinline)) int elsewhere(size_t bytes) { return ask(bytes); }
static __attribute__((noinline)) int after_another(size_t bytes) {
    if (ask(bytes) != 2 || cuMemAlloc_v2(&small, 1) != 0) return 1;
    return ask(bytes);
}
int main(void) {
    if (cuInit(0) || cuCtxCreate_v2(&context, 0, 0)) return 8;
    size_t large = (size_t)1 << 45;
    for (int i = 0; i < 3; i++) if (try_twice(large) != 2) return 1;
    if (elsewhere(large) != 2) return 2;
    if (after_another(large) != 2) return 3;
    return ask(large) == 2 && ask(2 * large) == 2 ? 0 : 4;
}"#;
    let source = SOURCE
        .split_once("static __attribute__")
        .expect("functions");
    let Some(report) = report_of("retries", &format!("{}{retries}", source.0)) else {
        return;
    };
    let refused = report["refused"].as_array().expect("a list");
    let found = refused.iter().map(|one| {
        let function = |at: usize| one["stack"][at]["function"].as_str().unwrap_or_default();
        let bytes = one["bytes"].as_u64().unwrap_or_default() >> 45;
        (function(1).to_owned(), one["count"].as_u64(), bytes)
    });
    let found: Vec<_> = found.collect();
    let expected = [
        ("try_twice", 3, 1),
        ("elsewhere", 1, 1),
        // What was refused before something else was allocated, and afterwards.
        ("after_another", 1, 1),
        ("after_another", 1, 1),
        ("main", 1, 1),
        ("main", 1, 2),
    ];
    let expected = expected.map(|(name, count, bytes)| (name.to_owned(), Some(count), bytes));
    assert_eq!(found, expected, "{report:#}");
    assert_eq!(report["refused_count"], 8, "{report:#}");
}

/// Of memory that a function allocates for others, the diagnosis names these.
#[test]
fn the_diagnosis_looks_allocation_helpers_through() {
    let helpers = r#"
static unsigned long long kept[2];
static __attribute__((noinline)) void checked_alloc(unsigned long long *memory, size_t bytes) {
    if (cuMemAlloc_v2(memory, bytes)) exit(9);
}
static __attribute__((noinline)) void load(void) { checked_alloc(&kept[0], 200 << 20); }
static __attribute__((noinline)) void train(void) { checked_alloc(&kept[1], 100 << 20); }
int main(void) {
    if (cuInit(0) || cuCtxCreate_v2(&context, 0, 0)) return 8;
    load();
    train();
    ask((size_t)1 << 50);
    return 0;
}"#;
    let source = SOURCE.split_once("static __attribute__((noinline)) void ask_elsewhere");
    let source = source.expect("a function").0;
    let Some(report) = report_of("helpers", &format!("{source}{helpers}")) else {
        return;
    };
    let diagnosis = report["refused"][0]["diagnosis"].as_str().expect("a text");
    for (bytes, function) in [("200 MiB", "load"), ("100 MiB", "train")] {
        let line = format!("  {bytes} in 1 allocation of device memory by checked_alloc at ");
        let lines = diagnosis.lines().filter(|found| found.starts_with(&line));
        let found: Vec<_> = lines.collect();
        let [found] = found[..] else {
            panic!("{diagnosis}")
        };
        assert!(
            found.contains(&format!(", for {function} at ")),
            "{diagnosis}"
        );
    }
}

#[test]
fn a_file_has_the_diagnosis_and_standard_error_has_it_once() {
    let driver = simulated_driver_folder();
    let Some(program) = program(&driver) else {
        return;
    };
    let file = driver.join("report.txt");
    let words = format!("text,file={}", file.display());
    let output = run(&program, &driver, &[("LEAK_REPORT", words)]);
    assert_success(&output);
    let report = std::fs::read_to_string(&file).expect("a report");
    let row = "refused 3 allocations of device memory for lack of memory, the largest of 128 TiB, by cuMemAlloc_v2\n";
    assert!(report.contains(row), "{report}");
    let sum = "; 4 allocations refused for lack of memory\n";
    assert!(report.contains(sum), "{report}");
    let cause = "larger than the device";
    assert!(report.matches(cause).count() >= 2, "{report}");

    let output = run(&program, &driver, &[("LEAK_REPORT", "text")]);
    let stderr = text(&output.stderr);
    let (printed, report) = stderr.split_once("cuguard: process ").expect("a report");
    assert!(printed.contains(cause), "{stderr}");
    assert!(report.contains(row) && !report.contains(cause), "{stderr}");
}

#[test]
fn refused_allocations_can_set_the_exit_code() {
    let driver = simulated_driver_folder();
    let Some(program) = program(&driver) else {
        return;
    };
    for (words, code, command) in [
        ("github,exitcode=41", 0, "::warning "),
        ("github,exitcode=41,fail_on=lost+oom", 41, "::error "),
    ] {
        let output = run(&program, &driver, &[("LEAK_REPORT", words)]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words}: {stderr}");
        let lines = stderr.lines().filter(|line| line.starts_with(command));
        let lines: Vec<_> = lines.collect();
        assert_eq!(lines.len(), 2, "{stderr}");
        assert!(
            lines[0].contains("title=cuguard%3A refused 3 allocations of device memory"),
            "{stderr}"
        );
        assert!(lines[0].contains("larger than the device"), "{stderr}");
    }
}

/// Two devices, each with memory of every kind that no context owns, and an allocation on each that is refused.
const TWO_DEVICES: &str = r#"
#include "driver.h"
extern int cuInit(unsigned);
extern int cuCtxCreate_v2(Handle *, unsigned, int);
extern int cuCtxSetCurrent(Handle);
extern int cuCtxSynchronize(void);
extern int cuMemAlloc_v2(CUdeviceptr *, size_t);
extern int cuMemHostAlloc(void **, size_t, unsigned);
extern int cuMemAllocAsync(CUdeviceptr *, size_t, Handle);
extern int cuMemAllocFromPoolAsync(CUdeviceptr *, size_t, Handle, Handle);
extern int cuMemPoolCreate(Handle *, const PoolProps *);
extern int cuMemCreate(CUdeviceptr *, size_t, const AllocationProp *, unsigned long long);
static const size_t MIB = 1 << 20;
static Handle contexts[2], pools[2];
static CUdeviceptr memory[8];
static void *host;
static __attribute__((noinline)) void on_first(void) {
    AllocationProp physical = {.type = 1, .location = {1, 0}};
    PoolProps props = {.alloc_type = 1, .location = {1, 0}};
    DO(cuMemAlloc_v2(&memory[0], 128 * MIB));
    DO(cuMemAllocAsync(&memory[1], 64 * MIB, 0));
    DO(cuMemPoolCreate(&pools[0], &props));
    DO(cuMemAllocFromPoolAsync(&memory[2], 64 * MIB, pools[0], 0));
    DO(cuMemCreate(&memory[3], 32 * MIB, &physical, 0));
}
static __attribute__((noinline)) void on_second(void) {
    AllocationProp physical = {.type = 1, .location = {1, 1}};
    PoolProps props = {.alloc_type = 1, .location = {1, 1}};
    DO(cuMemAlloc_v2(&memory[4], 320 * MIB));
    DO(cuMemAllocAsync(&memory[5], 32 * MIB, 0));
    DO(cuMemPoolCreate(&pools[1], &props));
    DO(cuMemAllocFromPoolAsync(&memory[6], 32 * MIB, pools[1], 0));
    DO(cuMemCreate(&memory[7], 16 * MIB, &physical, 0));
}
static __attribute__((noinline)) void ask(void) {
    CUdeviceptr none;
    REFUSED(2, cuMemAlloc_v2(&none, 900 * MIB));
}
static __attribute__((noinline)) void ask_on_second(void) { ask(); }
static __attribute__((noinline)) void ask_on_first(void) { ask(); }
int main(void) {
    DO(cuInit(0));
    DO(cuCtxCreate_v2(&contexts[0], 0, 0));
    on_first();
    DO(cuMemHostAlloc(&host, 8 * MIB, 0));
    DO(cuCtxCreate_v2(&contexts[1], 0, 1));
    on_second();
    ask_on_second();
    DO(cuCtxSetCurrent(contexts[0]));
    ask_on_first();
    return 0;
}"#;

/// The report of a program on two devices of 1 GiB. `None` without a C compiler.
fn report_of(name: &str, source: &str) -> Option<Value> {
    let driver = simulated_driver_folder();
    let linked = ["-Wl,--no-as-needed", "-l:libcuda.so.1"];
    let program = compile(&driver, name, source, &linked)?;
    let variables = [
        ("LEAK_REPORT", "json"),
        ("CUGUARD_SIM", "memory=1GiB,devices=2"),
    ];
    let output = run(&program, &driver, &variables);
    assert_success(&output);
    let stderr = text(&output.stderr);
    let line = stderr.lines().find(|line| line.starts_with('{'));
    Some(serde_json::from_str(line.expect("a report")).expect("JSON"))
}

#[test]
fn the_diagnosis_has_the_memory_of_the_device_that_ran_out() {
    let Some(report) = report_of("two_devices", TWO_DEVICES) else {
        return;
    };
    let diagnosis = |index: usize| report["refused"][index]["diagnosis"].as_str();
    let second = diagnosis(0).expect("a diagnosis");
    let first = diagnosis(1).expect("a diagnosis");
    // Device memory, stream-ordered memory of two pools, physical memory.
    let own = "the program's own data takes";
    for (text, device, here, elsewhere) in [
        (second, 1, [320, 64, 16, 400], "on_first"),
        (first, 0, [128, 128, 32, 288], "on_second"),
    ] {
        assert!(text.contains(&format!(" on device {device},")), "{text}");
        let [device, pooled, physical, sum] = here;
        assert!(text.contains(&format!("{own} {sum} MiB\n")), "{text}");
        for amount in [
            format!("{device} MiB in 1 allocation of device memory; takes {device} MiB in pages"),
            format!("{pooled} MiB in 2 allocations of stream-ordered memory"),
            format!("{physical} MiB in 1 allocation of physical memory"),
            // Of no device.
            "8 MiB in 1 allocation of pinned host memory".to_owned(),
        ] {
            let row = format!("\n  this process      {amount}\n");
            assert!(text.contains(&row), "{row}{text}");
        }
        // The device's default pool and one of the program.
        assert_eq!(text.matches("\n  pool ").count(), 2, "{text}");
        assert!(!text.contains(elsewhere), "{text}");
    }
}

/// A device that is full, and calls that name it while a context on another device is current.
const NOT_CURRENT: &str = r#"
#include "driver.h"
extern int cuInit(unsigned);
extern int cuCtxCreate_v2(Handle *, unsigned, int);
extern int cuCtxSetCurrent(Handle);
extern int cuDevicePrimaryCtxRetain(Handle *, int);
extern int cuMemAlloc_v2(CUdeviceptr *, size_t);
extern int cuMemCreate(CUdeviceptr *, size_t, const AllocationProp *, unsigned long long);
static const size_t MIB = 1 << 20;
static Handle contexts[2];
static CUdeviceptr memory[2];
int main(void) {
    AllocationProp physical = {.type = 1, .location = {1, 1}};
    CUdeviceptr none;
    Handle no_context;
    DO(cuInit(0));
    DO(cuCtxCreate_v2(&contexts[0], 0, 0));
    DO(cuMemAlloc_v2(&memory[0], 100 * MIB));
    DO(cuCtxCreate_v2(&contexts[1], 0, 1));
    DO(cuMemAlloc_v2(&memory[1], 980 * MIB));
    DO(cuCtxSetCurrent(contexts[0]));
    REFUSED(2, cuMemCreate(&none, 64 * MIB, &physical, 0));
    REFUSED(2, cuCtxCreate_v2(&no_context, 0, 1));
    REFUSED(2, cuDevicePrimaryCtxRetain(&no_context, 1));
    return 0;
}"#;

#[test]
fn the_diagnosis_is_of_the_device_that_a_call_names() {
    let Some(report) = report_of("not_current", NOT_CURRENT) else {
        return;
    };
    let refused = report["refused"].as_array().expect("a list");
    assert_eq!(refused.len(), 3, "{report:#}");
    for one in refused {
        let diagnosis = one["diagnosis"].as_str().expect("a text");
        for words in [
            " on device 1,",
            "why: the program's own data takes 980 MiB\n",
            // The driver reports free memory for the current device alone.
            "\n  device            1 GiB, unknown free\n",
        ] {
            assert!(diagnosis.contains(words), "{words}: {diagnosis}");
        }
        assert!(!diagnosis.contains("100 MiB"), "{diagnosis}");
    }
}

/// Page-locked memory that no host has, with device memory that is free and device memory that is not.
const HOST: &str = r#"
#include "driver.h"
extern int cuInit(unsigned);
extern int cuCtxCreate_v2(Handle *, unsigned, int);
extern int cuMemAlloc_v2(CUdeviceptr *, size_t);
extern int cuMemAllocHost_v2(void **, size_t);
extern int cuMemHostAlloc(void **, size_t, unsigned);
static const size_t MIB = 1 << 20, TOO_MUCH = (size_t)1 << 47;
static Handle context;
static CUdeviceptr memory[2];
static void *host;
int main(void) {
    void *none;
    DO(cuInit(0));
    DO(cuCtxCreate_v2(&context, 0, 0));
    DO(cuMemHostAlloc(&host, 24 * MIB, 0));
    DO(cuMemAlloc_v2(&memory[0], 32 * MIB));
    REFUSED(2, cuMemHostAlloc(&none, TOO_MUCH, 0));
    DO(cuMemAlloc_v2(&memory[1], 896 * MIB));
    REFUSED(2, cuMemHostAlloc(&none, TOO_MUCH, 4));
    REFUSED(2, cuMemAllocHost_v2(&none, TOO_MUCH));
    return 0;
}"#;

#[test]
fn host_memory_that_is_refused_has_causes_on_the_host_alone() {
    let driver = simulated_driver_folder();
    let linked = ["-Wl,--no-as-needed", "-l:libcuda.so.1"];
    let Some(program) = compile(&driver, "host", HOST, &linked) else {
        return;
    };
    let variables = [("LEAK_REPORT", "json"), ("CUGUARD_SIM", "memory=1GiB")];
    let output = run(&program, &driver, &variables);
    assert_success(&output);
    let stderr = text(&output.stderr);
    let line = stderr.lines().find(|line| line.starts_with('{'));
    let report: Value = serde_json::from_str(line.expect("a report")).expect("JSON");
    let refused = report["refused"].as_array().expect("a list");
    let kinds: Vec<_> = refused.iter().map(|one| &one["kind"]).collect();
    assert_eq!(kinds, ["pinned", "write_combined", "pinned"]);
    for one in refused {
        let diagnosis = one["diagnosis"].as_str().expect("a text");
        for words in [
            "the host did not page-lock that much; the program holds 24 MiB",
            "ulimit -l",
            "24 MiB in 1 allocation of pinned host memory by main",
        ] {
            assert!(diagnosis.contains(words), "{words}: {diagnosis}");
        }
        for words in [
            "on device",
            "yet it was refused",
            "own data",
            "32 MiB",
            "896 MiB",
        ] {
            assert!(!diagnosis.contains(words), "{words}: {diagnosis}");
        }
    }
}
