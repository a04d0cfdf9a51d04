//! `cuguard report`: what recordings and leak reports show.
//!
//! ```text
//!     files ──► runs ──► a moment of each ──► text, JSON, folded stacks to standard output
//!                                         └──► flame graph, pprof profile, trace, page to files
//! ```
//!
//! This folder reads options, opens files and writes; `cuguard-view` computes and renders.

mod failure;
mod output;
mod progress;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use cuguard_report::phrase::list;
use cuguard_view::{
    At, By, Frames, Look, Moment, Overview, Ranks, Run, SymbolOptions, ViewError, findings_line,
    flamegraph, folded, json, open, page, pprof, text, text_with_findings, trace,
};

pub(crate) use progress::Progress;

pub(crate) use failure::{BAD_REQUEST, Failure};
use output::to_file;

/// How many groups of a text are shown without `--top`.
pub(crate) const TOP: usize = 10;

/// The command's options.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Recordings (`cuguard run --record FILE`, `LEAK_REPORT=record`) or leak reports in JSON. Several are compared: the
    /// one that differs most from the others comes first
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The moment: peak, exit, oom (the last out-of-memory error), oom:N (the Nth), a time since the program started (12.5s, 800ms,
    /// 2min) or a share of the recording (50%) [default: peak; text begins with what is lost, what grows and why allocations failed]
    #[arg(long, value_name = "MOMENT", value_parser = parse::<At>)]
    at: Option<At>,

    /// What is grouped together in text and --json: stack, function, library, label, thread, stream, size or kind. The
    /// text of several runs compares call sites [default: stack]
    #[arg(long, value_name = "WHAT", value_parser = parse::<By>)]
    by: Option<By>,

    /// How many groups of text and --json are shown, the largest first [default: 10; all with --json]
    #[arg(long, value_name = "N")]
    top: Option<usize>,

    #[command(flatten)]
    view: View,

    /// Write JSON, one object on a line; docs/recording-schema.md describes it
    #[arg(long, conflicts_with = "folded")]
    json: bool,

    /// Write folded stacks with their live bytes, for tools that draw flame graphs
    #[arg(long)]
    folded: bool,

    /// Write a flame graph (SVG) to this file
    #[arg(long, value_name = "OUT")]
    flamegraph: Option<PathBuf>,

    /// Write a profile for pprof and speedscope (.pb.gz) to this file
    #[arg(long, value_name = "OUT")]
    pprof: Option<PathBuf>,

    /// Write a trace for ui.perfetto.dev and chrome://tracing (JSON) to this file: live bytes over time, the largest
    /// allocations, out-of-memory errors
    #[arg(long, value_name = "OUT")]
    trace: Option<PathBuf>,

    /// Write a page with timeline, flame graph, table and memory map to this file: one HTML file, which needs no network
    /// and opens at the moment of --at
    #[arg(long, value_name = "OUT")]
    html: Option<PathBuf>,
}

