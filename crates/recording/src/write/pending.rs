//! Allocations that may be short-lived, from the size limit on by the policy `aggregate`.
//!
//! Each thread has a chunk with a table of its newest allocations, indexed by a hash of the address. A free that finds its
//! allocation there within [`SHORT`] removes it: neither is written as an event. An allocation that is freed later, or whose
//! place is needed for another one, is written as an event then, with the time at which it happened. The table is in the
//! file, so that what is alive is not lost when the process ends.

use super::file::Chunk;
use super::mapped;
use crate::data::{Event, What};
use crate::format::{chunk, u64_at};
use crate::slot::{self, SLOT};

/// Allocations that live longer, in nanoseconds, are not left out.
pub(super) const SHORT: u64 = 100_000_000;

/// The newest allocations of a thread.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) chunk: Chunk,
}

impl Pending {
    fn slot(&mut self, kind: u8, address: u64) -> &mut [u8] {
        let slots = (self.chunk.bytes.len() - chunk::RECORDS) / SLOT;
        let hash = (address ^ u64::from(kind)).wrapping_mul(0x9fb2_1c65_1e98_df25);
        let index = (hash >> 32) as usize % slots;
        &mut self.chunk.bytes[chunk::RECORDS + index * SLOT..][..SLOT]
    }

    /// The allocation whose slot this one needs.
    pub(super) fn occupant(&mut self, kind: u8, address: u64) -> Option<Event> {
        slot::read(self.slot(kind, address))
    }

    /// Keeps an allocation, in place of the [occupant](Self::occupant) of its slot.
    pub(super) fn insert(&mut self, event: &Event) {
        let Some((kind, address, words)) = slot::words(event) else {
            return;
        };
        let slot = self.slot(kind, address);
        mapped::commit_wide(slot, 0, 0);
        for (place, word) in slot[size_of::<u64>()..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        mapped::commit_wide(slot, 0, event.time.saturating_add(1));
    }

    /// An allocation that is freed, if it is here.
    ///
    /// `created` is its time: an older one may be here whose free, by another thread, is an event.
    pub(super) fn find(&mut self, kind: u8, address: u64, created: u64) -> Option<Event> {
        let occupant = self.occupant(kind, address);
        occupant.filter(|event| is_of(event, kind, address, created))
    }

    /// Empties the slot of an allocation, which is an event from now on.
    pub(super) fn remove(&mut self, kind: u8, address: u64) {
        mapped::commit_wide(self.slot(kind, address), 0, 0);
    }

    /// Removes an allocation with its free: neither becomes an event.
    pub(super) fn leave_out(&mut self, kind: u8, address: u64) {
        self.remove(kind, address);
        let bytes = &mut self.chunk.bytes;
        let left_out = u64_at(bytes, chunk::LEFT_OUT).unwrap_or_default() + 2;
        mapped::commit_wide(bytes, chunk::LEFT_OUT, left_out);
    }

    /// Names an allocation that is here. Returns whether it was.
    pub(super) fn label(&mut self, kind: u8, address: u64, created: u64, new: u32) -> bool {
        let Some(mut event) = self.find(kind, address, created) else {
            return false;
        };
        if let What::Allocated { label, .. } = &mut event.what {
            *label = new;
        }
        self.insert(&event);
        true
    }
}

fn is_of(event: &Event, kind: u8, address: u64, created: u64) -> bool {
    let same = matches!(event.what, What::Allocated { kind: own, address: at, .. } if (own, at) == (kind, address));
    same && event.time == created
}
