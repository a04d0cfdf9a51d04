//! What a caller made of a stack, for the next time that the thread is there.

use std::fmt;
use std::marker::PhantomData;

use crate::fast::{MOST, Memory, recall};

/// Values for stacks of one thread: a stack that was captured twice costs a fraction of a capture from then on.
///
/// ```
/// use cuguard_stack::Remembered;
///
/// let mut lengths = Remembered::new(32);
/// let mut made = 0;
/// let mut length = || lengths.capture(|frames| { made += 1; frames.len() });
/// let first = length();
/// assert!(first > 1);
/// // As often as one likes.
/// let again: Vec<usize> = (0..3).map(|_| length()).collect();
/// assert!(again.iter().all(|length| *length > 1));
/// ```
pub struct Remembered<T> {
    memory: Memory,
    values: Box<[Option<T>; MOST]>,
    /// Its stacks are those of one thread.
    _not_send: PhantomData<*const ()>,
}

impl<T> fmt::Debug for Remembered<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remembered")
            .field("depth", &self.memory.depth())
            .finish_non_exhaustive()
    }
}

impl<T: Copy> Remembered<T> {
    /// `depth` is how many frames are captured of each stack at most.
    #[must_use]
    pub fn new(depth: usize) -> Self {
        Self {
            memory: Memory::new(depth),
            values: Box::new([None; MOST]),
            _not_send: PhantomData,
        }
    }

    /// The value for the calling stack. If it is not remembered, `make` is called with the frames that
    /// [`capture_frames`](crate::capture_frames) finds. Allocates only then.
    // Inlined, so that the function that calls it is the innermost one.
    #[inline(always)]
    pub fn capture(&mut self, make: impl FnOnce(&[usize]) -> T) -> T {
        let found = recall(&mut self.memory);
        match self.values.get(found) {
            Some(Some(known)) => *known,
            _ => self.add(found, make),
        }
    }

    #[cold]
    #[inline(never)]
    fn add(&mut self, found: usize, make: impl FnOnce(&[usize]) -> T) -> T {
        // A stack is kept together with its value, so an index of one does not get here.
        let count = found.saturating_sub(MOST);
        let value = make(self.memory.frames(count));
        if let Some(index) = self.memory.keep() {
            self.values[index] = Some(value);
        }
        value
    }
}
