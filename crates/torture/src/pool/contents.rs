//! What blocks hold, and how it is written and compared: by kernels; on the simulated GPU, large blocks by copies of parts.

use std::ops::Range;

use cuguard::memory::DriverPool;
use cuguard::{Context, DeviceBuffer, Module, Stream};

use super::model::PAGE;
use crate::mismatch::{Check, Stop, ensure, ensure_eq};

/// The PTX of `kernels/pattern.cu`.
const PATTERN: &str = include_str!("../../pattern.ptx");

/// Blocks up to this size are written and compared whole on the simulated GPU.
pub const WHOLE: usize = 64 << 10;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Words that depend on their position and on a seed.
    Pattern {
        seed: u32,
        /// The address of the block when it was written: on the simulated GPU, which parts were.
        at: u64,
    },
    /// The same byte everywhere.
    Filled(u8),
}

/// The bytes of a range that begins at a whole word.
pub fn expected(contents: Contents, range: &Range<usize>, bytes: &mut Vec<u8>) {
    bytes.clear();
    match contents {
        Contents::Filled(value) => bytes.resize(range.len(), value),
        Contents::Pattern { seed, .. } => {
            let words = range.start as u32 / 4..range.end.div_ceil(4) as u32;
            let words: Vec<u32> = words
                .map(|word| word.wrapping_mul(0x9E37_79B1) ^ seed)
                .collect();
            bytes.extend_from_slice(bytemuck::cast_slice(&words));
            bytes.truncate(range.len());
        }
    }
}

/// The parts of a block at `address` that are written and compared: all of a small one; of a large one both ends and the
/// middle of the page that it may share, which compaction copies, and both sides of boundaries of other pages, which are only
/// mapped.
fn parts(address: u64, len: usize) -> Vec<Range<usize>> {
    let page = PAGE as usize;
    let mut parts = Vec::new();
    let head = (page - (address % PAGE) as usize) % page;
    if len <= WHOLE || len <= head {
        thin(0..len, &mut parts);
        return parts;
    }
    let last = head + (len - head) / page * page;
    match head {
        0 => parts.push(0..32),
        _ => thin(0..head, &mut parts),
    }
    // All boundaries of most blocks, and some of the largest ones.
    let stride = page * (len / page / 8).max(1);
    let mut boundary = if head > 0 { head } else { page };
    while boundary <= last && boundary < len {
        parts.push(boundary - 32..(boundary + 32).min(len));
        boundary += stride;
    }
    let tail = if head > 0 { len - len.min(64) } else { last };
    match tail < len {
        true => thin(tail / 4 * 4..len, &mut parts),
        false => parts.push(len - 32..len),
    }
    parts
}

/// A part as a whole, or both of its ends and its middle.
fn thin(part: Range<usize>, parts: &mut Vec<Range<usize>>) {
    const END: usize = 32 << 10;
    if part.len() <= 2 * END {
        parts.push(part);
        return;
    }
    let middle = (part.start + part.len() / 2) / 4 * 4;
    let last = (part.end - END) / 4 * 4;
    parts.extend([
        part.start..part.start + END,
        middle..middle + 64,
        last..part.end,
    ]);
}

/// The means to write and compare contents.
pub struct Inspector {
    kernels: Option<Kernels>,
    seen: Vec<u8>,
    expected: Vec<u8>,
    /// Checks by kernels.
    pub checks: u64,
}

/// The largest block that kernels write and compare on the simulated GPU, whose kernels are slow.
const MAX_SIMULATED: usize = 64 << 10;

struct Kernels {
    /// The largest block that they write and compare.
    most: usize,
    stream: Stream,
    module: Module,
    /// Of the driver's pool, so that it is not a block of the pools under test.
    wrong: DeviceBuffer<u64>,
}

impl Inspector {
    pub fn new(context: &Context, simulated: bool) -> Check<Self> {
        let stream = Stream::new(context)?;
        let pool = DriverPool::new(context)?;
        let kernels = Kernels {
            most: if simulated { MAX_SIMULATED } else { usize::MAX },
            module: Module::from_ptx(context, PATTERN)?,
            wrong: DeviceBuffer::zeroed(&pool.on(&stream), 1)?,
            stream,
        };
        Ok(Self {
            kernels: Some(kernels),
            seen: Vec::new(),
            expected: Vec::new(),
            checks: 0,
        })
    }

    /// The bytes of device memory that it has of the context.
    pub fn bytes(&self) -> u64 {
        self.kernels.as_ref().map_or(0, |_| 8)
    }

    /// Drops what it has of the context.
    pub fn end(&mut self) {
        self.kernels = None;
    }

