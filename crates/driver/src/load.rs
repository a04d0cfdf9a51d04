//! The one driver of the process: selecting it, opening it, publishing it.
//!
//! ```text
//!            select                     load, cuInit, ...
//!           ┌──────┐                  ┌──────────────────► loaded, for good
//!           ▼      │                  │                    (selecting another is an error)
//!       nothing loaded ───────────────┤
//!                  ▲                  │
//!                  └──────────────────┘ failed; the reason is remembered,
//!                                       a program may select and load again
//! ```

use std::fmt;
#[cfg(feature = "sim")]
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::choice::{Choice, Selected, VARIABLE};
use crate::driver::Driver;
use crate::error::{LoadError, summary};
use crate::fallback;
use crate::library::DriverLibrary;

/// The driver, once there is one.
static LOADED: OnceLock<Loaded> = OnceLock::new();

struct Loaded {
    driver: Driver,
    /// What the program or the environment had selected.
    selected: Selected,
}

impl Loaded {
    /// Whether `wanted` is the loaded driver.
    fn is(&self, wanted: &Selected) -> bool {
        // Which of the two `auto` found.
        let found = match self.driver.is_built_in() {
            true => Choice::Sim,
            false => Choice::Real,
        };
        let auto = self.selected == Selected::Choice(Choice::Auto);
        *wanted == self.selected || auto && *wanted == Selected::Choice(found)
    }
}

/// What the program selected. The lock is held while a driver is loaded: one load at a time.
static SELECTED: Mutex<Option<Selected>> = Mutex::new(None);

/// Every change under this lock is a single assignment, so a poisoned lock is harmless.
fn selected() -> MutexGuard<'static, Option<Selected>> {
    SELECTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Selects the driver. Must come before the first CUDA call; wins over `CUGUARD_DRIVER`.
///
/// The driver is loaded later, by [`load`](crate::load()) or by the first CUDA call. When that fails,
/// another one may be selected. Selecting the driver that is loaded already is no error, so that each test
/// of a program may begin with it.
///
/// ```
/// use cuguard_driver::{Choice, select};
///
/// select(Choice::Auto)?;
/// # Ok::<(), cuguard_driver::SelectError>(())
/// ```
///
/// A library is selected by its path with [`select_library`], which is `unsafe`: loading a library
/// runs its code.
///
/// ```compile_fail,E0599
/// use cuguard_driver::{Choice, select};
///
/// select(Choice::Path("/opt/libcuda.so.1".into()))?;
/// # Ok::<(), cuguard_driver::SelectError>(())
/// ```
///
/// # Errors
///
/// [`SelectError::AlreadyLoaded`] when another driver is loaded already;
/// [`SelectError::NoSimulation`] for [`Choice::Sim`] in a program that was built without the
/// feature `sim`. What was selected before stays selected then.
pub fn select(choice: Choice) -> Result<(), SelectError> {
    set(Selected::Choice(choice))
}

/// Selects the library at `path` as the driver, else like [`select`]. A bare file name is a file in
/// the current directory.
///
/// ```
/// use cuguard_driver::{load, select_library};
///
/// // SAFETY: there is no such library.
/// unsafe { select_library("/no/such/driver.so")? };
/// let error = load().unwrap_err();
/// assert!(error.to_string().contains("/no/such/driver.so"));
/// # Ok::<(), cuguard_driver::SelectError>(())
/// ```
///
/// ```compile_fail,E0133
/// cuguard_driver::select_library("/opt/libcuda.so.1")?;
/// # Ok::<(), cuguard_driver::SelectError>(())
/// ```
///
/// # Safety
///
/// When the library is loaded, its initialization routines run, and those of all libraries that it
/// needs; from then on its functions are called as the driver's. They must be sound to run in this
/// process, and must have the types and the behaviour of the CUDA driver's.
///
/// # Errors
///
/// [`SelectError::AlreadyLoaded`] when another driver is loaded already.
pub unsafe fn select_library(path: impl Into<PathBuf>) -> Result<(), SelectError> {
    set(Selected::Library(path.into()))
}

