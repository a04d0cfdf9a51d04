//! The end of accesses to the memory of other contexts; see the [table](crate::core::release::peer_table).

use cuguard_driver::result::{self, context};
use cuguard_driver::sys::CUstream;
use cuguard_registry::{Key, ResourceKind};
use cuguard_sync::process;

use crate::core::release::free;
use crate::core::release::peer_table::{Access, TABLE, disable_in};
use crate::core::shared::context_state::ContextState;
use crate::core::shared::lock::lock;

/// The operation that errors name.
const OPERATION: &str = "Context::close";

/// Ends all accesses to the memory of a context that is about to be released. Their guards own nothing afterwards.
pub(in crate::core) fn end_all_to(peer: &ContextState) {
    let ending: Vec<_> = {
        let table = lock(&TABLE);
        let accesses = table.accesses.iter();
        accesses
            .filter(|(_, access)| access.peer_number == peer.number)
            .map(|(number, access)| (*number, access.owner.clone()))
            .collect()
    };
    for (number, owner) in ending {
        if process::is_exiting() {
            return;
        }
        let Some(owner) = owner.upgrade() else {
            lock(&TABLE).accesses.remove(&number);
            continue;
        };
        let key = Key::new(ResourceKind::PeerAccess, number);
        let ended = match owner.enter_any_context(OPERATION) {
            Ok((_entered, current)) => current.and_then(|()| {
                // SAFETY: the context that has the access is current.
                unsafe { free::free(key, CUstream::NULL) }
            }),
            Err(_) => end_of_closed(&owner, number),
        };
        if let Err(error) = ended {
            // The peer is released after this, so nothing may end the access to it later.
            lock(&TABLE).accesses.remove(&number);
            owner.record_failed_free(key, 0, None, error);
        }
    }
}

/// Ends an access of a context that is torn down at the same time, on another thread: it may not come to that before the
/// peer is released.
fn end_of_closed(owner: &ContextState, number: u64) -> result::Result {
    let mut table = lock(&TABLE);
    if process::is_exiting() || !table.accesses.contains_key(&number) {
        return Ok(());
    }
    // Its teardown calls `forget_all_of` before it releases the driver's context, and waits for the lock: it is alive.
    owner.push_current(OPERATION)?;
    // SAFETY: made current above.
    let ended = unsafe { disable_in(&mut table, number) };
    let _ = context::pop_current();
    ended
}

/// Forgets the accesses of a context that is about to be released. It has ended them, or leaves them to the driver.
pub(in crate::core) fn forget_all_of(owner: &ContextState) {
    if process::is_exiting() {
        return;
    }
    let is_other = |access: &Access| !std::ptr::eq(access.owner.as_ptr(), owner);
    lock(&TABLE).accesses.retain(|_, access| is_other(access));
}
