//! Why no driver could be loaded.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::choice::{ParseChoiceError, VARIABLE};

/// Why no driver was loaded.
///
/// [`Display`](std::fmt::Display) is for people: [`NoDriver`](Self::NoDriver) prints several lines, with
/// everything that was tried and what to do. [`one_line`](Self::one_line) is for logs; as long as there is
/// no driver, `cuGetErrorString` returns it for `CUDA_ERROR_NO_DEVICE`. When a driver function tried to
/// load, the error is on stderr too.
///
/// ```
/// match cuguard_driver::load() {
///     Ok(driver) => println!("in use: {driver}"),
///     Err(error) => {
///         eprintln!("{error}");
///         assert!(!error.one_line().contains('\n'));
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// `CUGUARD_DRIVER` is neither a path nor one of the accepted words.
    #[error("{VARIABLE}: {0}")]
    ParseChoiceError(#[from] ParseChoiceError),

    /// No driver is installed, or none that can be loaded.
    #[error("{}", no_driver(tried, *chosen_by_program))]
    NoDriver {
        /// Everything that was tried, in order. There is at least one.
        tried: Vec<Attempt>,
        /// The program called [`select`](crate::select), so that `CUGUARD_DRIVER` has no effect.
        chosen_by_program: bool,
    },

    /// The library that was selected by its path cannot be opened.
    #[error("cannot open the driver library{}: {reason}", after_space(path))]
    CannotOpen {
        /// The path, as it was given.
        path: PathBuf,
        /// Why; the operating system's message where it has one.
        reason: String,
    },

    /// The library that was selected by its path is not a driver.
    #[error("{} {NOT_A_DRIVER}", path.display())]
    NotADriver {
        /// The path, as it was given.
        path: PathBuf,
    },

    /// `auto` found a driver that cannot be used, and there is no simulated GPU to use instead.
    #[error(
        "{driver} cannot be used: {reason}; \
         this program was built without the simulated GPU, the feature `sim` of cuguard"
    )]
    Unusable {
        /// The driver that was found.
        driver: String,
        /// What failed.
        reason: String,
    },

    /// The simulated GPU was selected, but the program was built without it.
    #[error(
        "the simulated GPU was chosen, but this program was built without it; build it with the \
         feature `sim` of cuguard (cargo add cuguard --features sim)"
    )]
    NoSimulation,
}

pub(crate) const NOT_A_DRIVER: &str = "is not a CUDA driver: it has no function cuInit";

impl LoadError {
    /// The reason on one line.
    ///
    /// ```
    /// use cuguard_driver::LoadError;
    ///
    /// let line = LoadError::NoSimulation.one_line();
    /// assert!(line.contains("built without it"));
    /// assert!(!line.contains('\n'));
    /// ```
    #[must_use]
    pub fn one_line(&self) -> String {
        let text = match self {
            LoadError::NoDriver {
                tried,
                chosen_by_program,
            } => {
                let tried = summary(tried);
                let or = match (chosen_by_program, cfg!(feature = "sim")) {
                    (true, _) => format!("select another in the program: {BY_PROGRAM}"),
                    (false, true) => format!("set {VARIABLE} to {A_PATH} or to sim"),
                    (false, false) => format!("set {VARIABLE} to {A_PATH}"),
                };
                format!("no CUDA driver was found: {tried}; install the NVIDIA driver, or {or}")
            }
            other => other.to_string(),
        };
        // A path and the operating system's message may contain line breaks.
        text.replace(['\n', '\r'], " ")
    }
}

const A_PATH: &str = "the path of a libcuda.so.1";
const BY_PROGRAM: &str = "it selected this one itself, and CUGUARD_DRIVER has no effect";

/// One library that was tried, and why it is not used.
///
/// ```
/// use cuguard_driver::{LoadError, load};
///
/// if let Err(LoadError::NoDriver { tried, .. }) = load() {
///     assert_eq!(tried[0].library.to_str(), Some("libcuda.so.1"));
///     for attempt in &tried {
///         println!("{}: {}", attempt.library.display(), attempt.reason);
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempt {
    /// A path, or the name that the dynamic linker searched for.
    pub library: PathBuf,
    /// Why it is not used.
    pub reason: String,
    /// Whether there is such a file; then its reason is the most informative.
    pub(crate) present: bool,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.library.display(), self.reason)
    }
}

