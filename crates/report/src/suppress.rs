//! Suppressions: patterns of expected leaks, which are counted and not shown.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use crate::phrase::{count, list_some};

/// A list of patterns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Suppressions {
    list: Vec<Arc<Suppression>>,
}

/// One pattern, shared by all settings that have it: at exit it is known whether any context used it.
#[derive(Debug)]
pub(crate) struct Suppression {
    /// As it was written.
    text: String,
    /// The pattern for [`glob`].
    pattern: String,
    /// It matched something.
    used: AtomicBool,
    /// It is in [`ALL`].
    listed: AtomicBool,
}

impl PartialEq for Suppression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Suppression {}

impl Suppression {
    /// The syntax of LeakSanitizer: the pattern is searched anywhere in a name, `*` matches anything, `^` the
    /// beginning and `$` the end of the name. A prefix `leak:` is skipped.
    fn new(text: &str) -> Self {
        let bare = text.strip_prefix("leak:").map_or(text, str::trim_start);
        let begin = bare.strip_prefix('^');
        let (begin, bare) = begin.map_or(("*", bare), |bare| ("", bare));
        let end = bare.strip_suffix('$');
        let (bare, end) = end.map_or((bare, "*"), |bare| (bare, ""));
        Self {
            text: text.to_owned(),
            pattern: format!("{begin}{bare}{end}"),
            used: AtomicBool::new(false),
            listed: AtomicBool::new(false),
        }
    }

    pub(crate) fn has_slash(&self) -> bool {
        self.pattern.contains('/')
    }

    /// Whether the pattern matches this name. Nothing matches an empty name.
    pub(crate) fn matches(&self, name: &str) -> bool {
        !name.is_empty() && glob(&self.pattern, name)
    }
}

impl Suppressions {
    pub(crate) const NONE: Self = Self { list: Vec::new() };

    pub(crate) fn add(&mut self, pattern: &str) {
        self.extend([Arc::new(Suppression::new(pattern))]);
    }

    pub(crate) fn append(&mut self, more: Self) {
        self.extend(more.list);
    }

    /// Adds those that are not in the list yet.
    fn extend(&mut self, more: impl IntoIterator<Item = Arc<Suppression>>) {
        let mut known: HashSet<_> = self.list.iter().map(|one| one.text.clone()).collect();
        let new = more.into_iter();
        let new = new.filter(|one| known.insert(one.text.clone()));
        self.list.extend(new);
    }

    /// Adds the patterns in a text, one a line. Skips empty lines and lines that start with `#`.
    fn add_lines(&mut self, text: &str) {
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !matches!(*line, "" | "leak:") && !line.starts_with('#'));
        self.extend(lines.map(|line| Arc::new(Suppression::new(line))));
    }

    pub(crate) fn read(&mut self, path: &Path) -> io::Result<()> {
        let text = fs::read(path)?;
        self.add_lines(&String::from_utf8_lossy(&text));
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The first pattern that matches, which then counts as used.
    pub(crate) fn find(&self, matches: impl Fn(&Suppression) -> bool) -> Option<&Suppression> {
        let found = self.list.iter().find(|one| matches(one))?;
        found.used.store(true, Relaxed);
        Some(found)
    }

    /// Patterns that matched nothing so far, in any context.
    pub(crate) fn unused(&self) -> impl Iterator<Item = &str> {
        let unused = self.list.iter().filter(|one| !one.used.load(Relaxed));
        unused.map(|one| one.text.as_str())
    }

    /// Adds these to what [`unused`] lists.
    pub(crate) fn list_at_exit(&self) {
        let mut new = self.list.clone();
        new.retain(|one| !one.listed.swap(true, Relaxed));
        if !new.is_empty()
            && let Ok(mut all) = ALL.lock()
        {
            all.extend(new);
        }
    }
}

/// The suppressions of all reports of this process.
static ALL: Mutex<Vec<Arc<Suppression>>> = Mutex::new(Vec::new());

/// How many unused suppressions are listed.
const LISTED: usize = 10;

