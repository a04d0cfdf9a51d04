//! The loaded driver.

use std::ffi::c_void;
use std::sync::OnceLock;

use super::elf::{Module, find_module};

/// The name under which programs load the driver.
const SONAME: &[u8] = b"libcuda.so.1";

/// The driver, once a program has loaded it. It stays loaded from then on.
#[derive(Debug)]
pub(crate) struct Driver {
    module: Module,
}

static DRIVER: OnceLock<Driver> = OnceLock::new();

/// The driver, if it is loaded.
pub(crate) fn driver() -> Option<&'static Driver> {
    match DRIVER.get() {
        Some(driver) => Some(driver),
        None => find(),
    }
}

#[cold]
fn find() -> Option<&'static Driver> {
    let module = find_module(|module| module.soname() == SONAME && is_driver(module))?;
    // Counted as one more user of the library, so that addresses of its functions stay valid when the program closes it.
    let flags = libc::RTLD_NOLOAD | libc::RTLD_LAZY;
    // SAFETY: a C string; the library is loaded already, so no initializer runs.
    let handle = unsafe { libc::dlopen(module.path().as_ptr(), flags) };
    if handle.is_null() {
        // Unloaded meanwhile.
        return None;
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
