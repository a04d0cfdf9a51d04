//! The report of programs under the audit library: fates, stacks that people recognize, tables, growth, the peak.

use std::process::Command;

use crate::support::{Folder, assert_success, compile, json, run, simulated_driver_folder, text};
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

pub const LINKED: [&str; 2] = ["-Wl,--no-as-needed", "-l:libcuda.so.1"];

fn program(driver: &Folder, name: &str, source: &str) -> Option<std::path::PathBuf> {
    compile(driver, name, &format!("{DRIVER}\n{source}"), &LINKED)
}

/// Functions and lines of the stack of the group with so many bytes.
pub fn stack(report: &Value, bytes: u64) -> Vec<(&str, &str, u64)> {
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
    let Some(program) = cpp_program(&driver, &source) else {
        return;
    };
    let report = json(&program, &driver);
    let functions: Vec<_> = stack(&report, 24).iter().map(|frame| frame.0).collect();
    assert_eq!(
        functions,
        ["lose", "models::Model<double>::load(int)", "main"],
        "{report:#}"
    );
    assert_eq!(report["lost"]["bytes"], 24);
}

/// Compiles a program in C++.
fn cpp_program(driver: &Folder, source: &str) -> Option<std::path::PathBuf> {
    let (file, output) = (driver.join("cpp.cpp"), driver.join("cpp"));
    std::fs::write(&file, source).unwrap();
    let compiler = Command::new(cuguard_testing::cxx())
        .args(["-std=c++17", "-g", "-L"])
        .arg(driver.path())
        .arg(&file)
        .arg("-o")
        .arg(&output)
        .args(LINKED)
        .output();
    let Ok(compiled) = compiler else {
        not_run(Requirement::CxxCompiler, "");
        return None;
    };
    assert_success(&compiled);
    Some(output)
}

/// The headers of the standard library are no code of the program: neither what the demangler does not know, nor what debug
/// information names without a namespace, nor templates, whose names begin with what they return. Functions of the program are,
/// though they take and return types of the standard library.
#[test]
fn frames_of_the_cpp_standard_library_are_not_the_programs() {
    let driver = simulated_driver_folder();
    let source = format!(
        r#"#include <memory>
#include <string>
#include <vector>
{DRIVER}
struct Buf {{ CUdeviceptr address; explicit Buf(int bytes) {{ CHECK(cuMemAlloc_v2(&address, bytes)); }} }};
static std::vector<std::shared_ptr<Buf>> *history = new std::vector<std::shared_ptr<Buf>>;
APART void step() {{
    history->push_back(std::make_shared<Buf>(2 << 20));
}}
APART void nodes() {{
    struct Node {{ Buf buf{{3000}}; }};
    static auto *kept = new std::vector<Node>;
    kept->resize(1);
}}
namespace app {{
template <typename T> std::vector<T> load(const std::vector<T> &from) {{
    static Buf kept(from[0]);
    return from;
}}
std::string name() {{
    static Buf kept(500);
    return "model";
}}
}}
int main() {{
    begin();
    step();
    nodes();
    app::load(std::vector<int>{{400}});
    app::name();
    return 0;
}}"#
    );
    let Some(program) = cpp_program(&driver, &source) else {
        return;
    };
    let report = json(&program, &driver);
    let functions = |bytes| {
        let stack = stack(&report, bytes).into_iter();
        stack.map(|(function, ..)| function).collect::<Vec<_>>()
    };
    assert_eq!(functions(2 << 20), ["Buf::Buf(int)", "step()", "main"]);
    // The constructor of a class inside of a function has the name that debug information has for it.
    let nodes = functions(3000);
    assert!(
        nodes.len() == 4 && nodes[2..] == ["nodes()", "main"],
        "{nodes:?}"
    );
    let load = functions(400);
    assert!(
        load.len() == 3 && load[1].contains("app::load<int>("),
        "{load:?}"
    );
    let name = functions(500);
    assert!(
        name.len() == 3 && name[1].starts_with("app::name"),
        "{name:?}"
    );
    let output = run(&program, &driver, &[("LEAK_REPORT", "colour=never")]);
    let stderr = text(&output.stderr);
    let named = format!("  step()  {}:", driver.join("cpp.cpp").display());
    assert!(stderr.contains(&named), "{stderr}");
    assert!(!stderr.contains("/include/c++/"), "{stderr}");
}

/// A program that ends its context has freed nothing itself.
#[test]
fn memory_that_ends_with_its_context_was_not_freed() {
    let driver = simulated_driver_folder();
    let source = r#"
int main(void) { begin(); lose(12 << 20); CHECK(cuCtxDestroy_v2(context)); return 0; }"#;
    let Some(program) = program(&driver, "destroys", source) else {
        return;
    };
    for (words, code) in [
        ("colour=never,exitcode=41", 0),
        ("colour=never,exitcode=41,fail_on=destroyed", 41),
    ] {
        let output = run(&program, &driver, &[("LEAK_REPORT", words)]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words}: {stderr}");
        let expected = "): 12 MiB in 1 allocation not freed before their context was destroyed\n";
        assert!(stderr.contains(expected), "{words}: {stderr}");
    }
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
