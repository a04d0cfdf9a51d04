//! Random programs over pools against the model: some seconds of them in every test run. With `CUGUARD_TORTURE_STEPS=1000000`
//! it goes on until so many steps were done, and with `CUGUARD_TORTURE_SEED` it begins elsewhere. It runs on the simulated GPU
//! and on a real one, where kernels write and check all bytes.

use std::io::Write;
use std::time::Instant;

use crate::support::{SLACK, Torture, lines, many, number};
use cuguard::driver::{self, DriverKind};
use cuguard_torture::{PoolOutcome, PoolProgram, free_bytes, run_pool};
use proptest::strategy::Strategy;

struct Pools;

impl Torture for Pools {
    type Program = PoolProgram;
    type Outcome = PoolOutcome;

    const NAME: &'static str = "pool";
    const CASES: u32 = 4;

    fn strategy(most: usize) -> impl Strategy<Value = PoolProgram> {
        PoolProgram::strategy(most)
    }

    fn run(program: &PoolProgram) -> PoolOutcome {
        run_pool(program)
    }

    fn steps(outcome: &PoolOutcome) -> u64 {
        outcome.steps
    }

    fn add(sum: &mut PoolOutcome, more: &PoolOutcome) {
        sum.steps += more.steps;
        sum.allocations += more.allocations;
        sum.bytes += more.bytes;
        sum.refused += more.refused;
        sum.compactions += more.compactions;
        sum.merged += more.merged;
        sum.merged_in_recovery += more.merged_in_recovery;
        sum.comparisons += more.comparisons;
        sum.escaped += more.escaped;
        sum.panics += more.panics;
        sum.kernels += more.kernels;
    }

    fn describe(program: &PoolProgram) -> String {
        let steps = lines(&program.steps);
        format!("begin {}\n{steps}end {}", program.begin, program.end)
    }
}

#[test]
fn pools_do_what_the_model_does() {
    let driver = driver::load().expect("a driver");
    // Creating a context takes a third of a second on a real GPU.
    let (default, most, shrink) = match driver.kind() {
        DriverKind::Simulated => (3_000, 300, 5_000),
        _ => (2_000, 2_000, 50),
    };
    let steps = number("CUGUARD_TORTURE_STEPS").unwrap_or(default);
    let seed = number("CUGUARD_TORTURE_SEED").unwrap_or(1);
    // A real driver allocates memory for itself in the first program.
    many::<Pools>(1, most / 10, shrink, seed + 1);
    let (free, begin) = (free_bytes(), Instant::now());
    let (programs, sum) = many::<Pools>(steps, most, shrink, seed);
    let lost = free.saturating_sub(free_bytes());
    let seconds = begin.elapsed().as_secs_f64();
    // Not `eprintln!`, which the test harness captures.
    let _ = writeln!(
        std::io::stderr(),
        "pool: {programs} programs, {} steps, {} blocks of {} bytes, {} refused, {} compactions, {} pages merged \
         ({} in recovery), {} comparisons of all bytes ({} by kernels), {} escaped, {} panics, {lost} bytes lost, \
         {seconds:.1} s",
        sum.steps,
        sum.allocations,
        sum.bytes,
        sum.refused,
        sum.compactions,
        sum.merged,
        sum.merged_in_recovery,
        sum.comparisons,
        sum.kernels,
        sum.escaped,
        sum.panics,
    );
    assert!(lost <= SLACK, "{lost} bytes of the device are lost");
    assert!(sum.refused > 0 && sum.merged_in_recovery > 0 && sum.merged > sum.merged_in_recovery);
    assert!(sum.escaped > 0 && sum.panics > 0);
}
