//! One report after the other, until somebody stops it.

use std::io::{self, Write};
use std::thread;
use std::time::Duration;

use super::Report;

/// Moves the cursor to the top left corner and clears the screen. Nothing has to be undone when the
/// program is stopped: the cursor is never hidden, and stands below the last report.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Moves the cursor there, and leaves the screen as it is.
const HOME: &str = "\x1b[H";

/// Clears the rest of a line. It stands before the line's text: behind one that fills the row, it
/// would take the last letter.
const CLEAR_LINE: &str = "\x1b[K";

/// Clears the rest of the screen.
const CLEAR_BELOW: &str = "\x1b[J";

/// How reports follow each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    every: Duration,
    /// Whether each report takes the place of the last one; for terminals.
    clear: bool,
    /// Whether an empty line parts them.
    separate: bool,
}

impl Pace {
    pub(super) fn new(every: Duration, clear: bool, separate: bool) -> Self {
        Self {
            every,
            clear,
            separate,
        }
    }
}

/// Writes reports until one says that no other makes sense.
///
/// # Errors
///
/// When a report cannot be written, as when the reader of a pipe has gone.
pub(super) fn run(
    out: &mut impl Write,
    mut round: impl FnMut() -> Report,
    pace: Pace,
) -> io::Result<()> {
    let mut first = true;
    loop {
        let report = round();
        // In one piece: a terminal then shows no half of a report.
        let mut text = String::new();
        if pace.clear {
            // What stays the same is written over by itself: a cleared screen would flicker.
            text.push_str(if first { CLEAR } else { HOME });
            for line in report.text.split_inclusive('\n') {
                text.push_str(CLEAR_LINE);
                text.push_str(line);
            }
            text.push_str(CLEAR_BELOW);
        } else {
            if pace.separate && !first {
                text.push('\n');
            }
            text.push_str(&report.text);
        }
        out.write_all(text.as_bytes())?;
        out.flush()?;
        if !report.go_on {
            return Ok(());
        }
        first = false;
        thread::sleep(pace.every);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three reports, the last of which ends it.
    fn three(clear: bool, separate: bool) -> String {
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
        run(&mut out, round, Pace::new(Duration::ZERO, clear, separate)).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn reports_are_parted_by_an_empty_line() {
        assert_eq!(three(false, true), "report 1\n\nreport 2\n\nreport 3\n");
    }

    #[test]
    fn objects_stand_on_lines_of_their_own() {
        assert_eq!(three(false, false), "report 1\nreport 2\nreport 3\n");
    }

    #[test]
    fn a_terminal_is_cleared_once_and_then_written_over() {
        assert_eq!(
            three(true, false),
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
        let pace = Pace::new(Duration::from_secs(3600), false, true);
        let error = run(&mut Gone, round, pace).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
