//! The frames of a thread that has released the interpreter's lock, as extensions do around calls of CUDA.
//!
//! The public functions need the lock, and to wait for it could deadlock. `memory` reads the frames, of CPython 3.9 to 3.15.
//! Where that finds none, CPython's own `_Py_DumpTraceback` is called, which 3.11 and 3.12 export: it is the function behind
//! `faulthandler`, made for a process that crashes. It reads the frames of a thread without reference counts or allocations,
//! and writes them to a file as text, piece by piece, which takes many calls of the kernel. Here the thread is the calling
//! one, which is inside of a call, so its frames do not change.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::{fs, io::Read, io::Seek};

use cuguard_report::ForeignFrame;

use super::api::Api;
use super::{memory, table};

/// More text than a hundred frames, the most that the interpreter writes, have in practice.
const MOST: u64 = 256 << 10;

/// Fills `frames` with the calling thread's frames, and returns how many there are.
pub(super) fn fill(api: &Api, frames: &mut [usize]) -> usize {
    if let Some(count) = memory::fill(api, frames) {
        return count;
    }
    let Some(text) = dump(api) else {
        return 0;
    };
    let parsed = text.lines().filter_map(parse);
    let numbers = frames.iter_mut().zip(parsed);
    numbers
        .map(|(to, frame)| *to = table::number_by_names(frame))
        .count()
}

/// What the interpreter writes.
fn dump(api: &Api) -> Option<String> {
    let (dump, thread) = (api.dump?, api.unlocked_thread()?);
    // A file of its own each time: the program may close descriptors that it does not know.
    // SAFETY: the name ends in a null byte.
    let descriptor = unsafe { libc::memfd_create(c"cuguard".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return None;
    }
    // SAFETY: the descriptor is new.
    let file = unsafe { OwnedFd::from_raw_fd(descriptor) };
    // SAFETY: the thread state is the calling thread's, and alive; the descriptor is open.
    unsafe { dump(file.as_raw_fd() as c_int, thread) };
    let mut file = fs::File::from(file);
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(MOST).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Reads `  File "train.py", line 12 in step`.
fn parse(line: &str) -> Option<ForeignFrame> {
    let (file, rest) = line.strip_prefix("  File \"")?.rsplit_once("\", line ")?;
    let (line, function) = rest.split_once(" in ")?;
    Some(ForeignFrame {
        function: unescape(function),
        file: unescape(file),
        // `???` where the interpreter does not know it.
        line: line.parse().unwrap_or(0),
    })
}

/// The interpreter writes characters beyond ASCII as `\xe4`, `\u20ac` and `\U0001f600`.
fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        plain.push_str(before);
        let digits = match after.as_bytes().first() {
            Some(b'x') => 2,
            Some(b'u') => 4,
            Some(b'U') => 8,
            _ => 0,
        };
        let character = after.get(1..=digits).filter(|_| digits != 0);
        let character = character.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        match character.and_then(char::from_u32) {
            Some(character) => {
                plain.push(character);
                rest = &after[digits + 1..];
            }
            None => {
                plain.push('\\');
                rest = after;
            }
        }
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::{parse, unescape};

    #[test]
    fn lines_of_a_dump() {
        let frame = parse("  File \"/a \"b/x.py\", line 12 in Net.forward").unwrap();
        assert_eq!(
            (frame.file.as_str(), frame.line, frame.function.as_str()),
            ("/a \"b/x.py", 12, "Net.forward")
        );
        let unknown = parse("  File \"x.py\", line ??? in <module>").unwrap();
        assert_eq!(unknown.line, 0);
        for other in ["Stack (most recent call first):", "  ...", "", "  File \"x"] {
            assert!(parse(other).is_none(), "{other}");
        }
    }

    #[test]
    fn letters_beyond_ascii() {
        assert_eq!(unescape(r"m\xe4h\u20ac\U0001f600"), "mäh€😀");
        assert_eq!(unescape(r"a\qb\x"), r"a\qb\x");
    }
}
