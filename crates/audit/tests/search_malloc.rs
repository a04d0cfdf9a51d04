//! What glibc's `malloc` points to itself does not count: it has the addresses of chunk headers, each of which is also one of the
//! last 8 bytes of the block before it.

use std::path::PathBuf;

use crate::support::{
    Folder, assert_success, audited, compile, programs, simulated_driver_folder, text,
};

/// The program, and the folder that it is in. `None` without a C compiler.
fn program(optimization: &str) -> Option<(Folder, PathBuf)> {
    let folder = simulated_driver_folder();
    let source = programs().join("search_malloc.c");
    let source = std::fs::read_to_string(source).expect("the program's text is there");
    // Or the compiler leaves out blocks that are only freed.
    let arguments = [optimization, "-fno-builtin", "-l:libcuda.so.1"];
    let program = compile(&folder, "blocks", &source, &arguments)?;
    Some((folder, program))
}

/// Requested and usable sizes of blocks.
const SIZES: [(&str, &str); 4] = [
    ("16", "24 B"),
    ("24", "24 B"),
    ("32", "40 B"),
    ("1008", "1016 B"),
];

/// What is behind blocks of one size.
const BEHIND: [&str; 7] = [
    "fast bin",
    "unsorted",
    "small bin",
    "large bin",
    "remainder",
    "remainder in use",
    "like a chunk",
];

/// Checks blocks in the main arena or a thread's, each one that nothing leads to, and one whose last element the program has.
#[track_caller]
fn check(thread: Option<&str>, tunables: &str) {
    let sizes = SIZES.map(|(size, usable)| (size, usable, "top"));
    let behind = BEHIND.map(|behind| (SIZES[1].0, SIZES[1].1, behind));
    let mut wrong = Vec::new();
    for optimization in ["-O0", "-O2"] {
        let Some((folder, program)) = program(optimization) else {
            return;
        };
        for (size, usable, behind) in sizes.into_iter().chain(behind) {
            let lost = format!("lost: only in a lost heap block of {usable}");
            let kept = format!("reachable: global `last` in blocks → heap block of {usable}");
            for (fate, expected) in [("lost", lost), ("kept", kept)] {
                let output = audited(&program, &folder)
                    .args([fate, size, behind])
                    .args(thread)
                    .env("LEAK_REPORT", "0")
                    .env("GLIBC_TUNABLES", tunables)
                    .output()
                    .expect("the program can be started");
                assert_success(&output);
                let printed = text(&output.stdout);
                let line = printed.lines().next().unwrap_or_default();
                if line != expected {
                    wrong.push(format!(
                        "{optimization} {fate} {size} {behind}: `{line}`, not `{expected}`"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn blocks_of_the_main_arena() {
    check(None, "");
}

/// Without thread caches what is freed goes to the arena, and the first block of the heap is the program's.
#[test]
fn blocks_of_the_main_arena_without_thread_caches() {
    check(None, "glibc.malloc.tcache_count=0");
}

#[test]
fn blocks_of_an_arena_whose_thread_lives() {
    check(Some("alive"), "");
}

#[test]
fn blocks_of_an_arena_whose_thread_ended() {
    check(Some("ended"), "");
}