impl Options {
    /// The files to write.
    fn outputs(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.flamegraph, &self.pprof, &self.trace, &self.html]
            .into_iter()
            .flatten()
    }

    fn moment(&self) -> At {
        self.at.unwrap_or_default()
    }

    fn grouping(&self) -> By {
        self.by.unwrap_or_default()
    }

    /// Whether groups are printed: as text or as JSON.
    fn has_groups(&self) -> bool {
        self.json || !(self.folded || self.outputs().next().is_some())
    }

    /// Whether what is wrong with a recording is shown in none of the outputs: text, JSON and the page have it.
    fn hides_problems(&self) -> bool {
        !self.has_groups() && self.html.is_none()
    }

    /// Refuses files that would overwrite each other, and what is not a file name.
    fn check_files(&self) -> Result<(), Failure> {
        let files: Vec<_> = self.outputs().collect();
        for (index, path) in files.iter().enumerate() {
            let why = match files[..index].contains(path) {
                true => "two outputs have this name",
                false if path.as_os_str() == "-" => {
                    "it is not a file name; standard output is for text, --json and --folded"
                }
                false => continue,
            };
            return Err(Failure::Refused {
                path: path.to_path_buf(),
                why,
            });
        }
        Ok(())
    }

    /// Refuses what none of the outputs would follow.
    fn check_effects(&self) -> Result<(), Failure> {
        let names = [
            ("--folded", self.folded),
            ("--flamegraph", self.flamegraph.is_some()),
            ("--pprof", self.pprof.is_some()),
            ("--trace", self.trace.is_some()),
            ("--html", self.html.is_some()),
        ];
        let names: Vec<_> = names
            .into_iter()
            .filter_map(|(name, is_set)| is_set.then_some(name))
            .collect();
        let refuse = |option, accepted| {
            Err(Failure::NoEffect {
                option,
                what: list(&names),
                accepted,
            })
        };
        // Stack traces are what the others have in any case.
        if self.grouping() != By::Stack && !self.has_groups() {
            return refuse("--by", "text and --json");
        }
        if self.top.is_some() && !self.has_groups() {
            return refuse("--top", "text and --json");
        }
        // A trace has the whole run.
        if self.at.is_some() && !self.has_groups() && names == ["--trace"] {
            let accepted = "text, --json, --folded, --flamegraph, --pprof and --html";
            return refuse("--at", accepted);
        }
        if self.view.frames.is_some() && !self.has_groups() && names == ["--html"] {
            let accepted = "text, --json, --folded, --flamegraph, --pprof and --trace";
            return refuse("--frames", accepted);
        }
        Ok(())
    }
}

/// Options that `cuguard diff` has too.
#[derive(Args, Clone, Debug)]
pub(crate) struct View {
    /// Which frames of stack traces are shown: those of the program, or also those of CUDA libraries [default: program]
    #[arg(long, value_name = "WHICH")]
    frames: Option<Shown>,

    /// A folder with programs and libraries, or their debug information, found by build id. May be repeated
    #[arg(long, value_name = "DIR")]
    symbols: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shown {
    Program,
    All,
}

impl View {
    pub(crate) fn frames(&self) -> Frames {
        match self.frames {
            None | Some(Shown::Program) => Frames::Program,
            Some(Shown::All) => Frames::All,
        }
    }

