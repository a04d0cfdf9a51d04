//! Random programs against the model: some seconds of them in every test run. With
//! `CUGUARD_TORTURE_STEPS=1000000` it goes on until so many steps were done, and with
//! `CUGUARD_TORTURE_SEED` it begins elsewhere. It runs on the simulated GPU and on a real one.

use std::io::Write;
use std::time::Instant;

use crate::support::{SLACK, Torture, lines, many, number};
use cuguard::driver::{self, DriverKind};
use cuguard_torture::{Outcome, Program, free_bytes, run};
use proptest::strategy::Strategy;

/// Attempts to shrink a program that failed. Each creates contexts, which takes a third of a second on a real GPU.
fn shrink_attempts() -> u32 {
    match driver::load().expect("a driver").kind() {
        DriverKind::Simulated => 20_000,
        _ => 100,
    }
}

struct Programs;

impl Torture for Programs {
    type Program = Program;
    type Outcome = Outcome;

    const NAME: &'static str = "torture";
    const CASES: u32 = 10;

    fn strategy(most: usize) -> impl Strategy<Value = Program> {
        Program::strategy(most)
    }

    fn run(program: &Program) -> Outcome {
        run(program)
    }

    fn steps(outcome: &Outcome) -> u64 {
        outcome.steps
    }

    fn add(sum: &mut Outcome, more: &Outcome) {
        sum.steps += more.steps;
        sum.allocations += more.allocations;
        sum.bytes += more.bytes;
        sum.forgotten += more.forgotten;
        sum.escaped += more.escaped;
        sum.scopes += more.scopes;
        sum.graphs += more.graphs;
        sum.host_closes += more.host_closes;
        sum.panics += more.panics;
        sum.kernels += more.kernels;
        sum.contexts += more.contexts;
    }

    fn describe(program: &Program) -> String {
        let steps = lines(&program.steps);
        format!("begin {}\n{steps}end {}", program.begin, program.end)
    }
}

#[test]
fn random_programs_do_what_the_model_does() {
    let driver = driver::load().expect("a driver");
    // Creating a context takes a third of a second on a real GPU.
    let (default, most) = match driver.kind() {
        DriverKind::Simulated => (6_000, 60),
        _ => (2_000, 600),
    };
    let wanted = number("CUGUARD_TORTURE_STEPS");
    let seed = number("CUGUARD_TORTURE_SEED").unwrap_or(1);
    let shrink = shrink_attempts();
    // A real driver allocates memory for itself in the first programs.
    many::<Programs>(default.min(1_000), most, shrink, seed + 1);
    let (free, begin) = (free_bytes(), Instant::now());
    let (programs, sum) = many::<Programs>(wanted.unwrap_or(default), most, shrink, seed);
    let lost = free.saturating_sub(free_bytes());
    let seconds = begin.elapsed().as_secs_f64();
    // Not `eprintln!`, which the test harness captures.
    let _ = writeln!(
        std::io::stderr(),
        "torture: {programs} programs, {} steps, {} allocations of {} bytes in {} contexts, \
         {} scopes ({} graphs, {} with the context of their host memory closed), {} panics, {} forgotten, {} escaped, {} checks by kernels, {lost} bytes lost, \
         {seconds:.1} s",
        sum.steps,
        sum.allocations,
        sum.bytes,
        sum.contexts,
        sum.scopes,
        sum.graphs,
        sum.host_closes,
        sum.panics,
        sum.forgotten,
        sum.escaped,
        sum.kernels,
    );
    assert!(lost <= SLACK, "{lost} bytes of the device are lost");
    assert!(
        sum.scopes > 0 && sum.graphs > 0 && sum.panics > 0 && sum.forgotten > 0 && sum.escaped > 0
    );
}
