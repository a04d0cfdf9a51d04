//! What is taken over from round to round, and what is not; on the simulated GPU where a driver is
//! needed.

use std::sync::{Mutex, MutexGuard, Once};

use cuguard::driver::{Choice, select};
use cuguard::sim::{
    Config, Fault, OtherProcess, clear_faults, configure, inject, set_other_processes,
};
use cuguard_nvml::Process;

use super::*;
use crate::doctor::examine::examine;
use crate::doctor::facts::{Facts, GpuFacts};
use crate::doctor::finding::Severity;
use crate::doctor::verdict::{Diagnosis, diagnose};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// The simulated GPU of 4 GiB, which these tests use in turns: another process on it is seen by all.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(|error| error.into_inner());
    static CHOSEN: Once = Once::new();
    CHOSEN.call_once(|| {
        select(Choice::Sim).expect("nothing else was chosen");
        configure(Config::new()).expect("it does not run yet");
    });
    others(0);
    turn
}

/// From now on another process holds so much.
fn others(bytes: u64) {
    let other = (bytes > 0).then(|| OtherProcess::new(4711, "trainer", bytes));
    set_other_processes(0, other).expect("that much is free");
}

fn round(probe: bool, earlier: Option<&Facts>) -> (Facts, Diagnosis) {
    let facts = examine(Some(0), probe, earlier).expect("there is a GPU");
    let diagnosis = diagnose(&facts);
    (facts, diagnosis)
}

fn problems(diagnosis: &Diagnosis) -> Vec<&'static str> {
    let findings = diagnosis.gpus[0].findings.iter();
    let problems = findings.filter(|finding| finding.severity == Severity::Problem);
    problems.map(|finding| finding.code).collect()
}

fn free(facts: &Facts) -> Option<u64> {
    facts.gpus[0].machine.memory.map(|memory| memory.free)
}

fn measured(facts: &mut Facts) -> &mut Measured {
    match &mut facts.gpus[0].probe {
        Probe::Measured(measured) => measured,
        other => panic!("{other:?}"),
    }
}

/// Makes what was measured so much older than it is.
fn age(facts: &mut Facts, by: Duration) {
    let measured = measured(facts);
    measured.taken = measured.taken.checked_sub(by).expect("the clock is older");
}

#[test]
fn a_refusal_is_not_carried_on() {
    let _turn = turn();
    others(4 * GIB - 4 * MIB);
    let (full, diagnosis) = round(true, None);
    assert_eq!(problems(&diagnosis), ["refused"]);
    let (still, diagnosis) = round(true, Some(&full));
    assert_eq!(problems(&diagnosis), ["refused"]);
    others(0);
    let (mut empty, diagnosis) = round(true, Some(&still));
    assert_eq!(problems(&diagnosis), [""; 0]);
    assert_eq!(measured(&mut empty).age, Duration::ZERO);
    assert_eq!(free(&empty), Some(4 * GIB));
}

#[test]
fn what_is_free_is_asked_in_every_round() {
    let _turn = turn();
    others(4 * GIB - 100 * MIB);
    let (mut facts, diagnosis) = round(true, None);
    assert_eq!(problems(&diagnosis), ["full"]);
    for _ in 0..3 {
        let (next, diagnosis) = round(true, Some(&facts));
        assert_eq!(problems(&diagnosis), ["full"]);
        assert_eq!(free(&next), Some(100 * MIB));
        facts = next;
        assert!(measured(&mut facts).age > Duration::ZERO);
        assert!(!measured(&mut facts).outdated);
    }
    // The holder goes: seen at once, and what was measured is not of now.
    others(0);
    let (mut next, diagnosis) = round(true, Some(&facts));
    assert_eq!(problems(&diagnosis), [""; 0]);
    assert_eq!(free(&next), Some(4 * GIB));
    assert!(measured(&mut next).outdated);
    assert_eq!(diagnosis.gpus[0].summary, "healthy: 4 GiB are free");
    // Not for long.
    age(&mut next, PAUSE);
    let (mut last, _) = round(true, Some(&next));
    assert_eq!(measured(&mut last).largest, 4 * GIB - 32 * MIB);
    assert!(!measured(&mut last).outdated);
    assert_eq!(measured(&mut last).age, Duration::ZERO);
}

