//! A call of the driver does not wait for the dynamic linker's lock, which another thread may hold: one that loads a library,
//! and waits in its constructor for the thread that calls.

use std::path::PathBuf;
use std::process::Command;

use crate::support::{Folder, assert_success, audited, compile, text};

/// A driver that only counts. It takes no lock, and has a thread of its own.
const DRIVER: &str = r"
    #include <pthread.h>
    #include <stddef.h>
    static unsigned long long next = 0x7f0000000000ull;
    static void *run(void *unused) { return unused; }
    int cuInit(unsigned flags) { return (int)flags; }
    int cuCtxGetCurrent(void **out) { *out = (void *)0x1000; return 0; }
    int cuMemAlloc_v2(unsigned long long *out, size_t bytes) { (void)bytes; *out = next += 0x10000; return 0; }
    int cuMemFree_v2(unsigned long long address) { (void)address; return 0; }
    int cuCtxSynchronize(void) {
        pthread_t thread;
        int code = pthread_create(&thread, NULL, run, NULL);
        return code ? code : pthread_join(thread, NULL);
    }";

const SOURCE: &str = include_str!("programs/locked.c");

/// A folder with the driver, the library, and the program: linked against the driver, or not.
fn built(arguments: &[&str]) -> Option<(Folder, PathBuf)> {
    let folder = Folder::new("audit");
    let shared = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"];
    compile(&folder, "libcuda.so.1", DRIVER, &shared)?;
    let plugin = ["-DPLUGIN", "-shared", "-fPIC", "-l:libcuda.so.1"];
    compile(&folder, "libplugin.so", SOURCE, &plugin)?;
    let program = compile(&folder, "program", SOURCE, arguments)?;
    Some((folder, program))
}

#[track_caller]
fn passes(arguments: &[&str], what: &str) {
    let Some((folder, program)) = built(arguments) else {
        return;
    };
    let run = |mut command: Command| {
        command.arg(folder.join("libplugin.so")).env("WHAT", what);
        command.output().expect("the program can be started")
    };
    // As without the library.
    let mut plain = audited(&program, &folder);
    plain.env_remove("LD_PRELOAD");
    assert_success(&run(plain));
    for words in ["0", "1"] {
        let mut command = audited(&program, &folder);
        command.env("LEAK_REPORT", words);
        let output = run(command);
        assert_success(&output);
        let reported = match what {
            "report" => "reported: 0\n",
            _ => "",
        };
        assert_eq!(text(&output.stdout), format!("{reported}loaded\n"));
    }
}

const LINKED: &[&str] = &["-DLINKED", "-Wl,--no-as-needed", "-l:libcuda.so.1"];

#[test]
fn the_first_call_of_a_thread() {
    passes(LINKED, "later");
}

#[test]
fn the_first_call_of_the_process() {
    passes(LINKED, "first");
}

/// The driver is loaded with the library.
#[test]
fn the_first_call_where_the_driver_is_loaded_later() {
    passes(&[], "first");
}

/// The threads of the search start while the lock is held.
#[test]
fn a_report_that_a_constructor_requests() {
    passes(LINKED, "report");
}
