//! Frames of Python in the report, of every interpreter of this machine, with and without its lock.

use std::path::Path;
use std::process::Command;

use crate::report::stack;
use crate::support::{assert_success, audited, simulated_driver_folder, text};
use cuguard_testing::{Requirement, not_run};
use serde_json::Value;

const PYTHON: &str = r#"
import ctypes, sys
cuda = getattr(ctypes, sys.argv[1])("libcuda.so.1")

def check(code):
    assert code == 0, code

def allocate(size):
    address = ctypes.c_uint64()
    check(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)))
    return address.value

class Model:
    def load(self):
        self.weights = allocate(3000)

context = ctypes.c_void_p()
check(cuda.cuInit(0))
check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
model = Model()
model.load()
try:
    raise ValueError("kept")
except ValueError as error:
    other = [allocate(size) for size in (100, 200)]
    assert str(sys.exc_info()[1]) == "kept"
sys.stdout.write("done\n")
import os
os._exit(0)
"#;

/// Names beyond ASCII, of one and of two bytes a character; a generator; a thread; a deep stack.
const SHAPES: &str = r#"
import ctypes, sys, threading
cuda = getattr(ctypes, sys.argv[1])("libcuda.so.1")

def allocate(size):
    address = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)) == 0

def größe():
    allocate(1000)

def 記憶():
    allocate(2000)

def generate():
    yield allocate(3000)

def work(context):
    assert cuda.cuCtxSetCurrent(context) == 0
    allocate(4000)

class Block:
    def __init__(self):
        allocate(6000)

def deep(levels):
    return deep(levels - 1) if levels else allocate(5000)

context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
größe()
記憶()
list(generate())
thread = threading.Thread(target=work, args=(context,))
thread.start()
thread.join()
deep(200)
kept = []
for _ in range(100):
    kept.append(Block())
sys.stdout.write("done\n")
import os
os._exit(0)
"#;

/// Whatever a frame is, it is read the same way with and without the lock.
#[test]
fn shapes_of_python_frames() {
    let mut ran = 0;
    for interpreter in interpreters() {
        let version = Command::new(&interpreter).arg("--version").output();
        if !version.is_ok_and(|output| output.status.success()) {
            continue;
        }
        for library in ["PyDLL", "CDLL"] {
            if library == "CDLL" && !is_read_without_lock(&interpreter) {
                continue;
            }
            let Some(report) = python_script(SHAPES, &interpreter, library, "") else {
                continue;
            };
            ran += 1;
            let what = format!("{interpreter}, {library}");
            let functions =
                |bytes| -> Vec<_> { stack(&report, bytes).iter().map(|frame| frame.0).collect() };
            assert_eq!(functions(1000), ["allocate", "größe", "<module>"], "{what}");
            assert_eq!(functions(2000), ["allocate", "記憶", "<module>"], "{what}");
            assert_eq!(
                functions(3000),
                ["allocate", "generate", "<module>"],
                "{what}"
            );
            let thread = functions(4000);
            assert_eq!(thread[..2], ["allocate", "work"], "{what}");
            assert!(thread[2].ends_with("run"), "{what}: {thread:?}");
            // One stack, also once the interpreter has specialized the call.
            let init = functions(600_000);
            assert!(matches!(init[0], "allocate"), "{what}");
            assert!(
                matches!(init[1], "__init__" | "Block.__init__"),
                "{what}: {init:?}"
            );
            assert_eq!(init[2..], ["<module>"], "{what}");
            // The innermost frames of a stack that is deeper than the limit.
            let deep = functions(5000);
            assert_eq!(
                (deep[0], deep[1], deep.len()),
                ("allocate", "deep", 32),
                "{what}"
            );
        }
    }
    if ran == 0 {
        not_run(Requirement::Python, "3.9 or newer");
    }
}

/// Runs the program under a Python, and returns its report. `None` where it cannot run.
fn python(interpreter: &str, library: &str, words: &str) -> Option<Value> {
    python_script(PYTHON, interpreter, library, words)
}

