//! The seeds of the fuzzer, on the stable toolchain: each goes through the function that the
//! fuzzer calls.

use cuguard_torture::fuzz::{Counting, TARGETS, bounded, is_counting};
use cuguard_torture::{Mode, Program, run, run_with};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

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

/// Each seed, and each of its prefixes for those that are short: with the bound on what is allocated.
#[test]
fn bodies_of_targets() {
    assert!(is_counting(), "the allocator of this program counts");
    for (target, body) in TARGETS {
        each(target, |bytes| {
            body(bytes);
            for end in 0..bytes.len().min(100) {
                body(&bytes[..end]);
            }
        });
    }
}

#[test]
fn every_folder_of_seeds_has_a_target() {
    let known =
        |name: &str| name == "allocation_sequence" || TARGETS.iter().any(|(of, _)| *of == name);
    assert!(SEEDS.iter().all(|(target, ..)| known(target)));
}

#[test]
#[should_panic(expected = "the limit is 2 times the input and 10")]
fn more_than_the_bound_is_noticed() {
    bounded(100, 2, 10, || vec![0_u8; 210]);
    bounded(100, 2, 10, || vec![0_u8; 211]);
}
