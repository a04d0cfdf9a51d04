//! The page-locked host memory of the process, by address.
//!
//! The host reaches such memory as a slice, without its guard, so work of any context may use the memory. When the
//! context that registered it is closed, the driver unregisters the memory, and waits for the work of that context
//! only: a copy of another context that is in flight then fails with `CUDA_ERROR_LAUNCH_FAILED`, and a launch of a
//! graph that contains such a copy ends in a segmentation fault (both measured). So an operation with host memory looks
//! up here which context registered the memory. If another context did, the operation runs inside the gate of that
//! context too, and work in flight is [on its list](crate::core::teardown::peer_streams) until the work is done.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};

use cuguard_driver::sys::CUcontext;
use cuguard_sync::{GateGuard, process};

use crate::core::shared::context_state::ContextState;
use crate::error::{Error, Result};

/// A range of addresses that is registered with the driver.
struct Registered {
    end: usize,
    state: Arc<ContextState>,
}

/// By the first address. Ranges do not overlap: the driver does not register memory twice.
type Table = BTreeMap<usize, Registered>;

static TABLE: RwLock<Table> = RwLock::new(Table::new());

/// How many ranges there are, so that programs without such memory take no lock. A thread that has the memory has seen it
/// registered.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Changes the table. Not in a forked child, where a thread that does not exist may hold the lock.
fn change(change: impl FnOnce(&mut Table)) {
    if !process::is_forked() {
        let mut table = cuguard_sync::write(&TABLE);
        change(&mut table);
        COUNT.store(table.len(), Ordering::Release);
    }
}

/// A context has registered memory.
pub(crate) fn add(state: &Arc<ContextState>, start: u64, bytes: usize) {
    let start = start as usize;
    let state = state.clone();
    let end = start.saturating_add(bytes);
    change(|table| drop(table.insert(start, Registered { end, state })));
}

/// The memory is about to be unregistered, or it is. Its address may be allocated again after that.
pub(crate) fn remove(start: u64) {
    change(|table| drop(table.remove(&(start as usize))));
}

/// The driver's context has ended, and every registration with it: those of this context, and those of others that were
/// closed before and had the same driver's context. (An open one with that handle is a primary context that was activated
/// again.)
pub(crate) fn remove_all_in(context: CUcontext) {
    let has_ended = |state: &ContextState| state.context == context && state.is_closed();
    change(|table| {
        table.retain(|_, range| {
            let ended = has_ended(&range.state);
            if ended {
                range.state.unregistered.add_all();
            }
            !ended
        });
    });
}

/// The context that registered the memory at an address, if that is another one than `user`.
fn owner_of(address: *const c_void, user: &Arc<ContextState>) -> Option<Arc<ContextState>> {
    let table = cuguard_sync::read(&TABLE);
    let (_, range) = table.range(..=address.addr()).next_back()?;
    let is_other = address.addr() < range.end && !Arc::ptr_eq(&range.state, user);
    is_other.then(|| range.state.clone())
}

/// Runs an operation of the context `user` on host memory. If another context registered the memory, runs it inside the
/// gate of that context, and passes that context: work that is in flight afterwards must be on its list.
///
/// # Errors
///
/// [`Error::HostContextClosed`] where that context is closed, or about to be, and the memory is still registered. Nothing
/// has run.
pub(crate) fn with_owner<T>(
    operation: &'static str,
    user: &Arc<ContextState>,
    memory: *const c_void,
    run: impl FnOnce(Option<&Arc<ContextState>>) -> Result<T>,
) -> Result<T> {
    // In a forked child a thread that does not exist may hold the lock.
    if process::is_exiting() {
        return Err(Error::ProcessEnding { operation });
    }
    if COUNT.load(Ordering::Acquire) == 0 {
        return run(None);
    }
    let Some(owner) = owner_of(memory, user) else {
        return run(None);
    };
    match enter(operation, &owner) {
        Ok(_inside) => run(Some(&owner)),
        // Teardown has unregistered the memory meanwhile, so it is pageable now.
        Err(_) if owner_of(memory, user).is_none() => run(None),
        // It is done, and left the memory registered in the driver's context of `user`.
        Err(_) if owner.context == user.context && owner.is_torn_down() => run(None),
        Err(error) => Err(error),
    }
}

/// Enters the gate of a context whose page-locked memory work of another context uses.
///
/// # Errors
///
/// [`Error::HostContextClosed`].
pub(crate) fn enter<'a>(operation: &'static str, owner: &'a ContextState) -> Result<GateGuard<'a>> {
    owner
        .try_enter()
        .ok_or_else(|| match process::is_exiting() {
            true => Error::ProcessEnding { operation },
            false => Error::HostContextClosed {
                operation,
                context: owner.number,
            },
        })
}
