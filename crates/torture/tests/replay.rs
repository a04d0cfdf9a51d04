//! A random program that failed can be run again, by what is printed.

use proptest::strategy::Strategy;

use crate::support::{Torture, many};
use cuguard_testing::test_command;

const CHILD: &str = "CUGUARD_TEST_CHILD";

/// Programs that are numbers, some of which fail.
struct Numbers;

impl Torture for Numbers {
    type Program = u64;
    type Outcome = u64;

    const NAME: &'static str = "numbers";
    const CASES: u32 = 10;

    fn strategy(_: usize) -> impl Strategy<Value = u64> {
        proptest::num::u64::ANY
    }

    fn run(program: &u64) -> u64 {
        assert!(program % 100 != 7, "it ends in 07");
        1
    }

    fn steps(outcome: &u64) -> u64 {
        *outcome
    }

    fn add(sum: &mut u64, more: &u64) {
        *sum += more;
    }

    fn describe(program: &u64) -> String {
        format!("program {program}\n")
    }
}

#[test]
fn a_program_that_failed_is_run_again_by_its_round() {
    const TEST: &str = "a_program_that_failed_is_run_again_by_its_round";
    if std::env::var_os(CHILD).is_some() {
        many::<Numbers>(1_000_000, 1, 0, 5);
        return;
    }
    let run = |variables: &[(&str, &str)]| {
        let mut command = test_command(TEST);
        let command = command
            .env(CHILD, "1")
            .env_remove("CUGUARD_TORTURE_ROUND")
            .envs(variables.iter().copied());
        let output = command.output().expect("a child can be started");
        assert!(!output.status.success());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let has = |start: &str| {
            let line = text.lines().find(|line| line.starts_with(start));
            line.unwrap_or_else(|| panic!("{start}: {text}")).to_owned()
        };
        (has("numbers: seed 5, round "), has("program "))
    };
    let (how, program) = run(&[]);
    let round = how.split("CUGUARD_TORTURE_ROUND=").nth(1);
    let round = round.and_then(|rest| rest.split(',').next()).expect(&how);
    assert_ne!(round, "0", "{how}");
    // Without the rounds before it.
    assert_eq!(run(&[("CUGUARD_TORTURE_ROUND", round)]), (how, program));
}
