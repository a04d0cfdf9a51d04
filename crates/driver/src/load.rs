//! The one driver of the process.
//!
//! ```text
//!            select                     load, cuInit, ...
//!           ┌──────┐                  ┌──────────────────► loaded, for good
//!           ▼      │                  │                    (to select another is an error)
//!       nothing loaded ───────────────┤
//!                  ▲                  │
//!                  └──────────────────┘ failed; the reason is remembered,
//!                                       one may choose again and load again
//! ```

#[cfg(feature = "sim")]
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::choice::{Choice, Selected, VARIABLE};
use crate::driver::Driver;
use crate::error::{LoadError, SelectError};
use crate::library::DriverLibrary;
use crate::{fallback, table};

/// The driver, once there is one.
static LOADED: OnceLock<Loaded> = OnceLock::new();

struct Loaded {
    driver: Driver,
    /// What it was loaded for, by the program or by the environment.
    selected: Selected,
}

impl Loaded {
    /// Whether `wanted` is the driver that is loaded.
    fn is(&self, wanted: &Selected) -> bool {
        let found = match self.selected {
            // Which of the two it found.
            Selected::Choice(Choice::Auto) if self.driver.is_built_in() => Choice::Sim,
            Selected::Choice(Choice::Auto) => Choice::Real,
            _ => return *wanted == self.selected,
        };
        *wanted == self.selected || *wanted == Selected::Choice(found)
    }
}

/// What the program selected. The lock is held while a driver is loaded: one load at a time.
static SELECTED: Mutex<Option<Selected>> = Mutex::new(None);

/// Nothing in here is left half done by a panic, so a poisoned lock is as good as any.
fn selected() -> MutexGuard<'static, Option<Selected>> {
    SELECTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Selects the driver. Must come before the first CUDA call; wins over `CUGUARD_DRIVER`.
///
/// The driver is loaded later, by [`load`] or by the first CUDA call. When that fails, another one
/// may be selected. To select the driver that is loaded already is no error, so that each test of a
/// program may begin with it.
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

/// Selects the library at `path` as the driver, else as [`select`]. A bare file name is a file in
/// the current folder.
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
    if let Some(loaded) = LOADED.get() {
        return match loaded.is(&wanted) {
            true => Ok(()),
            false => Err(SelectError::AlreadyLoaded {
                driver: &loaded.driver,
            }),
        };
    }
    if wanted == Selected::Choice(Choice::Sim) && !cfg!(feature = "sim") {
        return Err(SelectError::NoSimulation);
    }
    *selected = Some(wanted);
    Ok(())
}

/// Loads the selected driver, or returns the one that is loaded. From any thread, any number of
/// times.
///
/// A program need not call this: `cuInit` does. It serves to learn what is in use, and why there
/// is none. Unlike `cuInit` it writes nothing to stderr when it fails: the caller has the error.
///
/// ```
/// match cuguard_driver::load() {
///     Ok(driver) => println!("in use: {driver}"),
///     Err(error) => eprintln!("{error}"),
/// }
/// ```
///
/// # Errors
///
/// See [`LoadError`]. A later call tries again.
pub fn load() -> Result<&'static Driver, LoadError> {
    if let Some(driver) = loaded() {
        return Ok(driver);
    }
    let selected = selected();
    // Another thread may have loaded it while this one waited for the lock.
    if let Some(driver) = loaded() {
        return Ok(driver);
    }
    let opened = open(selected.as_ref());
    fallback::remember(opened.as_ref().err().map(LoadError::one_line).as_deref());
    let opened = opened?;
    let targets = *opened.driver.targets();
    table::fill(&targets, || {
        let first = LOADED.set(opened).is_ok();
        // Not for memory safety: the one that was there first is used.
        debug_assert!(first, "loads are made one at a time");
    });
    Ok(loaded().expect("it was set above, under the lock"))
}

/// The driver that is loaded, if there is one. Loads nothing.
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

/// Opens the driver that the program selected, or else the one that the environment asks for.
fn open(selected: Option<&Selected>) -> Result<Loaded, LoadError> {
    let chosen_by_program = selected.is_some();
    let (selected, asked) = match selected {
        Some(selected) => (selected.clone(), format!("the program chose {selected}")),
        None => {
            let selected = Selected::from_env()?;
            let asked = format!("{VARIABLE}={selected}");
            (selected, asked)
        }
    };
    let opened = match &selected {
        Selected::Library(path) => DriverLibrary::at(path).map(Driver::from_library),
        Selected::Choice(Choice::Real) => DriverLibrary::installed().map(Driver::from_library),
        Selected::Choice(Choice::Sim) => simulation(&asked).ok_or(LoadError::NoSimulation),
        Selected::Choice(Choice::Auto) => auto(&asked),
    };
    match opened {
        Ok(driver) => Ok(Loaded { driver, selected }),
        Err(LoadError::NoDriver { tried, .. }) => Err(LoadError::NoDriver {
            tried,
            chosen_by_program,
        }),
        Err(other) => Err(other),
    }
}

/// The installed driver if it has a device, else the simulated GPU.
fn auto(asked: &str) -> Result<Driver, LoadError> {
    let (error, why) = match DriverLibrary::installed() {
        Ok(library) => match library.has_device() {
            Ok(()) => return Ok(Driver::from_library(library)),
            Err(reason) => {
                let driver = Driver::from_library(library).to_string();
                let why = format!("{driver}: {reason}");
                (LoadError::Unusable { driver, reason }, why)
            }
        },
        Err(error) => {
            let why = match &error {
                LoadError::NoDriver { tried, .. } => crate::error::summary(tried),
                other => other.one_line(),
            };
            (error, why)
        }
    };
    simulation(&format!("{asked}: no usable driver: {why}")).ok_or(error)
}

/// The simulated GPU, announced on stderr: nobody shall take it for a real one.
#[cfg(feature = "sim")]
fn simulation(because: &str) -> Option<Driver> {
    let line = format!("cuguard: using the simulated GPU ({because})\n");
    // In one piece, so that other threads' output does not cut it in two. Without a stderr there
    // is nobody to tell.
    let _ = std::io::stderr().write_all(line.as_bytes());
    Some(Driver::simulation())
}

/// This program was built without a simulated GPU.
#[cfg(not(feature = "sim"))]
fn simulation(_because: &str) -> Option<Driver> {
    None
}
