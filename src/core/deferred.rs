//! Frees and teardowns that are not possible now.
//!
//! Inside a stream's host function the driver refuses every call with `CUDA_ERROR_NOT_PERMITTED`, a
//! free too. A guard that is dropped there goes into a queue, and is freed when an operation that may
//! wait for the device begins outside of one, in any context. (Others must not wait, and a free or a
//! teardown may.) Until then the resource is live, and it keeps its context open.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuguard_driver::result;
use cuguard_driver::sys::CUresult;

use super::context_state::ContextState;
use super::host_memory::{self, HostMemory};
use super::owned_resource::OwnedResource;
use super::{open_context, open_contexts};
use crate::error::Error;
use cuguard_sync::process;

/// What is to be done at the next opportunity.
pub(crate) enum Deferred {
    /// To free a resource, and then the host memory that it registered with the driver.
    Free(OwnedResource, Option<HostMemory>),
    /// To tear down a context that nothing keeps open.
    Teardown(Arc<ContextState>),
}

#[derive(Default)]
struct Queue {
    frees: VecDeque<(OwnedResource, Option<HostMemory>)>,
    /// After the frees, as they may take long.
    teardowns: VecDeque<Arc<ContextState>>,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue {
    frees: VecDeque::new(),
    teardowns: VecDeque::new(),
});

fn lock() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Queue {
    fn len(&self) -> usize {
        self.frees.len() + self.teardowns.len()
    }

    fn push(&mut self, item: Deferred) {
        match item {
            Deferred::Free(owned, memory) => self.frees.push_back((owned, memory)),
            Deferred::Teardown(state) => self.teardowns.push_back(state),
        }
        process::set(process::DEFERRED);
    }

    fn pop(&mut self) -> Option<Deferred> {
        let free = self.frees.pop_front();
        let item = match free {
            Some((owned, memory)) => Some(Deferred::Free(owned, memory)),
            None => self.teardowns.pop_front().map(Deferred::Teardown),
        };
        if self.len() == 0 {
            process::clear(process::DEFERRED);
        }
        item
    }
}

/// Whether an error says that the driver permits no call now.
pub(crate) fn is_not_permitted(error: &Error) -> bool {
    error.code() == Some(CUresult::NOT_PERMITTED)
}

/// Whether the calling thread is inside a host function of the driver's. The caller is inside a gate,
/// so that the process does not exit meanwhile.
pub(crate) fn in_host_function() -> bool {
    result::context::current().is_err_and(|error| error.code == CUresult::NOT_PERMITTED)
}

/// Puts something off until the next opportunity.
pub(crate) fn push(item: Deferred) {
    if process::is_exiting() {
        // Nothing is freed any more, and in a forked child the lock may be held for ever.
        return std::mem::forget(item);
    }
    lock().push(item);
}

/// Gives up what was put off, as the process is exiting: it is not freed, and no leak.
pub(crate) fn abandon() {
    let queue = std::mem::take(&mut *lock());
    for (owned, memory) in queue.frees {
        // The device may still use it.
        std::mem::forget(memory);
        // Marks itself, and what it kept alive.
        drop(owned);
    }
}

/// The calling thread does what was put off until this is dropped.
struct Running;

thread_local! {
    static RUNNING: Cell<bool> = const { Cell::new(false) };
}

impl Running {
    /// `None` where it does so already: it may be a logger that a teardown calls, and would go as deep
    /// as there are items.
    fn begin() -> Option<Self> {
        if RUNNING.replace(true) {
            return None;
        }
        Some(Self)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.set(false);
    }
}

/// Does what was put off, if anything was, unless this is a host function too. Called where an
/// operation begins that may wait for the device. The caller must hold no lock of this crate's, as
/// contexts may be torn down here. Returns whether anything was done.
#[inline]
pub(crate) fn run() -> bool {
    !process::is_ordinary() && run_now()
}

#[cold]
#[inline(never)]
fn run_now() -> bool {
    let Some(_running) = Running::begin() else {
        return false;
    };
    // The exit of the process waits for this.
    let Ok(_busy) = open_contexts::opening("drop") else {
        return false;
    };
    if in_host_function() {
        return false;
    }
    // Not what is put off meanwhile: that is for the next operation. What is in the queue can be seen
    // by other threads, which help, and by the exit of the process.
    let count = lock().len();
    for _ in 0..count {
        let item = lock().pop();
        match item {
            Some(Deferred::Free(owned, memory)) => host_memory::free_deferred(owned, memory),
            Some(Deferred::Teardown(state)) => open_context::tear_down(&state),
            None => break,
        }
    }
    count != 0
}