    /// Writes a pattern, and returns it.
    pub fn write(&mut self, buffer: &mut DeviceBuffer<u8>, seed: u32) -> Check<Contents> {
        let at = buffer.as_view().as_device_ptr().as_raw();
        let contents = Contents::Pattern { seed, at };
        let len = buffer.len();
        let mut rest = Vec::new();
        if let Some(kernels) = of(&mut self.kernels, len) {
            let words = len as u64 / 4;
            let fill = kernels.module.function("fill_pattern")?;
            let target = &mut *buffer;
            kernels.stream.scope(|s| {
                let data = s.bind_mut(target)?;
                // SAFETY: fill_pattern(words, count, seed) writes `count` words, which the block has.
                unsafe { s.launch(&fill, (64, 256), &[&data, &words, &seed]) }
            })?;
            rest.push(len / 4 * 4..len);
        } else {
            rest = parts(at, len);
        }
        for range in rest.into_iter().filter(|range| !range.is_empty()) {
            expected(contents, &range, &mut self.expected);
            buffer.slice_mut(range)?.copy_from_slice(&self.expected)?;
        }
        Ok(contents)
    }

    /// Compares a block.
    pub fn check(&mut self, buffer: &DeviceBuffer<u8>, contents: Contents) -> Check {
        let at = buffer.as_view().as_device_ptr().as_raw();
        let len = buffer.len();
        let mut rest = parts(at, len);
        if let Contents::Pattern { seed, at } = contents {
            rest = parts(at, len);
            if let Some(kernels) = of(&mut self.kernels, len) {
                ensure_eq("wrong words", count_wrong(kernels, buffer, seed)?, 0)?;
                self.checks += 1;
                rest.clear();
                rest.push(len / 4 * 4..len);
            }
        }
        for range in rest.into_iter().filter(|range| !range.is_empty()) {
            self.check_part(buffer, contents, range)?;
        }
        Ok(())
    }

    /// Compares one part of a block with contents that begin at `0`.
    fn check_part(
        &mut self,
        buffer: &DeviceBuffer<u8>,
        contents: Contents,
        range: Range<usize>,
    ) -> Check {
        expected(contents, &range, &mut self.expected);
        self.seen.clear();
        self.seen.resize(range.len(), 0);
        buffer.slice(range.clone())?.copy_to_slice(&mut self.seen)?;
        self.compare(buffer, &range)
    }

    /// Compares a part of `to` with a part of other contents, from which it was copied.
    pub fn check_copied(
        &mut self,
        to: &DeviceBuffer<u8>,
        range: Range<usize>,
        from: Contents,
        part: Range<usize>,
    ) -> Check {
        expected(from, &part, &mut self.expected);
        self.seen.clear();
        self.seen.resize(range.len(), 0);
        to.slice(range.clone())?.copy_to_slice(&mut self.seen)?;
        self.compare(to, &range)
    }

    fn compare(&self, buffer: &DeviceBuffer<u8>, range: &Range<usize>) -> Check {
        ensure(self.seen == self.expected, || {
            let pairs = self.seen.iter().zip(&self.expected);
            let at = pairs.take_while(|(a, b)| a == b).count();
            let wrong = self.seen.iter().zip(&self.expected);
            let count = wrong.filter(|(a, b)| a != b).count();
            format!(
                "{count} wrong bytes in {range:?} of the block of {} bytes at {:#x}, the first at {}: {} instead of {}",
                buffer.len(),
                buffer.as_view().as_device_ptr().as_raw(),
                range.start + at,
                self.seen[at],
                self.expected[at]
            )
        })
    }
}

/// The kernels, if they write and compare a block of this length.
fn of(kernels: &mut Option<Kernels>, len: usize) -> Option<&mut Kernels> {
    kernels.as_mut().filter(|kernels| len <= kernels.most)
}

fn count_wrong(kernels: &mut Kernels, buffer: &DeviceBuffer<u8>, seed: u32) -> Check<u64> {
    let words = buffer.len() as u64 / 4;
    let check = kernels.module.function("check_pattern")?;
    let mut wrong = [0_u64];
    kernels.wrong.zero()?;
    let count = &mut kernels.wrong;
    kernels.stream.scope(|s| {
        let (data, count) = (s.bind(buffer)?, s.bind_mut(count)?);
        // SAFETY: check_pattern(words, count, seed, mismatches) reads `count` words and writes one number.
        unsafe { s.launch(&check, (64, 256), &[&data, &words, &seed, &count]) }
    })?;
    kernels.wrong.copy_to_slice(&mut wrong)?;
    Ok::<_, Stop>(wrong[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_in_the_block_and_begin_at_words() {
        for address in [0, PAGE - 16384, 16384, PAGE - 256] {
            for len in [1, 300_000, 2 << 20, (2 << 20) + 1, (4 << 20) - 1, 9_000_001] {
                let parts = parts(address, len);
                assert!(parts.iter().all(|part| part.end <= len
                    && part.start < part.end
                    && part.start % 4 == 0
                    || part.end == len));
                assert_eq!(parts.first().map(|part| part.start), Some(0));
                assert_eq!(parts.last().map(|part| part.end), Some(len));
            }
        }
    }
}
