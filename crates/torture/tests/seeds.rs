//! The seeds of the fuzzer, on the stable toolchain: each goes through the function that the
//! fuzzer calls.

use cuguard_torture::{Mode, Program, report_json, run, run_with, setting};

/// Target, name and bytes of each seed in `fuzz/seeds`; part of the program, which may run on a machine
/// without the sources.
const SEEDS: &[(&str, &str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/seeds.rs"));

fn each(target: &str, replay: impl Fn(&[u8]) + std::panic::RefUnwindSafe) {
    let seeds = SEEDS.iter().filter(|(of, ..)| *of == target);
    let mut count = 0;
    for (_, name, bytes) in seeds {
        let replayed = std::panic::catch_unwind(|| replay(bytes));
        assert!(replayed.is_ok(), "fuzz/seeds/{target}/{name} failed");
        count += 1;
    }
    assert!(count >= 3, "fuzz/seeds/{target} has {count} seeds");
}

#[test]
fn allocation_sequence() {
    each("allocation_sequence", |bytes| {
        let program = Program::from_bytes(bytes);
        run_with(&program, Mode::Quick);
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
