//! A report while the process runs, for programs that ask for one.

use std::ffi::c_int;
use std::panic::catch_unwind;

use super::{failure, is_used, output, settings};
use crate::report;
use crate::search::Entered;

/// Makes a report now and writes it as the settings say: what is lost, what is reachable, what grows. Returns 0, or -1 if
/// the process has not used the driver, or the report could not be made. The exit code of the process does not depend on
/// it. The program's other threads are stopped while addresses are searched for.
///
/// ```c
/// int (*report)(void) = dlsym(RTLD_DEFAULT, "cuguard_audit_report");
/// if (report) report();
/// ```
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn cuguard_audit_report() -> c_int {
    let _entered = Entered::here();
    if !is_used() {
        return -1;
    }
    let written = catch_unwind(|| {
        let made = report::make(settings::get(), "requested", failure());
        output::write(&made);
    });
    match written {
        Ok(()) => 0,
        Err(_) => -1,
    }
}
