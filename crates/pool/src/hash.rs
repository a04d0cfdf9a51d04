//! A hash for addresses and sizes, whose low bits are all zero: one widening multiplication. The keys are the pool's own, so
//! no input can choose them to collide.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

pub(crate) type FastMap<V> = HashMap<u64, V, BuildHasherDefault<FoldHasher>>;

const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Debug, Default)]
pub(crate) struct FoldHasher(u64);

impl Hasher for FoldHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        let product = u128::from(self.0 ^ value) * u128::from(FACTOR);
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}
