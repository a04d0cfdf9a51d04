//! The hash functions of the registry's tables.

use std::hash::{BuildHasherDefault, Hasher};

use cuguard_sync::per_thread::SLOTS;

/// The number of shards of the process-wide tables: tens of threads rarely contend, and an empty table
/// stays small.
pub(crate) const SHARDS: usize = 64;

/// A fast hash for addresses and ids. Not keyed: addresses come from the driver, not from an attacker.
#[derive(Clone, Copy, Default)]
pub(crate) struct MixHasher(u64);

pub(crate) type BuildMixHasher = BuildHasherDefault<MixHasher>;

/// One step of the hash: the folded product of two 64-bit words. Both halves of the result depend on every
/// input bit: `DashMap` selects the shard by the high bits and the bucket by the low ones.
pub(crate) const fn mix(hash: u64, word: u64) -> u64 {
    let product = (hash ^ word ^ 0x9e37_79b9_7f4a_7c15) as u128 * 0xd6e8_feb8_6659_fd93_u128;
    product as u64 ^ (product >> 64) as u64
}

impl Hasher for MixHasher {
    fn finish(&self) -> u64 {
        // After one product, some input bits change too few bits of the result.
        mix(self.0, 0)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
        self.write_u64(bytes.len() as u64);
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(u64::from(word));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = mix(self.0, word);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}

/// Hashes a [`Key`](crate::Key) such that the records of each per-thread slot have shards of their own:
/// threads that free what they allocated do not contend.
///
/// `DashMap` selects the shard by the bits below the highest seven. The first of those bits are the slot, the
/// next one comes from the address, so each slot has two shards.
#[derive(Clone, Copy, Default)]
pub(crate) struct SlotHasher {
    hash: MixHasher,
    slot: u8,
}

pub(crate) type BuildSlotHasher = BuildHasherDefault<SlotHasher>;

/// Two shards for each slot.
pub(crate) const SLOT_SHARDS: usize = 2 * SLOTS;

const SLOT_SHIFT: u32 = 64 - 7 - SLOTS.trailing_zeros();
const SLOT_MASK: u64 = (SLOTS as u64 - 1) << SLOT_SHIFT;
const _: () = assert!(SLOTS.is_power_of_two());

impl Hasher for SlotHasher {
    fn finish(&self) -> u64 {
        self.hash.finish() & !SLOT_MASK | u64::from(self.slot) << SLOT_SHIFT
    }

    fn write(&mut self, bytes: &[u8]) {
        self.hash.write(bytes);
    }

    fn write_u64(&mut self, word: u64) {
        self.hash.write_u64(word);
    }

    /// The slot: the only byte that [`Key`](crate::Key) writes.
    fn write_u8(&mut self, slot: u8) {
        self.slot = slot;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::Hasher;

    use super::MixHasher;

    /// Addresses as a driver returns them: multiples of 512 B and 2 MiB, and pointers on the heap.
    #[test]
    fn addresses_spread_over_shards_and_slots() {
        for step in [16_u64, 512, 2 << 20, 1 << 30] {
            let (mut high, mut low, mut shards) = (HashSet::new(), HashSet::new(), [0_u32; 64]);
            for i in 0..4096_u64 {
                let mut hasher = MixHasher::default();
                hasher.write_u64(0x7f00_0000_0000 + i * step);
                let hash = hasher.finish();
                high.insert(hash >> 52);
                low.insert(hash & 0xfff);
                shards[(hash << 7 >> 58) as usize] += 1;
            }
            // Of 4096 balls in 4096 bins, 63 % of the bins get one.
            assert!(
                high.len() > 2400 && low.len() > 2400,
                "{step}: {} {}",
                high.len(),
                low.len()
            );
            assert!(
                shards.iter().all(|n| (24..128).contains(n)),
                "{step}: {shards:?}"
            );
        }
    }
}
