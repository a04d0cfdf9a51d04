//! The frames of a thread that has released the lock, read from the interpreter's memory.
//!
//! - CPython 3.13 publishes where its structures have what a debugger needs, as a table of offsets at the start of
//!   `_PyRuntime`.
//! - 3.9 to 3.12 get no more than security fixes, so their structures do not change any more.
//!
//! A thread's own frames do not change while it is inside of a call, and each keeps its code object alive, which keeps its
//! file and its name. Memory is read by the kernel, so that a wrong address cannot crash the program, and the types of objects
//! are compared, so that another layout gives no frames rather than wrong ones. Neighbouring frames, and all code objects, are
//! read together, because each call of the kernel takes longer than the rest; names are read once.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Mutex, OnceLock, PoisonError};

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

/// So much is read of a frame, of a code object, and of a string's header.
const FRAME: usize = 128;
const CODE: usize = 160;
const HEADER: usize = 64;

/// So much is read around a frame.
const WINDOW: usize = 4096;

/// More frames are not read.
const MOST: usize = 64;

/// Where things are, as offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    current_frame: usize,
    /// Where the innermost frame is in what the thread state points to, if that is no frame.
    inner: Option<usize>,
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
    fn published(table: &[u8; WORDS * 8]) -> Option<Self> {
        let at = |index: usize| word(table, index * 8);
        let is_known = table.starts_with(COOKIE) && at(1) >> 16 == VERSION && at(2) == 0;
        let layout = Self {
            current_frame: at(23),
            inner: None,
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
        let fit = |words: &[usize], size: usize| words.iter().all(|word| at(*word) <= size - 8);
        let fits =
            fit(&[29, 30, 31, 33], FRAME) && fit(&[35, 37], CODE) && fit(&[45, 68, 69], HEADER);
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
        11 => Some(Layout {
            inner: Some(8),
            previous: 48,
            code: 32,
            position: Position::Address(56, 184),
            owner: None,
            ascii: 48,
            more: 24,
            ..NEW
        }),
        12 => Some(NEW),
        13 => {
            let mut table = [0; WORDS * 8];
            let is_read = read(api.runtime?, &mut table) == table.len();
            is_read.then(|| Layout::published(&table)).flatten()
        }
        _ => None,
    });
    layout.as_ref()
}

/// A frame that was read: its code object, and where it is in that.
#[derive(Clone, Copy)]
struct Raw {
    code: usize,
    offset: c_int,
}

/// What is known of a code object at an instruction: its file and its name, which tell whether it is still the same object, and
/// the number of the frame.
type Known = HashMap<(usize, c_int), ([usize; 2], usize)>;

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

/// How many are known at most. Then all are read again: code objects may be freed, and their addresses are no use any more.
const MOST_KNOWN: usize = 1 << 16;

fn remember(known: &mut Known, raw: Raw, about: [usize; 2], number: usize) {
    if known.len() >= MOST_KNOWN {
        known.clear();
    }
    known.insert((raw.code, raw.offset), (about, number));
}

/// Fills `frames` with the calling thread's frames, innermost first, and returns how many there are. `None` if they cannot be
/// read.
pub(super) fn fill(api: &Api, frames: &mut [usize]) -> Option<usize> {
    let (layout, thread) = layout(api).zip(api.unlocked_thread())?;
    let most = frames.len().min(MOST);
    let raw = walk(layout, thread as usize, most)?;
    let mut objects = [[0_u8; CODE]; MOST];
    let count = read_codes(&raw, &mut objects);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    for (index, (raw, object)) in raw.iter().zip(&objects[..count]).enumerate() {
        if word(object, layout.kind) != api.code_type? {
            return (index != 0).then_some(index);
        }
        let about = [word(object, layout.file), word(object, layout.name)];
        let number = match known.get(&(raw.code, raw.offset)) {
            Some((same, number)) if *same == about => *number,
            _ => {
                let Some(frame) = resolve(api, layout, *raw, about) else {
                    return (index != 0).then_some(index);
                };
                let number = super::unlocked::number(frame);
                remember(known, *raw, about, number);
                number
            }
        };
        frames[index] = number;
    }
    Some(count)
}

