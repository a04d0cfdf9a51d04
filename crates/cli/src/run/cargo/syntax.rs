//! The command line of `cargo cuguard`: which options are its own, and which are cargo's.
//!
//! Its own may stand anywhere before `--`. All others, and what follows `--`, cargo gets as they are.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser};
use cuguard_report::FailOn;

use super::super::options::AuditOptions;

/// Runs a crate's tests or program with leak reports: also crates on cudarc or cust, without a change
#[derive(Debug, Parser)]
#[command(name = "cargo cuguard", bin_name = "cargo cuguard", version, after_help = NOTES)]
struct CommandLine {
    #[command(subcommand)]
    command: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Subcommand {
    /// Run tests as `cargo test` does, and list what each test lost
    #[command(visible_alias = "t", override_usage = TEST_USAGE, after_help = TEST_NOTES)]
    Test(TestOptions),
    /// Run tests as `cargo nextest` does, each in a process of its own, and list what each test lost
    #[command(override_usage = NEXTEST_USAGE, after_help = TEST_NOTES)]
    Nextest(TestOptions),
    /// Run a program as `cargo run` does, with the report of `cuguard run`
    #[command(visible_alias = "r", override_usage = RUN_USAGE, after_help = RUN_NOTES)]
    Run(AuditOptions),
}

/// What sets the exit code of tests.
#[derive(Args, Clone, Debug)]
pub(super) struct TestOptions {
    /// The exit code if a finding of --fail-on was made in any process, 1 to 255. Otherwise, and
    /// without this option and --fail-on, it is cargo's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub(super) exitcode: Option<u8>,

    /// Make these findings set the exit code: one or more of lost, reachable, growth, oom, destroyed, separated by
    /// commas [default: lost]. Without --exitcode the code is then 1. Those named are listed by test, too
    #[arg(long, value_name = "FINDINGS")]
    pub(super) fail_on: Option<FailOn>,

    /// Hide what the patterns of FILE match, one a line, in the syntax of LeakSanitizer. Can be repeated
    #[arg(long, value_name = "FILE")]
    pub(super) suppress: Vec<PathBuf>,
}

const TEST_USAGE: &str =
    "cargo cuguard test [OPTIONS] [OPTIONS OF CARGO TEST] [-- OPTIONS OF THE TEST PROGRAM]";
const NEXTEST_USAGE: &str = "cargo cuguard nextest [OPTIONS] run [OPTIONS OF CARGO NEXTEST RUN]";
const RUN_USAGE: &str = "cargo cuguard run [OPTIONS] [OPTIONS OF CARGO RUN] [-- ARGUMENTS]";

const NOTES: &str = "\
Cargo builds and starts the programs; nothing is preloaded into cargo, the compiler and build scripts. Options of
this command may stand anywhere before `--`. A runner in the configuration of cargo is used, too.

Examples:
  cargo cuguard test
  cargo cuguard test --fail-on lost --workspace -- --skip slow
  cargo cuguard nextest run --no-fail-fast
  CUGUARD_DRIVER=sim cargo cuguard run --release -- --steps 100

`cargo cuguard test --help` lists the options for tests, `cargo cuguard run --help` those for programs.";

const TEST_NOTES: &str = "\
When the tests have ended, one line has the sums, and a list what each test lost, or did not free before its context
was destroyed, by call site. What a test allocates on its own thread is attributed to it; on other threads, what the
test's function allocates, or a closure in it. Where that is not certain, a resource is listed without a test, with the
names of threads; Linux gives a thread without a name that of the thread that started it. nextest runs each test in a
process of its own, so there all is attributed. What is reachable at the end of the process, such as a context in a
static, is summed up, and listed with --fail-on reachable.

Doctests run with the audit library with cargo 1.89 or newer, and are not told apart where rustdoc joins them.

The words of LEAK_REPORT that select what is recorded and shown are used (suppress=FILE, depth=N, max=N, python=no);
those for formats and files are not. CUGUARD_DRIVER=sim runs the tests on the simulated GPU.

Exit codes: cargo's, or that of --exitcode.
  2    wrong options, or a wrong word in LEAK_REPORT or CUGUARD_DRIVER
  125  a program cannot be audited, as with `cuguard run`; with --fail-on or --exitcode also if cargo started none";

const RUN_NOTES: &str = "\
The report is that of `cuguard run`, whose --help explains options, LEAK_REPORT and CUGUARD_DRIVER.

Exit codes: the program's, or that of --exitcode.
  2    wrong options, or a wrong word in LEAK_REPORT or CUGUARD_DRIVER
  125  the program cannot be audited, as with `cuguard run`; with --fail-on or --exitcode also if cargo started none";

/// What is asked for.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) subcommand: Subcommand,
    /// The arguments of cargo, with its own subcommand.
    pub(super) cargo: Vec<OsString>,
}

