//! Text wrapped to the width of a terminal.

use textwrap::{Options, WordSplitter};

/// The column at which the values of rows begin.
const VALUE: usize = 19;

/// Lines are wrapped to at least this many characters, however narrow the terminal is.
const LEAST: usize = 20;

/// A text in lines. With a width, longer lines are wrapped with a hanging indent; without, they stay
/// whole, for programs that read lines.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    text: String,
    width: usize,
}

impl Page {
    pub(super) fn new(width: Option<usize>) -> Self {
        Self {
            text: String::new(),
            width: width.unwrap_or(usize::MAX),
        }
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// Adds a line as it is.
    pub(super) fn push(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// One or several lines; continuation lines are indented by two more spaces.
    pub(super) fn lines(&mut self, lines: &str) {
        for line in lines.lines() {
            let text = line.trim_start_matches(' ');
            let margin = line.len() - text.len();
            self.wrap(&line[..margin], text, margin + 2);
        }
    }

    /// A name and its value.
    pub(super) fn row(&mut self, name: &str, value: &str) {
        self.wrap(&start_of_row(name), value, VALUE);
    }

    /// As [`row`](Self::row), but cut at the width of the terminal instead of wrapped.
    pub(super) fn row_cut(&mut self, name: &str, value: &str) {
        let line = start_of_row(name) + value;
        self.push(&cut(&line, self.width.max(VALUE + LEAST)));
    }

    fn wrap(&mut self, start: &str, text: &str, margin: usize) {
        let margin = " ".repeat(margin);
        let options = Options::new(self.width.max(margin.len() + LEAST))
            .initial_indent(start)
            .subsequent_indent(&margin)
            // Options such as --probe stay whole.
            .word_splitter(WordSplitter::NoHyphenation);
        self.push(&textwrap::fill(text, options));
    }
}

fn start_of_row(name: &str) -> String {
    format!("    {name:<14} ")
}

/// The start of a line, with an ellipsis where it was cut.
pub(super) fn cut(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    let shown: String = line.chars().take(width.saturating_sub(1)).collect();
    format!("{}…", shown.trim_end())
}

/// The first lines of a text, as many as a screen has rows; the last one counts those left out.
pub(super) fn top(text: &str, rows: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    // The cursor needs a row below the text.
    let room = rows.saturating_sub(1);
    if lines.len() <= room || room < 2 {
        return text.to_owned();
    }
    let shown = &lines[..room - 1];
    let left = lines.len() - shown.len();
    format!("{}\n… and {left} more lines\n", shown.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "its free memory is fragmented: 40 GiB are free, and the largest is 20 GiB";

    fn characters(text: &str) -> usize {
        text.chars().count()
    }

    fn page(width: Option<usize>, fill: impl FnOnce(&mut Page)) -> String {
        let mut page = Page::new(width);
        fill(&mut page);
        page.into_text()
    }

    #[test]
    fn without_a_width_lines_stay_whole() {
        let text = page(None, |page| {
            page.row("problem", LONG);
            page.row_cut("processes", LONG);
            page.lines("one\n    two");
        });
        let expected =
            format!("    problem        {LONG}\n    processes      {LONG}\none\n    two\n");
        assert_eq!(text, expected);
    }

    #[test]
    fn rows_go_on_below_their_text() {
        let text = page(Some(50), |page| page.row("problem", LONG));
        let expected = "    problem        its free memory is fragmented:\n\
             \x20                  40 GiB are free, and the\n\
             \x20                  largest is 20 GiB\n";
        assert_eq!(text, expected);
        assert!(text.lines().all(|line| characters(line) <= 50));
        // All of it is there.
        let words = text.split_whitespace().skip(1);
        assert_eq!(words.collect::<Vec<_>>().join(" "), LONG);
    }

    #[test]
    fn lines_go_on_a_little_to_the_right() {
        let text = page(Some(40), |page| {
            page.lines("tried\n    libcuda.so.1: cannot open shared object file");
        });
        assert_eq!(
            text,
            "tried\n    libcuda.so.1: cannot open shared\n      object file\n"
        );
    }

    #[test]
    fn words_that_are_longer_than_a_line_are_broken() {
        let path = "ü".repeat(70);
        let text = page(Some(49), |page| page.row("", &format!("a {path} b")));
        let lengths: Vec<usize> = text.lines().map(|line| characters(line.trim())).collect();
        assert_eq!(lengths, [1, 30, 30, 12]);
        assert_eq!(text.matches('ü').count(), 70);
    }

    #[test]
    fn what_is_mig_enabled_says_so() {
        let command = "python3 train.py ".repeat(10);
        let text = page(Some(60), |page| page.row_cut("processes", &command));
        assert_eq!(text.lines().count(), 1);
        assert_eq!(characters(text.trim_end()), 60);
        assert!(text.ends_with("…\n"));
        assert_eq!(cut("just so", 7), "just so");
        assert_eq!(cut("just so", 6), "just…");
    }

    #[test]
    fn however_narrow_there_is_room_for_some_words() {
        let text = page(Some(1), |page| {
            page.row("problem", LONG);
            page.row_cut("processes", LONG);
        });
        assert!(text.lines().all(|line| characters(line) <= VALUE + LEAST));
    }

    #[test]
    fn a_screen_has_an_end() {
        assert_eq!(top("a\nb\nc\n", 4), "a\nb\nc\n");
        assert_eq!(top("a\nb\nc\nd\n", 4), "a\nb\n… and 2 more lines\n");
        assert_eq!(top("a\nb\nc\n", 0), "a\nb\nc\n");
    }
}
