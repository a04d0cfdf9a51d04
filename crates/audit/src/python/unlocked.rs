//! Python frames of a thread that does not have the interpreter's lock, read from the interpreter's memory.
//!
//! Extensions such as PyTorch and CuPy release the lock around calls of the driver. Then no function of the interpreter may
//! be called that changes anything, and none that returns frames. But a thread's own frames do not change while the thread
//! is inside this library: only the thread itself runs them, and each keeps its code object alive, which keeps its file and
//! its name. So they can be read.
//!
//! Where they are is not part of a public interface. The layouts are those of CPython 3.9 to 3.13, which do not change
//! within a version; there are none for other versions. Memory is read by the kernel, so that a wrong address cannot crash the
//! program, and the types of objects are compared, so that another layout gives no frames rather than wrong ones.

use std::ffi::{c_int, c_void};
use std::mem::size_of_val;

use cuguard_report::ForeignFrame;

use super::api::Api;
use super::table;

/// Where things are, as offsets.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// From the thread state to a pointer to the innermost frame, through another structure if there is one.
    innermost: (usize, Option<usize>),
    previous: usize,
    code: usize,
    position: Position,
    /// Where a frame says that it is no frame of Python code.
    owner: Option<usize>,
    first_line: usize,
    file: usize,
    name: usize,
    /// The sizes of a string's header: of one in ASCII, and of others.
    text: (u64, u64),
}

/// How a frame says which instruction runs.
#[derive(Clone, Copy, Debug)]
enum Position {
    /// A number at an offset, in units of so many bytes.
    Number(usize, i32),
    /// An address at an offset; and where the code begins in a code object.
    Address(usize, u64),
}

/// In [`Layout::owner`]: the frame marks a call from native code.
const OF_NATIVE_CODE: u8 = 3;

/// The layout of CPython 3.`minor`.
fn layout(minor: u32) -> Option<Layout> {
    let old = Layout {
        innermost: (24, None),
        previous: 24,
        code: 32,
        position: Position::Number(104, 1),
        owner: None,
        first_line: 40,
        file: 104,
        name: 112,
        text: (48, 72),
    };
    let new = Layout {
        innermost: (56, Some(0)),
        previous: 8,
        code: 0,
        position: Position::Address(56, 192),
        owner: Some(70),
        first_line: 68,
        file: 112,
        name: 128,
        text: (40, 56),
    };
    Some(match minor {
        9 => old,
        10 => Layout {
            position: Position::Number(96, 2),
            ..old
        },
        11 => Layout {
            innermost: (56, Some(8)),
            previous: 48,
            code: 32,
            position: Position::Address(56, 184),
            owner: None,
            first_line: 72,
            text: (48, 72),
            ..new
        },
        12 => new,
        13 => Layout {
            innermost: (72, None),
            position: Position::Address(56, 200),
            ..new
        },
        _ => return None,
    })
}

/// So much of a frame is read.
const FRAME: usize = 112;
/// So much of a code object is read: up to the name.
const CODE: usize = 136;
/// Longer names are cut.
const LONGEST: usize = 1024;

/// Fills `frames` with the frames of the calling thread. Returns how many there are.
pub(super) fn fill(api: &Api, frames: &mut [usize]) -> usize {
    let Some((layout, thread)) = layout(api.minor()).zip(api.this_thread()) else {
        return 0;
    };
    let (offset, inner) = layout.innermost;
    let mut next = read_word(thread + offset).unwrap_or(0);
    if let Some(inner) = inner {
        next = read_word(next + inner).unwrap_or(0);
    }
    let mut count = 0;
    while next != 0 && count < frames.len() {
        let mut frame = [0_u8; FRAME];
        if !read(next, &mut frame) {
            break;
        }
        let is_native = layout.owner.is_some_and(|at| frame[at] == OF_NATIVE_CODE);
        if !is_native {
            let code = word(&frame, layout.code);
            let Some(number) = number(api, &layout, &frame, code) else {
                break;
            };
            frames[count] = number;
            count += 1;
        }
        next = word(&frame, layout.previous);
    }
    count
}

