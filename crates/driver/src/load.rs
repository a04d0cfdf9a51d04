//! The one driver of the process.
//!
//! ```text
//!            select                     load, cuInit, ...
//!           ┌──────┐                  ┌──────────────────► loaded, for good
//!           ▼      │                  │                    (select is an error)
//!       nothing loaded ───────────────┤
//!                  ▲                  │
//!                  └──────────────────┘ failed; the reason is remembered,
//!                                       one may choose again and load again
//! ```

#[cfg(feature = "sim")]
use std::io::Write;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::choice::{Choice, VARIABLE};
use crate::driver::Driver;
use crate::error::{LoadError, SelectError};
use crate::library::DriverLibrary;
use crate::{fallback, table};

/// The driver, once there is one.
static LOADED: OnceLock<Driver> = OnceLock::new();

/// What the program chose. The lock is held while a driver is loaded: one load at a time.
static CHOSEN: Mutex<Option<Choice>> = Mutex::new(None);

/// Nothing in here is left half done by a panic, so a poisoned lock is as good as any.
fn chosen() -> MutexGuard<'static, Option<Choice>> {
    CHOSEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Chooses the driver. Must come before the first CUDA call; wins over `CUGUARD_DRIVER`.
///
/// Chooses only: the driver is loaded by [`load`] or by the first CUDA call. When that fails, one
/// may choose again.
///
/// ```
/// use cuguard_driver::{Choice, load, select};
///
/// select(Choice::Path("/no/such/driver.so".into()))?;
/// let error = load().unwrap_err();
/// assert!(error.to_string().contains("/no/such/driver.so"));
///
/// select(Choice::Auto)?;
/// # Ok::<(), cuguard_driver::SelectError>(())
/// ```
///
/// # Errors
///
/// [`SelectError::AlreadyLoaded`] when a driver is loaded already;
/// [`SelectError::NoSimulation`] for [`Choice::Sim`] in a program that was built without the
/// feature `sim`. What was chosen before stays chosen then.
pub fn select(choice: Choice) -> Result<(), SelectError> {
    let mut chosen = chosen();
    if let Some(driver) = LOADED.get() {
        return Err(SelectError::AlreadyLoaded { driver });
    }
    if choice == Choice::Sim && !cfg!(feature = "sim") {
        return Err(SelectError::NoSimulation);
    }
    *chosen = Some(choice);
    Ok(())
}

/// Loads the chosen driver, or answers the one that is loaded. From any thread, any number of
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
    if let Some(driver) = LOADED.get() {
        return Ok(driver);
    }
    let chosen = chosen();
    // Another thread may have loaded it while this one waited for the lock.
    if let Some(driver) = LOADED.get() {
        return Ok(driver);
    }
    let loaded = open(chosen.as_ref());
    fallback::remember(loaded.as_ref().err().map(LoadError::one_line).as_deref());
    let driver = loaded?;
    let targets = *driver.targets();
    table::fill(&targets, || {
        let first = LOADED.set(driver).is_ok();
        debug_assert!(first, "loads are made one at a time");
    });
    Ok(LOADED.get().expect("it was set above, under the lock"))
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
    LOADED.get()
}

/// Opens the driver that the program chose, or else the one that the environment asks for.
fn open(chosen: Option<&Choice>) -> Result<Driver, LoadError> {
    let (choice, asked) = match chosen {
        Some(choice) => (choice.clone(), format!("the program chose {choice}")),
        None => {
            let choice = Choice::asked_for()?.unwrap_or_default();
            let asked = format!("{VARIABLE}={choice}");
            (choice, asked)
        }
    };
    match choice {
        Choice::Real => DriverLibrary::installed().map(Driver::from_library),
        Choice::Path(path) => DriverLibrary::at(&path).map(Driver::from_library),
        Choice::Sim => simulation(&asked).ok_or(LoadError::NoSimulation),
        Choice::Auto => auto(&asked),
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
                LoadError::NoDriver { tried } => crate::error::summary(tried),
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
