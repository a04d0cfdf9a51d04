//! The frames of an interpreter's thread and the texts of its strings, out of memory that may hold anything: another layout than
//! the version has, or freed objects. No address or length in it is believed.

use std::ffi::c_int;

/// The table begins with this, and has the version next.
const COOKIE: &[u8; 8] = b"xdebugpy";

/// Words of the table that are read.
pub(super) const WORDS: usize = 93;

/// Which words of the table have the offsets of a version.
struct Published {
    current_frame: usize,
    /// Of a frame: the one before it, the code object, the instruction, the owner.
    frame: [usize; 4],
    /// Of a code object: file, qualified name, instructions.
    code: [usize; 3],
    kind: usize,
    /// Of a string: state, length, size of what is before ASCII characters.
    string: [usize; 3],
}

impl Published {
    /// Those of a version: 13 for 3.13. They are fixed when a version is released.
    fn of(minor: usize) -> Option<Self> {
        // Between versions, parts of the table get more words: what is in a part stays in its place.
        let (current_frame, frame, code, kind, string) = match minor {
            13 => (23, 28, 34, 45, 67),
            14 => (26, 31, 39, 51, 77),
            15 => (26, 39, 47, 59, 89),
            _ => return None,
        };
        Some(Self {
            current_frame,
            frame: [frame + 1, frame + 2, frame + 3, frame + 5],
            code: [code + 1, code + 3, code + 9],
            kind,
            string: [string + 1, string + 2, string + 3],
        })
    }
}

/// A frame with this owner, or a higher one, marks a call from native code.
const OF_NATIVE_CODE: u8 = 3;

/// From 3.14 on, the address of a code object in a frame has the kind of reference in these bits, which are 0 before.
const KIND_OF_REFERENCE: usize = 3;

/// Longer names are cut.
const LONGEST: usize = 1024;

/// So much is read of a frame, of a code object, and of a string's header.
const FRAME: usize = 128;
pub(super) const CODE: usize = 160;
const HEADER: usize = 64;

/// So much is read around a frame.
const WINDOW: usize = 4096;

/// More frames are not read.
pub(super) const MOST: usize = 64;

/// Where things are, as offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) current_frame: usize,
    /// Where the innermost frame is in what the thread state points to, if that is not a frame.
    pub(super) inner: Option<usize>,
    pub(super) previous: usize,
    pub(super) code: usize,
    pub(super) position: Position,
    /// Where a frame says that it is not a frame of Python code.
    pub(super) owner: Option<usize>,
    pub(super) file: usize,
    pub(super) name: usize,
    pub(super) kind: usize,
    pub(super) state: usize,
    pub(super) length: usize,
    pub(super) ascii: usize,
    /// What a string has more that is not in ASCII.
    pub(super) more: usize,
}

/// How a frame says which instruction runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// A number at an offset, in units of so many bytes.
    Number(usize, i32),
    /// An address at an offset; and where the instructions begin in a code object.
    Address(usize, usize),
}

/// CPython 3.9. Of 3.10, only the position is elsewhere.
const OLD: Layout = Layout {
    current_frame: 24,
    inner: None,
    previous: 24,
    code: 32,
    position: Position::Number(104, 1),
    owner: None,
    file: 104,
    name: 112,
    kind: 8,
    state: 32,
    length: 16,
    ascii: 48,
    more: 24,
};

/// CPython 3.12. Of 3.11, frames are different.
const NEW: Layout = Layout {
    current_frame: 56,
    inner: Some(0),
    previous: 8,
    code: 0,
    position: Position::Address(56, 192),
    owner: Some(70),
    file: 112,
    name: 128,
    ascii: 40,
    more: 16,
    ..OLD
};

impl Layout {
    /// From the table. `None` for one of another version, and of an interpreter without a lock.
    pub(super) fn published(table: &[u8; WORDS * 8]) -> Option<Self> {
        let at = |index: usize| word(table, index * 8);
        let version = at(1) >> 16;
        let is_known = table.starts_with(COOKIE) && version >> 8 == 3 && at(2) == 0;
        let words = Published::of(version & 0xff).filter(|_| is_known)?;
        let [previous, code, instruction, owner] = words.frame.map(at);
        let [file, name, instructions] = words.code.map(at);
        let [state, length, ascii] = words.string.map(at);
        let kind = at(words.kind);
        let layout = Self {
            current_frame: at(words.current_frame),
            inner: None,
            previous,
            code,
            position: Position::Address(instruction, instructions),
            owner: Some(owner),
            file,
            name,
            kind,
            state,
            length,
            ascii,
            more: 16,
        };
        let fit = |offsets: &[usize], size: usize| offsets.iter().all(|at| *at <= size - 8);
        let fits = fit(&[previous, code, instruction, owner], FRAME)
            && fit(&[file, name], CODE)
            && fit(&[kind, state, length], HEADER);
        fits.then_some(layout)
    }

