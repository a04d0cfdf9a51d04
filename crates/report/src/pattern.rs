//! The file name of a report or a recording, with the process id, the number of the context, the machine and the rank.

use std::path::PathBuf;

/// A file name in which `%p` stands for the process id, `%c` for the number of the context, `%h` for the name of the
/// machine, `%r` for the rank and `%%` for a percent sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilePattern {
    text: String,
}

/// Why a pattern for a file name cannot be used.
///
/// ```
/// let error = cuguard::report::ReportSettings::text().file("leaks-%d.txt").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "%d means nothing; %p is the process id, %c the context, %h the machine, %r the rank, %% a percent sign"
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParsePatternError {
    /// There is no name.
    #[error("there is no file name")]
    Empty,
    /// An unknown percent sequence.
    #[error(
        "%{0} means nothing; %p is the process id, %c the context, %h the machine, %r the rank, %% a percent sign"
    )]
    Unknown(char),
    /// A percent sign at the end.
    #[error(
        "% at the end means nothing; %p is the process id, %c the context, %h the machine, %r the rank, %% a percent sign"
    )]
    Trailing,
}

impl FilePattern {
    pub(crate) fn new(text: &str) -> Result<Self, ParsePatternError> {
        if text.is_empty() {
            return Err(ParsePatternError::Empty);
        }
        fill(text, 0, 0)?;
        Ok(Self {
            text: text.to_owned(),
        })
    }

    /// The file of a recording, where none is set.
    pub(crate) fn of_recording() -> Result<Self, ParsePatternError> {
        Self::new("cuguard-%p.cgr")
    }

    /// The file for this process and this context.
    pub(crate) fn path(&self, process: u32, context: u64) -> PathBuf {
        // `new` checked the pattern.
        fill(&self.text, process, context)
            .unwrap_or_else(|_| self.text.clone())
            .into()
    }

    /// Whether the extension is one of JSON.
    pub(crate) fn is_json(&self) -> bool {
        [".json", ".jsonl", ".ndjson"]
            .iter()
            .any(|ending| self.text.ends_with(ending))
    }
}

fn fill(pattern: &str, process: u32, context: u64) -> Result<String, ParsePatternError> {
    let mut name = String::new();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            name.push(character);
            continue;
        }
        match characters.next() {
            Some('p') => name.push_str(&process.to_string()),
            Some('c') => name.push_str(&context.to_string()),
            Some('h') => name.push_str(&cuguard_recording::host().replace('/', "_")),
            Some('r') => name.push_str(&rank().unwrap_or(0).to_string()),
            Some('%') => name.push('%'),
            Some(other) => return Err(ParsePatternError::Unknown(other)),
            None => return Err(ParsePatternError::Trailing),
        }
    }
    Ok(name)
}

/// The variables in which launchers of distributed jobs set the rank, the first one first.
const RANKS: [&str; 4] = ["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"];

/// The rank of this process in a distributed job, where a launcher sets one.
pub(crate) fn rank() -> Option<u32> {
    let set = RANKS.iter().find_map(|name| std::env::var(name).ok());
    set?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{FilePattern, ParsePatternError};

    fn path(pattern: &str) -> PathBuf {
        FilePattern::new(pattern).unwrap().path(42, 7)
    }

    #[test]
    fn percent_signs_are_filled_in() {
        assert_eq!(path("leaks.txt"), PathBuf::from("leaks.txt"));
        assert_eq!(
            path("/tmp/leaks-%p-%c.json"),
            PathBuf::from("/tmp/leaks-42-7.json")
        );
        assert_eq!(path("100%%p%%%p"), PathBuf::from("100%p%42"));
        let expected = format!(
            "{}.{}",
            cuguard_recording::host(),
            super::rank().unwrap_or(0)
        );
        assert_eq!(path("%h.%r"), PathBuf::from(expected));
    }

    #[test]
    fn wrong_patterns_are_named() {
        assert_eq!(FilePattern::new(""), Err(ParsePatternError::Empty));
        assert_eq!(FilePattern::new("a%"), Err(ParsePatternError::Trailing));
        assert_eq!(
            FilePattern::new("a%x%p"),
            Err(ParsePatternError::Unknown('x'))
        );
        assert_eq!(FilePattern::new("%é"), Err(ParsePatternError::Unknown('é')));
    }

    #[test]
    fn the_ending_tells_json() {
        assert!(FilePattern::new("leaks-%p.json").unwrap().is_json());
        assert!(!FilePattern::new("leaks.txt").unwrap().is_json());
    }
}
