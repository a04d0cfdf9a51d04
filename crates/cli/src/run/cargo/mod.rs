//! `cargo cuguard`: runs what cargo builds with the audit library preloaded, and attributes leaks to tests.
//!
//! ```text
//!   CommandLine ──► own options, cargo's arguments
//!   configuration ► the targets, and runners that the user has set
//!   plan ─────────► a file in the run's folder ◄── runner: is executed by cargo in place of each program, which it executes
//!   cargo ────────► its programs ──► reports in JSON ──► owner: the test ──► text ──► exit code
//! ```
//!
//! Cargo has a setting for a command that starts programs for it, the runner. The environment sets it, so that cargo, rustc and
//! build scripts run without the audit library, and programs with it.

mod configuration;
mod owner;
mod plan;
mod reports;
mod runner;
mod syntax;
mod test_program;
mod text;

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use self::plan::Plan;
use self::syntax::{Request, Subcommand};
use super::failure::{self, Failure};
use super::options::{AuditOptions, Format};
use super::run_folder::RunFolder;
use super::summary::{self, Summary};
use super::words::{self, Words};
use super::{child, library, print, program, serve_metrics, wants_simulation};

/// The definition of the command line, for manual pages.
pub(crate) fn command() -> clap::Command {
    syntax::command().name("cargo-cuguard")
}

/// Runs `cargo cuguard`, or the runner that it has cargo execute. `environment` is the value of `LEAK_REPORT`.
pub(crate) fn run(arguments: Vec<OsString>, environment: Option<OsString>) -> ExitCode {
    if arguments.first().is_some_and(|first| first == runner::WORD) {
        let failure = runner::execute(&arguments[1..]);
        print(&format!("cargo cuguard: {failure}\n"));
        return ExitCode::from(failure.code());
    }
    let request = syntax::parse(arguments);
    match try_run(&request, environment) {
        Ok(code) => code,
        Err(failure) => {
            print(&format!("cargo cuguard: {failure}\n"));
            ExitCode::from(failure.code())
        }
    }
}

fn try_run(request: &Request, environment: Option<OsString>) -> Result<ExitCode, Failure> {
    let wants_simulation = wants_simulation(env::var_os("CUGUARD_DRIVER"))?;
    let folder = RunFolder::create()?;
    let (words, max) = match &request.subcommand {
        Subcommand::Run(options) => (words::compose(options, environment.as_deref())?, 0),
        Subcommand::Test(options) | Subcommand::Nextest(options) => {
            let options = AuditOptions {
                report: Some(Format::Json),
                output: Some(reports::pattern(folder.path())),
                exitcode: options.exitcode,
                suppress: options.suppress.clone(),
                fail_on: options.fail_on,
                ..AuditOptions::default()
            };
            let (environment, max) = reports::words(environment.as_deref());
            (words::compose(&options, Some(&environment))?, max)
        }
    };
    let targets = configuration::targets(&request.cargo)?;
    let plan = Plan {
        library: library::provide_audit(folder.path())?,
        simulation: wants_simulation
            .then(|| library::provide_simulation(folder.path()))
            .transpose()?,
        words: words.text().to_owned(),
        runners: targets.clone(),
    };
    plan.write(folder.path())?;
    if let Subcommand::Run(options) = &request.subcommand {
        serve_metrics(&options.metrics, folder.path(), summary::CARGO)?;
    }
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let variables = targets.keys();
    let variables = variables
        .map(|target| runner_variable(folder.path(), target))
        .collect::<Result<_, _>>()?;
    words.prepare_file()?;
    words.prepare_recording()?;
    let status = child::run(&child::Start {
        file: &program::find(&cargo)?,
        name: &cargo,
        arguments: &request.cargo,
        environment: variables,
    })?;
    finish(request, folder, &words, max, &status)
}