    pub(crate) fn symbols(&self) -> SymbolOptions {
        SymbolOptions {
            folders: self.symbols.clone(),
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  cuguard run --record run.cgr python train.py      record a program
  cuguard report run.cgr                            what is lost, what grows, why allocations failed, the peak
  cuguard report run.cgr --at exit --by label       what was not freed, by label
  cuguard report run.cgr --at oom --top 3           the three largest call sites when memory ran out
  cuguard report run.cgr --flamegraph peak.svg      a flame graph of the peak
  cuguard report run.cgr --pprof peak.pb.gz         for `go tool pprof` and speedscope
  cuguard report run.cgr --trace run.json           for ui.perfetto.dev and chrome://tracing
  cuguard report run.cgr --html run.html            a page to look at in a browser
  cuguard report rank-*.cgr                         the ranks of a job side by side

Exit codes:
  0  the report is written
  1  some files could not be read; the others are shown
  2  invalid arguments, no file could be read, a run has no such moment, or an output is an input or a recording
  4  the report could not be written";

/// The exit codes that [`EXAMPLES`] describes.
const PARTLY: u8 = 1;
/// For clap: the error is shown behind the name of the option.
pub(crate) fn parse<T: std::str::FromStr<Err = ViewError>>(word: &str) -> Result<T, String> {
    word.parse().map_err(|error: ViewError| error.to_string())
}

/// Prints a line to standard error, which may be closed.
pub(crate) fn complain(command: &str, error: &dyn std::fmt::Display) {
    let _ = writeln!(io::stderr(), "cuguard {command}: {error}");
}

/// Runs `cuguard report`.
pub(crate) fn run(options: &Options) -> ExitCode {
    let progress = Progress::new("report");
    let mut outputs = options.outputs();
    let checked = options.check_effects().and_then(|()| options.check_files());
    let checked =
        checked.and_then(|()| outputs.try_for_each(|path| output::check(path, &options.files)));
    if let Err(failure) = checked {
        progress.interrupt(|| complain("report", &failure));
        return ExitCode::from(failure.code());
    }
    let symbols = options.view.symbols();
    let (mut runs, mut broken) = (Vec::new(), false);
    for file in &options.files {
        progress.stage(&format!("reading {}", file.display()));
        match open(file, &symbols) {
            Ok(read) => runs.extend(read),
            Err(error) => {
                progress.interrupt(|| complain("report", &error));
                broken = true;
            }
        }
    }
    if runs.is_empty() {
        return ExitCode::from(BAD_REQUEST);
    }
    match show(&runs, options, &progress) {
        Ok(()) if broken => ExitCode::from(PARTLY),
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            progress.interrupt(|| complain("report", &failure));
            ExitCode::from(failure.code())
        }
    }
}

fn show(runs: &[Run], options: &Options, progress: &Progress) -> Result<(), Failure> {
    // A file may have several runs: it is not known before they are read.
    if runs.len() > 1 && options.grouping() != By::Stack && !options.json {
        return Err(Failure::NoEffect {
            option: "--by",
            what: "the text of several runs, which are compared by call site".to_owned(),
            accepted: "one run and with --json",
        });
    }
    progress.stage("computing");
    let overviews = runs.iter().map(|run| Overview::new(run, options.moment()));
    let overviews = overviews.collect::<Result<Vec<_>, _>>()?;
    let moments: Vec<&Moment<'_>> = overviews.iter().map(|overview| &overview.moment).collect();
    if options.hides_problems() {
        for run in runs {
            for problem in &run.problems {
                let line = format!("{}: {}", run.source, problem.escape_debug());
                progress.interrupt(|| complain("report", &line));
            }
        }
    }
    let frames = options.view.frames();
    if let Some(path) = &options.flamegraph {
        progress.stage("drawing the flame graph");
        to_file(path, |out| flamegraph(&moments, frames, out))?;
    }
    if let Some(path) = &options.pprof {
        progress.stage("writing the profile");
        to_file(path, |out| pprof(&moments, frames, out))?;
    }
    if let Some(path) = &options.trace {
        progress.stage("writing the trace");
        to_file(path, |out| trace(runs, frames, out))?;
    }
    if let Some(path) = &options.html {
        progress.stage("writing the page");
        to_file(path, |out| {
            let page = page::Options {
                at: options.moment(),
                ..page::Options::default()
            };
            let written = page::write(runs, out, &page);
            written.map_err(|error| ViewError::Write {
                what: "page",
                error,
            })
        })?;
    }
    let look = Look {
        by: options.grouping(),
        top: options.top,
        frames,
    };
    let in_text = Look {
        top: Some(options.top.unwrap_or(TOP)),
        ..look
    };
    let output = if options.json {
        json(&overviews, look)
    } else if options.folded {
        folded(&moments, frames)
    } else if options.has_groups() {
        words(
            &overviews,
            in_text,
            options.at.is_none() && options.by.is_none(),
        )
    } else {
        return Ok(());
    };
    progress.end();
    print(&output)
}

/// One run as it is; several side by side, and where the one that differs most differs. With findings where no moment and no
/// grouping is asked for.
fn words(overviews: &[Overview<'_>], look: Look, has_findings: bool) -> String {
    match overviews {
        [overview] if has_findings => text_with_findings(overview, look),
        [overview] => text(overview, look),
        overviews => {
            let ranks = Ranks::new(overviews);
            let mut page = ranks.text(look);
            if has_findings {
                page.push('\n');
                for row in &ranks.rows {
                    page += &format!("{}\n", findings_line(row.overview));
                }
            }
            for problem in overviews.iter().flat_map(|overview| {
                let run = overview.moment.run;
                run.problems
                    .iter()
                    .map(|problem| format!("{}: {problem}", run.source))
            }) {
                page += &format!("\nnote: {}\n", problem.escape_debug());
            }
            page
        }
    }
}

/// Writes to standard output. A reader that closes the pipe has seen enough.
pub(crate) fn print(output: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(output.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::Standard(error)),
        _ => Ok(()),
    }
}
