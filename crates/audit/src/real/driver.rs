//! The loaded driver.

use std::ffi::c_void;
use std::sync::OnceLock;

use super::elf::{Module, find_module};
use super::keep::{keep, keep_soon};

/// The name under which programs load the driver.
const SONAME: &[u8] = b"libcuda.so.1";

/// The driver, once a program has loaded it. It stays loaded from then on.
#[derive(Debug)]
pub(crate) struct Driver {
    module: Module,
}

static DRIVER: OnceLock<Driver> = OnceLock::new();

/// The driver, if it is loaded. Does not wait for the dynamic linker's lock.
#[inline]
pub(crate) fn driver() -> Option<&'static Driver> {
    match DRIVER.get() {
        Some(driver) => Some(driver),
        None => find(false),
    }
}

/// The same for a thread that uses the dynamic linker itself.
pub(crate) fn open_driver() -> Option<&'static Driver> {
    match DRIVER.get() {
        Some(driver) => Some(driver),
        None => find(true),
    }
}

#[cold]
fn find(may_wait: bool) -> Option<&'static Driver> {
    let module = find_module(|module| module.soname() == SONAME && is_driver(module))?;
    // So that addresses of its functions stay valid when the program closes it.
    if !module.is_first() {
        let path = module.path();
        // A program that calls the driver without a lookup has it loaded by a library that calls it.
        let is_kept = !may_wait && keep_soon(path.to_owned(), |_| {});
        if !is_kept && !keep(path) {
            // Unloaded meanwhile.
            return None;
        }
    }
    // Before its first call: what it allocates is left out of the search.
    crate::heap::driver_loaded();
    Some(DRIVER.get_or_init(|| Driver { module }))
}

fn is_driver(module: &Module) -> bool {
    module.function(b"cuInit").is_some()
}

impl Driver {
    /// The address of a function that the driver exports.
    pub(crate) fn function(&self, name: &str) -> Option<*const c_void> {
        self.module.function(name.as_bytes())
    }

    /// Whether code at this address is the driver's.
    pub(crate) fn contains(&self, address: usize) -> bool {
        self.module.contains(address)
    }
}