/// The variable that has cargo start the programs of a target by the runner. Cargo splits its value at spaces.
fn runner_variable(folder: &Path, target: &str) -> Result<child::Variable, Failure> {
    let failure = |why: String| Failure::Cargo { why };
    // The command's own path may have spaces.
    let command = folder.join("cuguard");
    if !command.exists() {
        env::current_exe()
            .and_then(|own| symlink(own, &command))
            .map_err(|error| failure(format!("{}: {error}", command.display())))?;
    }
    let shown = folder.display().to_string();
    if shown.contains(char::is_whitespace) {
        return Err(failure(format!(
            "{shown}: the path of a runner of cargo cannot have a space in it; set TMPDIR, and XDG_RUNTIME_DIR if it is set, to another folder"
        )));
    }
    let name = target.to_uppercase().replace(['-', '.'], "_");
    let value = format!(
        "{} cargo {} {shown} {target}",
        command.display(),
        runner::WORD
    );
    Ok((format!("CARGO_TARGET_{name}_RUNNER"), Some(value.into())))
}

/// How long programs that cargo has not waited for may write their reports: a search of the whole memory of a process, and the
/// names of the functions on its stack traces, take seconds.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

const NOTHING_STARTED: &str = "cargo cuguard: cargo started no program with the audit library\n";

/// Prints what was found, of at most `max` tests, and returns the exit code.
fn finish(
    request: &Request,
    folder: RunFolder,
    words: &Words,
    max: usize,
    status: &ExitStatus,
) -> Result<ExitCode, Failure> {
    // After Ctrl-C, cargo does not wait for the programs, which write their reports then.
    let running = plan::wait_for_programs(folder.path(), LONGEST_WAIT);
    let mut summary = Summary::read(folder.path(), summary::CARGO);
    summary.add_recording(words.recording());
    if words.settings().recording_file().is_some() {
        summary.set_recorded();
    }
    let fail_on = words.settings().wanted_fail_on();
    let programs = plan::programs(folder.path());
    let files = programs
        .iter()
        .map(|(process, program)| (process, program.file.as_os_str()));
    let not_loaded = summary.text_of_not_loaded(files);
    let text = match &request.subcommand {
        _ if programs.is_empty() => NOTHING_STARTED.to_owned(),
        Subcommand::Run(_) if words.settings().is_silent() || words.discards_reports() => {
            String::new()
        }
        Subcommand::Run(_) if !not_loaded.is_empty() => String::new(),
        Subcommand::Run(_) => summary.text(OsStr::new("cargo"), status),
        Subcommand::Test(_) | Subcommand::Nextest(_) => {
            let reports = reports::read(folder.path());
            let found = owner::attribute(&reports, &programs, fail_on);
            let mut processes = summary.processes();
            processes.extend(reports.iter().map(|report| report.process));
            let silent = summary.without_report();
            let sentence = text::sentence(&reports, processes.len(), silent);
            let head = format!("{sentence}\n{}", summary.text_of_silent(status));
            text::render(head.trim_end(), &found, max)
        }
    };
    let mut late = String::new();
    if running.is_empty() {
        folder.remove();
    } else {
        let folder = folder.keep();
        for program in &running {
            let (process, name) = (program.process, program.name());
            let _ = writeln!(
                late,
                "cargo cuguard: process {process} ({name}) still runs: it does not count, and reports into {}",
                folder.display()
            );
        }
    }
    let not_audited = not_loaded + &summary.text_of_drivers();
    print(&(text + &late + &not_audited));
    let wants_code = words.settings().wanted_exit_code().is_some();
    // That nothing was found says nothing then.
    let is_unknown = programs.is_empty() && !request.only_builds() || !running.is_empty();
    if !not_audited.is_empty() || wants_code && is_unknown && status.success() {
        return Ok(ExitCode::from(failure::NOT_AUDITED));
    }
    Ok(match words.settings().wanted_exit_code() {
        Some(code) if summary.finds(fail_on) => ExitCode::from(code),
        _ => child::end_like(status),
    })
}
