//! Names that many records share, stored once each: labels, threads, the driver's words. And the
//! hash function of the registry's tables.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{LazyLock, PoisonError, RwLock};

use dashmap::DashMap;

/// How many parts a table is split into, each with its own lock: enough that some tens of threads
/// seldom meet, few enough that an empty table is small.
pub(super) const SHARDS: usize = 64;

/// A fast hash for addresses and numbers. Whoever can choose the addresses that a driver gives out
/// has no need to attack this table, so it is not keyed.
#[derive(Clone, Copy, Default)]
pub(super) struct Mix(u64);

pub(super) type BuildMix = BuildHasherDefault<Mix>;

/// One step of the hash: the product of two 64-bit words, folded. High and low bits of the result
/// both depend on all bits of the input, which the tables need: one end picks the shard, the other
/// the slot.
pub(super) const fn mix(hash: u64, word: u64) -> u64 {
    let product = (hash ^ word ^ 0x9e37_79b9_7f4a_7c15) as u128 * 0xd6e8_feb8_6659_fd93_u128;
    product as u64 ^ (product >> 64) as u64
}

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        // Once more, for those bits of a single word that one product spreads badly.
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

/// The number of a name. 0 is no name.
pub(super) type NameId = u32;

/// The names of the process. What is entered once stays: records hold numbers of names, and may be
/// anywhere.
struct Names {
    ids: DashMap<&'static str, NameId, BuildMix>,
    /// By number, from 1 on. Whoever adds a name holds this for writing.
    texts: RwLock<Vec<&'static str>>,
}

static NAMES: LazyLock<Names> = LazyLock::new(|| Names {
    ids: DashMap::with_hasher_and_shard_amount(BuildMix::default(), SHARDS),
    texts: RwLock::new(Vec::new()),
});

/// The number of this name. Equal names have equal numbers. The empty name is no name.
pub(super) fn intern(text: &str) -> NameId {
    if text.is_empty() {
        return 0;
    }
    if let Some(id) = NAMES.ids.get(text) {
        return *id;
    }
    let mut texts = NAMES.texts.write().unwrap_or_else(PoisonError::into_inner);
    // Somebody may have been faster.
    if let Some(id) = NAMES.ids.get(text) {
        return *id;
    }
    let Ok(id) = NameId::try_from(texts.len() + 1) else {
        return 0;
    };
    let text: &'static str = Box::leak(text.into());
    texts.push(text);
    NAMES.ids.insert(text, id);
    id
}

/// The name with this number.
pub(super) fn text(id: NameId) -> Option<&'static str> {
    let index = (id as usize).checked_sub(1)?;
    let texts = NAMES.texts.read().unwrap_or_else(PoisonError::into_inner);
    texts.get(index).copied()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::Hasher;
    use std::thread;

    use super::{Mix, intern, text};

    #[test]
    fn equal_names_are_stored_once() {
        let id = intern("weights of the first layer");
        assert_eq!(intern(&String::from("weights of the first layer")), id);
        assert_ne!(intern("weights of the second layer"), id);
        assert_eq!(text(id), Some("weights of the first layer"));
        assert_eq!((intern(""), text(0), text(u32::MAX)), (0, None, None));
    }

    #[test]
    fn threads_that_enter_the_same_names_agree() {
        let all: Vec<Vec<u32>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| (0..200).map(|i| intern(&format!("agreed {i}"))).collect()))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
        assert_eq!(all[0].iter().collect::<HashSet<_>>().len(), 200);
    }

    /// What a driver gives out: multiples of 512 B, 2 MiB, and pointers on the heap.
    #[test]
    fn addresses_spread_over_shards_and_slots() {
        for step in [16_u64, 512, 2 << 20, 1 << 30] {
            let (mut high, mut low, mut shards) = (HashSet::new(), HashSet::new(), [0_u32; 64]);
            for i in 0..4096_u64 {
                let mut hasher = Mix::default();
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
