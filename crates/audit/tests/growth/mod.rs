//! Small programs that grow, and as many that do not, in C, C++, Python and Rust: every one that grows is said to, and no other.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use crate::report::LINKED;
use crate::support::{Folder, assert_success, audited, compile, simulated_driver_folder, text};
use cuguard_testing::{Requirement, not_run};
use serde_json::Value;

/// A program and its first argument, if it is a script.
type Words = (PathBuf, Option<PathBuf>);

fn command((program, script): &Words, driver: &Folder) -> Command {
    let mut command = audited(program, driver);
    command.args(script);
    command
}

/// The growth that the report of a program has.
fn growth(words: &Words, driver: &Folder, name: &str) -> Vec<Value> {
    let file = driver.join(format!("{name}.json"));
    let output = command(words, driver)
        .arg(name)
        .env("LEAK_REPORT", format!("json,file={}", file.display()))
        .output()
        .expect("the program can be started");
    assert_success(&output);
    let report = std::fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("{name}: no report: {error}\n{}", text(&output.stderr)));
    let report: Value = serde_json::from_str(&report).expect("a report is JSON");
    report["growth"]
        .as_array()
        .expect("growth is a list")
        .clone()
}

/// Runs all programs of one source, some at a time, and fails with those whose report is wrong.
fn all(words: &Words, driver: &Folder, expected: usize) {
    let list = command(words, driver).env_remove("LD_PRELOAD").output();
    let list = text(&list.expect("the program can be started").stdout);
    let names: Vec<&str> = list.lines().collect();
    assert_eq!(names.len(), expected, "{list}");
    let next = AtomicUsize::new(0);
    let wrong = thread::scope(|scope| {
        let worker = || {
            let mut wrong = Vec::new();
            while let Some(name) = names.get(next.fetch_add(1, Relaxed)) {
                let growth = growth(words, driver, name);
                if growth.is_empty() == name.starts_with("grows_") {
                    wrong.push(format!("{name}: {growth:#?}"));
                }
            }
            wrong
        };
        let workers: Vec<_> = (0..4).map(|_| scope.spawn(worker)).collect();
        let wrong = workers
            .into_iter()
            .map(|worker| worker.join().expect("no panic"));
        wrong.flatten().collect::<Vec<_>>()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The function that each growing call site is named after: the innermost frame that tells it apart.
fn functions(growth: &[Value]) -> Vec<&str> {
    let names = growth
        .iter()
        .map(|row| row["stack"][0]["function"].as_str());
    names.map(Option::unwrap_or_default).collect()
}

#[test]
fn programs_in_c() {
    let driver = simulated_driver_folder();
    let source = include_str!("growth.c");
    let Some(program) = compile(&driver, "growth", source, &LINKED) else {
        return;
    };
    let words = (program, None);
    all(&words, &driver, 50);
    let kept = growth(&words, &driver, "grows_kept");
    assert_eq!(functions(&kept), ["keep"]);
    assert_eq!(kept[0]["blocks"], 50);
    let many = growth(&words, &driver, "grows_at_many_call_sites");
    assert_eq!(many.len(), 8, "{many:#?}");
    // Of all that `checked_alloc` allocates, only what one function keeps.
    let beside = growth(&words, &driver, "grows_beside_a_model_that_shrinks");
    assert_eq!(beside.len(), 1, "{beside:#?}");
    assert_eq!(beside[0]["stack"][1]["function"], "keep_result");
}

#[test]
fn programs_in_cpp() {
    let driver = simulated_driver_folder();
    let (source, program) = (driver.join("growth.cpp"), driver.join("growth"));
    std::fs::write(&source, include_str!("growth.cpp")).expect("a file can be written");
    let compiled = Command::new(cuguard_testing::cxx())
        .args(["-std=c++17", "-g", "-o"])
        .args([&program, &source])
        .arg("-L")
        .arg(driver.path())
        .args(LINKED)
        .output();
    let Ok(compiled) = compiled else {
        return not_run(Requirement::CxxCompiler, "");
    };
    assert_success(&compiled);
    all(&(program, None), &driver, 5);
}

#[test]
fn programs_in_python() {
    let driver = simulated_driver_folder();
    let script = driver.join("growth.py");
    std::fs::write(&script, include_str!("growth.py")).expect("a file can be written");
    if Command::new("python3").arg("--version").output().is_err() {
        return not_run(Requirement::Python, "");
    }
    let words = (PathBuf::from("python3"), Some(script));
    all(&words, &driver, 5);
    let losses = growth(&words, &driver, "grows_list_of_losses");
    assert_eq!(losses.len(), 1, "{losses:#?}");
}

#[test]
fn programs_in_rust() {
    let driver = simulated_driver_folder();
    let (source, program) = (driver.join("growth.rs"), driver.join("growth"));
    std::fs::write(&source, include_str!("growth.rs")).expect("a file can be written");
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc"));
    let compiled = Command::new(compiler)
        .args([
            "--edition",
            "2024",
            "-g",
            "-C",
            "link-arg=-l:libcuda.so.1",
            "-L",
        ])
        .arg(driver.path())
        .arg("-o")
        .args([&program, &source])
        .output();
    let Ok(compiled) = compiled else {
        return not_run(Requirement::Rustc, "");
    };
    assert_success(&compiled);
    all(&(program, None), &driver, 4);
}
