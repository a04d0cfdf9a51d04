//! The loaded driver.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::OnceLock;

use super::elf::{Module, find_module};
use super::keep::{keep, keep_soon};
use super::simulation;

/// The name under which programs load the driver.
const SONAME: &[u8] = b"libcuda.so.1";

/// The driver, once a program has loaded it. It stays loaded from then on.
#[derive(Debug)]
pub(crate) struct Driver {
    module: Module,
    /// Its functions by name, if the cuguard crate has attached it. It may be a part of the program, which exports none.
    attached: Option<HashMap<&'static [u8], usize>>,
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
    simulation::check(&module);
    Some(DRIVER.get_or_init(|| Driver {
        module,
        attached: None,
    }))
}

/// The cuguard crate in the program has loaded a driver with these functions: any library, or the simulated GPU. Returns whether it
/// is the driver from now on: not if another one was found before.
pub(crate) fn attach(functions: HashMap<&'static [u8], usize>) -> bool {
    let Some(init) = functions.get(&b"cuInit"[..]).copied() else {
        return false;
    };
    if let Some(driver) = DRIVER.get() {
        return driver.contains(init);
    }
    let Some(module) = find_module(|module| module.contains(init)) else {
        return false;
    };
    // The crate never closes its library. A library that the crate is a part of may be closed.
    if !module.is_first() && !keep(module.path()) {
        return false;
    }
    crate::heap::driver_loaded();
    // A library that is the driver exports its functions; a module that the crate is a part of does not.
    match is_driver(&module) {
        true => simulation::check(&module),
        false => crate::heap::driver_is_in_program(),
    }
    let driver = DRIVER.get_or_init(|| Driver {
        module,
        attached: Some(functions),
    });
    driver.contains(init)
}

fn is_driver(module: &Module) -> bool {
    module.function(b"cuInit").is_some()
}

impl Driver {
    /// The address of a function that the driver exports.
    pub(crate) fn function(&self, name: &str) -> Option<*const c_void> {
        match &self.attached {
            Some(functions) => functions
                .get(name.as_bytes())
                .map(|address| std::ptr::with_exposed_provenance(*address)),
            None => self.module.function(name.as_bytes()),
        }
    }

    /// Whether code at this address is the driver's.
    pub(crate) fn contains(&self, address: usize) -> bool {
        self.module.contains(address)
    }
}
