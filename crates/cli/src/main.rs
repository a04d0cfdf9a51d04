//! The command `cuguard`.
//!
//! `cuguard doctor` examines the GPUs of this machine, `cuguard run` runs a CUDA program and reports its leaks, `cuguard dump`,
//! `cuguard watch` and `cuguard metrics` show a running one, `cuguard report` and `cuguard diff` show recordings. `--help` lists their
//! options; `cuguard man` and `cuguard completions` write them as manual pages and for shells.

mod completions;
mod diff;
mod doctor;
mod dump;
mod live_process;
mod man;
mod metrics;
mod output_file;
mod report;
mod run;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Examines GPUs, and the memory that CUDA programs hold and leak
#[derive(Debug, Parser)]
#[command(name = "cuguard", version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Examine the GPUs of this machine: memory, the processes that hold it, what can be allocated
    Doctor(doctor::Options),
    /// Run a CUDA program unchanged, and report what it leaks
    Run(run::Options),
    /// Run a crate's tests or program, and name the tests that leak: `cargo cuguard`
    #[command(disable_help_flag = true)]
    Cargo {
        /// A subcommand of `cargo cuguard` and its arguments: cargo-cuguard(1) and `cargo cuguard --help` describe them
        #[arg(
            value_name = "ARGUMENTS",
            trailing_var_arg = true,
            allow_hyphen_values = true
        )]
        arguments: Vec<OsString>,
    },
    /// Show what recordings have: text, JSON, flame graphs, profiles
    Report(report::Options),
    /// Show what grew between two recordings, or two moments of one
    Diff(diff::Options),
    /// Report what a running process holds
    Dump(dump::Options),
    /// Watch the memory of a running process: live bytes, rates, the largest call sites
    Watch(watch::Options),
    /// Print or serve the metrics of running processes, for Prometheus
    Metrics(metrics::Options),
    /// Print a script with which a shell completes commands and options
    Completions(completions::Options),
    /// Write the manual pages of all commands to a folder
    Man(man::Options),
}

fn main() -> ExitCode {
    // It is meant for other programs, and would override the report settings of this one.
    let words = std::env::var_os("LEAK_REPORT");
    // SAFETY: this is the only thread.
    unsafe { std::env::remove_var("LEAK_REPORT") };
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == "cargo") {
        // Which options are cargo's is not known here.
        return run::cargo::run(arguments.collect(), words);
    }
    match Arguments::parse().command {
        Command::Doctor(options) => doctor::run(&options),
        Command::Run(options) => run::run(&options, words),
        Command::Cargo { arguments } => run::cargo::run(arguments, words),
        Command::Report(options) => report::run(&options),
        Command::Diff(options) => diff::run(&options),
        Command::Dump(options) => dump::run(&options),
        Command::Watch(options) => watch::run(&options),
        Command::Metrics(options) => metrics::run(&options),
        Command::Completions(options) => completions::run(&options, Arguments::command()),
        Command::Man(options) => man::run(&options, [Arguments::command(), run::cargo::command()]),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        super::Arguments::command().debug_assert();
    }
}
