//! A report while the process runs, for programs that ask for one.

use std::ffi::c_void;
use std::panic::catch_unwind;

use super::functions;
use crate::process::{failure, is_used, settings};
use crate::search::{Caller, Entered, entry_point};
use crate::{output, report};

unsafe extern "C" fn report(caller: &Caller, _: u32) -> *const c_void {
    let _entered = Entered::by(caller);
    if !is_used() {
        return functions::failed as *const c_void;
    }
    let written = catch_unwind(|| {
        let made = report::make(settings::get(), "requested", failure());
        output::write(&made);
    });
    match written {
        Ok(()) => functions::nothing as *const c_void,
        Err(_) => functions::failed as *const c_void,
    }
}

entry_point! {
    /// Makes a report now and writes it as the settings say: what is lost, what is reachable, what grows. Returns 0, or -1 if
    /// the process has not used the driver, or the report could not be made. The exit code of the process does not depend on
    /// it. The program's other threads are stopped while addresses are searched for.
    ///
    /// ```c
    /// int (*report)(void) = dlsym(RTLD_DEFAULT, "cuguard_audit_report");
    /// if (report) report();
    /// ```
    #[cfg_attr(not(test), unsafe(no_mangle))]
    cuguard_audit_report, report, 0
}
