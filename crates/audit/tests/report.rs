//! The report of programs under the audit library: fates, stacks that people recognize, tables, growth, the peak.

use std::path::Path;
use std::process::Command;

use crate::support::{
    Folder, assert_success, audited, compile, json, run, simulated_driver_folder, text,
};
use cuguard_testing::{Requirement, not_run};
use serde_json::Value;

/// What the programs use of the driver.
const DRIVER: &str = r#"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef int CUresult;
typedef unsigned long long CUdeviceptr;
typedef void *CUcontext, *CUstream;
#ifdef __cplusplus
extern "C" {
#endif
CUresult cuInit(unsigned);
CUresult cuCtxCreate_v2(CUcontext *, unsigned, int);
CUresult cuCtxDestroy_v2(CUcontext);
CUresult cuMemAlloc_v2(CUdeviceptr *, size_t);
CUresult cuMemFree_v2(CUdeviceptr);
#ifdef __cplusplus
}
#endif
#define CHECK(call) do { if ((call) != 0) { puts(#call); exit(9); } } while (0)
#define APART __attribute__((noinline, unused))
static APART void clobber(void) { volatile char stack[65536]; memset((void *)stack, 0, sizeof stack); }
static CUcontext context;
static inline void begin(void) { CHECK(cuInit(0)); CHECK(cuCtxCreate_v2(&context, 0, 0)); }
/* Allocates, and leaves the address nowhere. */
static APART void lose(size_t bytes) {
    CUdeviceptr address;
    CHECK(cuMemAlloc_v2(&address, bytes));
    address = 0;
    __asm__ volatile("" : : "r"(&address) : "memory");
}
"#;

const LINKED: [&str; 2] = ["-Wl,--no-as-needed", "-l:libcuda.so.1"];

fn program(driver: &Folder, name: &str, source: &str) -> Option<std::path::PathBuf> {
    compile(driver, name, &format!("{DRIVER}\n{source}"), &LINKED)
}

/// The groups of one fate and kind: how many, their bytes, the function on top of each stack.
fn groups<'a>(report: &'a Value, fate: &str, kind: &str) -> Vec<(u64, u64, &'a str)> {
    let groups = report["groups"].as_array().expect("groups are a list");
    let wanted = |group: &&Value| group["fate"] == fate && group["kind"] == kind;
    let row = |group: &'a Value| {
        let number = |name: &str| group[name].as_u64().expect("it is a number");
        let top = group["stack"][0]["function"].as_str().unwrap_or_default();
        (number("count"), number("bytes"), top)
    };
    groups.iter().filter(wanted).map(row).collect()
}

#[test]
fn lost_reachable_destroyed_and_freed_late_are_told_apart() {
    let driver = simulated_driver_folder();
    let source = r#"
static CUdeviceptr cache;
static APART void keep(void) { CHECK(cuMemAlloc_v2(&cache, 5000)); }
static APART void destroy(void) {
    CUcontext other;
    CUdeviceptr late, never;
    CHECK(cuCtxCreate_v2(&other, 0, 0));
    CHECK(cuMemAlloc_v2(&late, 300));
    CHECK(cuMemAlloc_v2(&never, 70));
    CHECK(cuCtxDestroy_v2(other));
    if (cuMemFree_v2(late) == 0) exit(8);
}
int main(void) {
    begin();
    destroy();
    lose(1000); lose(2000); lose(2000);
    keep();
    clobber();
    return 0;
}"#;
    let Some(program) = program(&driver, "fates", source) else {
        return;
    };
    let report = json(&program, &driver);
    // Two of the calls are on one line, but for their columns.
    let lost = groups(&report, "lost", "device");
    assert_eq!(lost, [(3, 5000, "lose")], "{report:#}");
    assert_eq!(groups(&report, "reachable", "device"), [(1, 5000, "keep")]);
    let destroyed = groups(&report, "destroyed_with_context", "device");
    assert_eq!(destroyed, [(1, 70, "destroy")]);
    assert_eq!(
        groups(&report, "freed_late", "device"),
        [(1, 300, "destroy")]
    );
    assert_eq!(
        report["lost"],
        serde_json::json!({"count": 3, "bytes": 5000})
    );
    let reachable = &report["groups"].as_array().unwrap();
    let cache = reachable
        .iter()
        .find(|group| group["bytes"] == 5000 && group["fate"] == "reachable");
    let holder = cache.unwrap()["holder"].as_str().unwrap();
    assert_eq!(holder, "global `cache` in fates");
    assert_eq!(report["command"], program.to_str().unwrap());
    assert_eq!(report["reason"], "exit");
    assert_eq!(report["peak"]["bytes"], 10_370 - 370, "{report:#}");
}

