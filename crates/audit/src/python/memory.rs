//! The frames of a thread that has released the lock, read from the interpreter's memory.
//!
//! - CPython 3.13 and later publish where their structures have what a debugger needs, as a table of offsets at the start of
//!   `_PyRuntime`.
//! - 3.9 to 3.12 get no more than security fixes, so their structures do not change any more.
//!
//! A thread's own frames do not change while it is inside of a call, and each keeps its code object alive, which keeps its
//! file and its name. Memory is read by the kernel, so that a wrong address cannot crash the program, and the types of objects
//! are compared, so that another layout gives no frames rather than wrong ones. Neighbouring frames, and all code objects, are
//! read together, because each call of the kernel takes longer than the rest; names are read once.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Mutex, OnceLock};

use cuguard_report::ForeignFrame;
use cuguard_sync::own_thread;

use super::api::{Api, Object};
use super::walk::{CODE, Layout, MOST, Memory, Raw, WORDS, text, walk, word};

fn layout(api: &Api) -> Option<&'static Layout> {
    static LAYOUT: OnceLock<Option<Layout>> = OnceLock::new();
    let layout = LAYOUT.get_or_init(|| match api.minor()? {
        13.. => {
            let mut table = [0; WORDS * 8];
            let is_read = Process.read(api.runtime?, &mut table) == table.len();
            is_read.then(|| Layout::published(&table)).flatten()
        }
        minor => Layout::fixed(minor),
    });
    layout.as_ref()
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
    let raw = walk(&Process, layout, thread as usize, most)?;
    let mut objects = [[0_u8; CODE]; MOST];
    let count = read_codes(&raw, &mut objects);
    let mut known = cuguard_sync::lock(&KNOWN);
    let known = known.get_or_insert_default();
    let mut found = 0;
    for (raw, object) in raw.iter().zip(&objects[..count]) {
        if word(object, layout.kind) != api.code_type? {
            return (found != 0).then_some(found);
        }
        let about = [word(object, layout.file), word(object, layout.name)];
        if is_shim(api, *raw, about) {
            continue;
        }
        let number = match known.get(&(raw.code, raw.offset)) {
            Some((same, number)) if *same == about => *number,
            _ => {
                let Some(frame) = resolve(api, layout, *raw, about) else {
                    return (found != 0).then_some(found);
                };
                let number = super::table::number_by_names(frame);
                remember(known, *raw, about, number);
                number
            }
        };
        frames[found] = number;
        found += 1;
    }
    Some(found)
}

/// Whether this is the interpreter's own frame below an `__init__`, which 3.12 and later have once a call of a class was made a
/// few times. Its code has one string for file and name, and no lines.
fn is_shim(api: &Api, raw: Raw, [file, name]: [usize; 2]) -> bool {
    file == name && line(api, raw).is_some_and(|line| line < 0)
}

/// The line of a frame; negative where it has none.
fn line(api: &Api, raw: Raw) -> Option<c_int> {
    // SAFETY: the frame keeps the code object alive, and the function only reads it.
    Some(unsafe { (api.line_of?)(raw.code as Object, raw.offset) })
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
        libc::process_vm_readv(own_thread::id(), &local, 1, remote.as_ptr(), count as _, 0)
    };
    usize::try_from(read).unwrap_or(0) / CODE
}

/// What a frame is; `None` if it is none.
fn resolve(api: &Api, layout: &Layout, raw: Raw, [file, name]: [usize; 2]) -> Option<ForeignFrame> {
    let line = line(api, raw)?;
    Some(ForeignFrame {
        function: text(&Process, layout, api.string_type?, name)?,
        file: text(&Process, layout, api.string_type?, file)?,
        line: u32::try_from(line).unwrap_or(0),
    })
}

/// The memory of this process.
struct Process;

impl Memory for Process {
    /// By the number of the calling thread: that of the process is the main thread's, which may have ended.
    fn read(&self, address: usize, into: &mut [u8]) -> usize {
        let iov_len = into.len();
        let buffer = |base: *mut u8| libc::iovec {
            iov_base: base.cast(),
            iov_len,
        };
        let local = buffer(into.as_mut_ptr());
        let remote = buffer(std::ptr::without_provenance_mut(address));
        // SAFETY: the local buffer can be written to; the kernel checks the other address.
        let count = unsafe { libc::process_vm_readv(own_thread::id(), &local, 1, &remote, 1, 0) };
        usize::try_from(count).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::walk::{Memory, Raw, read_word};
    use super::{Known, MOST_KNOWN, Process, remember};

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
        assert_eq!(read_word(&Process, address), Some(value));
        assert_eq!(read_word(&Process, 0), None);
        assert_eq!(read_word(&Process, 0x10), None);
        assert_eq!(Process.read(usize::MAX - 64, &mut [0; 16]), 0);
    }
}
