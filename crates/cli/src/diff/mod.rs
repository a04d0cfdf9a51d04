//! `cuguard diff`: what grew between two runs, or between two moments of one.
//!
//! This folder reads options and opens files; `cuguard-view` compares.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use cuguard_view::{At, Look, Run, ViewError, diff, moment, open};

use crate::report::{BAD_REQUEST, Failure, Progress, TOP, View, complain, parse, print};

/// The command's options.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// The first recording or leak report in JSON
    #[arg(value_name = "A")]
    before: PathBuf,

    /// The second; without it two moments of the first are compared
    #[arg(value_name = "B")]
    after: Option<PathBuf>,

    /// The moment of A: peak, exit, oom, oom:N, a time since the begin (12.5s, 800ms, 2min) or a share of the run (50%)
    /// [default: peak]
    #[arg(long, value_name = "MOMENT", value_parser = parse::<At>)]
    at_a: Option<At>,

    /// The moment of B, or the second moment of A [default: peak]
    #[arg(long, value_name = "MOMENT", value_parser = parse::<At>)]
    at_b: Option<At>,

    /// How many call sites are shown, those with the largest difference [default: 10; all with --json]
    #[arg(long, value_name = "N")]
    top: Option<usize>,

    #[command(flatten)]
    view: View,

    /// Write JSON, one object on a line; docs/recording-schema.md describes it
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Call sites are matched by the names of functions and files, not by addresses; where lines moved between two builds,
by their order.

Examples:
  cuguard diff old.cgr new.cgr                      what is larger at the peak of the new run
  cuguard diff old.cgr new.cgr --at-a exit --at-b exit
                                                    what more is not freed
  cuguard diff run.cgr --at-a 20% --at-b 80%        what grew during a run

Exit codes:
  0  the difference is written
  2  invalid arguments, a file could not be read, or a run has no such moment
  4  the difference could not be written";

/// Runs `cuguard diff`.
pub(crate) fn run(options: &Options) -> ExitCode {
    let progress = Progress::new("diff");
    match show(options, &progress) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            progress.interrupt(|| complain("diff", &failure));
            ExitCode::from(failure.code())
        }
    }
}

/// Why there is no difference.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Failure(#[from] Failure),
    #[error(
        "{}: one file needs two moments, or a second file: --at-a 20% --at-b 80%", path.display()
    )]
    OneMoment { path: PathBuf },
    #[error(
        "{}: has reports of {count} processes; accepted are files with one", path.display()
    )]
    Processes { path: PathBuf, count: usize },
}

impl From<ViewError> for Refused {
    fn from(error: ViewError) -> Self {
        Self::Failure(error.into())
    }
}

impl Refused {
    fn code(&self) -> u8 {
        match self {
            Self::Failure(failure) => failure.code(),
            Self::OneMoment { .. } | Self::Processes { .. } => BAD_REQUEST,
        }
    }
}

fn show(options: &Options, progress: &Progress) -> Result<(), Refused> {
    if options.after.is_none() && (options.at_a.is_none() || options.at_b.is_none()) {
        return Err(Refused::OneMoment {
            path: options.before.clone(),
        });
    }
    let read = |path: &Path| -> Result<Run, Refused> {
        progress.stage(&format!("reading {}", path.display()));
        let mut runs = open(path, &options.view.symbols())?;
        match (runs.pop(), runs.len()) {
            (Some(run), 0) => Ok(run),
            (_, others) => Err(Refused::Processes {
                path: path.to_owned(),
                count: others + 1,
            }),
        }
    };
    let before = read(&options.before)?;
    let after = options.after.as_deref().map(read).transpose()?;
    progress.stage("comparing");
    let at_a = moment(&before, options.at_a.unwrap_or_default())?;
    let at_b = moment(
        after.as_ref().unwrap_or(&before),
        options.at_b.unwrap_or_default(),
    )?;
    let diff = diff(&at_a, &at_b);
    let look = |top| Look {
        top,
        frames: options.view.frames(),
        ..Look::default()
    };
    let output = match options.json {
        true => diff.json(look(options.top)),
        false => diff.text(look(Some(options.top.unwrap_or(TOP)))),
    };
    progress.end();
    Ok(print(&output)?)
}
