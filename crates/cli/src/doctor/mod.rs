//! `cuguard doctor`: what each GPU of the machine has, who holds it, what can still be had, and
//! what stands in the way.
//!
//! ```text
//! examine ── Facts ──┬── verdict ── Finding, Verdict ──┬── text
//!                    └────────────────────────────────┴── json
//! ```
//!
//! [`examine`], with [`measure`], is the only place that calls cuguard, NVML or the system. Everything
//! behind it works on plain data, so that each finding is tested without a GPU in that condition.
//! [`verdict`] decides; the two renderers decide nothing. [`watch`] repeats.

mod examine;
mod facts;
mod failure;
mod json;
mod json_value;
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
use measure::Measuring;
use verdict::{Diagnosis, Severity};

/// The command's options.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Options {
    /// Write JSON, one object on a line; docs/doctor-schema.md describes it
    #[arg(long)]
    json: bool,

    /// Report again every SECONDS (2 by default) until stopped by Ctrl-C. Free memory and processes
    /// are read in every round
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = seconds)]
    watch: Option<Duration>,

    /// Examine only this GPU, by CUDA's number
    #[arg(long, value_name = "N")]
    device: Option<u32>,

    /// Measure the largest block that can be allocated, and what a context costs. This allocates all
    /// free memory for a moment: another process that allocates in that moment may fail. With
    /// --watch, it is repeated after a failure, after 30 seconds, and after 10 seconds where memory
    /// has changed. Without this option nothing is allocated; a context is made only where NVML does
    /// not say what is free
    #[arg(long)]
    probe: bool,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  nothing was found that makes allocations fail
  1  something was: a GPU is full, its memory is in pieces, it lets nobody in, ...
  2  the command line was not understood, or asks for what there is not: a GPU of another number
     (--device), a driver (CUGUARD_DRIVER), a simulated GPU (CUGUARD_SIM)
  3  no driver or no GPU was found; the report says what is missing
  4  the report could not be written. (A standard output that is closed, as by >&-, looks like
     /dev/null to the program: nothing is written, and the code is that of the report.)
With --watch, it is the code of the last report where the reader of a pipe goes. Ctrl-C ends the
program by its signal, which shells show as 130.

Lines are broken at the width of the terminal, or of COLUMNS where that is set; in a pipe or a file
they stay whole.

The environment variable CUGUARD_DRIVER chooses the driver: real (the default), sim, auto or the
path of a library. `CUGUARD_DRIVER=sim cuguard doctor` examines the simulated GPU.";

/// What the exit codes mean; [`EXIT_CODES`] says it to the user.
const FOUND: u8 = 1;
const BAD_REQUEST: u8 = 2;
const NO_GPU: u8 = 3;
const NOT_WRITTEN: u8 = 4;

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    // Zero would be a busy loop; a day is as good as for ever.
    if (0.1..=86_400.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("takes 0.1 to 86400 seconds".to_owned())
    }
}

/// Does what the options ask for.
pub(crate) fn run(options: &Options) -> ExitCode {
    // What the last report says, also when it could not be written.
    let code = Cell::new(0);
    match write(options, &code) {
        Ok(()) => {}
        // Whoever read has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        Err(error) => {
            let _ = writeln!(io::stderr(), "cuguard doctor: cannot write: {error}");
            code.set(NOT_WRITTEN);
        }
    }
    ExitCode::from(code.get())
}

/// Writes the reports, and leaves the code of the last one.
fn write(options: &Options, code: &Cell<u8>) -> io::Result<()> {
    // Not by way of `Stdout`: it holds that whoever gave it a file that cannot be written to wants
    // no output.
    let mut out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let terminal = out.try_clone()?;
    let on_terminal = !options.json && terminal.is_terminal();
    let clear = on_terminal && options.watch.is_some();
    let mut earlier = None;
    let mut round = || {
        // In every round: a window may become another size.
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
            let separate = !options.json && !clear;
            watch::run(&mut out, round, watch::Pace::new(every, clear, separate))
        }
    }
}

/// One report, ready to be written.
#[derive(Debug)]
struct Report {
    text: String,
    code: u8,
    /// Whether another round makes sense.
    go_on: bool,
}

/// Examines and renders once. `earlier` is what an earlier round found.
fn report(
    options: &Options,
    width: Option<usize>,
    earlier: Option<&Facts>,
) -> (Report, Option<Facts>) {
    let measuring = if options.probe {
        Measuring::WhenOld
    } else {
        Measuring::Never
    };
    match examine::examine(options.device, measuring, earlier) {
        Ok(facts) => {
            let diagnosis = verdict::diagnose(&facts);
            let text = if options.json {
                json::render(&facts, &diagnosis)
            } else {
                text::render(&facts, &diagnosis, width)
            };
            let report = Report {
                text,
                code: code(&diagnosis),
                go_on: true,
            };
            (report, Some(facts))
        }
        Err(failure) => {
            let text = if options.json {
                json::render_failure(&failure)
            } else {
                text::render_failure(&failure, width)
            };
            let bad_request = failure.is_bad_request();
            let report = Report {
                text,
                code: if bad_request { BAD_REQUEST } else { NO_GPU },
                go_on: false,
            };
            (report, None)
        }
    }
}

fn code(diagnosis: &Diagnosis) -> u8 {
    match diagnosis.worst() {
        Some(Severity::Problem) => FOUND,
        _ => 0,
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
