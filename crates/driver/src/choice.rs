//! Which driver to load.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The environment variable that chooses the driver.
pub(crate) const VARIABLE: &str = "CUGUARD_DRIVER";

/// Which driver to load: a word or a path, as the environment variable `CUGUARD_DRIVER` takes it
/// and [`select`](crate::select) too.
///
/// ```
/// use cuguard_driver::Choice;
///
/// assert_eq!("auto".parse(), Ok(Choice::Auto));
/// assert_eq!("/opt/libcuda.so.1".parse(), Ok(Choice::Path("/opt/libcuda.so.1".into())));
/// assert_eq!(Choice::default(), Choice::Real);
/// assert_eq!(Choice::Sim.to_string(), "sim");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Choice {
    /// `real`: the installed driver, `libcuda.so.1`. What is chosen when nobody chooses.
    #[default]
    Real,
    /// `sim`: the simulated GPU, if the program was built with the feature `sim`.
    Sim,
    /// `auto`: the installed driver if there is one and it has a device, else the simulated GPU.
    Auto,
    /// A path (anything with a `/` in it): that library.
    Path(PathBuf),
}

impl Choice {
    /// What the environment variable `CUGUARD_DRIVER` asks for; [`Choice::Real`] if it is unset or
    /// empty.
    ///
    /// ```
    /// use cuguard_driver::Choice;
    ///
    /// match Choice::from_env() {
    ///     Ok(choice) => println!("a driver would be chosen by: {choice}"),
    ///     Err(error) => println!("CUGUARD_DRIVER: {error}"),
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// When it holds a word that is none of the accepted ones.
    pub fn from_env() -> Result<Choice, UnknownChoice> {
        Self::asked_for().map(Option::unwrap_or_default)
    }

    /// What the environment asks for, `None` if it does not ask.
    pub(crate) fn asked_for() -> Result<Option<Choice>, UnknownChoice> {
        match std::env::var_os(VARIABLE) {
            Some(value) if !value.is_empty() => Self::from_os_str(&value).map(Some),
            _ => Ok(None),
        }
    }

    /// A path need not be UTF-8; the words are.
    fn from_os_str(value: &OsStr) -> Result<Choice, UnknownChoice> {
        match value.as_bytes() {
            b"real" => Ok(Choice::Real),
            b"sim" => Ok(Choice::Sim),
            b"auto" => Ok(Choice::Auto),
            bytes if bytes.contains(&b'/') => Ok(Choice::Path(PathBuf::from(value))),
            _ => Err(UnknownChoice {
                word: value.to_string_lossy().into_owned(),
            }),
        }
    }
}

impl FromStr for Choice {
    type Err = UnknownChoice;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::from_os_str(OsStr::new(text))
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Real => f.write_str("real"),
            Choice::Sim => f.write_str("sim"),
            Choice::Auto => f.write_str("auto"),
            Choice::Path(path) => explicit(path).display().fmt(f),
        }
    }
}

/// `path` in a form that reads as a path: a bare file name gets `./`, since without a slash it
/// would be a word here, and a library to search for to the system's loader.
pub(crate) fn explicit(path: &Path) -> PathBuf {
    if path.as_os_str().as_bytes().contains(&b'/') {
        path.to_path_buf()
    } else {
        Path::new(".").join(path)
    }
}

/// A word that chooses no driver.
///
/// ```
/// use cuguard_driver::Choice;
///
/// let error = "cuda".parse::<Choice>().unwrap_err();
/// assert_eq!(error.word(), "cuda");
/// assert_eq!(
///     error.to_string(),
///     "`cuda` names no driver; use real, sim, auto, or the path of a library (with a / in it)"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` names no driver; use real, sim, auto, or the path of a library (with a / in it)",
    word.escape_debug()
)]
pub struct UnknownChoice {
    word: String,
}

impl UnknownChoice {
    /// The word, with replacement characters for what is not UTF-8 in it.
    ///
    /// ```
    /// use cuguard_driver::Choice;
    ///
    /// assert_eq!("Real".parse::<Choice>().unwrap_err().word(), "Real");
    /// ```
    #[must_use]
    pub fn word(&self) -> &str {
        &self.word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_paths_are_told_apart() {
        let parse = |text: &str| text.parse::<Choice>();
        assert_eq!(parse("real"), Ok(Choice::Real));
        assert_eq!(parse("sim"), Ok(Choice::Sim));
        assert_eq!(parse("auto"), Ok(Choice::Auto));
        assert_eq!(parse("./auto"), Ok(Choice::Path("./auto".into())));
        for word in ["", "REAL", " real", "libcuda.so.1", "simulated"] {
            assert_eq!(parse(word).unwrap_err().word(), word);
        }
    }

    #[test]
    fn what_is_not_utf8_is_a_path_or_an_error() {
        let path = OsStr::from_bytes(b"/opt/\xff/libcuda.so.1");
        assert_eq!(
            Choice::from_os_str(path),
            Ok(Choice::Path(PathBuf::from(path)))
        );
        let word = Choice::from_os_str(OsStr::from_bytes(b"s\xffm")).unwrap_err();
        assert_eq!(word.word(), "s\u{fffd}m");
    }

    #[test]
    fn display_and_parse_agree() {
        let choices = [
            Choice::Real,
            Choice::Sim,
            Choice::Auto,
            Choice::Path("/opt/x.so".into()),
            Choice::Path("./x.so".into()),
        ];
        for choice in choices {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        assert_eq!(Choice::Path("x.so".into()).to_string(), "./x.so");
    }
}
