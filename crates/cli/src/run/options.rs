//! The options of `cuguard run`, and its help.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use cuguard_report::FailOn;

use crate::metrics::RunOptions;

/// The command's options, and the program.
#[derive(Args, Clone, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(super) audit: AuditOptions,

    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
    pub(super) program: Vec<OsString>,
}

/// What is recorded, reported, and sets the exit code.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct AuditOptions {
    /// The format of the report
    #[arg(long, value_name = "FORMAT")]
    pub(super) report: Option<Format>,

    /// Write text or JSON to FILE instead of standard error. %p in the name is the process id. Without it the
    /// reports of several processes are in one file. /dev/null discards them, and the summary
    #[arg(long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,

    /// Record every allocation and free into FILE, which `cuguard report` shows. %p in the name is the process id, %h
    /// the machine, %r the rank in a distributed job. Without %p, the first process that uses CUDA records into FILE,
    /// others into FILE.PID. The report goes to standard error: not with --output
    #[arg(long, value_name = "FILE", conflicts_with_all = ["output", "sites"])]
    pub(super) record: Option<PathBuf>,

    /// The most bytes of a recording, such as 256MiB; at least 1MiB [default: no limit]
    #[arg(long, value_name = "SIZE", requires = "record")]
    pub(super) record_limit: Option<String>,

    /// At that limit: all: record on; last: keep the last events (the default); aggregate: leave out allocations that
    /// are freed soon
    #[arg(long, value_name = "POLICY", requires = "record_limit")]
    pub(super) record_policy: Option<String>,

    /// Write the names of functions into the recording at the end, for a machine without the program
    #[arg(long, requires = "record")]
    pub(super) embed_symbols: bool,

    /// The exit code if a finding of --fail-on was made in any process, 1 to 255. Otherwise, and
    /// without this option and --fail-on, it is the program's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub(super) exitcode: Option<u8>,

    /// Hide what the patterns of FILE match, one a line, in the syntax of LeakSanitizer. Can be repeated
    #[arg(long, value_name = "FILE")]
    pub(super) suppress: Vec<PathBuf>,

    /// Record whole stack traces (the default)
    #[arg(long, conflicts_with = "sites")]
    pub(super) stacks: bool,

    /// Record two frames instead of the whole stack trace: the line that allocates, with the function of the CUDA
    /// runtime that it calls or, where it calls the driver, with its caller. Cheaper, and shorter reports. Not with --record
    #[arg(long)]
    pub(super) sites: bool,

    /// Record no Python frames
    #[arg(long)]
    pub(super) no_python: bool,

    /// Make these findings set the exit code: one or more of lost, reachable, growth, oom, destroyed, separated by
    /// commas [default: lost]. Without --exitcode the code is then 1
    #[arg(long, value_name = "FINDINGS")]
    pub(super) fail_on: Option<FailOn>,

    #[command(flatten)]
    pub(super) metrics: RunOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Text
    Text,
    /// One line of JSON for each process
    Json,
    /// Annotations for GitHub Actions
    Github,
}

const NOTES: &str = "\
The program runs unchanged, with a library preloaded that records what it allocates from the CUDA
driver. When a process of it ends, the library reports what was lost, what is still reachable and what
grew. Processes that do not use CUDA print nothing; after several that do, a summary follows, and one line
where none did. The reports of processes that outlive the program follow when they end, and count neither
for the summary nor for the exit code.

Examples:
  cuguard run -- ./simulation --steps 100
  cuguard run --exitcode 23 -- python3 train.py
  cuguard run --report json --output leaks-%p.json -- torchrun train.py
  cuguard run --sites --fail-on lost,growth -- ctest
  cuguard run --record run.cgr -- python3 train.py && cuguard report run.cgr --html run.html
  cuguard run --record rank-%r.cgr --record-limit 1GiB -- torchrun train.py
  cuguard run --metrics 127.0.0.1:9400 -- python3 serve.py

With CUGUARD_DRIVER=sim in the environment the program runs on the simulated GPU, which this command contains:
programs of the CUDA driver API do, without a GPU; the CUDA runtime does not. Other words are for programs with
the cuguard crate: real is the installed driver, auto the simulated GPU where there is no other, if the program
contains it; a path with a / is a driver's library. For other programs these three are the installed driver.

The environment variable LEAK_REPORT has the same settings, and others:
  LEAK_REPORT=json,file=leaks-%p.json,exitcode=23,fail_on=lost+growth,python=no,level=sites,max=50
The words of a recording are record,file=FILE,record-limit=256MiB,record-policy=last,embed-symbols.
Options win over its words, also over 0, which turns reports off; --report and --output replace its
format and its file together.

Exit codes: the program's own, or that of --exitcode. A program that a signal ends, ends this command
by the same signal, which shells show as 128 + N, unless --exitcode or --fail-on sets the exit code.
  2    wrong options, or a wrong word in LEAK_REPORT or CUGUARD_DRIVER, or the address of --metrics cannot be used
  125  the program cannot be audited: it is static, for another architecture, set-user-ID or built with
       a sanitizer, or the library cannot be loaded into it. Or a process ran on another driver than the
       simulated GPU, with CUGUARD_DRIVER=sim
  126  the program cannot be executed
  127  the program was not found";
