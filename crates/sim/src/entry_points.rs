//! The C functions of the simulated driver, one for each name of the driver's header, and what all
//! calls have in common: they are counted, faults can make them fail, and they fail in the states in which a
//! real driver fails.
//!
//! `crate::api` implements the functions. A function that is not simulated returns
//! `CUDA_ERROR_NOT_SUPPORTED`, never success.

#![allow(
    non_snake_case,
    missing_docs,
    clippy::missing_safety_doc,
    reason = "the driver's own functions, documented by the driver"
)]

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::LazyLock;

use cuguard_sys::*;

use crate::functions::Function;
use crate::result::DriverResult;
use crate::simulated::{with_aliases, with_per_thread, with_simulated};
use crate::{api, copy_engine, fault, misuse, printed, process, state, thread_state, trace};

#[doc(inline)]
pub use not_simulated::*;

/// What is common to all calls.
fn call(function: Function, body: impl FnOnce() -> DriverResult) -> CUresult {
    let fault = match admit(function) {
        Ok(fault) => fault,
        Err(code) => return code,
    };
    let stops = copy_engine::stops();
    if function.launches_kernel() {
        printed::flush();
    }
    let result = misuse::in_call(function, body);
    if function.writes_output() {
        printed::flush();
    }
    match (result, fault) {
        // A fault that would say that nothing is in flight.
        (Err(CUresult::NOT_READY), Some(_)) => CUresult::NOT_READY,
        (_, Some(code)) => code,
        // The device may have stopped after the call was admitted.
        (Ok(()), None) if function.confirms_completion() => match copy_engine::stops() == stops {
            true => copy_engine::stopped(),
            // The device stopped during the call, also where it has been restarted since: the work may be dropped.
            false => copy_engine::last_stop(),
        },
        (Ok(()), None) => CUresult::SUCCESS,
        (Err(code), None) => {
            trace::failed(function);
            code
        }
    }
}

/// Fails where the driver's state does not allow a call. Returns the code of a fault that the call is to fail with after it
/// has waited.
fn admit(function: Function) -> DriverResult<Option<CUresult>> {
    function.count_call();
    let mut fault = None;
    if function.is_driver_query() {
        return Ok(fault);
    }
    if thread_state::in_host_function() {
        return Err(CUresult::NOT_PERMITTED);
    }
    // Before anything that takes a lock: a thread of the parent may have held it.
    if process::is_forked() {
        return Err(CUresult::NOT_INITIALIZED);
    }
    if !function.allocates() {
        match fault::on_call(function) {
            // A driver that returns this has nothing in flight. Where a fault has not stopped the device, that is made true.
            Err(code) if code.ends_all_work() && function.waits() && device_runs() => {
                fault = Some(code);
            }
            result => result?,
        }
    }
    if function == Function::cuInit {
        return Ok(fault);
    }
    if !process::is_running() {
        return Err(CUresult::NOT_INITIALIZED);
    }
    if !function.works_after_sticky_error()
        && let Err(code) = copy_engine::check_sticky_error()
    {
        // If the function uses the current context, its destruction is reported first.
        if !function.creates_context() {
            state::lock().check_current_if_any()?;
        }
        return Err(code);
    }
    if state::any_capture() && function.is_unsafe_in_capture() {
        state::lock().check_unsafe_call()?;
    }
    Ok(fault)
}

fn device_runs() -> bool {
    copy_engine::stopped().is_success()
}

/// The implementations that the functions below call.
mod implementation {
    pub(super) use crate::api::*;
    pub(super) use crate::proc_address::*;
}

macro_rules! simulated {
    (fn $name:ident($($parameter:ident: $type:ty),*);) => {
        pub unsafe extern "C" fn $name($($parameter: $type),*) -> CUresult {
            // SAFETY: the caller guarantees what the driver documents about the arguments.
            call(Function::$name, || unsafe { implementation::$name($($parameter),*) })
        }
    };
}
macro_rules! all_simulated {
    ($($name:ident)*) => { $(signature!($name, simulated);)* };
}
with_simulated!(all_simulated);

macro_rules! alias {
    (fn $name:ident($($parameter:ident: $type:ty),*); $other:ident) => {
        pub unsafe extern "C" fn $name($($parameter: $type),*) -> CUresult {
            // SAFETY: as the caller guarantees.
            unsafe { $other($($parameter),*) }
        }
    };
}
macro_rules! all_aliases {
    ($($name:ident = $other:ident;)*) => { $(signature!($name, alias $other);)* };
}
with_aliases!(all_aliases);

macro_rules! per_thread {
    (fn $name:ident($($parameter:ident: $type:ty),*); $other:ident) => {
        pub unsafe extern "C" fn $name($($parameter: $type),*) -> CUresult {
            // SAFETY: as the caller guarantees.
            thread_state::with_own_default_stream(|| unsafe { $other($($parameter),*) })
        }
    };
}
macro_rules! all_per_thread {
    ($($name:ident = $other:ident;)*) => { $(signature!($name, per_thread $other);)* };
}
with_per_thread!(all_per_thread);

/// A function for every name. Those that are simulated, above, shadow theirs.
mod not_simulated {
    #![allow(dead_code, reason = "the shadowed functions")]

    use cuguard_sys::*;

    use super::{Function, call, trace};

    macro_rules! not_simulated {
        ($(fn $name:ident($($parameter:ident: $type:ty),*);)*) => {$(
            pub unsafe extern "C" fn $name($(_: $type),*) -> CUresult {
                call(Function::$name, || Err(trace::not_simulated()))
            }
        )*};
    }
    with_functions!(not_simulated);
}

/// Whether a driver of the simulated version exports a function. `cuEventCreateFromEGLSync` is in the header, and
/// only drivers of integrated GPUs (Tegra) have it.
pub(crate) fn is_exported(function: &FunctionInfo) -> bool {
    function.since <= api::VERSION && function.name != "cuEventCreateFromEGLSync"
}

/// The C function with this exported name; `None` for a name that a driver of the simulated version does
/// not export.
///
/// ```
/// assert!(cuguard_sim::lookup("cuMemAlloc_v2").is_some());
/// assert!(cuguard_sim::lookup("cuNoSuchThing").is_none());
/// ```
#[must_use]
pub fn lookup(name: &str) -> Option<*const c_void> {
    // A driver loader looks up every name: a search through the list for each would take long.
    static NUMBERS: LazyLock<HashMap<&str, usize>> = LazyLock::new(|| {
        let exported = FUNCTIONS.iter().enumerate().filter(|(_, f)| is_exported(f));
        exported.map(|(number, f)| (f.name, number)).collect()
    });
    macro_rules! addresses {
        ($($function:ident)*) => { Addresses([$($function as *const c_void),*]) };
    }
    static ADDRESSES: Addresses = with_names!(addresses);
    let number = NUMBERS.get(name)?;
    Some(ADDRESSES.0[*number])
}

/// The addresses of all functions.
struct Addresses([*const c_void; NAMES.len()]);

// SAFETY: these are addresses of code, which never change.
unsafe impl Sync for Addresses {}
