//! Which driver to load.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The environment variable that selects the driver.
pub(crate) const VARIABLE: &str = "CUGUARD_DRIVER";

/// Which driver to load, for [`select`](crate::select).
///
/// The environment variable `CUGUARD_DRIVER` takes the same words. It also takes the path of a library,
/// for which a program calls [`select_library`](crate::select_library).
///
/// ```
/// use cuguard_driver::Choice;
///
/// assert_eq!("auto".parse(), Ok(Choice::Auto));
/// assert_eq!(Choice::default(), Choice::Real);
/// assert_eq!(Choice::Sim.to_string(), "sim");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Choice {
    /// `real`: the installed driver, `libcuda.so.1`. The default.
    #[default]
    Real,
    /// `sim`: the simulated GPU. Needs the feature `sim`.
    Sim,
    /// `auto`: the installed driver if there is one and it has a device, else the simulated GPU.
    Auto,
}

impl Choice {
    const fn word(self) -> &'static str {
        match self {
            Choice::Real => "real",
            Choice::Sim => "sim",
            Choice::Auto => "auto",
        }
    }

    fn from_word(word: &[u8]) -> Option<Choice> {
        let mut all = [Choice::Real, Choice::Sim, Choice::Auto].into_iter();
        all.find(|choice| choice.word().as_bytes() == word)
    }
}

impl FromStr for Choice {
    type Err = ParseChoiceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::from_word(text.as_bytes()).ok_or_else(|| ParseChoiceError {
            word: text.to_owned(),
            accepted: "real, sim or auto",
        })
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What the environment or the program selected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Selected {
    Choice(Choice),
    /// The library at this path. Loading it runs its code, so only the environment and an `unsafe`
    /// function select it.
    Library(PathBuf),
}

impl Selected {
    /// What `CUGUARD_DRIVER` selects; the default if it is unset or empty.
    pub(crate) fn from_env() -> Result<Self, ParseChoiceError> {
        Self::from_value(std::env::var_os(VARIABLE).as_deref())
    }

    /// A path need not be UTF-8; the words are.
    fn from_value(value: Option<&OsStr>) -> Result<Self, ParseChoiceError> {
        let value = value.unwrap_or_default();
        let bytes = value.as_bytes();
        if bytes.is_empty() {
            return Ok(Self::Choice(Choice::default()));
        }
        if bytes.contains(&b'/') {
            return Ok(Self::Library(PathBuf::from(value)));
        }
        let choice = Choice::from_word(bytes).ok_or_else(|| ParseChoiceError {
            word: value.to_string_lossy().into_owned(),
            accepted: "real, sim, auto, or the path of a library (with a / in it)",
        });
        choice.map(Self::Choice)
    }
}

impl fmt::Display for Selected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Choice(choice) => choice.fmt(f),
            Self::Library(path) => explicit(path).display().fmt(f),
        }
    }
}

/// Prepends `./` to a bare file name: without a slash, `dlopen` would search for a library of that name,
/// and `CUGUARD_DRIVER` would take it for a word.
pub(crate) fn explicit(path: &Path) -> PathBuf {
    if path.as_os_str().as_bytes().contains(&b'/') {
        path.to_path_buf()
    } else {
        Path::new(".").join(path)
    }
}

/// A word that selects no driver.
///
/// ```
/// use cuguard_driver::Choice;
///
/// let error = "cuda".parse::<Choice>().unwrap_err();
/// assert_eq!(error.word(), "cuda");
/// assert_eq!(error.to_string(), "`cuda` names no driver; use real, sim or auto");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` names no driver; use {accepted}", word.escape_debug())]
pub struct ParseChoiceError {
    word: String,
    accepted: &'static str,
}

impl ParseChoiceError {
    /// The word, with replacement characters for what is not UTF-8.
    #[must_use]
    pub fn word(&self) -> &str {
        &self.word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(bytes: &[u8]) -> Result<Selected, ParseChoiceError> {
        Selected::from_value(Some(OsStr::from_bytes(bytes)))
    }

    #[test]
    fn the_environment_takes_words_and_paths() {
        assert_eq!(value(b"real"), Ok(Selected::Choice(Choice::Real)));
        assert_eq!(value(b"sim"), Ok(Selected::Choice(Choice::Sim)));
        assert_eq!(value(b"auto"), Ok(Selected::Choice(Choice::Auto)));
        assert_eq!(value(b"./auto"), Ok(Selected::Library("./auto".into())));
        for word in ["REAL", " real", "libcuda.so.1", "simulated"] {
            let error = value(word.as_bytes()).unwrap_err();
            assert_eq!(error.word(), word);
            assert!(
                error
                    .to_string()
                    .ends_with("the path of a library (with a / in it)")
            );
        }
    }

    #[test]
    fn an_empty_variable_counts_as_unset() {
        let real = Ok(Selected::Choice(Choice::Real));
        assert_eq!(value(b""), real);
        assert_eq!(Selected::from_value(None), real);
    }

    #[test]
    fn a_choice_is_a_word_and_never_a_path() {
        for text in ["", "REAL", " real", "libcuda.so.1", "./auto", "/opt/x.so"] {
            let error = text.parse::<Choice>().unwrap_err();
            assert_eq!(error.word(), text);
            assert!(error.to_string().ends_with("use real, sim or auto"));
        }
    }

    #[test]
    fn what_is_not_utf8_is_a_path_or_an_error() {
        let path = b"/opt/\xff/libcuda.so.1";
        let library = PathBuf::from(OsStr::from_bytes(path));
        assert_eq!(value(path), Ok(Selected::Library(library)));
        assert_eq!(value(b"s\xffm").unwrap_err().word(), "s\u{fffd}m");
    }

    #[test]
    fn display_and_parse_agree() {
        for choice in [Choice::Real, Choice::Sim, Choice::Auto] {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        for path in ["/opt/x.so", "./x.so"] {
            let library = Selected::Library(path.into());
            assert_eq!(value(library.to_string().as_bytes()), Ok(library));
        }
        assert_eq!(Selected::Library("x.so".into()).to_string(), "./x.so");
    }
}
