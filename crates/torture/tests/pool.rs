//! Random programs over pools against the model: some seconds of them in every test run. With `CUGUARD_TORTURE_STEPS=1000000`
//! it goes on until so many steps were done, and with `CUGUARD_TORTURE_SEED` it begins elsewhere. It runs on the simulated GPU
//! and on a real one, where kernels write and check all bytes.

use std::io::Write;
use std::time::Instant;

use cuguard::driver::{self, DriverKind};
use cuguard_torture::{PoolOutcome, PoolProgram, free_bytes, run_pool};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

/// What a real driver may cache. A simulated one is compared to the byte after each program.
const SLACK: u64 = 16 << 20;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("a number"))
}

/// Runs programs until `steps` are done; returns the number of programs and what they did.
fn many(steps: u64, most: usize, shrink: u32, seed: u64) -> (u64, PoolOutcome) {
    let mut programs = 0;
    let mut sum = PoolOutcome::default();
    let mut round = 0_u64;
    while sum.steps < steps {
        let config = Config {
            cases: 4,
            failure_persistence: None,
            max_shrink_iters: shrink,
            ..Config::default()
        };
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..16].copy_from_slice(&round.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(config, rng);
        let counts = std::cell::RefCell::new((0, PoolOutcome::default()));
        let is_first = std::cell::Cell::new(true);
        let result = runner.run(&PoolProgram::strategy(most), |program| {
            let done = run_quietly(&program).inspect_err(|error| {
                // Before shrinking, which a time limit may end.
                if is_first.replace(false) {
                    let line = format!("pool: seed {seed}, round {round} failed: {error}\n");
                    let _ = std::io::stderr().write_all(line.as_bytes());
                }
            })?;
            let mut counts = counts.borrow_mut();
            counts.0 += 1;
            add(&mut counts.1, &done);
            Ok(())
        });
        if let Err(TestError::Fail(reason, program)) = result {
            let steps = program.steps.iter().enumerate();
            let steps: String = steps
                .map(|(n, step)| format!("  {n}: {step:?}\n"))
                .collect();
            let (begin, end) = (program.begin, program.end);
            panic!("seed {seed}, round {round}: {reason}\nbegin {begin}\n{steps}end {end}");
        }
        let (more, done) = counts.into_inner();
        programs += more;
        add(&mut sum, &done);
        round += 1;
    }
    (programs, sum)
}

/// Returns a failure as an error, so that shrinking prints nothing for each attempt.
fn run_quietly(program: &PoolProgram) -> Result<PoolOutcome, TestCaseError> {
    std::panic::catch_unwind(|| run_pool(program)).map_err(|payload| {
        let text = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied());
        TestCaseError::fail(text.unwrap_or("a panic").to_owned())
    })
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
    many(1, most / 10, shrink, seed + 1);
    let (free, begin) = (free_bytes(), Instant::now());
    let (programs, sum) = many(steps, most, shrink, seed);
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
