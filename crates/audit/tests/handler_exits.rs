//! A signal handler of the program that ends the process in the middle of a call of the driver.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{Folder, audited, compile, text};

/// A driver that allocates host memory in a call, or sends a signal.
const DRIVER: &str = r"
    #include <signal.h>
    #include <stddef.h>
    #include <stdlib.h>
    int cuInit(unsigned flags) { return (int)flags; }
    int cuCtxGetCurrent(void **out) { *out = (void *)0x1000; return 0; }
    int cuMemAlloc_v2(unsigned long long *out, size_t bytes) {
        *out = (unsigned long long)malloc(bytes);
        return 0;
    }
    int cuMemFree_v2(unsigned long long address) { (void)address; return raise(SIGTERM); }";

/// The system call by which the audit library makes memory usable is its own here. It sends the signal.
const PROGRAM: &str = r#"
    #define _GNU_SOURCE
    #include <signal.h>
    #include <stddef.h>
    #include <string.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    int cuInit(unsigned);
    int cuMemAlloc_v2(unsigned long long *, size_t);
    int cuMemFree_v2(unsigned long long);

    static volatile int is_armed;
    int mprotect(void *address, size_t length, int protection) {
        int is_first = is_armed;
        is_armed = 0;
        if (is_first) raise(SIGTERM);
        return (int)syscall(SYS_mprotect, address, length, protection);
    }

    static void end(int signal) {
        (void)signal;
        _exit(5);
    }

    int main(int count, char **arguments) {
        unsigned long long memory;
        signal(SIGTERM, end);
        if (count != 2 || cuInit(0) || cuMemAlloc_v2(&memory, 100)) return 1;
        if (!strcmp(arguments[1], "free")) return cuMemFree_v2(memory);
        is_armed = 1;
        return cuMemAlloc_v2(&memory, 512 << 20);
    }"#;

/// What the program writes to standard error. It ends with 5.
fn run(call: &str) -> Option<String> {
    let folder = Folder::new("audit");
    let shared = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"];
    compile(&folder, "libcuda.so.1", DRIVER, &shared)?;
    let arguments = ["-rdynamic", "-l:libcuda.so.1"];
    let program = compile(&folder, "program", PROGRAM, &arguments)?;
    let mut child = audited(&program, &folder)
        .arg(call)
        .env("LEAK_REPORT", "1")
        // So that one that waits for the limit is noticed.
        .env("CUGUARD_REPORT_LIMIT", "100000")
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    let until = Instant::now() + Duration::from_secs(60);
    while child.try_wait().expect("it can be waited for").is_none() {
        if Instant::now() > until {
            let _ = child.kill();
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().expect("it can be waited for");
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{}: {stderr}", output.status);
    Some(stderr)
}

#[test]
fn a_call_that_holds_no_lock_has_a_report() {
    if let Some(stderr) = run("free") {
        assert!(stderr.contains("ended by _exit"), "{stderr}");
    }
}

/// The interrupted thread has a lock of the audit library's own memory, so that no thread can make a report.
#[test]
fn an_allocation_of_the_driver_does_not_hang() {
    if let Some(stderr) = run("allocate") {
        assert!(stderr.contains(": no report: "), "{stderr}");
    }
}