/// The calling thread's frames, innermost first, at most so many.
fn walk(layout: &Layout, thread: usize, most: usize) -> Option<Vec<Raw>> {
    let mut next = read_word(thread + layout.current_frame)?;
    if let Some(inner) = layout.inner {
        next = read_word(next + inner)?;
    }
    let mut found = Vec::new();
    let mut window = Window::default();
    while next != 0 && found.len() < most {
        let frame = window.at(next)?;
        if layout.owner.is_none_or(|at| frame[at] != OF_NATIVE_CODE) {
            let code = word(&frame, layout.code);
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
    fn at(&mut self, address: usize) -> Option<[u8; FRAME]> {
        let is_inside = |window: &Self| {
            address >= window.start && address + FRAME <= window.start + window.length
        };
        if !is_inside(self) {
            self.start = (address + FRAME).saturating_sub(WINDOW);
            self.length = read(self.start, &mut self.bytes);
        }
        if !is_inside(self) {
            // Some of it is not mapped.
            self.start = address;
            self.length = read(address, &mut self.bytes[..FRAME]);
        }
        let bytes = self.bytes.get(address.checked_sub(self.start)?..)?;
        bytes.first_chunk().copied().filter(|_| is_inside(self))
    }
}

/// Reads the code objects of all frames. Returns how many could be read.
fn read_codes(raw: &[Raw], objects: &mut [[u8; CODE]; MOST]) -> usize {
    const NONE: libc::iovec = libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    };
    let count = raw.len().min(MOST);
    let mut remote = [NONE; MOST];
    for (to, from) in remote.iter_mut().zip(raw) {
        *to = libc::iovec {
            iov_base: std::ptr::without_provenance_mut(from.code),
            iov_len: CODE,
        };
    }
    let local = libc::iovec {
        iov_base: objects.as_mut_ptr().cast(),
        iov_len: count * CODE,
    };
    // SAFETY: the local buffer has so many bytes; the kernel checks the other addresses.
    let read = unsafe {
        libc::process_vm_readv(libc::gettid(), &local, 1, remote.as_ptr(), count as _, 0)
    };
    usize::try_from(read).unwrap_or(0) / CODE
}

/// What a frame is; `None` if it is none.
fn resolve(api: &Api, layout: &Layout, raw: Raw, [file, name]: [usize; 2]) -> Option<ForeignFrame> {
    // SAFETY: the frame keeps the code object alive, and the function only reads it.
    let line = unsafe { (api.line_of?)(raw.code as Object, raw.offset) };
    Some(ForeignFrame {
        function: text(api, layout, name)?,
        file: text(api, layout, file)?,
        line: u32::try_from(line).unwrap_or(0),
    })
}

/// A string. `None` for another object.
fn text(api: &Api, layout: &Layout, at: usize) -> Option<String> {
    let mut header = [0_u8; HEADER];
    // One at the end of mapped memory may be smaller.
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
/// By the number of the calling thread: that of the process is the main thread's, which may have ended.
fn read(address: usize, into: &mut [u8]) -> usize {
    let iov_len = into.len();
    let buffer = |base: *mut u8| libc::iovec {
        iov_base: base.cast(),
        iov_len,
    };
    let local = buffer(into.as_mut_ptr());
    let remote = buffer(std::ptr::without_provenance_mut(address));
    // SAFETY: the local buffer can be written to; the kernel checks the other address.
    let count = unsafe { libc::process_vm_readv(libc::gettid(), &local, 1, &remote, 1, 0) };
    usize::try_from(count).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{COOKIE, Known, Layout, MOST_KNOWN, Raw, WORDS, read, read_word, remember};

    #[test]
    fn what_is_known_does_not_grow_without_bound() {
        let mut known = Known::new();
        for code in 0..3 * MOST_KNOWN {
            remember(&mut known, Raw { code, offset: 0 }, [1, 2], code);
            assert_eq!(known.get(&(code, 0)), Some(&([1, 2], code)));
        }
        assert!(known.len() <= MOST_KNOWN);
    }

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
