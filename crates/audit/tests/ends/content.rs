//! What a report has that depends on the end.

use super::program::{assert_end, code, command, folder, program, report, text};

/// The report is made last, so what exit handlers and destructors free is not in it.
#[test]
fn what_is_freed_at_exit_is_no_leak() {
    let Some(program) = program() else { return };
    for end in ["freed in a destructor", "freed in an exit handler"] {
        let report = report(&mut command(program, end), 3);
        assert_eq!(report["lost"]["bytes"], 4096, "{end}: {report}");
        assert_eq!(report["reachable"]["bytes"], 0, "{end}: {report}");
    }
}

/// A kernel has accessed an illegal address: the driver fails every call from then on, frees too.
#[test]
fn a_failed_device_is_named() {
    let Some(program) = program() else { return };
    let folder = folder().join("failed");
    std::fs::create_dir_all(&folder).expect("a folder can be created");
    let code = "#include <stddef.h>
int cuInit(unsigned flags) { return (int)flags; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)(0x1000 + (size_t)device); return 0; }
int cuCtxSetCurrent(void *context) { (void)context; return 0; }
int cuCtxGetCurrent(void **context) { *context = (void *)0x1000; return 0; }
int cuMemAlloc_v2(unsigned long long *memory, size_t bytes) {
    static unsigned long long next = 0x7f0000000000;
    *memory = next;
    next += (bytes + 0xffff) & ~(size_t)0xffff;
    return 0;
}
int cuCtxSynchronize(void) { return 700; }
int cuMemFree_v2(unsigned long long memory) { (void)memory; return 700; }\n";
    let options = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"];
    cuguard_testing::compile(&folder.join("libcuda.so.1"), code, options)
        .expect("it compiled the program");
    let mut command = command(program, "illegal address");
    let report = report(command.env("LD_LIBRARY_PATH", &folder), 27);
    let failure = serde_json::json!({"function": "cuCtxSynchronize", "code": 700});
    assert_eq!(report["failure"], failure, "{report}");
    // It was not freed, and is not forgotten.
    let live = &report["totals"][0];
    assert_eq!(live["live_bytes"], (1 << 20) + 4096, "{report}");
    let text_report = text(
        &command
            .env("LEAK_REPORT", "1")
            .output()
            .expect("it runs")
            .stderr,
    );
    assert!(
        text_report.contains("cuCtxSynchronize") && text_report.contains("700"),
        "{text_report}"
    );
}

/// Level `sites` captures fewer frames, and `counts` none; the fate is known at all levels.
#[test]
fn the_level_is_how_much_is_recorded() {
    let Some(program) = program() else { return };
    let frames = |level: &str| {
        let words = format!("json,frames=all,depth=128,level={level}");
        let output = command(program, "leak deep down")
            .env("LEAK_REPORT", words)
            .output();
        let output = output.expect("it runs");
        assert_end(&output, code(3), &["exit"]);
        let stderr = text(&output.stderr);
        let line = stderr
            .lines()
            .find(|line| line.starts_with('{'))
            .expect("a report");
        let report: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(report["lost"]["bytes"], 1 << 20, "{report}");
        let groups = report["groups"].as_array().expect("groups");
        let lost = groups
            .iter()
            .find(|group| group["fate"] == "lost")
            .expect("a leak");
        lost["stack"].as_array().expect("frames").len()
    };
    assert!(frames("stacks") > 60);
    assert!((2..=24).contains(&frames("sites")));
    assert_eq!(frames("counts"), 0);
}