#[test]
fn a_gpu_that_fills_up_between_rounds() {
    let _turn = turn();
    let (facts, diagnosis) = round(true, None);
    assert_eq!(problems(&diagnosis), [""; 0]);
    others(4 * GIB - 4 * MIB);
    let (_, diagnosis) = round(true, Some(&facts));
    assert_eq!(problems(&diagnosis), ["refused"]);
}

#[test]
fn what_is_old_is_measured_again() {
    let _turn = turn();
    let (mut facts, _) = round(true, None);
    // As if it had been fragmented.
    measured(&mut facts).largest = GIB;
    let (mut kept, diagnosis) = round(true, Some(&facts));
    assert_eq!(problems(&diagnosis), ["fragmented"]);
    assert_eq!(measured(&mut kept).largest, GIB);
    age(&mut kept, OLD);
    let (mut again, diagnosis) = round(true, Some(&kept));
    assert_eq!(problems(&diagnosis), [""; 0]);
    assert_eq!(measured(&mut again).largest, 4 * GIB - 32 * MIB);
}

#[test]
fn without_the_option_nothing_is_allocated() {
    let _turn = turn();
    let (measured, _) = round(true, None);
    let functions = ["cuMemAlloc_v2", "cuMemAllocAsync", "cuMemCreate"];
    let faults = functions.map(|name| inject(Fault::nth_call_of(name, 1).sticky()).unwrap());
    for earlier in [None, Some(&measured)] {
        let (facts, diagnosis) = round(false, earlier);
        assert!(matches!(
            facts.gpus[0].probe,
            Probe::Skipped { own_context: true }
        ));
        // Beside the context that asked.
        assert_eq!(free(&facts), Some(4 * GIB - 32 * MIB));
        assert_eq!(problems(&diagnosis), [""; 0]);
    }
    clear_faults();
    assert!(faults.iter().all(|fault| fault.fired() == 0));
}

/// Where NVML says what is free, no context is made either.
#[test]
fn what_nvml_says_is_enough() {
    let _turn = turn();
    let memory = Memory {
        total: 4 * GIB,
        free: GIB,
        reserved: None,
    };
    let mut gpu = Gpu::new("0000:01:00.0");
    gpu.memory = Some(memory);
    let context = inject(Fault::nth_call_of("cuDevicePrimaryCtxRetain", 1).sticky()).unwrap();
    let probe = probe(&mut gpu, (0, 4 * GIB), false, None, || Some(GIB));
    clear_faults();
    assert!(matches!(probe, Probe::Skipped { own_context: false }));
    assert_eq!(gpu.memory, Some(memory));
    assert_eq!(context.fired(), 0);
}

#[test]
fn a_change_is_more_than_a_little() {
    let measured = Measured {
        context_cost: None,
        free: 70 * GIB,
        largest: 70 * GIB,
        free_before: 70 * GIB,
        other_pids: vec![8, 9],
        taken: Instant::now(),
        age: Duration::ZERO,
        outdated: false,
    };
    let gpu = |free, pids: &[u32], mode| {
        let mut gpu = GpuFacts::default().machine;
        gpu.memory = Some(Memory {
            total: 100 * GIB,
            free,
            reserved: None,
        });
        gpu.processes = Some(pids.iter().copied().map(Process::new).collect());
        gpu.compute_mode = Some(mode);
        has_changed(&measured, &gpu)
    };
    let (open, exclusive) = (ComputeMode::Default, ComputeMode::Exclusive);
    assert!(!gpu(70 * GIB, &[9, 8, std::process::id()], exclusive));
    assert!(!gpu(69 * GIB, &[], open));
    assert!(!gpu(71 * GIB, &[], open));
    assert!(gpu(69 * GIB - 1, &[], open));
    assert!(gpu(71 * GIB + 1, &[], open));
    assert!(gpu(70 * GIB, &[8], exclusive));
}