/// Runs a script under a Python, and returns its report. `None` where it cannot run.
fn python_script(script: &str, interpreter: &str, library: &str, words: &str) -> Option<Value> {
    let driver = simulated_driver_folder();
    let (file, report) = (driver.join("model.py"), driver.join("report.json"));
    std::fs::write(&file, script).unwrap();
    let words = format!("json,file={}{words}", report.display());
    let output = audited(Path::new(interpreter), &driver)
        .args([file.as_os_str(), library.as_ref()])
        .env("LEAK_REPORT", words)
        .output();
    let Ok(output) = output else {
        not_run(Requirement::OtherPythons, interpreter);
        return None;
    };
    assert_success(&output);
    assert_eq!(text(&output.stdout), "done\n");
    let report = std::fs::read_to_string(report).unwrap();
    Some(serde_json::from_str(&report).unwrap())
}

fn interpreters() -> Vec<String> {
    let mut all = vec!["python3".to_owned()];
    all.extend((9..=15).map(|minor| format!("python3.{minor}")));
    // Those of pyenv.
    let home = std::env::var("PYENV_ROOT").or_else(|_| Ok(std::env::var("HOME")? + "/.pyenv"));
    let versions = home
        .map_err(|_: std::env::VarError| ())
        .and_then(|home| std::fs::read_dir(home + "/versions").map_err(|_| ()));
    for version in versions.into_iter().flatten().flatten() {
        let name = version.file_name();
        let minor = name
            .to_str()
            .and_then(|name| name.strip_prefix("3.")?.split('.').next()?.parse().ok());
        if minor.is_some_and(|minor: u32| minor >= 9) {
            all.extend(
                version
                    .path()
                    .join("bin/python3")
                    .to_str()
                    .map(str::to_owned),
            );
        }
    }
    all
}

/// Every interpreter of this machine, with functions that keep the lock during a call.
#[test]
fn python_frames_are_named_where_the_lock_is_held() {
    python_frames_are_named("PyDLL", "");
}

/// The same with functions that release it.
#[test]
fn python_frames_are_read_where_the_lock_is_released() {
    python_frames_are_named("CDLL", "");
}

/// Whether frames can be read without the lock.
fn is_read_without_lock(interpreter: &str) -> bool {
    let code = "import sys; sys.exit(sys.version_info >= (3, 16))";
    let run = Command::new(interpreter).args(["-c", code]).output();
    run.is_ok_and(|run| run.status.success())
}

fn python_frames_are_named(library: &str, words: &str) {
    let mut ran = 0;
    for interpreter in interpreters() {
        let version = Command::new(&interpreter).arg("--version").output();
        if !version.is_ok_and(|output| output.status.success()) {
            continue;
        }
        if library == "CDLL" && !is_read_without_lock(&interpreter) {
            not_run(
                Requirement::OtherPythons,
                format_args!("{interpreter} is newer than 3.15"),
            );
            continue;
        }
        let Some(report) = python(&interpreter, library, words) else {
            continue;
        };
        ran += 1;
        let load = stack(&report, 3000);
        let name = load[1].0;
        // `co_qualname` is of 3.11 and later.
        assert!(
            name == "Model.load" || name == "load",
            "{interpreter}: {load:?}"
        );
        let expected = [
            ("allocate", "model.py", 10),
            (name, "model.py", 15),
            ("<module>", "model.py", 21),
        ];
        assert_eq!(load, expected, "{interpreter}");
        let list = stack(&report, 300);
        assert_eq!(list[0], expected[0], "{interpreter}");
        assert_eq!(
            list[list.len() - 1],
            ("<module>", "model.py", 25),
            "{interpreter}"
        );
    }
    if ran == 0 {
        not_run(Requirement::Python, "3.9 or newer");
    }
}

/// Native frames alone, and none of the audit library, which is where the program calls it, and below `main`.
#[test]
fn python_frames_are_left_out_where_they_are_turned_off() {
    for (library, words) in [
        ("CDLL", ",python=no"),
        ("PyDLL", ",python=no"),
        ("CDLL", ",python=no,frames=all,depth=128"),
        ("CDLL", ",python=no,level=sites"),
        ("CDLL", ",frames=all,depth=128"),
    ] {
        let Some(report) = python("python3", library, words) else {
            return;
        };
        assert_eq!(report["totals"][0]["live_bytes"], 3300);
        for own in ["cuguard_audit", "main_then_exit", "crates/audit/src"] {
            assert!(!report.to_string().contains(own), "{own}: {report:#}");
        }
        if !words.contains("python=no") {
            continue;
        }
        let files = report.to_string().contains("model.py\",\"line\"");
        assert!(!files, "{library}: {report:#}");
        assert!(!report.to_string().contains("Model.load"), "{report:#}");
    }
}
