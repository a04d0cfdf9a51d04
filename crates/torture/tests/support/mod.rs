//! Random programs of one kind until so many steps are done, with shrinking: for the test programs that run them.

use std::cell::{Cell, RefCell};
use std::io::Write;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

/// What a real driver may cache: one page for each of a few pools. A simulated one is compared to the byte after each
/// program.
pub const SLACK: u64 = 16 << 20;

/// A kind of program.
pub trait Torture {
    type Program: std::fmt::Debug + std::panic::RefUnwindSafe;
    type Outcome: Default;

    /// In messages.
    const NAME: &'static str;
    /// How many programs run between two looks at the number of steps.
    const CASES: u32;

    fn strategy(most: usize) -> impl Strategy<Value = Self::Program>;
    fn run(program: &Self::Program) -> Self::Outcome;
    fn steps(outcome: &Self::Outcome) -> u64;
    fn add(sum: &mut Self::Outcome, more: &Self::Outcome);
    /// The program with one step a line.
    fn describe(program: &Self::Program) -> String;
}

/// The number in an environment variable.
pub fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("a number"))
}

/// One step a line.
pub fn lines<S: std::fmt::Debug>(steps: &[S]) -> String {
    let steps = steps.iter().enumerate();
    steps
        .map(|(n, step)| format!("  {n}: {step:?}\n"))
        .collect()
}

/// How to run a program that failed again.
fn replay<T: Torture>(seed: u64, round: u64) -> String {
    let name = T::NAME;
    format!(
        "{name}: seed {seed}, round {round}; again: CUGUARD_TORTURE_SEED={seed} CUGUARD_TORTURE_ROUND={round}, and the same driver"
    )
}

/// Runs programs of up to `most` steps until `steps` are done; returns the number of programs and what they did. The variable
/// `CUGUARD_TORTURE_ROUND` leaves out the rounds before that one.
pub fn many<T: Torture>(steps: u64, most: usize, shrink: u32, seed: u64) -> (u64, T::Outcome) {
    let mut programs = 0;
    let mut sum = T::Outcome::default();
    let mut round = number("CUGUARD_TORTURE_ROUND").unwrap_or(0);
    while T::steps(&sum) < steps {
        let config = Config {
            cases: T::CASES,
            // A program depends on the seed and the round alone, which are printed.
            failure_persistence: None,
            max_shrink_iters: shrink,
            ..Config::default()
        };
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..16].copy_from_slice(&round.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(config, rng);
        let counts = RefCell::new((0, T::Outcome::default()));
        let is_first = Cell::new(true);
        let result = runner.run(&T::strategy(most), |program| {
            let done = run_quietly::<T>(&program).inspect_err(|error| {
                // Before shrinking, which a time limit may end.
                if is_first.replace(false) {
                    let line = format!("{}\nfailed: {error}\n", replay::<T>(seed, round));
                    let _ = std::io::stderr().write_all(line.as_bytes());
                }
            })?;
            let mut counts = counts.borrow_mut();
            counts.0 += 1;
            T::add(&mut counts.1, &done);
            Ok(())
        });
        if let Err(TestError::Fail(reason, program)) = result {
            panic!(
                "{}\n{reason}\n{}",
                replay::<T>(seed, round),
                T::describe(&program)
            );
        }
        let (more, done) = counts.into_inner();
        programs += more;
        T::add(&mut sum, &done);
        round += 1;
    }
    (programs, sum)
}

/// Returns a failure as an error, so that shrinking prints nothing for each attempt.
fn run_quietly<T: Torture>(program: &T::Program) -> Result<T::Outcome, TestCaseError> {
    std::panic::catch_unwind(|| T::run(program)).map_err(|payload| {
        let text = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied());
        TestCaseError::fail(text.unwrap_or("a panic").to_owned())
    })
}
