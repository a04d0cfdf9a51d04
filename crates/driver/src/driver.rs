//! A loaded driver.

use std::ffi::c_void;
use std::fmt;
use std::path::Path;

use crate::audit::{Audit, Caller};
use crate::fallback;
use crate::kind::DriverKind;
use crate::library::DriverLibrary;
use crate::slot::{COUNT, Slot};
use crate::version;

/// The loaded driver. A process has at most one, and never unloads it.
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
    /// `None`: the simulated GPU that is compiled in.
    library: Option<DriverLibrary>,
    /// What the tables are filled with. Kept here too, for calls that reach a fallback while another thread
    /// is filling the tables.
    targets: Targets,
    /// The same for calls of guards.
    for_guards: Targets,
    /// The library that records the calls of others.
    audit: Option<Audit>,
    missing: Vec<&'static str>,
}

/// The addresses of functions.
#[derive(Clone)]
struct Targets([*const c_void; COUNT]);

// SAFETY: these are addresses of code that is never unloaded; no thread owns them.
unsafe impl Send for Targets {}
// SAFETY: as above, and they are never changed.
unsafe impl Sync for Targets {}

#[cfg(feature = "sim")]
use cuguard_sim::lookup as simulated;

#[cfg(not(feature = "sim"))]
fn simulated(_name: &str) -> Option<*const c_void> {
    None
}

fn find(library: Option<&DriverLibrary>, name: &str) -> Option<*const c_void> {
    match library {
        Some(library) => library.symbol(name),
        None => simulated(name),
    }
}

impl Driver {
    /// The driver in an opened library, or the simulated GPU that is compiled in.
    pub(crate) fn new(library: Option<DriverLibrary>) -> Self {
        let mut missing = Vec::new();
        let targets = Slot::ALL.map(|slot| {
            find(library.as_ref(), slot.name()).unwrap_or_else(|| {
                missing.push(slot.name());
                fallback::after_load(slot)
            })
        });
        Self {
            library,
            targets: Targets(targets),
            for_guards: Targets(targets),
            audit: None,
            missing,
        }
    }

    /// Lets the library that `cuguard run` preloads record the calls of others than guards, where it is in the process.
    pub(crate) fn audited(mut self) -> Self {
        let slots = Slot::ALL.into_iter();
        let present = slots.filter(|slot| !self.missing.contains(&slot.name()));
        let present: Vec<_> = present.collect();
        let functions = present.iter();
        self.audit =
            Audit::attach(functions.map(|slot| (slot.name(), self.targets.0[*slot as usize])));
        let Some(audit) = self.audit else {
            return self;
        };
        for slot in present {
            let real = self.targets.0[slot as usize];
            let target = |caller| audit.function(slot.name(), real, caller);
            self.targets.0[slot as usize] = target(Caller::Other);
            self.for_guards.0[slot as usize] = target(Caller::Guard);
        }
        self
    }

    /// Whether it is the simulated GPU that is compiled in.
    pub(crate) fn is_built_in(&self) -> bool {
        self.library.is_none()
    }

    /// The address that calls of a function go to while this driver is loaded.
    pub(crate) fn target(&self, slot: Slot, caller: Caller) -> *const c_void {
        match caller {
            Caller::Guard => self.for_guards.0[slot as usize],
            Caller::Other => self.targets.0[slot as usize],
        }
    }

    /// Whether this driver is real or simulated.
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
        let library = self.library.as_ref();
        library.map_or(DriverKind::Simulated, |library| library.kind)
    }

    /// The library's file, as the dynamic linker found it; `None` for the simulated GPU that is
    /// compiled in, and where the dynamic linker does not know.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.library.as_ref()?.path.as_deref()
    }

    /// The newest version of CUDA that the driver supports, as major and minor number; `None` if the
    /// driver does not return one.
    ///
    /// ```
    /// if let Some((major, minor)) = cuguard_driver::load().ok().and_then(|d| d.version()) {
    ///     println!("CUDA {major}.{minor}");
    /// }
    /// ```
    #[must_use]
    pub fn version(&self) -> Option<(u32, u32)> {
        // Not the fallback, which logs that the program called a function that is missing.
        let target = self.symbol(Slot::cuDriverGetVersion.name())?;
        // SAFETY: the driver's function of this name has the signature.
        unsafe { version::of(target) }
    }

    /// The functions of this crate's table that the driver lacks. Calls of them fail with
    /// `CUDA_ERROR_NOT_FOUND`; only `cuGetErrorName` and `cuGetErrorString` work without the driver.
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
    /// Calls through the address bypass the table; the caller must know the signature.
    ///
    /// ```
    /// if let Ok(driver) = cuguard_driver::load() {
    ///     assert!(driver.symbol("cuInit").is_some());
    ///     assert!(driver.symbol("cuMakeCoffee").is_none());
    /// }
    /// ```
    #[must_use]
    pub fn symbol(&self, name: &str) -> Option<*const c_void> {
        let found = find(self.library.as_ref(), name)?;
        Some(match self.audit {
            Some(audit) => audit.function(name, found, Caller::Other),
            None => found,
        })
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
