//! Integers of CPython: an address is kept as two digits of 30 bits in one word.

use super::memory::Memory;
use crate::heap::objects;

/// An interpreter in the process.
pub(super) struct Python {
    /// The address of the type `int`.
    integer: u64,
}

/// Reference counts are below; a freed object has the address of another in that place.
const LARGEST_COUNT: u64 = 1 << 33;

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
}
