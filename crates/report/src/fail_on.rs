//! Which findings of `cuguard run` set the exit code.

use std::fmt;
use std::str::FromStr;

/// Which findings set the exit code of a program under `cuguard run`: the word `fail_on`.
///
/// ```
/// use cuguard::report::FailOn;
///
/// let fail_on: FailOn = "lost+growth".parse()?;
/// assert_eq!(fail_on.to_string(), "lost+growth");
/// assert_eq!(FailOn::default().to_string(), "lost");
/// assert!("lost+found".parse::<FailOn>().is_err());
/// # Ok::<(), cuguard::report::ParseFailOnError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FailOn {
    /// Resources whose address is in no memory of the process any more.
    pub lost: bool,
    /// Resources that are not freed, and whose address the process still has.
    pub reachable: bool,
    /// Call sites whose live bytes keep rising.
    pub growth: bool,
    /// Allocations that the driver refused for lack of memory.
    pub oom: bool,
    /// Memory that was not freed before its context was destroyed.
    pub destroyed: bool,
}

impl FailOn {
    /// No finding.
    pub const NONE: Self = Self {
        lost: false,
        reachable: false,
        growth: false,
        oom: false,
        destroyed: false,
    };
}

impl Default for FailOn {
    /// What is lost.
    fn default() -> Self {
        Self {
            lost: true,
            ..Self::NONE
        }
    }
}

/// A list of findings has a word that is none.
///
/// ```
/// let error = "lots".parse::<cuguard::report::FailOn>().unwrap_err();
/// assert_eq!(error.to_string(), "\"lots\" is none of lost, reachable, growth, oom, destroyed");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is none of lost, reachable, growth, oom, destroyed")]
#[non_exhaustive]
pub struct ParseFailOnError {
    /// The word.
    pub word: String,
}

impl FromStr for FailOn {
    type Err = ParseFailOnError;

    /// Words joined by `+` or, where no comma separates other words, by commas.
    fn from_str(text: &str) -> Result<Self, ParseFailOnError> {
        let mut fail_on = Self::NONE;
        for word in text.split(['+', ',']).map(str::trim) {
            match word {
                "lost" => fail_on.lost = true,
                "reachable" => fail_on.reachable = true,
                "growth" => fail_on.growth = true,
                "oom" => fail_on.oom = true,
                "destroyed" => fail_on.destroyed = true,
                _ => {
                    return Err(ParseFailOnError {
                        word: word.to_owned(),
                    });
                }
            }
        }
        Ok(fail_on)
    }
}

impl fmt::Display for FailOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [
            (self.lost, "lost"),
            (self.reachable, "reachable"),
            (self.growth, "growth"),
            (self.oom, "oom"),
            (self.destroyed, "destroyed"),
        ];
        let words = words.into_iter().filter(|(set, _)| *set);
        let words: Vec<_> = words.map(|(_, word)| word).collect();
        f.write_str(&words.join("+"))
    }
}
