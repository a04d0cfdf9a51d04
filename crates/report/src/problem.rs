//! What cannot be used in `LEAK_REPORT`, with the known words.

use std::path::PathBuf;

use crate::phrase;

/// All words, as a message shows them.
const WORDS: &str = "0 (off, no, false), 1 (on, yes, true), text, json, github, file=PATTERN, \
                     exitcode=N, max=N, depth=N, frames=program|all, level=counts|sites|stacks, \
                     sample=N, free_leaks=yes|no, suppress=FILE, colour=auto|always|never, \
                     fail_on=lost+reachable+growth+oom+destroyed, python=yes|no, record, record-limit=SIZE, \
                     record-policy=all|last|aggregate, embed-symbols, \
                     dump-signal=USR1|USR2|HUP|IO|PWR|none";

/// Something in `LEAK_REPORT` that cannot be used.
///
/// ```
/// let (_, problems) = cuguard::report::ReportSettings::parse("1,verbose");
/// assert!(problems[0].to_string().starts_with("unknown word \"verbose\"; known words: 0 (off"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// An unknown word.
    #[error("unknown word {word:?}{}; known words: {WORDS}", suggestion(word))]
    #[non_exhaustive]
    UnknownWord {
        /// The word.
        word: String,
    },
    /// Nothing between two commas, or before the first or after the last.
    #[error("there is an empty word in {list:?}; known words: {WORDS}")]
    #[non_exhaustive]
    EmptyWord {
        /// The whole list.
        list: String,
    },
    /// A word whose value is missing or wrong, that was renamed, or that other words follow without a comma.
    #[error("cannot use {word:?}: {why}")]
    #[non_exhaustive]
    BadValue {
        /// The word with its value.
        word: String,
        /// What is wrong, and what is expected.
        why: String,
    },
    /// Words beside one that turns everything off.
    #[error("{off:?} turns everything off; ignored beside it: {}", quoted(words))]
    #[non_exhaustive]
    Ignored {
        /// The word that turns everything off.
        off: String,
        /// The other words.
        words: Vec<String>,
    },
    /// The variable is not Unicode.
    #[error("{text:?} is not valid Unicode; the part that can be read is used")]
    #[non_exhaustive]
    NotUnicode {
        /// What can be read of it.
        text: String,
    },
    /// A file of suppressions that cannot be read.
    #[error("cannot read the suppressions in {}: {reason}", path.display())]
    #[non_exhaustive]
    CannotRead {
        /// The file.
        path: PathBuf,
        /// The system's error.
        reason: String,
    },
}

/// Words without a value, for suggestions.
const FLAGS: [&str; 11] = [
    "off",
    "no",
    "false",
    "on",
    "yes",
    "true",
    "text",
    "json",
    "github",
    "record",
    "embed-symbols",
];

/// Words with a value, and which values they take.
pub(crate) const VALUES: [(&str, &str); 15] = [
    (
        "file",
        "a file name, in which %p is the process id, %c the context, %h the machine, %r the rank and %% a percent sign",
    ),
    ("exitcode", "a number from 0 to 255"),
    ("max", "a number of groups"),
    ("depth", "a number of frames from 1 to 128"),
    ("frames", "one of program, all"),
    ("level", "one of counts, sites, stacks"),
    ("sample", "a number from 1 to 4294967295"),
    ("free_leaks", "one of yes, no"),
    ("suppress", "the name of a file"),
    ("colour", "one of auto, always, never"),
    (
        "fail_on",
        "one or more of lost, reachable, growth, oom, destroyed, joined by +",
    ),
    ("python", "one of yes, no"),
    ("dump-signal", "one of USR1, USR2, HUP, IO, PWR, none"),
    (
        "record-limit",
        "a size of at least 1 MiB, in bytes, or with K, M or G: 256MiB",
    ),
    ("record-policy", "one of all, last, aggregate"),
];

/// ` (did you mean json?)` for an unknown word that is nearly a known one.
fn suggestion(word: &str) -> String {
    let name = word.split('=').next().unwrap_or_default().trim_end();
    let name = name.to_lowercase();
    let len = name.chars().count();
    // The time is the product of both lengths, and no typo is that long.
    if len > 16 {
        return String::new();
    }
    let known = FLAGS.into_iter().chain(VALUES.map(|(name, _)| name));
    // Letters that are added, missing, wrong or swapped.
    let distances = known.map(|known| {
        let distance = strsim::osa_distance(&name, known);
        (distance, len.max(known.len()), known)
    });
    // One letter in three may be wrong.
    let near = distances.filter(|(distance, longer, _)| distance * 3 <= *longer);
    near.min().map_or(String::new(), |(_, _, known)| {
        format!(" (did you mean {known}?)")
    })
}

fn quoted(words: &[String]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("{word:?}")).collect();
    phrase::list(&quoted)
}