/// The most informative attempt, and how many others there were.
pub(crate) fn summary(tried: &[Attempt]) -> String {
    let present = tried.iter().find(|attempt| attempt.present);
    let Some(attempt) = present.or(tried.first()) else {
        return "nothing was tried".to_owned();
    };
    match tried.len() - 1 {
        0 => attempt.to_string(),
        1 => format!("{attempt} (1 more place tried)"),
        others => format!("{attempt} ({others} more places tried)"),
    }
}

/// The path after a space; nothing for an empty path.
fn after_space(path: &Path) -> String {
    let space = if path.as_os_str().is_empty() { "" } else { " " };
    format!("{space}{}", path.display())
}

/// [`LoadError::NoDriver`] for people.
fn no_driver(tried: &[Attempt], chosen_by_program: bool) -> String {
    let tried: String = tried.iter().map(|tried| format!("    {tried}\n")).collect();
    let or = if chosen_by_program {
        format!(
            "select another driver in the program: {BY_PROGRAM};\n    \
             Choice::Sim (or Choice::Auto) selects the simulated GPU"
        )
    } else {
        format!(
            "set {VARIABLE} to {A_PATH}; or\n    \
             set {VARIABLE}=sim (or auto) to run on the simulated GPU"
        )
    };
    let build = if cfg!(feature = "sim") {
        ""
    } else {
        ", after building with the feature `sim` of cuguard"
    };
    format!(
        "no CUDA driver was found; tried\n{tried}what to do:\n    \
         install the NVIDIA driver; in a container, start it with access to the GPU; or\n    {or}{build}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(library: &str, reason: &str, present: bool) -> Attempt {
        Attempt {
            library: library.into(),
            reason: reason.into(),
            present,
        }
    }

    fn tried() -> Vec<Attempt> {
        vec![
            attempt("libcuda.so.1", "cannot open", false),
            attempt("/a/libcuda.so.1", "no such file", false),
            attempt("/b/libcuda.so.1", "wrong ELF class", true),
        ]
    }

    fn no_driver(chosen_by_program: bool) -> LoadError {
        LoadError::NoDriver {
            tried: tried(),
            chosen_by_program,
        }
    }

    /// The variable does not help where the program selects the driver.
    #[test]
    fn no_driver_that_the_program_selected_says_so() {
        let error = no_driver(true);
        for text in [error.to_string(), error.one_line()] {
            assert!(!text.contains("set CUGUARD_DRIVER"), "{text}");
            for part in [
                "it selected this one itself",
                "CUGUARD_DRIVER has no effect",
            ] {
                assert!(text.contains(part), "{part:?} is not in\n{text}");
            }
        }
    }

    #[test]
    fn no_driver_lists_all_places_and_what_to_do() {
        let text = no_driver(false).to_string();
        for part in [
            "\n    libcuda.so.1: cannot open\n",
            "\n    /a/libcuda.so.1: no such file\n",
            "\n    /b/libcuda.so.1: wrong ELF class\n",
            "install the NVIDIA driver",
            "set CUGUARD_DRIVER to the path",
            "CUGUARD_DRIVER=sim",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        assert_eq!(text.contains("feature `sim`"), !cfg!(feature = "sim"));
    }

    #[test]
    fn the_line_shows_the_place_where_something_was() {
        let line = no_driver(false).one_line();
        let part = "/b/libcuda.so.1: wrong ELF class (2 more places tried)";
        assert!(line.contains(part), "{line}");
        assert_eq!(summary(&tried()[..1]), "libcuda.so.1: cannot open");
        assert_eq!(
            summary(&tried()[..2]),
            "libcuda.so.1: cannot open (1 more place tried)"
        );
    }

    #[test]
    fn every_error_fits_on_a_line() {
        let errors = [
            LoadError::ParseChoiceError("a\nb".parse::<crate::Choice>().unwrap_err()),
            no_driver(false),
            no_driver(true),
            LoadError::CannotOpen {
                path: "/a\nb".into(),
                reason: "it\nis not there".into(),
            },
            LoadError::NotADriver {
                path: "/a/b".into(),
            },
            LoadError::Unusable {
                driver: "CUDA driver at /a/b".into(),
                reason: "cuInit returned 100".into(),
            },
            LoadError::NoSimulation,
        ];
        for error in errors {
            let line = error.one_line();
            assert!(!line.is_empty() && !line.contains('\n'), "{line:?}");
        }
    }
}
