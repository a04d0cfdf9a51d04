//! Python frames as numbers: a line of a code object.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard};

use cuguard_report::{FOREIGN_FRAME, ForeignFrame};

/// The frames of this process, which are never freed: stack traces hold their numbers.
#[derive(Default)]
struct Table {
    /// By the address of the code object, which is never freed either, and the line.
    numbers: HashMap<(usize, u32), usize>,
    /// The code objects that are kept alive.
    codes: HashSet<usize>,
    frames: Vec<ForeignFrame>,
}

static TABLE: Mutex<Option<Table>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<Table>> {
    cuguard_sync::lock(&TABLE)
}

/// The number of a known frame.
pub(super) fn find(code: usize, line: u32) -> Option<usize> {
    lock().as_ref()?.numbers.get(&(code, line)).copied()
}

/// How many code objects are kept alive at most: more than most programs have.
const MOST_CODES: usize = 1 << 16;

/// Whether a code object is kept alive, or may be.
pub(super) fn may_keep(code: usize) -> bool {
    let table = lock();
    let codes = table.as_ref().map(|table| &table.codes);
    codes.is_none_or(|codes| codes.len() < MOST_CODES || codes.contains(&code))
}

/// Adds a frame, and returns its number, and whether its code object is new: then it must be kept alive.
pub(super) fn add(code: usize, line: u32, frame: ForeignFrame) -> (usize, bool) {
    let mut table = lock();
    let table = table.get_or_insert_default();
    // An odd number is not a code object.
    let is_new = code & 1 == 0 && table.codes.insert(code);
    let next = FOREIGN_FRAME | table.frames.len();
    let number = *table.numbers.entry((code, line)).or_insert(next);
    if number == next {
        table.frames.push(frame);
    }
    (number, is_new)
}

/// The frame with a number.
pub(crate) fn resolve(number: usize) -> Option<ForeignFrame> {
    let index = number & !FOREIGN_FRAME;
    lock().as_ref()?.frames.get(index).cloned()
}

/// The number of a frame. The code object is not known, so the names stand for it: an odd number, which is not an address.
pub(super) fn number_by_names(frame: ForeignFrame) -> usize {
    let mut hasher = DefaultHasher::new();
    (&frame.function, &frame.file).hash(&mut hasher);
    let (code, line) = (hasher.finish() as usize | 1, frame.line);
    find(code, line).unwrap_or_else(|| add(code, line, frame).0)
}

#[cfg(test)]
mod tests {
    use cuguard_report::{FOREIGN_FRAME, ForeignFrame};

    use super::{add, find, resolve};

    #[test]
    fn a_frame_has_one_number() {
        let frame = |line| ForeignFrame {
            function: "f".to_owned(),
            file: "f.py".to_owned(),
            line,
        };
        assert_eq!(find(0x1000, 1), None);
        let (one, is_new) = add(0x1000, 1, frame(1));
        assert!(is_new && one & FOREIGN_FRAME != 0);
        let (two, is_new) = add(0x1000, 2, frame(2));
        assert!(!is_new && one != two);
        assert_eq!(add(0x1000, 1, frame(1)), (one, false));
        assert_eq!((find(0x1000, 2), find(0x2000, 2)), (Some(two), None));
        assert_eq!(resolve(two), Some(frame(2)));
        assert_eq!(resolve(FOREIGN_FRAME | 999), None);
    }
}
