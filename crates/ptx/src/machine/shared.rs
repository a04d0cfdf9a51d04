//! The shared memory of a block.

use super::region::Word;

/// The shared memory of a block. One thread of the host at a time executes a cluster.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    bytes: Vec<u8>,
}

impl SharedMemory {
    pub(crate) fn new(len: usize) -> Self {
        Self {
            bytes: vec![0; len],
        }
    }

    /// The value at an offset; `None` out of bounds.
    #[inline(always)]
    pub(crate) fn load<W: Word>(&self, offset: u64) -> Option<W> {
        let from = usize::try_from(offset).ok()?;
        self.bytes
            .get(from..from.checked_add(W::SIZE)?)
            .map(W::read)
    }

    /// Writes the value at an offset; `None` out of bounds.
    #[inline(always)]
    pub(crate) fn store<W: Word>(&mut self, offset: u64, value: W) -> Option<()> {
        let from = usize::try_from(offset).ok()?;
        let bytes = self.bytes.get_mut(from..from.checked_add(W::SIZE)?)?;
        value.write(bytes);
        Some(())
    }

    /// `len` bytes at an offset.
    pub(crate) fn bytes_mut(&mut self, offset: u64, len: usize) -> Option<&mut [u8]> {
        let from = usize::try_from(offset).ok()?;
        self.bytes.get_mut(from..from.checked_add(len)?)
    }
}
