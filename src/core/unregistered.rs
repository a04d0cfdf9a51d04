//! Host memory that is registered with the driver, when its context is closed.
//!
//! Such memory may be freed once the driver does not use it any more: teardown has unregistered it, or
//! has destroyed the driver's context. Memory that is dropped while a teardown is under way is left to
//! that teardown: its owner may be a host function that the teardown waits for, and must not wait.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::host_memory::HostMemory;

#[derive(Debug, Default)]
pub(crate) struct Unregistered(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// What teardown unregistered.
    addresses: HashSet<u64>,
    /// The driver's context is destroyed, and every registration with it.
    all: bool,
    /// Dropped while teardown was under way.
    dropped: Vec<(u64, HostMemory)>,
    /// Teardown is over.
    is_final: bool,
}

impl State {
    fn contains(&self, address: u64) -> bool {
        self.all || self.addresses.contains(&address)
    }

    /// Frees memory, or leaks it, as the driver may still use it.
    fn free(&self, address: u64, memory: HostMemory) {
        if !self.contains(address) {
            std::mem::forget(memory);
        }
    }
}

impl Unregistered {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Teardown has unregistered this.
    pub(crate) fn add(&self, address: u64) {
        self.lock().addresses.insert(address);
    }

    /// Teardown has destroyed the driver's context.
    pub(crate) fn add_all(&self) {
        self.lock().all = true;
    }

    /// Teardown is over: frees what was dropped meanwhile.
    pub(crate) fn finish(&self) {
        let mut state = self.lock();
        state.is_final = true;
        for (address, memory) in std::mem::take(&mut state.dropped) {
            state.free(address, memory);
        }
    }

    /// Whether memory may be freed, once teardown is over.
    pub(crate) fn contains(&self, address: u64) -> bool {
        self.lock().contains(address)
    }

    /// Frees memory of a closed context, as soon as that is known to be right.
    pub(crate) fn free(&self, address: u64, memory: HostMemory) {
        let mut state = self.lock();
        if state.is_final {
            state.free(address, memory);
        } else {
            state.dropped.push((address, memory));
        }
    }
}
