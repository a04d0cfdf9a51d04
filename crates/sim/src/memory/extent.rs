//! The memory that a copy or a fill accesses: rows and layers of bytes in one block, or in adjacent
//! blocks.
//!
//! An extent has a constant size for any number of rows, so that it is created quickly under the
//! state's lock; the rows are enumerated when the work executes.

use std::sync::Arc;

use super::block::MemoryBlock;
use super::pages::Address;

/// Contiguous bytes.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    start: Address,
    len: usize,
    /// Keeps simulated memory allocated until the work is complete. `None` for pageable host
    /// memory, which the caller guarantees to keep.
    _keep: Option<Arc<MemoryBlock>>,
}

impl Span {
    /// `len` bytes from `offset` in a block.
    ///
    /// # Panics
    ///
    /// If they are not within the block, which the address map must have checked.
    pub(crate) fn within(block: &Arc<MemoryBlock>, offset: usize, len: usize) -> Self {
        assert!(
            offset <= block.len() && len <= block.len() - offset,
            "a span of {len} bytes from {offset} is not within a block of {}",
            block.len()
        );
        let start = block.start().as_ptr().wrapping_add(offset);
        Self {
            start: Address::new(start).unwrap_or(block.start()),
            len,
            _keep: Some(block.clone()),
        }
    }

    /// Pageable host memory.
    pub(crate) fn pageable(start: Address, len: usize) -> Self {
        Self {
            start,
            len,
            _keep: None,
        }
    }
}

/// `rows` rows of `width` bytes, which start `pitch` bytes apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) width: usize,
    pub(crate) pitch: usize,
    pub(crate) rows: usize,
}

impl Shape {
    /// Contiguous bytes.
    pub(crate) fn contiguous(len: usize) -> Self {
        Self {
            width: len,
            pitch: len,
            rows: 1,
        }
    }

    /// The bytes from the start of the first row to the end of the last; `None` on overflow.
    pub(crate) fn byte_len(self) -> Option<usize> {
        let rows_before = self.rows.checked_sub(1)?;
        rows_before.checked_mul(self.pitch)?.checked_add(self.width)
    }

    /// The same bytes in as few rows as possible.
    fn collapsed(self) -> Self {
        match self.byte_len() {
            Some(len) if self.rows == 1 || self.pitch == self.width => Self::contiguous(len),
            _ => self,
        }
    }
}

/// `layers` layers of rows, which start `layer_pitch` bytes apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Volume {
    pub(crate) rows: Shape,
    pub(crate) layers: usize,
    pub(crate) layer_pitch: usize,
}

impl From<Shape> for Volume {
    fn from(rows: Shape) -> Self {
        Self {
            rows,
            layers: 1,
            layer_pitch: 0,
        }
    }
}

impl Volume {
    /// The bytes from the start of the first row to the end of the last; `None` on overflow.
    pub(crate) fn byte_len(self) -> Option<usize> {
        let layers_before = self.layers.checked_sub(1)?;
        let before = layers_before.checked_mul(self.layer_pitch)?;
        before.checked_add(self.rows.byte_len()?)
    }

    /// The same bytes in as few rows and layers as possible.
    fn collapsed(self) -> Self {
        let (rows, layers) = (self.rows, self.layers);
        let adjacent = rows.rows.checked_mul(rows.pitch) == Some(self.layer_pitch);
        let all = rows.rows.checked_mul(layers).filter(|_| adjacent);
        match all {
            Some(all) => Shape { rows: all, ..rows }.collapsed().into(),
            None => Self {
                rows: rows.collapsed(),
                ..self
            },
        }
    }
}

/// Bytes in rows and layers.
#[derive(Clone, Debug)]
pub(crate) struct Extent {
    /// The offset of each span from the first, and the span.
    spans: Vec<(usize, Span)>,
    volume: Volume,
}

impl Extent {
    /// Rows and layers in adjacent spans.
    ///
    /// # Panics
    ///
    /// If the spans are not as long as the rows and layers.
    pub(crate) fn new(spans: Vec<Span>, volume: impl Into<Volume>) -> Self {
        let volume = volume.into();
        let mut len = 0;
        let place = |span: Span| {
            let offset = len;
            len += span.len;
            (offset, span)
        };
        let spans = spans.into_iter().map(place).collect();
        assert_eq!(
            volume.byte_len(),
            Some(len),
            "spans are as long as the rows"
        );
        let volume = volume.collapsed();
        Self { spans, volume }
    }

