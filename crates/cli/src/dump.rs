//! `cuguard dump`: a report of a running process.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use cuguard_live::{Format, Request};

use crate::live_process::{Reply, ask_when_ready};
use crate::output_file;

/// The command's options.
#[derive(Args, Clone, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct Options {
    /// Write JSON, one object on a line: the report of `cuguard run` (docs/audit-report-schema.md), or one for each context
    /// of a program that uses the cuguard crate (docs/leak-report-schema.md)
    #[arg(long)]
    json: bool,

    /// Write the report to FILE instead of standard output. An existing file is overwritten, unless it is a recording
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Do not search the process for addresses. The search says what is lost and what is still reachable, and stops the
    /// program's threads for that time, about 5 seconds at most. System calls in which they wait are restarted: `poll` and
    /// `epoll_wait` with their whole time limit, and on aarch64 not those that return EINTR behind every signal handler
    #[arg(long)]
    no_search: bool,

    /// The process id. Of a process without reports, such as `cuguard run` itself or a shell, the processes that it started
    /// are reported. With `cuguard run`, the first call of the CUDA driver is waited for
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    process: u32,
}

const NOTES: &str = "\
The process makes the report, and runs on. It has been started under `cuguard run`, or it uses the cuguard crate and
has been started with LEAK_REPORT=1 (or other words of that variable, but 0). Only the same user and root can ask.

The signal SIGUSR2 has the process write a report where LEAK_REPORT says: to standard error, or to the file of file=.
LEAK_REPORT=1,dump-signal=USR1 chooses another signal (USR1, USR2, HUP, IO, PWR), dump-signal=none no signal. A program that
handles or ignores the signal is left alone. Without LEAK_REPORT the signal ends a process that does not handle it.

Examples:
  cuguard run -- python3 train.py & cuguard dump $!
  cuguard dump --json --output now.json 4711
  cuguard dump --no-search 4711
  kill -USR2 4711

Exit codes:
  0  the report was written
  1  there is no such process, it belongs to another user, has no reports, or does not reply
  2  wrong options";

/// Runs `cuguard dump`.
pub(crate) fn run(options: &Options) -> ExitCode {
    match try_run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = writeln!(io::stderr(), "cuguard dump: {why}");
            ExitCode::FAILURE
        }
    }
}

fn try_run(options: &Options) -> Result<(), String> {
    let request = Request::Dump {
        format: match options.json {
            true => Format::Json,
            false => Format::Text,
        },
        search: !options.no_search,
    };
    let replies =
        ask_when_ready("dump", options.process, request).map_err(|error| error.to_string())?;
    let text = text(&replies);
    match &options.output {
        Some(path) => output_file::write(path, text.as_bytes())
            .map_err(|error| format!("cannot write the report to {}: {error}", path.display())),
        None => match io::stdout().write_all(for_output(&text).as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(format!("cannot write the report: {error}"))
            }
            _ => Ok(()),
        },
    }
}

fn text(replies: &[Reply]) -> String {
    let texts = replies.iter().flat_map(|reply| &reply.texts);
    texts.map(String::as_str).collect()
}

/// The text for standard output. The process made it, of another user perhaps: a terminal gets no control characters.
fn for_output(text: &str) -> Cow<'_, str> {
    match io::stdout().is_terminal() {
        true => without_control(text),
        false => text.into(),
    }
}

fn without_control(text: &str) -> Cow<'_, str> {
    let is_obeyed = |character: char| character.is_control() && !matches!(character, '\n' | '\t');
    match text.contains(is_obeyed) {
        true => text.replace(is_obeyed, "\u{fffd}").into(),
        false => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::without_control;

    #[test]
    fn a_terminal_gets_lines_and_no_commands() {
        assert_eq!(without_control("a\tb\nü\n"), "a\tb\nü\n");
        assert_eq!(
            without_control("\x1b[2J\u{9b}1m\rx\x07\n"),
            "\u{fffd}[2J\u{fffd}1m\u{fffd}x\u{fffd}\n"
        );
    }
}
