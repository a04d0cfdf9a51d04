//! Allocations that the driver refuses for lack of memory: the diagnosis, and what the reports have of it.

mod support;

use std::path::PathBuf;

use serde_json::{Value, json};
use support::{Folder, assert_success, compile, run, simulated_driver_folder, text};

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
