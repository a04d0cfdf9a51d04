//! Leaks that are expected, and are only counted.

use std::fs;
use std::io;
use std::path::Path;

/// Patterns of leaks that are not shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Suppressions {
    patterns: Vec<String>,
}

impl Suppressions {
    pub(super) const NONE: Self = Self {
        patterns: Vec::new(),
    };

    pub(super) fn add(&mut self, pattern: &str) {
        self.patterns.push(pattern.to_owned());
    }

    /// Adds the patterns in a text: one a line; empty lines and lines that begin with `#` are
    /// skipped.
    fn add_lines(&mut self, text: &str) {
        let lines = text.lines().map(str::trim);
        lines
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .for_each(|line| self.add(line));
    }

    pub(super) fn read(&mut self, path: &Path) -> io::Result<()> {
        let text = fs::read(path)?;
        self.add_lines(&String::from_utf8_lossy(&text));
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Whether some pattern matches this name.
    pub(super) fn matches(&self, name: &str) -> bool {
        self.patterns.iter().any(|pattern| matches(pattern, name))
    }
}

/// Whether the pattern is the whole text, where `*` stands for anything, also for nothing.
///
/// When a star has taken too little, it takes one letter more and the rest is tried again; only the
/// last star need ever be tried again, so that the time is at most the product of the two lengths.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    let mut star = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, t));
            p += 1;
        } else if pattern.get(p) == Some(&text[t]) {
            p += 1;
            t += 1;
        } else if let Some((at, taken)) = star {
            star = Some((at, taken + 1));
            p = at + 1;
            t = taken + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Suppressions, matches};

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "anything", true),
            ("app::load", "app::load", true),
            ("app::load", "app::loader", false),
            ("app::*", "app::load::inner", true),
            ("*::load", "app::load", true),
            ("*cache*", "app::cache::new", true),
            ("a*b*c", "a1b2b3c", true),
            ("a*b*c", "a1b2b3", false),
            ("***", "x", true),
            ("ä*", "äö", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} against {text}");
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        assert!(!matches(
            &format!("{}b", "*a".repeat(200)),
            &"a".repeat(5_000)
        ));
    }

    #[test]
    fn a_file_has_comments_and_empty_lines() {
        let mut suppressions = Suppressions::default();
        assert!(suppressions.is_empty());
        suppressions.add_lines("# expected\n\n  app::cache::*  \r\n*.cu\n");
        assert_eq!(suppressions.patterns, ["app::cache::*", "*.cu"]);
        assert!(suppressions.matches("app::cache::fill") && suppressions.matches("k.cu"));
        assert!(!suppressions.matches("# expected"));
    }

    /// The same in the plainest way.
    fn plain(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|taken| plain(rest, &text[taken..])),
            Some((byte, rest)) => text
                .split_first()
                .is_some_and(|(t, u)| t == byte && plain(rest, u)),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn it_agrees_with_the_plainest_matcher(pattern in "[ab*]{0,8}", text in "[ab]{0,10}") {
            prop_assert_eq!(matches(&pattern, &text), plain(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
