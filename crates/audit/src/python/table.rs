//! Python frames as numbers: a line of a code object.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cuguard_report::{FOREIGN_FRAME, ForeignFrame};

/// The frames of this process, which are never freed: stack traces hold their numbers.
#[derive(Default)]
struct Table {
    /// By the address of the code object, which is never freed either, and the line.
    numbers: HashMap<(usize, u32), usize>,
    /// The code objects that are kept alive.
    codes: HashSet<usize>,
    frames: Vec<ForeignFrame>,
    /// By the address of the code object, which may be freed, and the instruction. With it, what tells whether it is still
    /// the same object.
    unlocked: HashMap<(usize, i32), ([usize; 3], usize)>,
    by_text: HashMap<ForeignFrame, usize>,
}

impl Table {
    /// The number of a frame with this text.
    fn intern(&mut self, frame: ForeignFrame) -> usize {
        let next = FOREIGN_FRAME | self.frames.len();
        let number = *self.by_text.entry(frame.clone()).or_insert(next);
        if number == next {
            self.frames.push(frame);
        }
        number
    }
}

static TABLE: Mutex<Option<Table>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<Table>> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of a known frame.
pub(super) fn find(code: usize, line: u32) -> Option<usize> {
    lock().as_ref()?.numbers.get(&(code, line)).copied()
}

/// Adds a frame, and returns its number, and whether its code object is new: then it must be kept alive.
pub(super) fn add(code: usize, line: u32, frame: ForeignFrame) -> (usize, bool) {
    let mut table = lock();
    let table = table.get_or_insert_default();
    let is_new = table.codes.insert(code);
    let number = table.intern(frame);
    table.numbers.insert((code, line), number);
    (number, is_new)
}

/// The number of a frame that was read without the lock. `about` is what the code object has.
pub(super) fn find_unlocked(code: usize, offset: i32, about: [usize; 3]) -> Option<usize> {
    let table = lock();
    let (known, number) = table.as_ref()?.unlocked.get(&(code, offset))?;
    (*known == about).then_some(*number)
}

/// Adds a frame that was read without the lock, and returns its number.
pub(super) fn add_unlocked(
    code: usize,
    offset: i32,
    about: [usize; 3],
    frame: ForeignFrame,
) -> usize {
    let mut table = lock();
    let table = table.get_or_insert_default();
    let number = table.intern(frame);
    table.unlocked.insert((code, offset), (about, number));
    number
}

/// The frame with a number.
pub(crate) fn resolve(number: usize) -> Option<ForeignFrame> {
    let index = number & !FOREIGN_FRAME;
    lock().as_ref()?.frames.get(index).cloned()
}

#[cfg(test)]
mod tests {
    use cuguard_report::{FOREIGN_FRAME, ForeignFrame};

    use super::{add, add_unlocked, find, find_unlocked, resolve};

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
        // The same frame, read without the lock.
        assert_eq!(find_unlocked(0x1000, 8, [1, 2, 3]), None);
        assert_eq!(add_unlocked(0x1000, 8, [1, 2, 3], frame(2)), two);
        assert_eq!(find_unlocked(0x1000, 8, [1, 2, 3]), Some(two));
        // Another code object at the same address.
        assert_eq!(find_unlocked(0x1000, 8, [1, 2, 4]), None);
        assert_eq!(resolve(FOREIGN_FRAME | 999), None);
    }
}
