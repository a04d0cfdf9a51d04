//! The table of peer accesses: which contexts may access the memory of which others.
//!
//! The driver has one switch for each pair of its contexts. Several guards may share a pair: guards of one `Context`,
//! or of several that share a primary context. Other code may have set the switch too. So the process has one table:
//! the first guard of a pair enables the access and the last one disables it, unless other code enabled it.
//!
//! The record of such a guard has the number of its entry in this table as its address.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use cuguard_driver::result::{self, peer};
use cuguard_driver::sys::{CUcontext, CUresult};

use crate::core::shared::context_state::ContextState;
use crate::core::shared::lock::lock;

pub(in crate::core) struct Access {
    context: CUcontext,
    peer: CUcontext,
    /// The context that has the access.
    pub(in crate::core) owner: Weak<ContextState>,
    /// The number of the other `Context`.
    pub(in crate::core) peer_number: u64,
    /// False if other code had enabled the access already: then it stays enabled.
    enabled_here: bool,
}

impl Access {
    fn pair(&self) -> (CUcontext, CUcontext) {
        (self.context, self.peer)
    }

    /// Whether its guard, or the teardown of its context, is still to end it. (Without a record, teardown does not.)
    fn is_live(&self) -> bool {
        let owner = self.owner.upgrade();
        owner.is_some_and(|owner| !owner.is_closed())
    }
}

pub(in crate::core) struct Table {
    next: u64,
    pub(in crate::core) accesses: BTreeMap<u64, Access>,
}

/// Locked during the driver's calls: the switch and the table agree.
pub(in crate::core) static TABLE: Mutex<Table> = Mutex::new(Table {
    next: 1,
    accesses: BTreeMap::new(),
});

/// Enables the access of a context, which is current, to the memory of `peer`. Returns the number of the new entry. The
/// caller is inside the gates of both.
pub(crate) fn enable(state: &Arc<ContextState>, peer_state: &ContextState) -> result::Result<u64> {
    let pair = (state.context, peer_state.context);
    let mut table = lock(&TABLE);
    // SAFETY: the peer is alive: its teardown waits for the caller.
    let enabled_here = match unsafe { peer::enable_access(peer_state.context) } {
        Ok(()) => {
            // Entries of this pair are outdated: other code disabled the access, or another context had that handle.
            table.accesses.retain(|_, access| access.pair() != pair);
            true
        }
        Err(error) if error.code == CUresult::PEER_ACCESS_ALREADY_ENABLED => {
            let mut known = table.accesses.values();
            known.any(|access| access.pair() == pair && access.enabled_here)
        }
        Err(error) => return Err(error),
    };
    let number = table.next;
    table.next += 1;
    let access = Access {
        context: pair.0,
        peer: pair.1,
        owner: Arc::downgrade(state),
        peer_number: peer_state.number,
        enabled_here,
    };
    table.accesses.insert(number, access);
    Ok(number)
}

/// Ends an access: the last of its pair disables it. Nothing is done if the peer's teardown has ended it.
///
/// # Safety
///
/// The context that has the access is current.
pub(in crate::core) unsafe fn disable(number: u64) -> result::Result {
    // SAFETY: as the caller ensures.
    unsafe { disable_in(&mut lock(&TABLE), number) }
}

/// # Safety
///
/// As [`disable`].
pub(in crate::core) unsafe fn disable_in(table: &mut Table, number: u64) -> result::Result {
    let Some(access) = table.accesses.remove(&number) else {
        return Ok(());
    };
    let pair = access.pair();
    let mut others = table.accesses.values();
    let is_last = !others.any(|other| other.pair() == pair && other.is_live());
    if !access.enabled_here || !is_last {
        return Ok(());
    }
    // SAFETY: the peer is alive: its teardown removes this entry first, and waits for the lock.
    match unsafe { peer::disable_access(access.peer) } {
        // Other code disabled it.
        Err(error) if error.code == CUresult::PEER_ACCESS_NOT_ENABLED => Ok(()),
        Err(error)
            if matches!(
                error.code,
                CUresult::NOT_PERMITTED | CUresult::STREAM_CAPTURE_UNSUPPORTED
            ) =>
        {
            // Retried outside of the host function, or at once in a mode in which a capture does not prohibit it.
            table.accesses.insert(number, access);
            Err(error)
        }
        disabled => disabled,
    }
}