/// The number of a frame; `None` if it is no frame.
fn number(api: &Api, layout: &Layout, frame: &[u8; FRAME], code: usize) -> Option<usize> {
    let mut object = [0_u8; CODE];
    let is_code = read(code, &mut object) && word(&object, 8) == api.code_type;
    if !is_code {
        return None;
    }
    let offset = match layout.position {
        Position::Number(at, unit) => half_word(frame, at).wrapping_mul(unit),
        Position::Address(at, start) => {
            let instruction = word(frame, at).wrapping_sub(code) as u64;
            i32::try_from(instruction.wrapping_sub(start).cast_signed()).ok()?
        }
    };
    let [file, name] = [layout.file, layout.name].map(|at| word(&object, at));
    let first_line = half_word(&object, layout.first_line);
    // The code object may have been freed since, and another one may be there.
    let about = [file, name, first_line.cast_unsigned() as usize];
    if let Some(known) = table::find_unlocked(code, offset, about) {
        return Some(known);
    }
    // SAFETY: the frame keeps the code object alive, and the function only reads it.
    let line = unsafe { (api.line_of)(code as *mut c_void, offset as c_int) };
    let frame = ForeignFrame {
        function: text(api, layout, name)?,
        file: text(api, layout, file)?,
        line: u32::try_from(line).unwrap_or(0),
    };
    Some(table::add_unlocked(code, offset, about, frame))
}

/// A string. `None` for another object.
fn text(api: &Api, layout: &Layout, at: usize) -> Option<String> {
    let mut header = [0_u8; 40];
    if !read(at, &mut header) || word(&header, 8) != api.string_type {
        return None;
    }
    let length = word(&header, 16).min(LONGEST);
    let state = half_word(&header, 32);
    let (kind, is_compact, is_ascii) = (state >> 2 & 7, state >> 5 & 1 == 1, state >> 6 & 1 == 1);
    if !is_compact {
        return None;
    }
    let start = at
        + if is_ascii {
            layout.text.0
        } else {
            layout.text.1
        } as usize;
    let mut letters = vec![0_u8; length * kind.cast_unsigned() as usize];
    if !read(start, &mut letters) {
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
    let bytes = bytes
        .get(at..at + 8)
        .and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, usize::from_ne_bytes)
}

fn half_word(bytes: &[u8], at: usize) -> i32 {
    let bytes = bytes
        .get(at..at + 4)
        .and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, i32::from_ne_bytes)
}

fn read_word(address: usize) -> Option<usize> {
    let mut bytes = [0; 8];
    read(address, &mut bytes).then(|| usize::from_ne_bytes(bytes))
}

/// Reads memory of this process. Returns whether all of it could be read.
fn read(address: usize, into: &mut [u8]) -> bool {
    if address == 0 || into.is_empty() {
        return into.is_empty();
    }
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: size_of_val(into),
    };
    let remote = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(address),
        iov_len: size_of_val(into),
    };
    // SAFETY: the local buffer can be written to; the kernel checks the other address.
    let count = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    usize::try_from(count) == Ok(into.len())
}

#[cfg(test)]
mod tests {
    use super::{layout, read, read_word};

    #[test]
    fn memory_that_is_not_there_is_not_read() {
        let value = 0x1234_5678_usize;
        let address = std::ptr::from_ref(&value) as usize;
        assert_eq!(read_word(address), Some(value));
        assert_eq!(read_word(0), None);
        assert_eq!(read_word(0x10), None);
        assert!(!read(usize::MAX - 64, &mut [0; 16]));
    }

    #[test]
    fn only_known_versions_have_a_layout() {
        for minor in 0..=20 {
            assert_eq!(
                layout(minor).is_some(),
                (9..=13).contains(&minor),
                "{minor}"
            );
        }
    }
}
