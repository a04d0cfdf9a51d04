//! How large the terminal is.

use std::os::fd::{AsFd, AsRawFd};

/// How wide a terminal is taken to be that does not tell.
const COLUMNS: usize = 100;

/// Narrower than this, lines are left to the terminal to break.
const LEAST: usize = 40;

/// The columns and rows of the terminal that `out` writes to. The rows are not always known.
pub(super) fn size(out: impl AsFd) -> (usize, Option<usize>) {
    // SAFETY: plain numbers, of which zero means that they are not known.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open as long as it is borrowed, and this question writes one such
    // struct.
    let code = unsafe { libc::ioctl(out.as_fd().as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    let known = |number: u16| (code == 0 && number > 0).then_some(usize::from(number));
    let wish = std::env::var("COLUMNS").ok();
    (
        columns(wish.as_deref(), known(size.ws_col)),
        known(size.ws_row),
    )
}

/// What the user wishes goes before what the terminal says.
fn columns(wish: Option<&str>, terminal: Option<usize>) -> usize {
    let wish = wish.and_then(|text| text.trim().parse().ok());
    let columns = wish.filter(|columns| *columns > 0).or(terminal);
    columns.unwrap_or(COLUMNS).max(LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wish_the_terminal_the_usual() {
        for (wish, terminal, expected) in [
            (Some("72"), Some(80), 72),
            (None, Some(80), 80),
            (Some("wide"), Some(80), 80),
            (Some("0"), None, 100),
            (Some("-5"), None, 100),
            (None, None, 100),
            (Some("3"), Some(80), 40),
        ] {
            assert_eq!(columns(wish, terminal), expected, "{wish:?} {terminal:?}");
        }
    }

    #[test]
    fn what_is_no_terminal_has_no_rows() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(size(&file).1, None);
    }
}
