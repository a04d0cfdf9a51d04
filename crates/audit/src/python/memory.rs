//! The frames of a thread that has released the lock, read from the memory of interpreters that do not export the function
//! that `unlocked` calls.
//!
//! - CPython 3.13 publishes where its structures have what a debugger needs, as a table of offsets at the start of
//!   `_PyRuntime`.
//! - 3.9 and 3.10 get no more than security fixes, so their structures do not change any more.
//!
//! A thread's own frames do not change while it is inside of a call, and each keeps its code object alive, which keeps its
//! file and its name. Memory is read by the kernel, so that a wrong address cannot crash the program, and the types of objects
//! are compared, so that another layout gives no frames rather than wrong ones.

use std::ffi::c_int;
use std::sync::OnceLock;

use cuguard_report::ForeignFrame;

use super::api::{Api, Object};

/// The table begins with this, and has the version next.
const COOKIE: &[u8; 8] = b"xdebugpy";

/// The version whose table is known: 3.13.
const VERSION: usize = 0x030d;

/// Words of the table that are read.
const WORDS: usize = 71;

/// In a frame's owner: the frame marks a call from native code.
const OF_NATIVE_CODE: u8 = 3;

/// Longer names are cut.
const LONGEST: usize = 1024;

/// More of a structure is not read.
const LARGEST: usize = 512;

/// Where things are, as offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    current_frame: usize,
    previous: usize,
    code: usize,
    position: Position,
    /// Where a frame says that it is no frame of Python code.
    owner: Option<usize>,
    file: usize,
    name: usize,
    kind: usize,
    state: usize,
    length: usize,
    ascii: usize,
    /// What a string has more that is not in ASCII.
    more: usize,
}

/// How a frame says which instruction runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    /// A number at an offset, in units of so many bytes.
    Number(usize, i32),
    /// An address at an offset; and where the instructions begin in a code object.
    Address(usize, usize),
}

/// CPython 3.9. Of 3.10, only the position is elsewhere.
const OLD: Layout = Layout {
    current_frame: 24,
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

impl Layout {
    /// From the table. `None` for one of another version, and of an interpreter without a lock.
    fn published(table: &[u8; WORDS * 8]) -> Option<Self> {
        let at = |index: usize| word(table, index * 8);
        let is_known = table.starts_with(COOKIE) && at(1) >> 16 == VERSION && at(2) == 0;
        let layout = Self {
            current_frame: at(23),
            previous: at(29),
            code: at(30),
            position: Position::Address(at(31), at(43)),
            owner: Some(at(33)),
            file: at(35),
            name: at(37),
            kind: at(45),
            state: at(68),
            length: at(69),
            ascii: at(70),
            more: 16,
        };
        let offsets = [29, 30, 31, 33, 35, 37, 45, 68, 69].map(at);
        let fits = offsets.iter().all(|offset| *offset <= LARGEST - 8);
        (is_known && fits).then_some(layout)
    }
}

fn layout(api: &Api) -> Option<&'static Layout> {
    static LAYOUT: OnceLock<Option<Layout>> = OnceLock::new();
    let layout = LAYOUT.get_or_init(|| match api.minor()? {
        9 => Some(OLD),
        10 => Some(Layout {
            position: Position::Number(96, 2),
            ..OLD
        }),
        13 => {
            let mut table = [0; WORDS * 8];
            let is_read = read(api.runtime?, &mut table) == table.len();
            is_read.then(|| Layout::published(&table)).flatten()
        }
        _ => None,
    });
    layout.as_ref()
}

/// The calling thread's frames, innermost first, at most so many.
pub(super) fn frames(api: &Api, most: usize) -> Vec<ForeignFrame> {
    let mut frames = Vec::new();
    let Some((layout, thread)) = layout(api).zip(api.unlocked_thread()) else {
        return frames;
    };
    let mut next = read_word(thread as usize + layout.current_frame);
    while let Some(address) = next.filter(|address| *address != 0 && frames.len() < most) {
        let mut frame = [0_u8; LARGEST];
        // A frame may be smaller, at the end of mapped memory.
        read(address, &mut frame);
        let is_native = layout.owner.is_some_and(|at| frame[at] == OF_NATIVE_CODE);
        if !is_native {
            match resolve(api, layout, &frame) {
                Some(frame) => frames.push(frame),
                None => break,
            }
        }
        next = Some(word(&frame, layout.previous));
    }
    frames
}

