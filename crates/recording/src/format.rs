//! The layout of the file: constants, numbers of variable length, texts.
//!
//! ```text
//! file    = header chunk*                each `chunk_size` bytes, the header too
//! header  = "CUGUARDR" version:u32 chunk_size:u32 dropped:u64 complete_from:u64 length:u32 chunks:u32 lost:u64 sample:u64 age:u64 … meta
//! chunk   = "CHNK" kind:u32 sequence:u64 committed:u32 … record*
//! record  = tag:u8 varint*               events, or definitions
//!         | tag:u8 length:varint byte*   notes
//! ```
//!
//! The version does not change where a reader of before reads what it knows. It ignores unknown fields of the header, and
//! skips chunks of an unknown kind, of which it says so. An unknown tag of an event or a definition hides the rest of its
//! chunk, so there are no new ones: what is new is a note, and a reader skips notes that it does not know.
//!
//! Fixed numbers are little-endian. `committed` is how many bytes of records are complete: it is stored after them.

/// The first bytes of a recording.
pub(crate) const MAGIC: &[u8; 8] = b"CUGUARDR";

/// The version of the format that this crate writes and reads.
pub(crate) const VERSION: u32 = 1;

/// The offsets of the header's fields.
pub(crate) mod header {
    pub(crate) const VERSION: usize = 8;
    pub(crate) const CHUNK_SIZE: usize = 12;
    /// Events that the size limit dropped.
    pub(crate) const DROPPED: usize = 16;
    /// From this time on no event is dropped.
    pub(crate) const COMPLETE_FROM: usize = 24;
    /// The length of what begins at [`META`].
    pub(crate) const LENGTH: usize = 32;
    /// How many chunks there are, the header too, without those that were never used. 0 in files of before.
    pub(crate) const CHUNKS: usize = 36;
    /// Events that could not be written.
    pub(crate) const LOST: usize = 40;
    /// One resource in this many is recorded. 0 and 1: all are. 0 in files of before.
    pub(crate) const SAMPLE: usize = 48;
    /// How long the program had run when the recording began, in nanoseconds. 0 in files of before.
    pub(crate) const AGE: usize = 56;
    pub(crate) const META: usize = 64;
}

/// The offsets of a chunk's fields.
pub(crate) mod chunk {
    pub(crate) const MAGIC: &[u8; 4] = b"CHNK";
    pub(crate) const KIND: usize = 4;
    /// Chunks are read in this order.
    pub(crate) const SEQUENCE: usize = 8;
    pub(crate) const COMMITTED: usize = 16;
    /// Events of short-lived allocations that were left out; of pending chunks.
    pub(crate) const LEFT_OUT: usize = 24;
    pub(crate) const RECORDS: usize = 32;

    /// Kinds of chunks.
    pub(crate) const EVENTS: u32 = 1;
    pub(crate) const DEFINITIONS: u32 = 2;
    pub(crate) const PENDING: u32 = 3;
    pub(crate) const NOTES: u32 = 4;
}

/// The size of a chunk, unless a test sets another one.
pub(crate) const CHUNK_SIZE: u32 = 64 << 10;

/// Chunks are not smaller.
pub(crate) const MIN_CHUNK_SIZE: u32 = 4 << 10;

/// Chunks are not larger.
pub(crate) const MAX_CHUNK_SIZE: u32 = 16 << 20;

/// The most bytes of one number.
pub(crate) const MAX_VARINT: usize = 10;

/// Maps small negative numbers to small positive ones.
#[inline]
pub(crate) fn zigzag(difference: u64) -> u64 {
    let signed = difference as i64;
    ((signed << 1) ^ (signed >> 63)) as u64
}

/// The inverse of [`zigzag`].
#[inline]
pub(crate) fn unzigzag(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

/// A little-endian number at an offset; `None` beyond the end.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// A little-endian number at an offset; `None` beyond the end.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// Appends records to memory.
pub(crate) trait Put {
    /// Appends a byte.
    fn byte(&mut self, byte: u8);

    /// Appends a number of variable length: seven bits a byte, the lowest first.
    #[inline]
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.byte(number as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8);
    }
}

impl Put for Vec<u8> {
    fn byte(&mut self, byte: u8) {
        self.push(byte);
    }
}

/// The longest text of a recording. A reader refuses longer ones: a frame of many stacks would be a megabyte in each.
pub(crate) const LONGEST_TEXT: usize = 2 << 10;

/// At most `limit` bytes of a text, in whole characters, and the rest.
pub(crate) fn cut(text: &str, limit: usize) -> (&str, &str) {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.split_at(end)
}

/// Appends a text, at most `limit` bytes of it.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str, limit: usize) {
    let (text, _) = cut(text, limit);
    out.number(text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Reads records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a> {
    rest: &'a [u8],
    length: usize,
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            length: bytes.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// How many bytes were read.
    pub(crate) fn position(&self) -> usize {
        self.length - self.rest.len()
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    #[inline]
    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// A number of at most 32 bits.
    #[inline]
    pub(crate) fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    /// So many bytes, on their own.
    pub(crate) fn take(&mut self, length: u64) -> Option<Self> {
        let length = usize::try_from(length).ok()?;
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(Self::new(bytes))
    }

    /// A text of at most [`LONGEST_TEXT`] bytes; bytes that are not UTF-8 are replaced.
    pub(crate) fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.number()?).ok()?;
        if length > LONGEST_TEXT {
            return None;
        }
        let (text, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(String::from_utf8_lossy(text).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Bytes, LONGEST_TEXT, MAX_VARINT, Put, put_text, unzigzag, zigzag};

    proptest! {
        #![proptest_config(cuguard_testing::property_config!())]

        #[test]
        fn numbers_are_read_as_they_were_written(numbers: Vec<u64>) {
            let mut bytes = Vec::new();
            for number in &numbers {
                bytes.number(*number);
            }
            prop_assert!(bytes.len() <= numbers.len() * MAX_VARINT);
            let mut read = Bytes::new(&bytes);
            for number in &numbers {
                prop_assert_eq!(read.number(), Some(*number));
                prop_assert_eq!(unzigzag(zigzag(*number)), *number);
            }
            prop_assert!(read.is_empty());
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            let mut read = Bytes::new(&bytes);
            while read.number().is_some() {}
            let _ = Bytes::new(&bytes).text();
        }
    }

    #[test]
    fn small_differences_are_short() {
        assert_eq!([zigzag(0), zigzag(1), zigzag(u64::MAX)], [0, 2, 1]);
    }

    #[test]
    fn texts_are_cut_between_characters() {
        let mut bytes = Vec::new();
        put_text(&mut bytes, "aé", 2);
        assert_eq!(Bytes::new(&bytes).text().as_deref(), Some("a"));
    }

    #[test]
    fn longer_texts_than_any_that_is_written_are_refused() {
        for (length, is_read) in [(LONGEST_TEXT, true), (LONGEST_TEXT + 1, false)] {
            let mut bytes = Vec::new();
            put_text(&mut bytes, &"x".repeat(length), usize::MAX);
            assert_eq!(Bytes::new(&bytes).text().is_some(), is_read, "{length}");
        }
    }
}
