//! `--watch`: one report after the other.

use std::io::{self, Write};
use std::thread;
use std::time::Duration;

/// One report, ready to be written.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) text: String,
    pub(super) code: u8,
    /// Whether another round makes sense.
    pub(super) go_on: bool,
}

/// Moves the cursor to the top left corner and clears the screen. Nothing has to be undone when the
/// program is interrupted: the cursor is never hidden, and is below the last report.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Moves the cursor to the top left corner.
const HOME: &str = "\x1b[H";

/// Clears the rest of a line. It precedes the text: after a line as wide as the screen, it would clear
/// the last character.
const CLEAR_LINE: &str = "\x1b[K";

/// Clears the rest of the screen.
const CLEAR_BELOW: &str = "\x1b[J";

/// What separates reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Between {
    Nothing,
    EmptyLine,
    /// Each report overwrites the one before: for terminals.
    Clear,
}

/// Writes reports until one is the last.
///
/// # Errors
///
/// When a report cannot be written, as when the reader of a pipe has closed it.
pub(super) fn run(
    out: &mut impl Write,
    mut round: impl FnMut() -> Report,
    every: Duration,
    between: Between,
) -> io::Result<()> {
    let mut first = true;
    loop {
        let report = round();
        // One write, so that a terminal shows no half of a report.
        let text = match between {
            Between::Clear => {
                // Overwritten line by line: a cleared screen would flicker.
                let start = if first { CLEAR } else { HOME };
                let lines = report.text.split_inclusive('\n');
                let lines: String = lines.flat_map(|line| [CLEAR_LINE, line]).collect();
                format!("{start}{lines}{CLEAR_BELOW}")
            }
            Between::EmptyLine if !first => format!("\n{}", report.text),
            _ => report.text,
        };
        out.write_all(text.as_bytes())?;
        out.flush()?;
        if !report.go_on {
            return Ok(());
        }
        first = false;
        thread::sleep(every);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three reports, the last of which ends it.
    fn three(between: Between) -> String {
        let mut count = 0;
        let round = || {
            count += 1;
            Report {
                text: format!("report {count}\n"),
                code: 0,
                go_on: count < 3,
            }
        };
        let mut out = Vec::new();
        run(&mut out, round, Duration::ZERO, between).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn reports_are_separated_by_an_empty_line() {
        assert_eq!(
            three(Between::EmptyLine),
            "report 1\n\nreport 2\n\nreport 3\n"
        );
    }

    #[test]
    fn objects_stand_on_lines_of_their_own() {
        assert_eq!(three(Between::Nothing), "report 1\nreport 2\nreport 3\n");
    }

    #[test]
    fn a_terminal_is_cleared_once_and_then_written_over() {
        assert_eq!(
            three(Between::Clear),
            "\x1b[H\x1b[2J\x1b[Kreport 1\n\x1b[J\
             \x1b[H\x1b[Kreport 2\n\x1b[J\
             \x1b[H\x1b[Kreport 3\n\x1b[J"
        );
    }

    #[test]
    fn a_reader_that_goes_ends_it() {
        struct Gone;
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let round = || Report {
            text: "report".to_owned(),
            code: 0,
            go_on: true,
        };
        let hour = Duration::from_secs(3600);
        let error = run(&mut Gone, round, hour, Between::EmptyLine).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