/// What a frame is; `None` if it is none.
fn resolve(api: &Api, layout: &Layout, frame: &[u8; LARGEST]) -> Option<ForeignFrame> {
    let code = word(frame, layout.code);
    let mut object = [0_u8; LARGEST];
    read(code, &mut object);
    if word(&object, layout.kind) != api.code_type? {
        return None;
    }
    let offset = match layout.position {
        Position::Number(at, unit) => (word(frame, at) as i32).wrapping_mul(unit),
        Position::Address(at, start) => {
            let offset = word(frame, at).wrapping_sub(code.wrapping_add(start));
            c_int::try_from(offset.cast_signed()).ok()?
        }
    };
    // SAFETY: the frame keeps the code object alive, and the function only reads it.
    let line = unsafe { (api.line_of?)(code as Object, offset) };
    Some(ForeignFrame {
        function: text(api, layout, word(&object, layout.name))?,
        file: text(api, layout, word(&object, layout.file))?,
        line: u32::try_from(line).unwrap_or(0),
    })
}

/// A string. `None` for another object.
fn text(api: &Api, layout: &Layout, at: usize) -> Option<String> {
    let mut header = [0_u8; LARGEST];
    read(at, &mut header);
    if word(&header, layout.kind) != api.string_type? {
        return None;
    }
    let length = word(&header, layout.length).min(LONGEST);
    let state = word(&header, layout.state);
    let (kind, is_compact, is_ascii) = (state >> 2 & 7, state >> 5 & 1 == 1, state >> 6 & 1 == 1);
    if !is_compact {
        return None;
    }
    let start = at + layout.ascii + if is_ascii { 0 } else { layout.more };
    let mut letters = vec![0_u8; length * kind];
    if read(start, &mut letters) != letters.len() {
        return None;
    }
    let letter = |number: u32| char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER);
    Some(match kind {
        1 => letters.iter().map(|byte| char::from(*byte)).collect(),
        2 => letters
            .chunks_exact(2)
            .map(|pair| letter(u16::from_ne_bytes([pair[0], pair[1]]).into()))
            .collect(),
        4 => letters
            .chunks_exact(4)
            .map(|four| letter(u32::from_ne_bytes([four[0], four[1], four[2], four[3]])))
            .collect(),
        _ => return None,
    })
}

fn word(bytes: &[u8], at: usize) -> usize {
    let bytes = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    bytes.copied().map_or(0, usize::from_ne_bytes)
}

fn read_word(address: usize) -> Option<usize> {
    let mut bytes = [0; 8];
    (read(address, &mut bytes) == 8).then(|| usize::from_ne_bytes(bytes))
}

/// Reads memory of this process, up to the first byte that cannot be read. Returns how much.
fn read(address: usize, into: &mut [u8]) -> usize {
    let iov_len = into.len();
    let buffer = |base: *mut u8| libc::iovec {
        iov_base: base.cast(),
        iov_len,
    };
    let local = buffer(into.as_mut_ptr());
    let remote = buffer(std::ptr::without_provenance_mut(address));
    // SAFETY: the local buffer can be written to; the kernel checks the other address.
    let count = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    usize::try_from(count).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{COOKIE, Layout, WORDS, read, read_word};

    #[test]
    fn memory_that_is_not_there_is_not_read() {
        let value = 0x1234_5678_usize;
        let address = std::ptr::from_ref(&value) as usize;
        assert_eq!(read_word(address), Some(value));
        assert_eq!(read_word(0), None);
        assert_eq!(read_word(0x10), None);
        assert_eq!(read(usize::MAX - 64, &mut [0; 16]), 0);
    }

    #[test]
    fn only_a_table_of_the_known_version_is_used() {
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
        assert!(table(COOKIE, 0x030d_01f0, 0, 16).is_some());
        assert_eq!(table(b"xdebugpx", 0x030d_01f0, 0, 16), None);
        assert_eq!(table(COOKIE, 0x030e_00f0, 0, 16), None);
        assert_eq!(table(COOKIE, 0x030d_01f0, 1, 16), None);
        assert_eq!(table(COOKIE, 0x030d_01f0, 0, 1 << 20), None);
    }
}