    fn bytes(&self) -> usize {
        self.volume.rows.width * self.volume.rows.rows * self.volume.layers
    }

    /// The address at an offset, and how many bytes follow in its span.
    fn at(&self, offset: usize) -> (*mut u8, usize) {
        let behind = self.spans.partition_point(|(start, _)| *start <= offset);
        let (start, span) = &self.spans[behind - 1];
        let within = offset - start;
        (span.start.as_ptr().wrapping_add(within), span.len - within)
    }

    /// The offset of the byte number `index`, not counting the bytes between rows and layers.
    fn offset_of(&self, index: usize) -> usize {
        let Shape { width, pitch, rows } = self.volume.rows;
        let row = index / width;
        row / rows * self.volume.layer_pitch + row % rows * pitch + index % width
    }

    /// Copies all bytes of another extent with the same number of bytes.
    ///
    /// # Panics
    ///
    /// If the number differs: the copy would read out of bounds.
    ///
    /// # Safety
    ///
    /// Pageable memory must be valid for its rows, and no other thread may access either side
    /// meanwhile, as a driver requires of its callers. (Simulated memory keeps itself allocated.)
    pub(crate) unsafe fn copy_from(&self, source: &Extent) {
        assert_eq!(self.bytes(), source.bytes(), "both sides of a copy");
        let row = self.volume.rows.width.min(source.volume.rows.width);
        for index in (0..self.bytes()).step_by(row.max(1)) {
            let (mut to, mut from) = (self.offset_of(index), source.offset_of(index));
            let mut left = row;
            while left > 0 {
                let ((target, room), (origin, have)) = (self.at(to), source.at(from));
                let len = room.min(have).min(left);
                // SAFETY: both sides are valid for `len` bytes: simulated memory by `_keep`,
                // pageable memory by the caller's guarantee. `copy_to` allows overlap.
                unsafe { origin.copy_to(target, len) };
                (to, from, left) = (to + len, from + len, left - len);
            }
        }
    }

    /// Fills every row with a pattern of one, two or four bytes. Rows, and spans within them, are
    /// multiples of the pattern.
    ///
    /// # Safety
    ///
    /// As for [`copy_from`](Self::copy_from).
    pub(crate) unsafe fn fill(&self, pattern: &[u8]) {
        let width = self.volume.rows.width;
        for index in (0..self.bytes()).step_by(width.max(1)) {
            let mut at = self.offset_of(index);
            let mut left = width;
            while left > 0 {
                let (start, room) = self.at(at);
                let len = room.min(left);
                // SAFETY: `len` bytes from `start` are in one span, see `copy_from`.
                unsafe { fill_run(start, len, pattern) };
                (at, left) = (at + len, left - len);
            }
        }
    }

    /// A contiguous copy of the bytes in a block of its own.
    ///
    /// # Safety
    ///
    /// As for [`copy_from`](Self::copy_from).
    pub(crate) unsafe fn staged(&self) -> Option<Extent> {
        let len = self.bytes();
        let block = MemoryBlock::allocate(len)?;
        let copy = Extent::new(vec![Span::within(&block, 0, len)], Shape::contiguous(len));
        // SAFETY: the caller guarantees the source; nothing else uses the new block.
        unsafe { copy.copy_from(self) };
        Some(copy)
    }
}