impl Request {
    /// Whether cargo is asked to start no program.
    pub(super) fn only_builds(&self) -> bool {
        let mut words = self.cargo.iter().take_while(|word| *word != "--");
        words.any(|word| word == "--no-run")
    }
}

/// The definition of the command line.
pub(super) fn command() -> clap::Command {
    CommandLine::command()
}

/// Parses the arguments. Prints help, or what is wrong with them, and exits.
pub(super) fn parse(arguments: Vec<OsString>) -> Request {
    try_parse(arguments).unwrap_or_else(|error| error.exit())
}

fn try_parse(arguments: Vec<OsString>) -> Result<Request, clap::Error> {
    let mut command = command();
    let word = arguments.first().and_then(|word| word.to_str());
    let subcommand = word.and_then(|word| command.find_subcommand(word));
    let (mut own, mut cargo) = (vec![OsString::from("cargo cuguard")], Vec::new());
    match subcommand {
        Some(subcommand) => {
            let (options, others) = split(&arguments[1..], subcommand);
            own.push(arguments[0].clone());
            own.extend(options);
            cargo.push(arguments[0].clone());
            cargo.extend(others);
        }
        None => own.extend(arguments),
    }
    let matches = command.try_get_matches_from_mut(own)?;
    let CommandLine { command } = CommandLine::from_arg_matches(&matches)?;
    Ok(Request {
        subcommand: command,
        cargo,
    })
}

/// The command's own options with their values, and all other arguments.
fn split(arguments: &[OsString], command: &clap::Command) -> (Vec<OsString>, Vec<OsString>) {
    let (mut own, mut others) = (Vec::new(), Vec::new());
    let mut arguments = arguments.iter().cloned();
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy().into_owned();
        if text == "--" {
            others.push(argument);
            break;
        }
        let (name, has_value) = match text.split_once('=') {
            Some((name, _)) => (name, true),
            None => (&*text, false),
        };
        let long = name.strip_prefix("--");
        let options = &mut command.get_arguments();
        let option = options.find(|option| long.is_some() && option.get_long() == long);
        if ["-h", "--help"].contains(&&*text) {
            own.push(argument);
        } else if let Some(option) = option {
            own.push(argument);
            if !has_value && option.get_action().takes_values() {
                own.extend(arguments.next());
            }
        } else {
            others.push(argument);
        }
    }
    others.extend(arguments);
    (own, others)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{CommandLine, Request, Subcommand, try_parse};

    fn parse(line: &str) -> Result<Request, clap::Error> {
        try_parse(line.split_whitespace().map(Into::into).collect())
    }

    #[test]
    fn the_command_line_is_sound() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn own_options_stand_anywhere_before_the_dashes() {
        for (line, exitcode, cargo) in [
            ("test", None, "test"),
            ("t --exitcode 3", Some(3), "t"),
            ("test --lib --exitcode=3 -p a", Some(3), "test --lib -p a"),
            ("test -- --exitcode 3", None, "test -- --exitcode 3"),
            (
                "nextest --exitcode 3 run --fail-fast -- --skip a -- b",
                Some(3),
                "nextest run --fail-fast -- --skip a -- b",
            ),
        ] {
            let request = parse(line).expect(line);
            let (Subcommand::Test(options) | Subcommand::Nextest(options)) = &request.subcommand
            else {
                panic!("{line}")
            };
            assert_eq!(options.exitcode, exitcode, "{line}");
            assert_eq!(request.cargo.join(" ".as_ref()), cargo, "{line}");
        }
        let request = parse("run --sites --bin a -- --sites").expect("good options");
        assert_eq!(request.cargo, ["run", "--bin", "a", "--", "--sites"]);
        assert!(matches!(request.subcommand, Subcommand::Run(_)));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, error) in [
            ("", "Usage: cargo cuguard"),
            ("build", "unrecognized subcommand 'build'"),
            (
                "test --exitcode 0",
                "invalid value '0' for '--exitcode <N>'",
            ),
            (
                "test --lib --exitcode",
                "a value is required for '--exitcode <N>'",
            ),
            (
                "test --fail-on leak",
                "invalid value 'leak' for '--fail-on <FINDINGS>'",
            ),
            (
                "run --fail-on=lost --exitcode=x",
                "invalid value 'x' for '--exitcode <N>'",
            ),
        ] {
            let text = parse(line).expect_err(line).to_string();
            assert!(text.contains(error), "{line}: {text}");
        }
    }
}