#[test]
fn names_of_cpp_functions_are_readable() {
    let driver = simulated_driver_folder();
    let source = format!(
        r#"{DRIVER}
namespace models {{
template <typename T> struct Model {{
    APART void load(int layers) {{ lose(layers * sizeof(T)); clobber(); }}
}};
}}
int main() {{ begin(); models::Model<double>().load(3); return 0; }}"#
    );
    let (file, output) = (driver.join("cpp.cpp"), driver.join("cpp"));
    std::fs::write(&file, source).unwrap();
    let compiler = Command::new("c++")
        .args(["-g", "-L"])
        .arg(driver.path())
        .arg(&file)
        .arg("-o")
        .arg(&output)
        .args(LINKED)
        .output();
    let Ok(compiled) = compiler else {
        return not_run(Requirement::CxxCompiler, "");
    };
    assert_success(&compiled);
    let report = json(&output, &driver);
    let stack: Vec<_> = report["groups"][0]["stack"]
        .as_array()
        .unwrap()
        .iter()
        .map(|frame| frame["function"].as_str().unwrap())
        .collect();
    assert_eq!(
        stack,
        ["lose", "models::Model<double>::load(int)", "main"],
        "{report:#}"
    );
    assert_eq!(report["lost"]["bytes"], 24);
}