fn set(wanted: Selected) -> Result<(), SelectError> {
    let mut selected = selected();
    match LOADED.get() {
        Some(loaded) if loaded.is(&wanted) => {}
        Some(Loaded { driver, .. }) => return Err(SelectError::AlreadyLoaded { driver }),
        None if wanted == Selected::Choice(Choice::Sim) && !cfg!(feature = "sim") => {
            return Err(SelectError::NoSimulation);
        }
        None => *selected = Some(wanted),
    }
    Ok(())
}

/// Why the driver could not be selected. `{:?}` prints the same as `{}`, so that an `unwrap` is readable.
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
        /// The loaded driver.
        driver: &'static Driver,
    },

    /// The simulated GPU was selected, but the program was built without it.
    #[error("{}", LoadError::NoSimulation)]
    NoSimulation,
}

impl fmt::Debug for SelectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns the loaded driver, if there is one. Loads nothing.
///
/// ```
/// assert!(cuguard_driver::loaded().is_none());
/// if let Ok(driver) = cuguard_driver::load() {
///     assert!(std::ptr::eq(driver, cuguard_driver::loaded().unwrap()));
/// }
/// ```
#[must_use]
pub fn loaded() -> Option<&'static Driver> {
    LOADED.get().map(|loaded| &loaded.driver)
}

/// Loads the selected driver, or returns the loaded one. `point_slots` points the table at the driver: first
/// all functions but those that load one, then, after the driver is published, those.
pub(crate) fn load_with(point_slots: fn(&Driver, bool)) -> Result<&'static Driver, LoadError> {
    if let Some(driver) = loaded() {
        return Ok(driver);
    }
    let selected_by_program = selected();
    // Another thread may have loaded it while this one waited for the lock.
    if let Some(driver) = loaded() {
        return Ok(driver);
    }
    let opened = open(selected_by_program.as_ref());
    fallback::remember(opened.as_ref().err().map(LoadError::one_line).as_deref());
    let Loaded { driver, selected } = opened?;
    let opened = Loaded {
        driver: driver.audited(),
        selected,
    };
    point_slots(&opened.driver, false);
    let Loaded { driver, .. } = LOADED.get_or_init(|| opened);
    point_slots(driver, true);
    Ok(driver)
}

/// Opens the driver that the program selected, or else the one that the environment selects.
fn open(selected: Option<&Selected>) -> Result<Loaded, LoadError> {
    let by_program = selected.is_some();
    let (selected, because) = match selected {
        Some(selected) => (selected.clone(), format!("the program chose {selected}")),
        None => {
            let selected = Selected::from_env()?;
            let because = format!("{VARIABLE}={selected}");
            (selected, because)
        }
    };
    let driver = match &selected {
        Selected::Library(path) => Driver::new(Some(DriverLibrary::at(path)?)),
        Selected::Choice(Choice::Real) => Driver::new(Some(DriverLibrary::installed(by_program)?)),
        Selected::Choice(Choice::Sim) => simulation(&because).ok_or(LoadError::NoSimulation)?,
        Selected::Choice(Choice::Auto) => auto(by_program, &because)?,
    };
    Ok(Loaded { driver, selected })
}

/// The installed driver if it has a device, else the simulated GPU.
fn auto(by_program: bool, because: &str) -> Result<Driver, LoadError> {
    let (error, why) = match DriverLibrary::installed(by_program) {
        Ok(library) => match library.has_device() {
            Ok(()) => return Ok(Driver::new(Some(library))),
            Err(reason) => {
                let driver = Driver::new(Some(library)).to_string();
                let why = format!("{driver}: {reason}");
                (LoadError::Unusable { driver, reason }, why)
            }
        },
        Err(error) => {
            let why = match &error {
                LoadError::NoDriver { tried, .. } => summary(tried),
                other => other.one_line(),
            };
            (error, why)
        }
    };
    simulation(&format!("{because}: no usable driver: {why}")).ok_or(error)
}

/// The simulated GPU, announced on stderr, so that no one takes it for a real one.
#[cfg(feature = "sim")]
fn simulation(because: &str) -> Option<Driver> {
    let line = format!("cuguard: using the simulated GPU ({because})\n");
    // One write, so that other threads' output does not split it. Without a stderr it is lost.
    let _ = std::io::stderr().write_all(line.as_bytes());
    Some(Driver::new(None))
}

/// This program was built without the simulated GPU.
#[cfg(not(feature = "sim"))]
fn simulation(_because: &str) -> Option<Driver> {
    None
}
