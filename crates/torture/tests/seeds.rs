//! The seeds of the fuzzer, on the stable toolchain: each goes through the function that the
//! fuzzer calls.

use std::fs;
use std::path::Path;

use cuguard_torture::{Options, Program, report_json, run, run_with, setting};

/// The seeds of a target, with their names.
fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/seeds")
        .join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut seeds: Vec<_> = entries
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let bytes = fs::read(&path).expect("a file");
            (path.display().to_string(), bytes)
        })
        .collect();
    seeds.sort();
    assert!(seeds.len() >= 3, "{target} has its seeds");
    seeds
}

fn each(target: &str, replay: impl Fn(&[u8]) + std::panic::RefUnwindSafe) {
    for (name, bytes) in seeds(target) {
        let replayed = std::panic::catch_unwind(|| replay(&bytes));
        assert!(replayed.is_ok(), "{name} failed");
    }
}

#[test]
fn allocation_sequence() {
    each("allocation_sequence", |bytes| {
        let program = Program::from_bytes(bytes);
        run_with(&program, &Options::quick());
        run(&program);
    });
}

#[test]
fn leak_report_setting() {
    each("leak_report_setting", setting);
}

#[test]
fn report() {
    each("report_json", report_json);
}