    /// Of a version that gets no more than security fixes: 12 for 3.12.
    pub(super) fn fixed(minor: u32) -> Option<Self> {
        Some(match minor {
            9 => OLD,
            10 => Self {
                position: Position::Number(96, 2),
                ..OLD
            },
            11 => Self {
                inner: Some(8),
                previous: 48,
                code: 32,
                position: Position::Address(56, 184),
                owner: None,
                ascii: 48,
                more: 24,
                ..NEW
            },
            12 => NEW,
            _ => return None,
        })
    }
}

/// Memory of the process.
pub(super) trait Memory {
    /// Reads up to the first byte that cannot be read. Returns how much.
    fn read(&self, address: usize, into: &mut [u8]) -> usize;
}

/// A frame that was read: its code object, and where it is in that.
#[derive(Clone, Copy)]
pub(super) struct Raw {
    pub(super) code: usize,
    pub(super) offset: c_int,
}

/// The calling thread's frames, innermost first, at most so many.
pub(super) fn walk(
    memory: &impl Memory,
    layout: &Layout,
    thread: usize,
    most: usize,
) -> Option<Vec<Raw>> {
    let mut next = read_word(memory, thread.wrapping_add(layout.current_frame))?;
    if let Some(inner) = layout.inner {
        next = read_word(memory, next.wrapping_add(inner))?;
    }
    let mut found = Vec::new();
    let mut window = Window::default();
    // Frames of native code are between the others. Memory that is not a list of frames may lead back to itself.
    for _ in 0..most.saturating_mul(2) {
        if next == 0 || found.len() >= most {
            break;
        }
        let frame = window.at(memory, next)?;
        let owner = layout.owner.and_then(|at| frame.get(at));
        if owner.is_none_or(|owner| *owner < OF_NATIVE_CODE) {
            let code = word(&frame, layout.code) & !KIND_OF_REFERENCE;
            let offset = match layout.position {
                Position::Number(at, unit) => (word(&frame, at) as i32).wrapping_mul(unit),
                Position::Address(at, start) => {
                    let offset = word(&frame, at).wrapping_sub(code.wrapping_add(start));
                    c_int::try_from(offset.cast_signed()).ok()?
                }
            };
            found.push(Raw { code, offset });
        }
        next = word(&frame, layout.previous);
    }
    Some(found)
}

/// Memory around a frame. Its callers' frames are mostly before it.
struct Window {
    start: usize,
    bytes: [u8; WINDOW],
    length: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            start: 0,
            bytes: [0; WINDOW],
            length: 0,
        }
    }
}

impl Window {
    /// The frame at an address.
    fn at(&mut self, memory: &impl Memory, address: usize) -> Option<[u8; FRAME]> {
        let end = address.checked_add(FRAME)?;
        if let Some(frame) = self.inside(address) {
            return Some(frame);
        }
        self.start = end.saturating_sub(WINDOW);
        self.length = memory.read(self.start, &mut self.bytes).min(WINDOW);
        self.inside(address).or_else(|| {
            // Some of it is not mapped.
            self.start = address;
            self.length = memory.read(address, &mut self.bytes[..FRAME]).min(FRAME);
            self.inside(address)
        })
    }

    /// The frame at an address, if all of it was read.
    fn inside(&self, address: usize) -> Option<[u8; FRAME]> {
        let offset = address.checked_sub(self.start)?;
        let bytes = self.bytes.get(offset..self.length)?;
        bytes.first_chunk().copied()
    }
}

/// A string. `None` for another object.
pub(super) fn text(
    memory: &impl Memory,
    layout: &Layout,
    string_type: usize,
    at: usize,
) -> Option<String> {
    let mut header = [0_u8; HEADER];
    // One at the end of mapped memory may be smaller.
    memory.read(at, &mut header);
    if word(&header, layout.kind) != string_type {
        return None;
    }
    let length = word(&header, layout.length).min(LONGEST);
    let state = word(&header, layout.state);
    let (kind, is_compact, is_ascii) = (state >> 2 & 7, state >> 5 & 1 == 1, state >> 6 & 1 == 1);
    if !is_compact || !matches!(kind, 1 | 2 | 4) {
        return None;
    }
    let more = if is_ascii { 0 } else { layout.more };
    let start = at.wrapping_add(layout.ascii).wrapping_add(more);
    let mut characters = vec![0_u8; length * kind];
    if memory.read(start, &mut characters) != characters.len() {
        return None;
    }
    let character = |number: u32| char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER);
    Some(match kind {
        1 => characters.iter().map(|byte| char::from(*byte)).collect(),
        2 => characters
            .chunks_exact(2)
            .map(|pair| character(u16::from_ne_bytes([pair[0], pair[1]]).into()))
            .collect(),
        4 => characters
            .chunks_exact(4)
            .map(|four| character(u32::from_ne_bytes([four[0], four[1], four[2], four[3]])))
            .collect(),
        _ => return None,
    })
}