/// Writes a pattern repeatedly. Without a reference to the bytes, since the host may read them.
///
/// # Safety
///
/// `start` is valid for writes of `len` bytes.
unsafe fn fill_run(start: *mut u8, len: usize, pattern: &[u8]) {
    if let [byte] = pattern {
        // SAFETY: as the caller guarantees.
        unsafe { start.write_bytes(*byte, len) };
        return;
    }
    // The filled part is copied behind itself, doubling it each time.
    let mut done = pattern.len().min(len);
    // SAFETY: `done` is at most `len` and at most the pattern's length.
    unsafe { start.copy_from_nonoverlapping(pattern.as_ptr(), done) };
    while done < len {
        let more = done.min(len - done);
        // SAFETY: reads the first `done` bytes and writes the next `more`, within `len`; they do not
        // overlap since `more` is at most `done`.
        unsafe { start.add(done).copy_from_nonoverlapping(start, more) };
        done += more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(bytes: &[u8]) -> Arc<MemoryBlock> {
        let block = MemoryBlock::allocate(bytes.len()).unwrap();
        // SAFETY: the block has this length, and nothing else uses it.
        unsafe {
            block
                .start()
                .as_ptr()
                .copy_from(bytes.as_ptr(), bytes.len())
        };
        block
    }

    fn bytes(block: &MemoryBlock) -> Vec<u8> {
        // SAFETY: all of the block, to which nothing writes meanwhile.
        unsafe { std::slice::from_raw_parts(block.start().as_ptr(), block.len()) }.to_vec()
    }

    /// Rows in two adjacent blocks.
    fn split(a: &Arc<MemoryBlock>, b: &Arc<MemoryBlock>, shape: Shape) -> Extent {
        let rest = shape.byte_len().unwrap() - a.len();
        let spans = vec![Span::within(a, 0, a.len()), Span::within(b, 0, rest)];
        Extent::new(spans, shape)
    }

    fn whole(block: &Arc<MemoryBlock>, shape: Shape) -> Extent {
        let len = shape.byte_len().unwrap();
        Extent::new(vec![Span::within(block, 0, len)], shape)
    }

    const ROWS: Shape = Shape {
        width: 2,
        pitch: 3,
        rows: 3,
    };

    #[test]
    fn rows_without_gaps_are_one_run() {
        let tight = Shape {
            width: 4,
            pitch: 4,
            rows: 1 << 40,
        };
        assert_eq!(tight.collapsed(), Shape::contiguous(4 << 40));
        assert_eq!(ROWS.collapsed(), ROWS);
        assert_eq!(ROWS.byte_len(), Some(8));
        let endless = Shape {
            rows: usize::MAX,
            ..ROWS
        };
        assert_eq!(endless.byte_len(), None);
    }

    #[test]
    fn rows_are_copied_between_areas_of_other_shapes_and_borders() {
        let source = block(b"ab-cd-ef");
        let (a, b) = (block(b"01234"), block(b"56789"));
        // SAFETY: simulated memory that only this test uses.
        unsafe { split(&a, &b, ROWS).copy_from(&whole(&source, ROWS)) };
        assert_eq!((bytes(&a), bytes(&b)), (b"ab2cd".into(), b"5ef89".into()));
        let tight = block(b"......");
        // SAFETY: as above.
        unsafe { whole(&tight, Shape::contiguous(6)).copy_from(&split(&a, &b, ROWS)) };
        assert_eq!(bytes(&tight), b"abcdef");
        // SAFETY: as above.
        let staged = unsafe { whole(&source, ROWS).staged() }.unwrap();
        assert_eq!(staged.volume, Shape::contiguous(6).into());
        assert_eq!(staged.bytes(), 6);
    }

    #[test]
    fn a_fill_leaves_what_is_between_rows() {
        let (a, b) = (block(b"0123"), block(b"456789"));
        // SAFETY: simulated memory that only this test uses.
        unsafe { split(&a, &b, ROWS).fill(b"x") };
        assert_eq!((bytes(&a), bytes(&b)), (b"xx2x".into(), b"x5xx89".into()));
        for len in [4, 8, 12, 20, 4096] {
            let block = block(&vec![0; len]);
            // SAFETY: as above.
            unsafe { whole(&block, Shape::contiguous(len)).fill(b"abcd") };
            assert_eq!(bytes(&block), b"abcd".repeat(len / 4));
        }
    }

    #[test]
    fn layers_are_copied_between_volumes_of_other_pitches() {
        let volume = |layer_pitch| Volume {
            rows: ROWS,
            layers: 2,
            layer_pitch,
        };
        let source = block(b"ab-cd-ef---gh-ij-kl");
        let from = Extent::new(vec![Span::within(&source, 0, 19)], volume(11));
        let target = block(&[b'.'; 18]);
        let to = Extent::new(vec![Span::within(&target, 0, 17)], volume(9));
        assert_eq!(
            to.volume.layers, 1,
            "layers without a gap are rows of one layer"
        );
        // SAFETY: simulated memory that only this test uses.
        unsafe { to.copy_from(&from) };
        assert_eq!(bytes(&target), b"ab.cd.ef.gh.ij.kl.");
        // SAFETY: as above.
        unsafe { from.fill(b"x") };
        assert_eq!(bytes(&source), b"xx-xx-xx---xx-xx-xx");
    }
}
