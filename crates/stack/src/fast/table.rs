//! The rules of all return addresses seen so far: a lock-free hash table for all threads.
//!
//! An entry is one word, so writes are atomic: the rule in the low bits, and above it a tag, the bits of
//! the return address that the entry's index does not determine. An address has one index in each of two
//! arrays. The first index is its low bits, because the walk waits for that load. The second is a hash, so
//! that addresses which collide in the first array hardly collide in the second too.
//!
//! Rules of modules that can be unloaded are marked, and stored only in the second array, so that the first
//! needs no check for the mark. A rule is stored while a function of its module has not yet returned on the
//! storing thread, so before the module is unloaded. [`refresh`] removes the marked rules whenever the number
//! of unloaded modules has changed, so after it was unloaded. A module that is loaded at the same addresses
//! later finds no rule.

use std::sync::atomic::{AtomicU64, Ordering};

use super::modules;
use super::rule::{RULE_BITS, Rule};

const INDEX_BITS: u32 = 13;
const SIZE: usize = 1 << INDEX_BITS;

/// AArch64 has instructions of 4 bytes: the lowest 2 bits of an address are 0.
const ALIGN_BITS: u32 = if cfg!(target_arch = "aarch64") { 2 } else { 0 };

static FIRST: [AtomicU64; SIZE] = [const { AtomicU64::new(0) }; SIZE];
static SECOND: [AtomicU64; SIZE] = [const { AtomicU64::new(0) }; SIZE];

/// How many modules had been unloaded when the marked rules were last removed.
static UNLOADED: AtomicU64 = AtomicU64::new(u64::MAX);

/// The rule of this return address in the first array.
#[inline(always)]
pub(super) fn first(ra: usize) -> Option<Rule> {
    matching(FIRST[first_index(ra)].load(Ordering::Relaxed), ra)
}

/// The rule of this return address in the second array.
pub(super) fn second(ra: usize) -> Option<Rule> {
    matching(SECOND[second_index(ra)].load(Ordering::Relaxed), ra)
}

/// Stores a rule. Other threads may overwrite it at any time.
pub(super) fn put(ra: usize, rule: Rule) {
    let tag = tag(ra) as u64;
    if tag >> (64 - RULE_BITS) != 0 || ra >> ALIGN_BITS << ALIGN_BITS != ra {
        // An address of more bits than programs get without asking for them.
        return;
    }
    let entry = tag << RULE_BITS | rule.0;
    if !rule.is_unloadable() {
        let first = &FIRST[first_index(ra)];
        // The first address to claim an entry keeps it.
        let taken = first.compare_exchange(0, entry, Ordering::Relaxed, Ordering::Relaxed);
        if taken.map_or_else(|other| other >> RULE_BITS == tag, |_| true) {
            return;
        }
    }
    SECOND[second_index(ra)].store(entry, Ordering::Relaxed);
}

/// Removes the marked rules if modules were unloaded since the last call that did. Returns whether it did.
#[cold]
pub(super) fn refresh() -> bool {
    let unloaded = modules::unloaded();
    // Acquire: a thread that reads this number also sees that the rules are removed.
    if unloaded.is_some_and(|number| UNLOADED.load(Ordering::Acquire) == number) {
        return false;
    }
    for entry in &SECOND {
        let seen = entry.load(Ordering::Relaxed);
        if Rule(seen).is_unloadable() {
            // If it fails, another thread has just stored a valid rule.
            let _ = entry.compare_exchange(seen, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
    // Two threads may store different numbers, in any order. The smaller one only means that the
    // rules are removed once more.
    if let Some(number) = unloaded {
        UNLOADED.store(number, Ordering::Release);
    }
    true
}

#[inline(always)]
fn matching(entry: u64, ra: usize) -> Option<Rule> {
    (entry >> RULE_BITS == tag(ra) as u64).then_some(Rule(entry))
}

#[inline(always)]
fn tag(ra: usize) -> usize {
    ra >> (INDEX_BITS + ALIGN_BITS)
}

#[inline(always)]
fn first_index(ra: usize) -> usize {
    (ra >> ALIGN_BITS) % SIZE
}

/// The first index, XORed with a hash of the tag. Index and tag together still determine the address.
fn second_index(ra: usize) -> usize {
    let mixed = (tag(ra) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - INDEX_BITS);
    first_index(ra) ^ mixed as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fast::rule::Base;

    #[test]
    fn index_and_tag_determine_the_address() {
        let addresses = [0x5555_5555_4321usize, 0x5555_5555_6321, 0x7fff_f7d8_a1c4];
        for a in addresses.map(|a| a << ALIGN_BITS >> ALIGN_BITS) {
            for b in addresses {
                let same = (first_index(a), tag(a)) == (first_index(b), tag(b));
                assert_eq!(same, a >> ALIGN_BITS == b >> ALIGN_BITS);
                let same = (second_index(a), tag(a)) == (second_index(b), tag(b));
                assert_eq!(same, a >> ALIGN_BITS == b >> ALIGN_BITS);
            }
        }
    }

    #[test]
    fn addresses_that_collide_are_both_found() {
        // No module is at these addresses.
        let a = 0x10_0000_1000;
        let b = a + (SIZE << ALIGN_BITS);
        let rule = |cfa| Rule::new(Base::Sp, cfa, -8, None).unwrap();
        put(a, rule(16));
        put(b, rule(32));
        let found = |ra| {
            first(ra)
                .or_else(|| second(ra))
                .map(|r| r.0 << (64 - RULE_BITS))
        };
        assert_eq!(found(a), Some(rule(16).0 << (64 - RULE_BITS)));
        assert_eq!(found(b), Some(rule(32).0 << (64 - RULE_BITS)));
        assert_eq!(found(b + (SIZE << ALIGN_BITS)), None);
    }

    #[test]
    fn addresses_of_too_many_bits_are_not_stored() {
        let wide = 1 << 60 | 0x4000;
        put(wide, Rule::END);
        assert_eq!(first(wide), None);
        assert_eq!(second(wide), None);
    }
}