pub(super) fn word(bytes: &[u8], at: usize) -> usize {
    let bytes = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    bytes.copied().map_or(0, usize::from_ne_bytes)
}

pub(super) fn read_word(memory: &impl Memory, address: usize) -> Option<usize> {
    let mut bytes = [0; 8];
    (memory.read(address, &mut bytes) == 8).then(|| usize::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::{COOKIE, Layout, Memory, OF_NATIVE_CODE, WORDS, text, walk};

    #[test]
    fn only_a_table_of_a_known_version_is_used() {
        let table = |cookie: &[u8; 8], version: u64, free_threaded: u64, offset: u64| {
            let mut table = [0; WORDS * 8];
            for (index, word) in table.chunks_exact_mut(8).enumerate() {
                let value = match index {
                    0 => u64::from_ne_bytes(*cookie),
                    1 => version,
                    2 => free_threaded,
                    _ => offset,
                };
                word.copy_from_slice(&value.to_ne_bytes());
            }
            Layout::published(&table)
        };
        for version in [0x030d_01f0, 0x030e_00f0, 0x030f_02f0] {
            assert!(table(COOKIE, version, 0, 16).is_some());
        }
        assert_eq!(table(b"xdebugpx", 0x030d_01f0, 0, 16), None);
        for version in [0x030c_01f0, 0x0310_00f0, 0x040d_01f0] {
            assert_eq!(table(COOKIE, version, 0, 16), None);
        }
        assert_eq!(table(COOKIE, 0x030d_01f0, 1, 16), None);
        assert_eq!(table(COOKIE, 0x030d_01f0, 0, 1 << 20), None);
    }

    /// Memory from an address on.
    struct At(usize, Vec<u8>);

    impl Memory for At {
        fn read(&self, address: usize, into: &mut [u8]) -> usize {
            let offset = address.checked_sub(self.0);
            let bytes = offset.and_then(|offset| self.1.get(offset..));
            let bytes = bytes.unwrap_or_default();
            let count = bytes.len().min(into.len());
            into[..count].copy_from_slice(&bytes[..count]);
            count
        }
    }

    #[test]
    fn frames_that_lead_back_to_themselves_end() {
        let layout = Layout::fixed(12).unwrap();
        let mut memory = At(0x1000, vec![0; 4096]);
        let mut put = |at: usize, value: usize| {
            memory.1[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        };
        put(layout.current_frame, 0x1100);
        put(0x100, 0x1200);
        put(0x200 + layout.previous, 0x1200);
        memory.1[0x200 + layout.owner.unwrap()] = OF_NATIVE_CODE;
        assert_eq!(walk(&memory, &layout, 0x1000, 8).unwrap().len(), 0);
        memory.1[0x200 + layout.owner.unwrap()] = 0;
        assert_eq!(walk(&memory, &layout, 0x1000, 8).unwrap().len(), 8);
    }

    #[test]
    fn addresses_at_the_end_of_memory_are_not_read() {
        let layout = Layout::fixed(12).unwrap();
        let mut memory = At(0x1000, vec![0xff; 4096]);
        assert!(walk(&memory, &layout, usize::MAX, 8).is_none());
        assert!(walk(&memory, &layout, 0x1000, 8).is_none());
        for value in [usize::MAX, usize::MAX - 127, usize::MAX - 128] {
            memory.1[layout.current_frame..][..8].copy_from_slice(&0x1100_usize.to_ne_bytes());
            memory.1[0x100..0x108].copy_from_slice(&value.to_ne_bytes());
            assert!(walk(&memory, &layout, 0x1000, 8).is_none());
        }
        assert_eq!(text(&memory, &layout, usize::MAX, usize::MAX - 8), None);
        // A string of the greatest length, of which nothing can be read.
        assert_eq!(text(&memory, &layout, usize::MAX, 0x1000), None);
    }
}
