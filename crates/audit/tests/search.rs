//! Which addresses a program still holds: what is lost and what is reachable, and from where.
//!
//! The programs call the library's exported search. They keep addresses masked, so that they hold them only where the
//! test wants them to.

use crate::support;
use cuguard_testing::{Requirement, not_run};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{
    Folder, assert_success, audited, compile, programs, simulated_driver_folder, text,
};

/// The text of a program in `tests/programs`.
fn source(name: &str) -> String {
    std::fs::read_to_string(programs().join(name)).expect("the program's text is there")
}

/// Runs a program without its report at the end.
fn run(program: &Path, arguments: &[&str], folder: &Folder) -> Output {
    let mut command = audited(program, folder);
    command.args(arguments).env("LEAK_REPORT", "0");
    let output = command.output().expect("the program can be started");
    assert_success(&output);
    output
}

/// Runs a program for each shape and compares the first line that it prints. A `%` stands for a number.
#[track_caller]
fn check(program: &Path, first: &[&str], folder: &Folder, shapes: &[(&str, &str)]) {
    let mut wrong = Vec::new();
    for (shape, expected) in shapes {
        let arguments: Vec<_> = first.iter().chain([shape]).copied().collect();
        let output = run(program, &arguments, folder);
        let printed = text(&output.stdout);
        let line = printed.lines().next().unwrap_or("");
        if without_numbers(line) != *expected {
            wrong.push(format!("{shape}: `{line}`, not `{expected}`"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Replaces the numbers of threads.
fn without_numbers(line: &str) -> String {
    match line.split_once("thread ") {
        Some((before, after)) if after.starts_with(|first: char| first.is_ascii_digit()) => {
            let rest = after.trim_start_matches(|digit: char| digit.is_ascii_digit());
            format!("{before}thread %{rest}")
        }
        _ => line.to_owned(),
    }
}

const SHAPES: &[(&str, &str)] = &[
    ("only in the driver", "lost"),
    ("global", "reachable: global `exported_variable` in shapes"),
    (
        "global of C++",
        "reachable: global `model::cache` in shapes",
    ),
    ("static array", "reachable: global `array` in shapes"),
    ("inside a struct", "reachable: global `structure` in shapes"),
    (
        "interior",
        "reachable: global `exported_variable` in shapes",
    ),
    ("behind the end", "lost"),
    ("overwritten", "lost"),
    (
        "thread-local",
        "reachable: thread-local `slot` in shapes, the main thread",
    ),
    (
        "heap",
        "reachable: global `list` in shapes → heap block of 24 B",
    ),
    (
        "large block",
        "reachable: global `list` in shapes → heap block of 1.00 MiB",
    ),
    ("anonymous mapping", "reachable: the heap"),
    ("shared memory", "reachable: mapping /memfd:table (deleted)"),
    ("stack", "reachable: the stack of the main thread"),
    (
        "stack after a child was ended",
        "reachable: the stack of the main thread",
    ),
    (
        "stack of a thread",
        "reachable: the stack of thread % (holder)",
    ),
    ("stack of a thread that ended", "lost"),
    (
        "thread-local of a thread",
        "reachable: thread-local `slot` in shapes, thread % (holder)",
    ),
    (
        "thread-specific",
        "reachable: thread-local storage, thread % (holder)",
    ),
    (
        "stack of a thread that blocks signals",
        "reachable: the stack of thread % (holder)",
    ),
    // Not found; its registers are not known.
    ("dead frame of a thread that blocks signals", "alive"),
    (
        "heap of a thread",
        "lost: only in a lost heap block of 40 B",
    ),
    ("freed in the heap of a thread", "lost"),
    (
        "in a child",
        "reachable: global `exported_variable` in shapes",
    ),
    ("stack of a thread of the parent", "lost"),
    ("freed holder", "lost"),
    ("freed holders in fast bins", "lost"),
    ("freed holder of 5000 bytes", "lost"),
    ("freed holders of 5000 bytes", "lost"),
    ("freed holder at the end of the heap", "lost"),
    ("freed large block", "lost"),
    ("register", "reachable: a register of thread % (holder)"),
    (
        "vector register",
        "reachable: a register of thread % (holder)",
    ),
];

#[test]
fn shapes_of_c_programs() {
    let folder = simulated_driver_folder();
    for optimisation in ["-O0", "-O2"] {
        let arguments = [optimisation, "-l:libcuda.so.1"];
        let Some(program) = compile(&folder, "shapes", &source("search_shapes.c"), &arguments)
        else {
            return;
        };
        check(&program, &[], &folder, SHAPES);
    }
}

/// Memory, variables, thread-local variables and stacks of the driver's libraries are left out.
/// Which blocks of the heap the program can reach decides over what is in them.
const IN_BLOCKS: &[(&str, &str)] = &[
    ("lost node", "lost: only in a lost heap block of 24 B"),
    ("lost list", "lost: only in a lost heap block of 24 B"),
    (
        "lost behind tzname",
        "lost: only in a lost heap block of 24 B",
    ),
    ("lost ring", "lost: only in a lost heap block of 24 B"),
    ("lost table", "lost: only in a lost heap block of 24 B"),
    (
        "lost large table",
        "lost: only in a lost heap block of 24 B",
    ),
    ("lost object", "lost: only in a lost `Model` object of 24 B"),
    (
        "list",
        "reachable: global `head` in blocks → heap block of 24 B",
    ),
    (
        "long list",
        "reachable: global `head` in blocks → heap block of 24 B",
    ),
    (
        "both",
        "reachable: global `head` in blocks → heap block of 24 B",
    ),
    (
        "object",
        "reachable: global `model` in blocks → `Model` object of 24 B",
    ),
    (
        "object in a table",
        "reachable: global `table` in blocks → heap block of 648 B → `Model` object of 24 B",
    ),
    (
        "inside",
        "reachable: global `numbers` in blocks → heap block of 7.82 KiB",
    ),
    (
        "behind the end",
        "reachable: global `numbers` in blocks → heap block of 408 B",
    ),
    (
        "counted from one",
        "reachable: global `numbers` in blocks → heap block of 408 B",
    ),
    (
        "pairs counted from one",
        "reachable: global `numbers` in blocks → heap block of 408 B",
    ),
    (
        "tagged",
        "reachable: global `edge` in blocks → heap block of 24 B",
    ),
    (
        "stack",
        "reachable: the stack of the main thread → heap block of 24 B",
    ),
    (
        "anonymous mapping",
        "reachable: an anonymous mapping → heap block of 24 B",
    ),
    (
        "stack of a thread",
        "reachable: thread-local storage, thread % (blocks) → heap block of 24 B",
    ),
    (
        "thread-local of a thread",
        "reachable: thread-local `slot` in blocks, thread % (blocks) → heap block of 24 B",
    ),
    // The driver will call back with it.
    ("callback", "reachable: the driver → heap block of 24 B"),
];

#[test]
fn shapes_of_blocks_of_the_heap() {
    let folder = simulated_driver_folder();
    let program = folder.join("blocks");
    for optimisation in ["-O0", "-O2"] {
        let compiled = Command::new(cuguard_testing::cxx())
            .args([optimisation, "-g", "-pthread", "-o"])
            .args([&program, &programs().join("search_blocks.cpp")])
            .arg("-L")
            .arg(folder.path())
            .args(["-l:libcuda.so.1", "-ldl"])
            .output();
        let Ok(compiled) = compiled else {
            return not_run(Requirement::CxxCompiler, "");
        };
        assert_success(&compiled);
        check(&program, &[], &folder, IN_BLOCKS);
    }
}

#[test]
fn what_only_the_driver_holds_is_lost() {
    let folder = simulated_driver_folder();
    let library = ["-fPIC", "-shared", "-O1"];
    if compile(&folder, "libcuda.so.2", &source("heap_driver.c"), &library).is_none() {
        return;
    }
    let arguments = ["-O1", "-l:libcuda.so.2", "-l:libcuda.so.1"];
    let Some(program) = compile(&folder, "driver", &source("search_driver.c"), &arguments) else {
        return;
    };
    check(
        &program,
        &[],
        &folder,
        &[
            ("variable", "lost"),
            ("thread-local", "lost"),
            ("heap", "lost"),
            ("thread", "lost"),
        ],
    );
    // Under another name it is a library of the program, which holds the address.
    std::fs::rename(folder.join("libcuda.so.2"), folder.join("libplain.so")).expect("a file");
    let arguments = ["-O1", "-l:libplain.so", "-l:libcuda.so.1"];
    let program =
        compile(&folder, "plain", &source("search_driver.c"), &arguments).expect("a compiler");
    check(
        &program,
        &[],
        &folder,
        &[
            ("variable", "reachable: global `variable` in libplain.so"),
            (
                "thread-local",
                "reachable: thread-local `thread_local_variable` in libplain.so, the main thread",
            ),
            ("heap", "lost: only in a lost heap block of 72 B"),
            ("thread", "reachable: the stack of thread % (plain)"),
        ],
    );
}

#[test]
fn shapes_of_a_rust_program() {
    let folder = simulated_driver_folder();
    let program = folder.join("holder");
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let compiled = Command::new(compiler)
        .args(["--edition", "2024", "-C", "link-arg=-l:libcuda.so.1", "-L"])
        .arg(folder.path())
        .arg("-o")
        .args([&program, &programs().join("search_static.rs")])
        .output();
    let Ok(compiled) = compiled else {
        return not_run(Requirement::Rustc, "");
    };
    assert_success(&compiled);
    check(
        &program,
        &[],
        &folder,
        &[
            ("nothing", "lost"),
            (
                "static",
                "reachable: global `search_static::CACHE` in holder",
            ),
            (
                "vector",
                "reachable: global `search_static::TABLE` in holder → heap block of 40 B",
            ),
            ("dropped vector", "lost"),
        ],
    );
}

#[test]
fn shapes_of_a_python_program() {
    let folder = simulated_driver_folder();
    // The interpreter itself, not a script that selects one.
    let found = Command::new("python3")
        .args(["-c", "import ctypes, sys; print(sys.executable)"])
        .output();
    let python = match found {
        Ok(found) if found.status.success() => PathBuf::from(text(&found.stdout).trim()),
        _ => return not_run(Requirement::Python, "with ctypes"),
    };
    let script = programs().join("search_python.py");
    let script = script.to_str().expect("a path in UTF-8");
    check(
        &python,
        &[script],
        &folder,
        &[
            ("nothing", "lost"),
            ("integer", "reachable: the heap"),
            ("dropped integer", "lost"),
            ("ctypes object", "reachable: the heap"),
            ("dropped ctypes object", "lost"),
        ],
    );
}

/// Each of them is found or lost as it should be, while threads allocate and free.
#[test]
fn a_million_addresses_and_many_threads() {
    let folder = simulated_driver_folder();
    let arguments = ["-O1", "-l:libcuda.so.1"];
    let Some(program) = compile(&folder, "many", &source("search_many.c"), &arguments) else {
        return;
    };
    for arguments in [["0", "1", "1000000"], ["32", "10", "1000"]] {
        let output = run(&program, &arguments, &folder);
        let printed = text(&output.stdout);
        assert!(printed.ends_with("all threads ran on\n"), "{printed}");
    }
}

/// Blocks that a thread freed before it ended look like free ones when they are allocated again.
#[test]
fn blocks_that_carry_the_key_of_a_thread_cache() {
    let folder = simulated_driver_folder();
    let arguments = ["-O1", "-l:libcuda.so.1"];
    let source = source("search_thread_cache.c");
    let Some(program) = compile(&folder, "cache", &source, &arguments) else {
        return;
    };
    for arguments in [["8", "0"], ["40", "0"], ["40", "2"], ["100", "11"]] {
        let output = run(&program, &arguments, &folder);
        let printed = text(&output.stdout);
        assert_eq!(
            printed, "0 of 200 addresses are lost\n",
            "in word {1} of blocks of {0} bytes",
            arguments[0], arguments[1]
        );
    }
}

/// Then the driver's memory cannot be told apart, and the search says so.
#[test]
fn a_program_with_its_own_malloc() {
    let folder = simulated_driver_folder();
    let arguments = ["-fno-builtin", "-l:libcuda.so.1"];
    let Some(program) = compile(&folder, "own", &source("own_malloc.c"), &arguments) else {
        return;
    };
    let output = run(&program, &[], &folder);
    let printed = text(&output.stdout);
    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(lines.len(), 4, "{printed}");
    assert!(
        lines[0].starts_with("reachable: global `memory`"),
        "{printed}"
    );
    assert!(
        lines[1].contains("the program has its own malloc"),
        "{printed}"
    );
    assert_eq!(lines[2], "reachable: global `variable` in own");
}

/// An allocator that is preloaded behind the library stays in use, and the driver's memory is still apart.
#[test]
fn another_allocator_is_preloaded() {
    let folder = simulated_driver_folder();
    let arguments = ["-fno-builtin", "-DLIBRARY", "-fPIC", "-shared"];
    let Some(other) = compile(&folder, "libother.so", &source("own_malloc.c"), &arguments) else {
        return;
    };
    let arguments = ["-O1", "-l:libcuda.so.1"];
    let program = compile(&folder, "shapes", &source("search_shapes.c"), &arguments);
    let program = program.expect("a compiler");
    let preloaded = format!("{}:{}", support::library().display(), other.display());
    for (shape, expected) in [
        ("only in the driver", "lost"),
        ("heap", "reachable: global `memory`"),
        ("global", "reachable: global `exported_variable` in shapes"),
        // That allocator's freed memory cannot be recognised.
        ("freed holder", "reachable: global `memory`"),
    ] {
        let output = audited(&program, &folder)
            .arg(shape)
            .env("LD_PRELOAD", &preloaded)
            .env("LEAK_REPORT", "0")
            .output()
            .expect("the program can be started");
        assert_success(&output);
        let printed = text(&output.stdout);
        assert!(printed.starts_with(expected), "{shape}: {printed}");
        assert!(!printed.contains("malloc"), "{shape}: {printed}");
    }
}
