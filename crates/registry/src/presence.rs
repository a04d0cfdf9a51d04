//! Which addresses may be in the table: a load that mostly saves a lookup under a lock.
//!
//! Addresses are counted by a hash. Threads whose records never reach the table only read the counts, and do not contend.

use std::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::hash::mix;

/// How many counts there are; a power of two. Programs with more live addresses than this look most of them up.
const COUNTS: usize = 1 << 14;

pub(crate) struct Presence(Box<[AtomicU32]>);

impl Default for Presence {
    fn default() -> Self {
        Self((0..COUNTS).map(|_| AtomicU32::new(0)).collect())
    }
}

impl Presence {
    #[inline]
    fn count(&self, address: u64) -> &AtomicU32 {
        &self.0[mix(0, address) as usize % COUNTS]
    }

    /// Before an address is in the table.
    pub(crate) fn add(&self, address: u64) {
        self.count(address).fetch_add(1, Relaxed);
    }

    /// After an address was removed from the table.
    pub(crate) fn sub(&self, address: u64) {
        self.count(address).fetch_sub(1, Release);
    }

    /// Whether an address may be in the table. False only if it is not.
    #[inline]
    pub(crate) fn may_have(&self, address: u64) -> bool {
        self.count(address).load(Acquire) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::Presence;

    #[test]
    fn each_address_is_present_as_often_as_it_was_added() {
        let presence = Presence::default();
        for address in (0..100_u64).map(|i| 0x7f00_0000_0000 + i * 512) {
            assert!(!presence.may_have(address));
            presence.add(address);
            presence.add(address);
            presence.sub(address);
            assert!(presence.may_have(address));
            presence.sub(address);
            assert!(!presence.may_have(address));
        }
    }
}
