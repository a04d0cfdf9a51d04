//! The library works as `libcuda.so.1`: for a C program that is linked against it, a C program that
//! looks up all functions by name, and a Rust program that selects it as its driver.
//!
//! The C programs need a C compiler. Without one, those tests print that they were not run.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cuguard_driver::sys::CUcontext;
use cuguard_driver::{DriverKind, api, load};
use cuguard_testing::Folder;

const ANNOUNCEMENT: &str =
    "cuguard: using the simulated GPU (this libcuda.so.1 is cuguard-libcuda-sim)";

/// The library that cargo built for this test: in the folder of the test program, or its parent.
fn library() -> PathBuf {
    let program = std::env::current_exe().expect("this program has a file");
    let folders = program.ancestors().skip(1).take(2);
    let candidates: Vec<_> = folders
        .map(|folder| folder.join("libcuda_sim.so"))
        .collect();
    match candidates.iter().find(|file| file.is_file()) {
        Some(file) => file.clone(),
        None => panic!("the library was not built; looked for {candidates:?}"),
    }
}

/// A folder with the library as `libcuda.so.1`.
fn folder_with_libcuda(name: &str) -> Folder {
    let folder = Folder::new(&format!("libcuda-sim-{name}"));
    std::os::unix::fs::symlink(library(), folder.join("libcuda.so.1"))
        .expect("a link can be created");
    folder
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn assert_success(output: &Output) {
    assert!(
        output.status.success(),
        "{}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
}

#[track_caller]
fn assert_announced_once(output: &Output) {
    let stderr = text(&output.stderr);
    let lines = stderr.lines().filter(|line| line.contains("simulated GPU"));
    assert_eq!(lines.collect::<Vec<_>>(), [ANNOUNCEMENT], "{stderr}");
}

/// Compiles a C program in a folder. `None` without a C compiler, with a line on stderr.
fn compile(folder: &Path, code: &str, arguments: &[&str]) -> Option<PathBuf> {
    let options = ["-std=c99", "-Wall", "-Werror", "-L"].map(OsStr::new);
    let all = options.into_iter().chain([folder.as_os_str()]);
    let all = all.chain(arguments.iter().map(OsStr::new));
    cuguard_testing::compile(&folder.join("program"), code, all)
}

#[test]
fn a_c_program_links_against_it_and_runs() {
    let folder = folder_with_libcuda("linked");
    let Some(program) = compile(&folder, include_str!("plain.c"), &["-l:libcuda.so.1"]) else {
        return;
    };
    // The program loads the library by its soname: with another one it would not start.
    let output = Command::new(&program)
        .env("LD_LIBRARY_PATH", &folder)
        .output()
        .expect("the program can be started");
    assert_success(&output);
    let stdout = text(&output.stdout);
    assert!(
        stdout.contains("1000 numbers came back as they were sent"),
        "{stdout}"
    );
    assert_announced_once(&output);
}

/// However a program looks up `cuInit`, the notice is printed.
#[test]
fn a_c_program_that_gets_its_functions_by_name_is_told_too() {
    let folder = folder_with_libcuda("by-name");
    let Some(program) = compile(&folder, include_str!("by_name.c"), &["-ldl"]) else {
        return;
    };
    for interface in ["1", "2"] {
        let output = Command::new(&program)
            .arg(interface)
            .env("LD_LIBRARY_PATH", &folder)
            .output()
            .expect("the program can be started");
        assert_success(&output);
        let stdout = text(&output.stdout);
        assert!(stdout.contains("all functions were found"), "{stdout}");
        assert_announced_once(&output);
    }
}

/// Without a C compiler, a test that needs one prints that it was not run, or fails where one is required.
#[test]
fn a_test_that_cannot_run_says_so() {
    for (required, passes) in [("", true), ("all,-cc", true), ("cc", false), ("all", false)] {
        let test = "a_c_program_links_against_it_and_runs";
        let output = cuguard_testing::test_command(test)
            .env("CC", "/nonexistent/cc")
            .env("CUGUARD_REQUIRE", required)
            .output()
            .expect("a child can be started");
        let stderr = text(&output.stderr);
        assert_eq!(output.status.success(), passes, "{required}: {stderr}");
        let line = format!("NOT RUN: {test}: needs a C compiler");
        assert_eq!(stderr.contains(&line), passes, "{required}: {stderr}");
    }
}

/// Runs itself as a child process, which loads the driver: by path, and as an installed driver.
#[test]
fn a_rust_program_loads_it_through_the_door() {
    const CHILD: &str = "CUGUARD_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        use_through_the_door();
        return;
    }
    let folder = folder_with_libcuda("door");
    let program = std::env::current_exe().expect("this program has a file");
    for driver in [library(), PathBuf::from("real"), PathBuf::from("auto")] {
        let output = Command::new(&program)
            .args(["--exact", "a_rust_program_loads_it_through_the_door"])
            .arg("--nocapture")
            .env(CHILD, "1")
            .env("CUGUARD_DRIVER", driver)
            .env("LD_LIBRARY_PATH", &folder)
            .output()
            .expect("a child can be started");
        assert_success(&output);
        let stdout = text(&output.stdout);
        assert!(stdout.contains("came back: [3, 1, 4, 1, 5]"), "{stdout}");
        assert_announced_once(&output);
    }
}

fn use_through_the_door() {
    let driver = load().expect("the library loads");
    assert_eq!(driver.kind(), DriverKind::Simulated);
    // Only drivers of integrated GPUs have that one.
    assert_eq!(driver.missing(), ["cuEventCreateFromEGLSync"]);

    let sent = [3_u32, 1, 4, 1, 5];
    let mut received = [0_u32; 5];
    let bytes = size_of_val(&sent);
    let (mut context, mut memory) = (CUcontext::NULL, 0);
    // SAFETY: the calls are in the order that the driver requires; out-pointers are valid, and copies
    // are within bounds.
    let codes = unsafe {
        [
            api::cuInit(0),
            api::cuCtxCreate_v2(&mut context, 0, 0),
            api::cuMemAlloc_v2(&mut memory, bytes),
            api::cuMemcpyHtoD_v2(memory, sent.as_ptr().cast(), bytes),
            api::cuMemcpyDtoH_v2(received.as_mut_ptr().cast(), memory, bytes),
            api::cuMemFree_v2(memory),
            api::cuCtxDestroy_v2(context),
        ]
    };
    for code in codes {
        assert!(code.is_success(), "{codes:?}");
    }
    println!("came back: {received:?}");
}
