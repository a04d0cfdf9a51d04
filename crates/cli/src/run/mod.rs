//! `cuguard run`: runs any CUDA program with the audit library preloaded.
//!
//! ```text
//!   Options ── words ──► LEAK_REPORT ─┐     (and CUGUARD_RUN_REPORT, the same)
//!   library ───────────► LD_PRELOAD ──┼──► child: the program, which reports its own end
//!   CUGUARD_DRIVER=sim ► LD_LIBRARY_PATH ─┤
//!   run_folder ────────► CUGUARD_RUN ─┘       │
//!       └── records of all processes ◄────────┘──► summary ──► exit code
//! ```
//!
//! [`program`] finds the program and names the reason if nothing can be preloaded into it. [`library`] writes the audit library
//! to a private folder. [`child`] waits, and forwards signals. Nothing here calls the driver or knows how a report is made.

mod cache;
pub(crate) mod cargo;
mod child;
mod elf;
mod failure;
mod library;
mod options;
mod program;
mod run_folder;
mod summary;
mod words;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use crate::metrics::{self, RunOptions};
use failure::Failure;
pub(crate) use options::Options;

/// Runs `cuguard run`. `environment` is the value of `LEAK_REPORT`.
pub(crate) fn run(options: &Options, environment: Option<OsString>) -> ExitCode {
    match try_run(options, environment) {
        Ok(code) => code,
        Err(failure) => {
            print(&format!("cuguard run: {failure}\n"));
            ExitCode::from(failure.code())
        }
    }
}

/// Writes to standard error, which may be closed.
fn print(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Whether the program runs on the simulated GPU. A program with the crate selects its driver by the same variable, with the same
/// words: for others, `auto` and a path change nothing.
fn wants_simulation(driver: Option<OsString>) -> Result<bool, Failure> {
    let driver = driver.unwrap_or_default();
    let word = driver.to_string_lossy();
    match &*word {
        "sim" => Ok(true),
        "" | "real" | "auto" => Ok(false),
        path if path.contains('/') => Ok(false),
        // The program would run on a driver that the user did not mean.
        _ => Err(Failure::Driver {
            word: word.into_owned(),
        }),
    }
}

fn try_run(options: &Options, environment: Option<OsString>) -> Result<ExitCode, Failure> {
    let wants_simulation = wants_simulation(std::env::var_os("CUGUARD_DRIVER"))?;
    let words = words::compose(&options.audit, environment.as_deref())?;
    let (name, arguments) = options.program.split_first().ok_or(Failure::NoProgram)?;
    let file = program::find(name)?;
    program::check(&file)?;
    let folder = run_folder::RunFolder::create()?;
    let library = library::provide_audit(folder.path())?;
    let simulation = wants_simulation
        .then(|| library::provide_simulation(folder.path()))
        .transpose()?;
    // Before files of an earlier run are replaced: the port may be taken.
    serve_metrics(&options.audit.metrics, folder.path(), summary::RUN)?;
    words.prepare_file()?;
    words.prepare_recording()?;
    let audit = child::Audit {
        library: &library,
        simulation: simulation.as_deref(),
        folder: folder.path(),
        words: words.text(),
    };
    let status = child::run(&child::Start {
        file: &file,
        name,
        arguments,
        environment: audit.environment(),
    })?;
    let mut summary = summary::Summary::read(folder.path(), summary::RUN);
    summary.add_recording(words.recording());
    if words.settings().recording_file().is_some() {
        summary.set_recorded();
    }
    folder.remove();
    if !words.settings().is_silent() && !words.discards_reports() {
        print(&summary.text(name, &status));
    }
    let other_drivers = summary.text_of_drivers();
    if !other_drivers.is_empty() {
        // Also where reports are off: nothing of this run is what the user asked for.
        print(&other_drivers);
        return Ok(ExitCode::from(failure::NOT_AUDITED));
    }
    let found = summary.finds(words.settings().wanted_fail_on());
    Ok(match words.settings().wanted_exit_code() {
        Some(code) if found => ExitCode::from(code),
        _ => child::end_like(&status),
    })
}

/// Serves the metrics of the run from now on, if the user asks for that. `command` is the one that prints where.
fn serve_metrics(options: &RunOptions, folder: &Path, command: &str) -> Result<(), Failure> {
    let Some(address) = options.listen else {
        return Ok(());
    };
    let bound = metrics::serve_run(options, address, folder).map_err(|error| Failure::Metrics {
        why: metrics::cannot_listen("--metrics", address, &error),
    })?;
    print(&format!("{command}: metrics at http://{bound}/metrics\n"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::wants_simulation;

    #[test]
    fn the_driver_is_a_word_or_a_path() {
        let wants = |word: &str| wants_simulation(Some(word.into())).ok();
        assert_eq!(wants_simulation(None).ok(), Some(false));
        assert_eq!(wants("sim"), Some(true));
        for word in ["", "real", "auto", "./sim", "/opt/libcuda.so.1"] {
            assert_eq!(wants(word), Some(false), "{word}");
        }
        for word in ["simm", "Sim", " sim", "libcuda.so.1"] {
            let failure = wants_simulation(Some(word.into())).expect_err("no driver");
            assert_eq!(failure.code(), 2);
            assert_eq!(
                failure.to_string(),
                format!(
                    "CUGUARD_DRIVER: `{word}` names no driver; use real, sim, auto, or the path of a library (with a / in it)"
                )
            );
        }
    }
}
