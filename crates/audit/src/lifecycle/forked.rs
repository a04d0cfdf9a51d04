//! The child after `fork`: it starts without records.
//!
//! If the parent has not used the driver, neither has the child, and it starts anew. Otherwise the driver fails in the child
//! (`CUDA_ERROR_NOT_INITIALIZED`): nothing is recorded there, and no lock is waited for.
//!
//! In a child that was not created by `fork`, this happens at the first recorded call instead.

use std::sync::atomic::Ordering;

use super::reporter;
use crate::heap;
use crate::process::driver_use::{self, FORKED, NEW, PREPARING, UNUSED};
use crate::process::facts;

/// Runs in the child, whose only thread is the one that forked. Other threads may have held any lock.
pub(super) extern "C" fn in_child() {
    // Another handler of `fork` has called the driver, and the child knows itself already.
    if facts::is_own_process() && driver_use::get().load(Ordering::Acquire) != NEW {
        return;
    }
    own();
    let state = match driver_use::was_ever_used() {
        true => FORKED,
        false => UNUSED,
    };
    driver_use::get().store(state, Ordering::Release);
}

/// The memory is this process's.
fn own() {
    facts::own();
    reporter::forget();
}

/// Whether the memory is a copy that no handler of `fork` has seen. Not before the constructor has run.
fn is_copy() -> bool {
    driver_use::get().load(Ordering::Acquire) == NEW && facts::is_started()
}

/// Whether this is a child of a process that used the driver, created by `_Fork` or a system call.
#[cold]
pub(super) fn is_child_of_user() -> bool {
    is_copy() && driver_use::was_ever_used()
}

/// Takes over the memory in a child that was created by `_Fork` or a system call, if the parent has not used the driver. Returns
/// whether the calling thread is to make the preparations for the child's end. In a child of a process that used the driver
/// nothing is recorded from now on.
pub(super) fn claim_copy() -> bool {
    if !is_copy() {
        return false;
    }
    let next = match driver_use::was_ever_used() {
        true => FORKED,
        false => PREPARING,
    };
    let claimed =
        driver_use::get().compare_exchange(NEW, next, Ordering::AcqRel, Ordering::Acquire);
    if claimed.is_err() {
        return false;
    }
    own();
    heap::threads::forget_all();
    next == PREPARING
}
