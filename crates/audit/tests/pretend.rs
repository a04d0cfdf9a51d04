//! What the simulated driver does not have, on a pretend driver: imported memory, green contexts, functions with addresses of
//! 32 bits, and functions that the audit library does not know.

use crate::support::{Folder, assert_success, compile, run, text};

fn driver() -> Option<Folder> {
    let folder = Folder::new("audit");
    let source = include_str!("programs/pretend_driver.c");
    let arguments = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"];
    compile(&folder, "libcuda.so.1", source, &arguments)?;
    Some(folder)
}

#[test]
fn what_the_simulated_driver_does_not_have() {
    let Some(driver) = driver() else {
        return;
    };
    let source = include_str!("programs/pretend.c");
    let Some(program) = compile(&driver, "pretend", source, &[]) else {
        return;
    };
    let file = driver.join("report.json");
    let words = format!("json,file={}", file.display());
    let output = run(&program, &driver, &[("LEAK_REPORT", words)]);
    assert_success(&output);
    assert_eq!(text(&output.stdout), "59 checks passed\n");
    let report = std::fs::read_to_string(&file).expect("there is a report");
    let report: serde_json::Value = serde_json::from_str(&report).expect("it is JSON");
    // Called by two ways; the one that only queries is not named.
    let unrecorded = serde_json::json!([
        { "function": "cuCtxCreate_v9", "calls": 1 },
        { "function": "cuShinyMemAlloc", "calls": 2 }
    ]);
    assert_eq!(report["unrecorded_functions"], unrecorded, "{report}");
}
