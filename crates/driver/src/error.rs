//! Why no driver could be chosen or loaded.

use std::fmt::{self, Write};
use std::path::{Path, PathBuf};

use crate::choice::{UnknownChoice, VARIABLE};
use crate::driver::Driver;

/// Why no driver was loaded.
///
/// [`Display`](std::fmt::Display) is for people: for [`NoDriver`](Self::NoDriver) it is several
/// lines, with everything that was tried and what to do. [`one_line`](Self::one_line) is for logs;
/// it is also what `cuGetErrorString` answers for `CUDA_ERROR_NO_DEVICE` as long as there is no
/// driver. When it was a driver function that tried to load, the error is on stderr too.
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
    /// `CUGUARD_DRIVER` holds a word that is none of the accepted ones.
    #[error("{VARIABLE}: {0}")]
    UnknownChoice(#[from] UnknownChoice),

    /// No driver is installed, or none that can be loaded.
    #[error("{}", no_driver(tried, *chosen_by_program))]
    NoDriver {
        /// Everything that was tried, in order. There is at least one.
        tried: Vec<Attempt>,
        /// The program selected the driver with [`select`](crate::select), so that `CUGUARD_DRIVER`
        /// has no effect.
        chosen_by_program: bool,
    },

    /// The library that was chosen by its path cannot be opened.
    #[error("cannot open the driver library{}: {reason}", behind_a_space(path))]
    CannotOpen {
        /// The path, as it was chosen.
        path: PathBuf,
        /// Why, in the system's words where it has some.
        reason: String,
    },

    /// The library that was chosen by its path is not a driver.
    #[error("{} is not a CUDA driver: it has no function cuInit", path.display())]
    NotADriver {
        /// The path, as it was chosen.
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
        /// What it answered.
        reason: String,
    },

    /// The simulated GPU was chosen, but the program was built without it.
    #[error(
        "the simulated GPU was chosen, but this program was built without it; build it with the \
         feature `sim` of cuguard (cargo add cuguard --features sim)"
    )]
    NoSimulation,
}

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
                chosen_by_program: true,
            } => format!(
                "no CUDA driver was found: {}; install the NVIDIA driver, or select another in the \
                 program: it selected this one itself, and {VARIABLE} has no effect",
                summary(tried)
            ),
            LoadError::NoDriver { tried, .. } => format!(
                "no CUDA driver was found: {}; install the NVIDIA driver, or set {VARIABLE} to \
                 the path of a libcuda.so.1{}",
                summary(tried),
                if cfg!(feature = "sim") {
                    " or to sim"
                } else {
                    ""
                }
            ),
            other => other.to_string(),
        };
        // The system's words and a path may hold anything.
        text.replace(['\n', '\r'], " ")
    }
}

/// One library that was tried, and what came of it.
///
/// ```
/// use cuguard_driver::{LoadError, load};
///
/// if let Err(LoadError::NoDriver { tried, .. }) = load() {
///     for attempt in &tried {
///         println!("{}: {}", attempt.library().display(), attempt.reason());
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    library: PathBuf,
    reason: String,
    /// Whether there is something at that place at all; then its reason says more than the others.
    present: bool,
}

impl Attempt {
    pub(crate) fn new(library: &Path, reason: impl Into<String>, present: bool) -> Self {
        Self {
            library: library.to_path_buf(),
            reason: reason.into(),
            present,
        }
    }

    /// What was tried: the library's name, which the system's loader looks for, or a path.
    ///
    /// ```
    /// # use cuguard_driver::{LoadError, load};
    /// if let Err(LoadError::NoDriver { tried, .. }) = load() {
    ///     assert_eq!(tried[0].library().to_str(), Some("libcuda.so.1"));
    /// }
    /// ```
    #[must_use]
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// Why it was not taken.
    ///
    /// ```
    /// # use cuguard_driver::{LoadError, load};
    /// if let Err(LoadError::NoDriver { tried, .. }) = load() {
    ///     assert!(!tried[0].reason().is_empty());
    /// }
    /// ```
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.library.display(), self.reason)
    }
}

/// The attempt that tells most, and how many others there were.
pub(crate) fn summary(tried: &[Attempt]) -> String {
    let telling = tried.iter().find(|attempt| attempt.present);
    let Some(telling) = telling.or(tried.first()) else {
        return "nothing was tried".to_owned();
    };
    match tried.len() - 1 {
        0 => telling.to_string(),
        1 => format!("{telling} (1 more place tried)"),
        others => format!("{telling} ({others} more places tried)"),
    }
}

/// The path with a space before it; nothing for an empty path.
fn behind_a_space(path: &Path) -> String {
    if path.as_os_str().is_empty() {
        String::new()
    } else {
        format!(" {}", path.display())
    }
}

/// [`LoadError::NoDriver`] for people.
fn no_driver(tried: &[Attempt], chosen_by_program: bool) -> String {
    let mut text = String::from("no CUDA driver was found; tried\n");
    for attempt in tried {
        let _ = writeln!(text, "    {attempt}");
    }
    text.push_str(
        "what to do:\n    \
         install the NVIDIA driver; in a container, start it with access to the GPU; or\n    ",
    );
    let _ = if chosen_by_program {
        write!(
            text,
            "select another driver in the program: it selected this one itself, and {VARIABLE} has \
             no effect;\n    Choice::Sim (or Choice::Auto) selects the simulated GPU"
        )
    } else {
        write!(
            text,
            "set {VARIABLE} to the path of a libcuda.so.1; or\n    \
             set {VARIABLE}=sim (or auto) to run on the simulated GPU"
        )
    };
    if !cfg!(feature = "sim") {
        text.push_str(", after building with the feature `sim` of cuguard");
    }
    text
}

/// Why the driver could not be selected. It prints the same with `{:?}`, so that an `unwrap` says what
/// happened.
///
/// ```
/// use cuguard_driver::{load, select_library};
///
/// if let Ok(driver) = load() {
///     // SAFETY: there is no such library.
///     let error = unsafe { select_library("/no/such/driver.so") }.unwrap_err();
///     assert!(error.to_string().contains(&driver.to_string()));
///     assert_eq!(format!("{error:?}"), error.to_string());
/// }
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// Another driver is loaded already, and stays for the life of the process.
    #[error("another driver is loaded already: {driver}; select one before the first CUDA call")]
    #[non_exhaustive]
    AlreadyLoaded {
        /// The driver that is loaded.
        driver: &'static Driver,
    },

    /// The simulated GPU was chosen, but the program was built without it.
    #[error("{}", LoadError::NoSimulation)]
    NoSimulation,
}

impl fmt::Debug for SelectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried() -> Vec<Attempt> {
        vec![
            Attempt::new(Path::new("libcuda.so.1"), "cannot open", false),
            Attempt::new(Path::new("/a/libcuda.so.1"), "no such file", false),
            Attempt::new(Path::new("/b/libcuda.so.1"), "wrong ELF class", true),
        ]
    }

    fn no_driver(chosen_by_program: bool) -> LoadError {
        LoadError::NoDriver {
            tried: tried(),
            chosen_by_program,
        }
    }

    /// The variable is no help where the program selects the driver.
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
            LoadError::UnknownChoice("a\nb".parse::<crate::Choice>().unwrap_err()),
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
                reason: "cuInit answered 100".into(),
            },
            LoadError::NoSimulation,
        ];
        for error in errors {
            let line = error.one_line();
            assert!(!line.is_empty() && !line.contains('\n'), "{line:?}");
        }
    }
}
