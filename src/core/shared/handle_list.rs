//! The live streams and memory pools of a context, and the events by which recovery waits for frees.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use cuguard_driver::sys::CUevent;
use cuguard_registry::Key;

use crate::core::shared::free_progress::FreeProgress;
use crate::core::shared::lock::lock;

/// The live streams, or the live pools, of a context in order of creation. Nothing on the list is destroyed while it
/// is locked, so its handles are valid.
#[derive(Default)]
pub(crate) struct HandleList(Mutex<Handles>);

#[derive(Default)]
pub(crate) struct Handles {
    pub(crate) next: u64,
    pub(crate) live: BTreeMap<u64, (Key, Arc<FreeProgress>)>,
    /// Events recorded in live streams, for recovery to wait for.
    pub(crate) events: BTreeMap<u64, CUevent>,
    /// For streams that were destroyed with frees pending: an event after the last free, and the bytes. That memory
    /// is available once the device has passed the event.
    pub(in crate::core) destroyed: BTreeMap<u64, (CUevent, u64)>,
}

impl HandleList {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Handles> {
        lock(&self.0)
    }

    /// Adds an event that teardown destroys.
    pub(crate) fn add_event(&self, event: CUevent) -> u64 {
        let mut handles = self.lock();
        handles.next += 1;
        let number = handles.next;
        handles.events.insert(number, event);
        number
    }

    /// Takes all events, for teardown. The gate is closed and the device idle, so every event is complete.
    pub(crate) fn take_events(&self) -> Vec<CUevent> {
        let mut handles = self.lock();
        let events = std::mem::take(&mut handles.events).into_values();
        let destroyed = std::mem::take(&mut handles.destroyed).into_values();
        events.chain(destroyed.map(|(event, _)| event)).collect()
    }
}