#[test]
fn a_library_that_leaks_is_named() {
    let driver = simulated_driver_folder();
    let plugin = format!("{DRIVER}\nvoid plugin_open(void) {{ lose(7000); clobber(); }}");
    let arguments = ["-shared", "-fPIC"];
    if compile(&driver, "libplugin.so", &plugin, &arguments).is_none() {
        return;
    }
    let source = format!(
        "{DRIVER}\nvoid plugin_open(void);\n\
         int main(void) {{ begin(); plugin_open(); lose(50); clobber(); return 0; }}"
    );
    let arguments = [LINKED[0], LINKED[1], "-l:libplugin.so"];
    let program = compile(&driver, "uses_plugin", &source, &arguments).unwrap();
    let report = json(&program, &driver);
    let rows: Vec<_> = report["by_library"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            (
                row["name"].as_str().unwrap(),
                row["lost_bytes"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(rows, [("libplugin.so", 7000), ("uses_plugin", 50)]);
    let output = run(&program, &driver, &[("LEAK_REPORT", "colour=never")]);
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("\nby library:\n  6.84 KiB in 1, lost 6.84 KiB in 1  libplugin.so\n"),
        "{stderr}"
    );
}

/// The program frees everything in the end: growth is a finding of its own.
#[test]
fn a_call_site_that_grows_is_a_suspect() {
    let driver = simulated_driver_folder();
    let source = r#"
static CUdeviceptr all[400];
static APART CUdeviceptr grow(void) { CUdeviceptr address; CHECK(cuMemAlloc_v2(&address, 40960)); return address; }
static APART void steady(void) { CUdeviceptr address; CHECK(cuMemAlloc_v2(&address, 100000)); usleep(3000); CHECK(cuMemFree_v2(address)); }
int main(void) {
    begin();
    for (int i = 0; i < 400; i++) { all[i] = grow(); steady(); }
    for (int i = 0; i < 400; i++) CHECK(cuMemFree_v2(all[i]));
    return 0;
}"#;
    let Some(program) = program(&driver, "grows", source) else {
        return;
    };
    let report = json(&program, &driver);
    let growth = report["growth"].as_array().unwrap();
    assert_eq!(growth.len(), 1, "{report:#}");
    assert_eq!(growth[0]["stack"][0]["function"], "grow");
    assert!(growth[0]["bytes_per_second"].as_u64().unwrap() > 0);
    assert_eq!(report["lost"]["count"], 0);
    let peak = &report["peak"];
    assert_eq!(peak["by_frame"][0]["name"], "grow");
    let bytes = peak["bytes"].as_u64().unwrap();
    assert!(
        (400 * 40_960 * 63 / 64..=400 * 40_960 + 100_000).contains(&bytes),
        "{bytes}"
    );
}

#[test]
fn a_program_can_ask_for_a_report() {
    let driver = simulated_driver_folder();
    let source = r#"
#include <dlfcn.h>
int main(void) {
    int (*report)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "cuguard_audit_report");
    if (report() != -1) return 7;
    begin();
    CUdeviceptr local;
    CHECK(cuMemAlloc_v2(&local, 600));
    lose(40);
    clobber();
    if (report() != 0) return 6;
    CHECK(cuMemFree_v2(local));
    return 0;
}"#;
    let Some(program) = program(&driver, "asks", source) else {
        return;
    };
    let file = driver.join("asked.json");
    let words = format!("json,file={}", file.display());
    let output = run(&program, &driver, &[("LEAK_REPORT", words)]);
    assert_success(&output);
    let written = std::fs::read_to_string(file).unwrap();
    let reports: Vec<Value> = written
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(reports.len(), 2, "{written}");
    assert_eq!(reports[0]["reason"], "requested");
    assert_eq!(groups(&reports[0], "lost", "device"), [(1, 40, "lose")]);
    assert_eq!(
        groups(&reports[0], "reachable", "device"),
        [(1, 600, "main")]
    );
    assert_eq!(reports[1]["reachable"]["bytes"], 0);
}

#[test]
fn the_level_decides_how_much_of_a_stack_is_recorded() {
    let driver = simulated_driver_folder();
    let source = r#"
static APART void inner(void) { lose(10); }
int main(void) { begin(); inner(); clobber(); return 0; }"#;
    let Some(program) = program(&driver, "levels", source) else {
        return;
    };
    for (level, expected) in [
        ("stacks", &["lose", "inner", "main"][..]),
        ("sites", &["lose", "inner"]),
        ("counts", &[]),
    ] {
        let file = driver.join(level);
        let words = format!("json,level={level},file={}", file.display());
        assert_success(&run(&program, &driver, &[("LEAK_REPORT", words)]));
        let report: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        let frames: Vec<_> = stack(&report, 10).iter().map(|frame| frame.0).collect();
        assert_eq!(frames, expected, "{level}");
    }
}

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

/// Names beyond ASCII, of one and of two bytes a letter; a generator; a thread; a deep stack.
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

/// Functions and lines of the stack of the group with so many bytes.
fn stack(report: &Value, bytes: u64) -> Vec<(&str, &str, u64)> {
    let groups = report["groups"].as_array().unwrap();
    let group = groups.iter().find(|group| group["bytes"] == bytes);
    let group = group.unwrap_or_else(|| panic!("{report:#}"));
    let frames = group["stack"].as_array().unwrap().iter();
    frames
        .map(|frame| {
            let file = frame["file"].as_str().unwrap_or_default();
            (
                frame["function"].as_str().unwrap_or_default(),
                file.rsplit('/').next().unwrap_or_default(),
                frame["line"].as_u64().unwrap_or_default(),
            )
        })
        .collect()
}

fn interpreters() -> Vec<String> {
    let mut all = vec!["python3".to_owned()];
    all.extend((9..=14).map(|minor| format!("python3.{minor}")));
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
    let code = "import sys; sys.exit(sys.version_info >= (3, 14))";
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
                format_args!("{interpreter} is newer than 3.13"),
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

/// Native frames alone.
#[test]
fn python_frames_are_left_out_where_they_are_turned_off() {
    for (library, words) in [("CDLL", ",python=no"), ("PyDLL", ",python=no")] {
        let Some(report) = python("python3", library, words) else {
            return;
        };
        assert_eq!(report["totals"][0]["live_bytes"], 3300);
        let files = report.to_string().contains("model.py\",\"line\"");
        assert!(!files, "{library}: {report:#}");
        assert!(!report.to_string().contains("Model.load"), "{report:#}");
    }
}

/// Programs that unload libraries: `unloads.c`, and what it loads.
struct Unloading {
    driver: Folder,
    program: std::path::PathBuf,
}

impl Unloading {
    /// `None` without a C compiler.
    fn new() -> Option<Self> {
        let driver = simulated_driver_folder();
        let source = include_str!("programs/unloads.c");
        let program = compile(&driver, "unloads", source, &LINKED)?;
        Some(Self { driver, program })
    }

    /// Builds a library whose function `inner` loses so many bytes; 0 for one without CUDA.
    fn library(&self, name: &str, inner: &str, bytes: u32, flags: &[&str]) -> String {
        let inner = format!("-DINNER={inner}");
        let bytes = Some(bytes).filter(|bytes| *bytes != 0);
        let bytes = bytes.map(|bytes| format!("-DBYTES={bytes}"));
        let shared = ["-shared", "-fPIC", "-O1", "-Wl,--build-id=sha1", &inner];
        let mut arguments = shared.to_vec();
        arguments.extend(bytes.as_deref());
        arguments.extend(flags);
        let source = include_str!("programs/unloaded.c");
        compile(&self.driver, name, source, &arguments).expect("there is a compiler");
        format!("./{name}")
    }

    /// What is lost: how many, their bytes and the two innermost frames of each group.
    fn lost(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Vec<(u64, u64, String)> {
        let file = self.driver.join("report.json");
        let mut command = audited(&self.program, &self.driver);
        let command = command.args(arguments).envs(variables.iter().copied());
        let words = format!("json,file={}", file.display());
        // Relative names of libraries.
        let command = command.current_dir(self.driver.path());
        let output = command.env("LEAK_REPORT", words).output();
        assert_success(&output.expect("the program can be started"));
        let report = std::fs::read_to_string(&file).expect("there is a report");
        let report: Value = serde_json::from_str(&report).expect("JSON");
        let groups = report["groups"].as_array().expect("groups are a list");
        let row = |group: &Value| {
            let number = |name: &str| group[name].as_u64().expect("it is a number");
            let frame = |at: usize| {
                let frame = &group["stack"][at];
                let module = frame["module"].as_str().unwrap_or_default();
                let module = module.rsplit('/').next().unwrap_or_default();
                let function = frame["function"].as_str().unwrap_or("?");
                format!("{module}!{function}")
            };
            let frames = format!("{} {}", frame(0), frame(1));
            (number("count"), number("bytes"), frames)
        };
        let lost = groups.iter().filter(|group| group["kind"] == "device");
        let mut lost: Vec<_> = lost.map(row).collect();
        lost.sort();
        lost
    }
}

/// A frame is of the library that was loaded when it was captured, not of what is loaded at its address later.
#[test]
fn leaks_of_unloaded_libraries_have_their_own_names() {
    let Some(unloading) = Unloading::new() else {
        return;
    };
    let alpha = unloading.library("alpha.so", "asks_first", 1000, &[]);
    let beta = unloading.library("beta.so", "asks_later", 2000, &[]);
    let idle = unloading.library("idle.so", "never_called", 0, &[]);
    let first = "alpha.so!asks_first alpha.so!enter".to_owned();
    let later = "beta.so!asks_later beta.so!enter".to_owned();
    // Another one that leaks, and one that uses no CUDA.
    let lost = unloading.lost(&[&alpha, &format!("={beta}")], &[]);
    assert_eq!(lost, [(1, 1000, first.clone()), (1, 2000, later.clone())]);
    let lost = unloading.lost(&[&alpha, &format!("={idle}")], &[]);
    assert_eq!(lost, [(1, 1000, first.clone())]);
    // Nothing is loaded there, and then both again, at any addresses.
    let lost = unloading.lost(&[&alpha, &beta, "-", &alpha, "-", &beta, &alpha], &[]);
    assert_eq!(lost, [(2, 4000, later), (3, 3000, first)]);
}

/// Libraries whose functions have the same names are not one, also without lines and without any name.
#[test]
fn leaks_of_libraries_that_look_the_same_stay_apart() {
    let Some(unloading) = Unloading::new() else {
        return;
    };
    for (flag, function) in [("-g0", "enter"), ("-s", "enter")] {
        let one = unloading.library("one.so", "lose", 1000, &[flag]);
        let other = unloading.library("other.so", "lose", 1000, &[flag]);
        let lost = unloading.lost(&[&one, &other], &[]);
        assert_eq!(lost.len(), 2, "{lost:?}");
        for (library, group) in ["one.so", "other.so"].iter().zip(lost) {
            let end = format!(" {library}!{function}");
            assert!(group.2.ends_with(&end), "{flag}: {group:?}");
        }
    }
}

/// A file that was replaced has the names of other code.
#[test]
fn replaced_files_of_unloaded_libraries_name_nothing() {
    let Some(unloading) = Unloading::new() else {
        return;
    };
    for flags in [&[][..], &["-Wl,--build-id=none"]] {
        let old = unloading.library("old.so", "old_code", 1000, flags);
        let new = unloading.library("new.so", "new_code", 2000, flags);
        let lost = unloading.lost(&[&old], &[("REPLACE_BY", &new), ("REPLACE", &old)]);
        assert_eq!(lost, [(1, 1000, "old.so!? old.so!?".to_owned())]);
    }
}
