//! Integers and freed objects of CPython.
//!
//! An `int` keeps an address as two digits of 30 bits in one word. Objects of up to 512 bytes lie in pools of the
//! interpreter's own allocator, whose free blocks keep their contents but for the first word.

use super::memory::{Memory, bytes_of};
use crate::heap::objects;

/// An interpreter in the process.
pub(super) struct Python {
    /// The address of the type `int`.
    integer: u64,
}

/// Reference counts are below; a freed object has the address of another in that place.
const LARGEST_COUNT: u64 = 1 << 33;

/// Sizes of pools, which are aligned to them: of CPython 3.10 and later, and of those before.
const POOLS: [u64; 2] = [16 << 10, 4 << 10];
/// Bytes in front of a pool's blocks.
const POOL_HEADER: u64 = 48;
/// Sizes of blocks are multiples.
const UNIT: u64 = 16;
const LARGEST_BLOCK: u64 = 512;

impl Python {
    /// The interpreter, if there is one. Takes the dynamic linker's lock.
    pub(super) fn find() -> Option<Python> {
        objects::symbol(b"PyLong_Type").map(|integer| Python {
            integer: integer as u64,
        })
    }

    /// The value of a word as two digits, if it can be that. Smaller values have one digit, and are no addresses.
    #[inline(always)]
    pub(super) fn digits(word: u64) -> Option<u64> {
        let (low, high) = (word & 0xffff_ffff, word >> 32);
        let is_digits = (low | high) >> 30 == 0 && high != 0;
        is_digits.then_some(high << 30 | low)
    }

    /// Whether the word at the address is the digits of an `int` that exists: behind reference count, type and length.
    pub(super) fn is_integer(&self, memory: &Memory, address: u64) -> bool {
        let header = address.checked_sub(24).and_then(|at| memory.words::<3>(at));
        header.is_some_and(|[count, kind, _]| {
            kind == self.integer && (1..LARGEST_COUNT).contains(&count)
        })
    }

    /// Whether the address lies in a free block of a pool.
    pub(super) fn is_free(&self, memory: &Memory, address: u64) -> bool {
        POOLS.iter().any(|size| {
            let mut pool = [0_u64; (POOLS[0] / 8) as usize];
            let start = address - address % size;
            let header = &mut pool[..(POOL_HEADER / 8) as usize];
            let is_pool = memory.read(start, bytes_of(header)) == POOL_HEADER as usize
                && Header::parse(header, *size).is_some();
            let pool = &mut pool[..(size / 8) as usize];
            is_pool
                && memory.read(start, bytes_of(pool)) == *size as usize
                && is_free_in(pool, start, address)
        })
    }
}

/// What a pool says about itself.
struct Header {
    used: u64,
    first_free: u64,
    block: u64,
    /// Blocks from this offset on were never used.
    untouched: u64,
}

impl Header {
    /// `None` where the words are not those of a pool of this size.
    fn parse(words: &[u64], size: u64) -> Option<Header> {
        let (low, high) = (|word: u64| word & 0xffff_ffff, |word: u64| word >> 32);
        let header = Header {
            used: low(words[0]),
            first_free: words[1],
            block: (high(words[4]) + 1) * UNIT,
            untouched: low(words[5]),
        };
        let last = high(words[5]);
        let is_consistent = header.block <= LARGEST_BLOCK
            && last == size - header.block
            && (POOL_HEADER..=size).contains(&header.untouched)
            && (header.untouched - POOL_HEADER).is_multiple_of(header.block)
            && header.used <= (size - POOL_HEADER) / header.block;
        is_consistent.then_some(header)
    }
}

/// Whether the address lies in a free block of the pool, whose words these are.
fn is_free_in(pool: &[u64], start: u64, address: u64) -> bool {
    let size = 8 * pool.len() as u64;
    let offset = address - start;
    let Some(header) = Header::parse(pool, size).filter(|_| offset >= POOL_HEADER) else {
        return false;
    };
    if header.used == 0 || offset >= header.untouched {
        return true;
    }
    let block = offset - (offset - POOL_HEADER) % header.block;
    let mut free = header.first_free;
    // Each free block begins with the address of the next.
    for _ in 0..size / header.block {
        let at = free.wrapping_sub(start);
        if at == block {
            return true;
        }
        if !(POOL_HEADER..size).contains(&at) {
            return false;
        }
        free = pool[(at / 8) as usize];
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_as_digits() {
        let address = 0x7f12_b456_7800_u64;
        let word = (address & 0x3fff_ffff) | (address >> 30) << 32;
        assert_eq!(Python::digits(word), Some(address));
        assert_eq!(Python::digits(12345), None);
        assert_eq!(Python::digits(address), None);
        assert_eq!(Python::digits(u64::MAX), None);
    }

    /// A pool of blocks of 64 bytes: the first is in use, the second and fourth are free, the third is in use, and the
    /// others were never used.
    #[test]
    fn free_blocks_of_a_pool() {
        let start = 0x7f00_0000_4000_u64;
        let mut pool = vec![0_u64; (16 << 10) / 8];
        let block = |number: u64| POOL_HEADER + 64 * number;
        pool[0] = 2;
        pool[1] = start + block(3);
        pool[(block(3) / 8) as usize] = start + block(1);
        pool[4] = 3 << 32;
        pool[5] = ((16 << 10) - 64) << 32 | block(4);
        let free = |offset: u64| is_free_in(&pool, start, start + offset);
        assert!(!free(16), "the header");
        assert!(!free(block(0) + 8));
        assert!(free(block(1) + 56));
        assert!(!free(block(2)));
        assert!(free(block(3) + 24));
        assert!(free(block(4)));
        // Not a pool.
        pool[5] += 1 << 32;
        assert!(!is_free_in(&pool, start, start + block(4)));
    }
}
