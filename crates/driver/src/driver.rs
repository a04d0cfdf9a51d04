//! A driver that is loaded.

use std::ffi::c_void;
use std::fmt;
use std::mem::transmute;
use std::path::Path;

use cuguard_sys::CUresult;

use crate::library::DriverLibrary;
use crate::table::{COUNT, Slot};

/// The driver that is loaded. There is at most one in a process, and it stays.
///
/// ```
/// if let Ok(driver) = cuguard_driver::load() {
///     println!("{driver}, for CUDA {:?}", driver.version());
///     for name in driver.missing() {
///         println!("it lacks {name}");
///     }
/// }
/// ```
pub struct Driver {
    source: Source,
    /// What the slots are filled with. Kept here too, for a call that came to the door while
    /// another thread was filling them.
    targets: Targets,
    missing: Vec<&'static str>,
}

/// Where a driver's functions come from.
enum Source {
    Library(DriverLibrary),
    #[cfg(feature = "sim")]
    Simulation,
}

/// The addresses of functions.
struct Targets([*const c_void; COUNT]);

// SAFETY: these are addresses of code that is never unloaded; no thread owns them.
unsafe impl Send for Targets {}
// SAFETY: as above, and they are never changed.
unsafe impl Sync for Targets {}

/// What stands behind the driver's functions.
///
/// ```
/// use cuguard_driver::DriverKind;
///
/// if let Ok(driver) = cuguard_driver::load() {
///     match driver.kind() {
///         DriverKind::Real => println!("times mean something"),
///         DriverKind::Simulated => println!("results do, times do not"),
///         _ => {}
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DriverKind {
    /// A driver for real devices; more exactly, a library that does not say it simulates them.
    Real,
    /// The simulated GPU, compiled into the program or loaded as a library.
    Simulated,
}

impl Driver {
    /// The driver in an opened library.
    pub(crate) fn from_library(library: DriverLibrary) -> Self {
        Self::new(Source::Library(library))
    }

    /// Whether it is the simulated GPU that is compiled in.
    pub(crate) fn is_built_in(&self) -> bool {
        !matches!(self.source, Source::Library(_))
    }

    /// The simulated GPU that is compiled in.
    #[cfg(feature = "sim")]
    pub(crate) fn simulation() -> Self {
        Self::new(Source::Simulation)
    }

    fn new(source: Source) -> Self {
        let mut missing = Vec::new();
        let targets = Slot::ALL.map(|slot| {
            source.symbol(slot.name()).unwrap_or_else(|| {
                missing.push(slot.name());
                slot.substitute()
            })
        });
        Self {
            source,
            targets: Targets(targets),
            missing,
        }
    }

    /// Where calls go when this driver is loaded.
    pub(crate) fn targets(&self) -> &[*const c_void; COUNT] {
        &self.targets.0
    }

    /// Where calls of one function go when this driver is loaded.
    pub(crate) fn target(&self, slot: Slot) -> *const c_void {
        self.targets.0[slot as usize]
    }

    /// Whether this driver is for real devices or simulates them.
    ///
    /// ```
    /// use cuguard_driver::{Choice, DriverKind, load, select};
    ///
    /// if select(Choice::Sim).is_ok() && let Ok(driver) = load() {
    ///     assert_eq!(driver.kind(), DriverKind::Simulated);
    /// }
    /// ```
    #[must_use]
    pub fn kind(&self) -> DriverKind {
        match &self.source {
            Source::Library(library) => library.kind(),
            #[cfg(feature = "sim")]
            Source::Simulation => DriverKind::Simulated,
        }
    }

    /// The library's file, as the system's loader found it; `None` for the simulated GPU that is
    /// compiled in, and where the loader does not tell.
    ///
    /// ```
    /// let path = cuguard_driver::loaded().and_then(|driver| driver.path());
    /// assert_eq!(path, None, "nothing is loaded before it is asked for");
    /// ```
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.source {
            Source::Library(library) => library.path(),
            #[cfg(feature = "sim")]
            Source::Simulation => None,
        }
    }

    /// The newest version of CUDA that the driver supports, as major and minor number; `None` if
    /// it does not tell.
    ///
    /// ```
    /// if let Some((major, minor)) = cuguard_driver::load().ok().and_then(|d| d.version()) {
    ///     println!("CUDA {major}.{minor}");
    /// }
    /// ```
    #[must_use]
    pub fn version(&self) -> Option<(u32, u32)> {
        let mut version = 0_i32;
        let target = self.target(Slot::cuDriverGetVersion);
        // SAFETY: the target of this slot is a function with this signature.
        let target: unsafe extern "C" fn(*mut i32) -> CUresult = unsafe { transmute(target) };
        // SAFETY: the number can be written to; the function is legal at any time.
        let result = unsafe { target(&mut version) };
        let version = u32::try_from(version).ok().filter(|&version| version > 0)?;
        result
            .is_success()
            .then_some((version / 1000, version % 1000 / 10))
    }

    /// The functions of this crate's table that the driver lacks. A call of one of them answers
    /// `CUDA_ERROR_NOT_SUPPORTED`, except that the door itself answers `cuGetErrorName` and
    /// `cuGetErrorString`.
    ///
    /// ```
    /// if let Ok(driver) = cuguard_driver::load() {
    ///     assert!(!driver.missing().contains(&"cuInit"));
    /// }
    /// ```
    #[must_use]
    pub fn missing(&self) -> &[&'static str] {
        &self.missing
    }

    /// The address of a function in the driver, also of one that this crate's table does not have;
    /// `None` if the driver lacks it.
    ///
    /// Calls through the address skip the door. Whoever makes them must know the signature.
    ///
    /// ```
    /// if let Ok(driver) = cuguard_driver::load() {
    ///     assert!(driver.symbol("cuInit").is_some());
    ///     assert!(driver.symbol("cuMakeCoffee").is_none());
    /// }
    /// ```
    #[must_use]
    pub fn symbol(&self, name: &str) -> Option<*const c_void> {
        self.source.symbol(name)
    }
}

impl Source {
    fn symbol(&self, name: &str) -> Option<*const c_void> {
        match self {
            Source::Library(library) => library.symbol(name),
            #[cfg(feature = "sim")]
            Source::Simulation => cuguard_sim::lookup(name),
        }
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind() {
            DriverKind::Real => "CUDA driver",
            DriverKind::Simulated => "simulated GPU",
        })?;
        match self.path() {
            Some(path) => write!(f, " at {}", path.display()),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("kind", &self.kind())
            .field("path", &self.path())
            .field("missing", &self.missing)
            .finish_non_exhaustive()
    }
}
