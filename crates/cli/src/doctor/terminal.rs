//! The size of the terminal.

use std::os::fd::AsFd;

use terminal_size::{Height, Width, terminal_size_of};

/// The width of a terminal whose size is unknown.
const COLUMNS: usize = 100;

/// Narrower terminals break lines themselves.
const LEAST: usize = 40;

/// The columns and rows of the terminal that `out` writes to. The rows are not always known.
pub(super) fn size(out: impl AsFd) -> (usize, Option<usize>) {
    let (width, height) = terminal_size_of(out).unzip();
    let variable = std::env::var("COLUMNS").ok();
    (
        columns(variable.as_deref(), width.map(|Width(columns)| columns)),
        height.map(|Height(rows)| rows.into()),
    )
}

/// `COLUMNS` overrides the terminal's own width.
fn columns(variable: Option<&str>, terminal: Option<u16>) -> usize {
    let variable = variable.and_then(|text| text.trim().parse().ok());
    let columns = variable.filter(|columns| *columns > 0);
    let columns = columns.or(terminal.map(usize::from));
    columns.unwrap_or(COLUMNS).max(LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_then_terminal_then_default() {
        for (variable, terminal, expected) in [
            (Some("72"), Some(80), 72),
            (None, Some(80), 80),
            (Some("wide"), Some(80), 80),
            (Some("0"), None, 100),
            (Some("-5"), None, 100),
            (None, None, 100),
            (Some("3"), Some(80), 40),
        ] {
            assert_eq!(
                columns(variable, terminal),
                expected,
                "{variable:?} {terminal:?}"
            );
        }
    }

    #[test]
    fn a_file_that_is_no_terminal_has_no_rows() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(size(&file).1, None);
    }
}
