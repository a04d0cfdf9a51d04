//! The shared memory of a block.

use super::region::Word;

/// The shared memory of a block. One thread of the host at a time executes a cluster.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    /// In whole units of 8 bytes: bounds are as exact as that.
    words: Vec<u32>,
}

impl SharedMemory {
    pub(crate) fn new(len: usize) -> Self {
        Self {
            words: vec![0; len.div_ceil(8) * 2],
        }
    }

    /// The number of bytes.
    #[inline(always)]
    pub(crate) fn len(&self) -> u64 {
        4 * self.words.len() as u64
    }

    /// The value at an offset, which is aligned; `None` out of bounds.
    #[inline(always)]
    pub(crate) fn load<W: Word>(&self, offset: u64) -> Option<W> {
        let at = usize::try_from(offset / 4).ok()?;
        let word = u64::from(*self.words.get(at)?);
        Some(W::from_bits(match W::SIZE {
            8 => u64::from(*self.words.get(at + 1)?) << 32 | word,
            4 => word,
            _ => word >> (8 * (offset % 4)),
        }))
    }

    /// Writes the value at an offset, which is aligned; `None` out of bounds.
    #[inline(always)]
    pub(crate) fn store<W: Word>(&mut self, offset: u64, value: W) -> Option<()> {
        let at = usize::try_from(offset / 4).ok()?;
        let bits = value.to_bits();
        let word = self.words.get_mut(at)?;
        match W::SIZE {
            8 => {
                *word = bits as u32;
                *self.words.get_mut(at + 1)? = (bits >> 32) as u32;
            }
            4 => *word = bits as u32,
            size => {
                let shift = 8 * (offset % 4) as u32;
                let mask = ((1 << (8 * size)) - 1) << shift;
                *word = *word & !mask | (bits as u32) << shift;
            }
        }
        Some(())
    }
}
