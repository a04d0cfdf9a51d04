//! Whether the driver is the simulated GPU, where `CUGUARD_DRIVER=sim cuguard run` promises that.
//!
//! The command puts its folder first into `LD_LIBRARY_PATH`. A program that names a folder in `DT_RPATH`, or the driver by its
//! path, loads another one, and must not run on it unnoticed.

use std::ffi::{CStr, CString, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use super::elf::Module;
use crate::stderr;

/// The folder of the simulated GPU.
static FOLDER: OnceLock<OsString> = OnceLock::new();

/// The file of another driver.
static OTHER: OnceLock<CString> = OnceLock::new();

/// The program is to run on the simulated GPU in this folder.
pub(crate) fn expect_simulation(folder: OsString) {
    let _ = FOLDER.set(folder);
}

/// The file of the driver, if it should be the simulated GPU and is not.
pub(crate) fn other_driver() -> Option<&'static CStr> {
    OTHER.get().map(|path| &**path)
}

/// Checks the driver, and prints a line if it is another one. Not where the file defines no `cuInit`: then the simulated GPU is a
/// part of the program.
pub(super) fn check(module: &Module) {
    let Some(folder) = FOLDER.get() else { return };
    if module.defines(b"cuguard_simulated_gpu") || OTHER.set(module.path().to_owned()).is_err() {
        return;
    }
    stderr::print(&format!(
        "cuguard: process {} runs on {} and not on the simulated GPU, which CUGUARD_DRIVER=sim selects. The program names that \
         file or, in DT_RPATH, its folder: the loader looks there first, and then in LD_LIBRARY_PATH, which begins with {}\n",
        std::process::id(),
        module.path().to_string_lossy(),
        String::from_utf8_lossy(folder.as_bytes()),
    ));
}
