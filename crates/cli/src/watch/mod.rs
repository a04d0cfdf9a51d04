//! `cuguard watch`: live bytes, their rate and the largest call sites of a running process.
//!
//! ```text
//!   process ── cuguard_live::ask ──► sample ── History ──┬── screen (ratatui)
//!                                                        └── text (--once)
//! ```
//!
//! [`sample`] reads the figures, [`history`] compares them with earlier ones. The renderers only show. Nothing here calls the driver.

mod history;
mod sample;
mod screen;
mod text;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Args;

use history::History;

/// The command's options.
#[derive(Args, Clone, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct Options {
    /// Print one frame as text and end: two samples, --interval apart
    #[arg(long)]
    once: bool,

    /// Seconds between samples, 0.1 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,

    /// How many call sites are shown, 1 to 1000
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u16).range(1..=1000))]
    top: u16,

    /// The process id. Of a process without reports, such as `cuguard run` itself or a shell, the first one with
    /// reports that it started is shown. With `cuguard run`, the first call of the CUDA driver is waited for
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    process: u32,
}

const NOTES: &str = "\
The process has been started under `cuguard run`, or it uses the cuguard crate and has been started with LEAK_REPORT=1 (or other
words of that variable, but 0). Only the same user and root can watch it. Its threads are not stopped.

Keys: q, Esc or Ctrl-C ends, p or space pauses.

Examples:
  cuguard watch 4711
  cuguard watch --interval 0.2 --top 40 $(pgrep -n python3)
  cuguard run -- python3 train.py & cuguard watch --once $!
  cuguard watch --once 4711 | grep 'device memory'

Exit codes:
  0  the process ended, or the watch was ended
  1  there is no such process, it belongs to another user, has no reports, or does not reply
  2  wrong options";

fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds")?;
    match (0.1..=3600.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("not a number of seconds from 0.1 to 3600".to_owned()),
    }
}

/// Runs `cuguard watch`.
pub(crate) fn run(options: &Options) -> ExitCode {
    match try_run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = writeln!(io::stderr(), "cuguard watch: {why}");
            ExitCode::FAILURE
        }
    }
}

fn try_run(options: &Options) -> Result<(), String> {
    let sites = usize::from(options.top);
    if !options.once && !io::stdout().is_terminal() {
        return Err(
            "standard output is not a terminal; --once prints one frame as text".to_owned(),
        );
    }
    let first = sample::take_first(options.process, sites)?;
    let process = first.process;
    let mut history = History::new(first);
    if !options.once {
        return screen::run(history, process, sites, options.interval);
    }
    thread::sleep(options.interval);
    // A process that ended meanwhile is shown as it was.
    if let Ok(sample) = sample::take(process, sites) {
        history.push(sample);
    }
    match io::stdout().write_all(text::render(&history).as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.to_string()),
        _ => Ok(()),
    }
}
