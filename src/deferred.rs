//! Frees and teardowns that are not possible now.
//!
//! Inside a stream's host function the driver refuses every call with `CUDA_ERROR_NOT_PERMITTED`, a
//! free too. A guard that is dropped there goes into a queue and is freed at the next opportunity:
//! when any operation of this crate begins outside a host function, in any context. Until then the
//! resource is live, and it keeps its context open.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuguard_driver::api;
use cuguard_driver::sys::{CUcontext, CUresult};

use crate::claim::Claim;
use crate::custody::Custody;
use crate::error::Error;
use crate::memory::{self, HostMemory};
use crate::{exit, open_context, process};

/// What is to be done at the next opportunity.
pub(crate) enum Deferred {
    /// To free a resource, and then the host memory that it registered with the driver.
    Free(Claim, Option<HostMemory>),
    /// To tear down a context that nothing keeps open.
    Teardown(Arc<Custody>),
}

static QUEUE: Mutex<Vec<Deferred>> = Mutex::new(Vec::new());

fn lock() -> MutexGuard<'static, Vec<Deferred>> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether an error says that the driver permits no call now.
pub(crate) fn is_not_permitted(error: &Error) -> bool {
    error.code() == Some(CUresult::NOT_PERMITTED)
}

/// Whether the calling thread is inside a host function of the driver's. The caller is inside a gate,
/// so that the process does not exit meanwhile.
pub(crate) fn in_host_function() -> bool {
    let mut current = CUcontext::NULL;
    // SAFETY: the variable can be written to.
    let code = unsafe { api::cuCtxGetCurrent(&mut current) };
    code == CUresult::NOT_PERMITTED
}

/// Puts something off until the next opportunity.
pub(crate) fn push(item: Deferred) {
    if exit::is_exiting() {
        // Nothing is freed any more, and in a forked child the lock may be held for ever.
        return std::mem::forget(item);
    }
    let mut queue = lock();
    queue.push(item);
    process::set(process::DEFERRED);
}

/// Gives up what was put off, as the process is exiting: it is not freed, and no leak.
pub(crate) fn abandon() {
    for item in std::mem::take(&mut *lock()) {
        match item {
            Deferred::Free(claim, memory) => {
                // The device may still use it.
                std::mem::forget(memory);
                // Marks itself, and what it kept alive.
                drop(claim);
            }
            Deferred::Teardown(_) => {}
        }
    }
}

/// Does what was put off, unless this is a host function too. The caller must hold no lock of this
/// crate's, as contexts may be torn down here.
#[cold]
#[inline(never)]
pub(crate) fn run() {
    // The exit of the process waits for this.
    let Ok(_busy) = exit::making("drop") else {
        return;
    };
    if in_host_function() {
        return;
    }
    let mut queue = lock();
    process::clear(process::DEFERRED);
    let items = std::mem::take(&mut *queue);
    drop(queue);
    for item in items {
        match item {
            Deferred::Free(claim, memory) => memory::free_deferred(claim, memory),
            Deferred::Teardown(custody) => open_context::tear_down(&custody),
        }
    }
}