/// The line about suppressions that no report used, if there are any. Called at exit, so it does not wait
/// for the lock.
pub(crate) fn unused() -> Option<String> {
    let all = ALL.try_lock().ok()?;
    let unused: Vec<_> = all.iter().filter(|one| !one.used.load(Relaxed)).collect();
    let texts = list_some(&unused, LISTED, |one| format!("{:?}", one.text));
    let suppressions = count(unused.len() as u64, "suppression");
    (!unused.is_empty()).then(|| format!("cuguard: {suppressions} matched no leak: {texts}\n"))
}

/// The patterns of a file of suppressions, and whether each matches a name. Public for fuzzing alone.
#[doc(hidden)]
#[must_use]
pub fn match_suppressions(file: &[u8], name: &str) -> Vec<(String, bool)> {
    let mut suppressions = Suppressions::default();
    suppressions.add_lines(&String::from_utf8_lossy(file));
    let all = suppressions.list.iter();
    all.map(|one| (one.text.clone(), one.matches(name)))
        .collect()
}

/// Whether the pattern matches the whole text, where `*` matches anything, also nothing.
///
/// Between the first star and the last, each part is searched behind the one before: its first occurrence
/// leaves the most for the others, so none is tried twice.
fn glob(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    let between = text.strip_prefix(first);
    let Some(between) = between.and_then(|text| text.strip_suffix(last)) else {
        return false;
    };
    let mut parts = middle.split('*');
    let rest = parts.try_fold(between, |text, part| Some(text.split_once(part)?.1));
    rest.is_some()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Suppression, Suppressions, glob};

    #[test]
    fn patterns_are_found_anywhere_unless_they_are_anchored() {
        for (pattern, text, expected) in [
            ("*", "anything", true),
            ("*", "", false),
            ("load", "app::load", true),
            ("load", "app::loader", true),
            ("load", "app::store", false),
            ("app::*::inner", "my_app::load::inner::x", true),
            ("^app::", "app::load", true),
            ("^app::", "my_app::load", false),
            ("load$", "app::load", true),
            ("load$", "app::loader", false),
            ("load$", "app::load_load", true),
            ("^app*load$", "app::down::load", true),
            ("^app*load$", "app::down::loader", false),
            ("leak:cache", "app::cache::new", true),
            ("leak: cache", "app::cache::new", true),
            ("leak:^app::cache", "my_app::cache::new", false),
            ("leak:libfoo.so", "/usr/lib/libfoo.so.3", true),
            ("a*b*c", "xa1b2b3cx", true),
            ("a*b*c", "a1b2b3", false),
            ("ä*ö", "xäöx", true),
        ] {
            let found = Suppression::new(pattern).matches(text);
            assert_eq!(found, expected, "{pattern} against {text}");
        }
    }

    #[test]
    fn many_stars_are_fast() {
        let pattern = Suppression::new(&format!("{}b", "*a".repeat(200)));
        assert!(!pattern.matches(&"a".repeat(5_000)));
    }

    #[test]
    fn a_file_has_comments_and_empty_lines() {
        let mut suppressions = Suppressions::default();
        assert!(suppressions.is_empty());
        suppressions.add_lines(
            "# expected\n\n  app::cache::*  \r\n*.cu\nleak:\nleak:libx.so\n#leak:no\n*.cu\n",
        );
        let all: Vec<_> = suppressions.unused().collect();
        assert_eq!(all, ["app::cache::*", "*.cu", "leak:libx.so"]);
        for name in ["app::cache::fill", "k.cu", "/lib/libx.so.1"] {
            assert!(suppressions.find(|one| one.matches(name)).is_some());
        }
        assert!(suppressions.find(|one| one.matches("# expected")).is_none());
        assert_eq!(suppressions.unused().count(), 0);
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
        #![proptest_config(cuguard_testing::property_config!())]

        #[test]
        fn it_agrees_with_the_plainest_matcher(pattern in "[ab*]{0,8}", text in "[ab]{0,10}") {
            prop_assert_eq!(glob(&pattern, &text), plain(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
