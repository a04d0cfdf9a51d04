//! `cuguard doctor`: the memory of each GPU, the processes that hold it, what can be allocated, and what
//! makes allocations fail.
//!
//! ```text
//! examine ── Facts ──┬── verdict ── Finding, Verdict ──┬── text
//!                    └────────────────────────────────┴── json
//! ```
//!
//! Only [`examine`], [`measure`] and [`live_pools`] call cuguard, NVML or the system. The rest works on plain data, so each
//! finding is tested without a GPU in that condition. [`verdict`] judges; the renderers do not. [`watch`]
//! repeats.

mod examine;
mod facts;
mod failure;
mod finding;
mod json;
mod live_pools;
mod measure;
mod page;
mod percent;
mod terminal;
mod text;
mod verdict;
mod verdict_memory;
mod watch;

use std::cell::Cell;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use facts::Facts;
use failure::Failure;
use finding::Severity;
use watch::{Between, Report};

/// The command's options.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Options {
    /// Write JSON, one object on a line; docs/doctor-schema.md describes it
    #[arg(long)]
    json: bool,

    /// Repeat the report every SECONDS (default 2) until Ctrl-C. Each round reads free memory and
    /// processes
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = seconds)]
    watch: Option<Duration>,

    /// Examine only this GPU, by its CUDA ordinal
    #[arg(long, value_name = "N")]
    device: Option<u32>,

    /// Measure the largest block that can be allocated, and what a context costs. This allocates all
    /// free memory for a moment, in which allocations of other processes may fail. With --watch, it
    /// is repeated after a failure, after 30 seconds, and after 10 seconds if free memory has changed.
    /// Without this option nothing is allocated; a context is created only where NVML does not report
    /// free memory
    #[arg(long)]
    probe: bool,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  nothing was found that makes allocations fail
  1  something was: a GPU is full, its memory is fragmented, its compute mode is prohibited, ...
  2  invalid arguments, or a GPU (--device), driver (CUGUARD_DRIVER) or simulated GPU (CUGUARD_SIM)
     that does not exist
  3  no driver or no GPU was found; the report says what is missing
  4  the report could not be written. (With standard output closed, as by >&-, nothing is written,
     and the code is that of the report.)
With --watch, when the reader of a pipe closes it, the code is that of the last report. Ctrl-C ends the
program by SIGINT, which shells show as 130.

Lines are wrapped to the width of the terminal, or to COLUMNS if set; in a pipe or a file they stay
whole.

The environment variable CUGUARD_DRIVER selects the driver: real (the default), sim, auto or the
path of a library. `CUGUARD_DRIVER=sim cuguard doctor` examines the simulated GPU.";

/// The exit codes that [`EXIT_CODES`] describes.
const FOUND: u8 = 1;
const BAD_REQUEST: u8 = 2;
const NO_GPU: u8 = 3;
const NOT_WRITTEN: u8 = 4;

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    // Zero would be a busy loop.
    if (0.1..=86_400.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("must be 0.1 to 86400 seconds".to_owned())
    }
}

/// Runs `cuguard doctor`.
pub(crate) fn run(options: &Options) -> ExitCode {
    // The code of the last report, written or not.
    let code = Cell::new(0);
    match write(options, &code) {
        Ok(()) => {}
        // The reader has closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        Err(error) => {
            let _ = writeln!(io::stderr(), "cuguard doctor: cannot write: {error}");
            code.set(NOT_WRITTEN);
        }
    }
    ExitCode::from(code.get())
}

/// Writes the reports; `code` is that of the last one.
fn write(options: &Options, code: &Cell<u8>) -> io::Result<()> {
    // Not through `Stdout`, which ignores that a file is not open for writing.
    let mut out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let terminal = out.try_clone()?;
    let on_terminal = !options.json && terminal.is_terminal();
    let clear = on_terminal && options.watch.is_some();
    let mut earlier = None;
    let mut round = || {
        // In every round: the window may have been resized.
        let size = on_terminal.then(|| terminal::size(&terminal));
        let width = size.map(|(columns, _)| columns);
        let (mut report, facts) = report(options, width, earlier.as_ref());
        if let Some((_, Some(rows))) = size.filter(|_| clear) {
            report.text = page::top(&report.text, rows);
        }
        earlier = facts;
        code.set(report.code);
        report
    };
    match options.watch {
        None => out.write_all(round().text.as_bytes()),
        Some(every) => {
            let between = match (options.json, clear) {
                (true, _) => Between::Nothing,
                (false, false) => Between::EmptyLine,
                (false, true) => Between::Clear,
            };
            watch::run(&mut out, round, every, between)
        }
    }
}

/// Examines and renders once. `earlier` has the facts of the round before.
fn report(
    options: &Options,
    width: Option<usize>,
    earlier: Option<&Facts>,
) -> (Report, Option<Facts>) {
    match examine::examine(options.device, options.probe, earlier) {
        Ok(facts) => {
            let diagnosis = verdict::diagnose(&facts);
            let text = if options.json {
                json::render(&facts, &diagnosis)
            } else {
                text::render(&facts, &diagnosis, width)
            };
            let is_bad = diagnosis.worst() == Some(Severity::Problem);
            let code = if is_bad { FOUND } else { 0 };
            let go_on = true;
            (Report { text, code, go_on }, Some(facts))
        }
        Err(reason) => {
            let failure = Failure {
                reason,
                surroundings: examine::surroundings(),
            };
            let text = if options.json {
                json::render_failure(&failure)
            } else {
                text::render_failure(&failure, width)
            };
            let bad_request = failure.is_bad_request();
            let code = if bad_request { BAD_REQUEST } else { NO_GPU };
            let go_on = false;
            (Report { text, code, go_on }, None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_checked() {
        assert_eq!(seconds("2"), Ok(Duration::from_secs(2)));
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["", "0", "-1", "nan", "inf", "1e9", "soon"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
