//! Random programs against the model: some seconds of them in every test run. With
//! `CUGUARD_TORTURE_STEPS=1000000` it goes on until so many steps were done, and with
//! `CUGUARD_TORTURE_SEED` it begins elsewhere. It runs on the simulated GPU and on a real one.

use std::io::Write;
use std::time::Instant;

use cuguard::driver::{self, DriverKind};
use cuguard_torture::{Outcome, Program, free_bytes, run};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

/// What a real driver may cache: 1 page for each of a few pools. A simulated one is compared to the
/// byte after each program.
const SLACK: u64 = 16 << 20;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("a number"))
}

/// Attempts to shrink a program that failed. Each creates contexts, which takes a third of a second on a real GPU.
fn shrink_attempts() -> u32 {
    match driver::load().expect("a driver").kind() {
        DriverKind::Simulated => 20_000,
        _ => 100,
    }
}

/// Runs programs until `steps` are done; returns the number of programs and what they did.
fn many(steps: u64, most: usize, seed: u64) -> (u64, Outcome) {
    let mut programs = 0;
    let mut sum = Outcome::default();
    let mut round = 0_u64;
    while sum.steps < steps {
        let config = Config {
            cases: 10,
            failure_persistence: None,
            max_shrink_iters: shrink_attempts(),
            ..Config::default()
        };
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..16].copy_from_slice(&round.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(config, rng);
        let counts = std::cell::RefCell::new((0, Outcome::default()));
        let is_first = std::cell::Cell::new(true);
        let result = runner.run(&Program::strategy(most), |program| {
            let done = run_quietly(&program).inspect_err(|error| {
                // Before shrinking, which a time limit may end.
                if is_first.replace(false) {
                    let line = format!("torture: seed {seed}, round {round} failed: {error}\n");
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
fn run_quietly(program: &Program) -> Result<Outcome, TestCaseError> {
    std::panic::catch_unwind(|| run(program)).map_err(|payload| {
        let text = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied());
        TestCaseError::fail(text.unwrap_or("a panic").to_owned())
    })
}

fn add(sum: &mut Outcome, more: &Outcome) {
    sum.steps += more.steps;
    sum.allocations += more.allocations;
    sum.bytes += more.bytes;
    sum.forgotten += more.forgotten;
    sum.escaped += more.escaped;
    sum.scopes += more.scopes;
    sum.graphs += more.graphs;
    sum.panics += more.panics;
    sum.kernels += more.kernels;
    sum.contexts += more.contexts;
}

#[test]
fn random_programs_do_what_the_model_does() {
    let driver = driver::load().expect("a driver");
    // Creating a context takes a third of a second on a real GPU.
    let (default, most) = match driver.kind() {
        DriverKind::Simulated => (9_000, 60),
        _ => (2_000, 600),
    };
    let wanted = number("CUGUARD_TORTURE_STEPS");
    let seed = number("CUGUARD_TORTURE_SEED").unwrap_or(1);
    // A real driver allocates memory for itself in the first programs.
    many(default.min(1_000), most, seed + 1);
    let (free, begin) = (free_bytes(), Instant::now());
    let (programs, sum) = many(wanted.unwrap_or(default), most, seed);
    let lost = free.saturating_sub(free_bytes());
    let seconds = begin.elapsed().as_secs_f64();
    // Not `eprintln!`, which the test harness captures.
    let _ = writeln!(
        std::io::stderr(),
        "torture: {programs} programs, {} steps, {} allocations of {} bytes in {} contexts, \
         {} scopes ({} graphs), {} panics, {} forgotten, {} escaped, {} checks by kernels, {lost} bytes lost, \
         {seconds:.1} s",
        sum.steps,
        sum.allocations,
        sum.bytes,
        sum.contexts,
        sum.scopes,
        sum.graphs,
        sum.panics,
        sum.forgotten,
        sum.escaped,
        sum.kernels,
    );
    assert!(lost <= SLACK, "{lost} bytes of the device are gone");
    assert!(
        sum.scopes > 0 && sum.graphs > 0 && sum.panics > 0 && sum.forgotten > 0 && sum.escaped > 0
    );
}
