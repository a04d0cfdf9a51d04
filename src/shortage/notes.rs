//! What is known of the frees in one stream: how much was freed, and how much of that somebody has
//! waited for.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Two counters of bytes that only grow: freed on the stream, and seen to be free. In a line of memory
/// of their own, as every stream-ordered free writes here.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Notes {
    freed: AtomicU64,
    seen: AtomicU64,
}

/// A moment in the stream: what had been freed by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment(u64);

impl Notes {
    /// Memory was freed on the stream. After the free: who looks at the moment and then marks the stream
    /// marks it after the free, too.
    #[inline]
    pub(super) fn add(&self, bytes: u64) {
        // Not in one step, which would take longer than all the rest. Of two threads that free on one
        // stream at the same time, one may be forgotten, or both counters fall behind; then they differ,
        // and that is what matters.
        let freed = self.freed.load(Relaxed);
        self.freed.store(freed.wrapping_add(bytes), Relaxed);
    }

    pub(super) fn now(&self) -> Moment {
        Moment(self.freed.load(Relaxed))
    }

    /// Somebody has waited until the stream was past this moment.
    pub(crate) fn see(&self, moment: Moment) {
        let (freed, seen) = (self.freed.load(Relaxed), self.seen.load(Relaxed));
        // Others may have waited for more meanwhile.
        let is_old = (moment.0..=freed).contains(&seen);
        if !is_old {
            self.seen.store(moment.0, Relaxed);
        }
    }

    /// At most so many bytes were freed that nobody has waited for.
    pub(super) fn unseen(&self) -> u64 {
        let (freed, seen) = (self.freed.load(Relaxed), self.seen.load(Relaxed));
        // Where the one fell behind, nobody knows how many.
        freed.checked_sub(seen).unwrap_or(u64::MAX)
    }

    /// Has `wait` wait for the stream. Until it got there, others still find that there is something to
    /// wait for.
    pub(super) fn note_wait<T, E>(&self, wait: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let moment = self.now();
        let answer = wait();
        if answer.is_ok() {
            self.see(moment);
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::Notes;

    #[test]
    fn what_was_waited_for_is_seen_and_no_more() {
        let notes = Notes::default();
        notes.add(100);
        let early = notes.now();
        notes.add(10);
        let late = notes.now();
        assert_eq!(notes.unseen(), 110);
        notes.see(late);
        assert_eq!(notes.unseen(), 0);
        // One that waited for less comes later.
        notes.see(early);
        assert_eq!(notes.unseen(), 0);
        notes.add(1);
        assert_eq!(notes.unseen(), 1);
        let waited = notes.note_wait(|| Err::<(), ()>(()));
        assert!(waited.is_err());
        assert_eq!(notes.unseen(), 1);
    }

    /// While one waits, others still find what there is to wait for.
    #[test]
    fn a_wait_hides_nothing() {
        let notes = Notes::default();
        notes.add(5);
        let during = notes.note_wait(|| Ok::<_, ()>(notes.unseen()));
        assert_eq!(during, Ok(5));
        assert_eq!(notes.unseen(), 0);
    }

    /// A free that was forgotten in the count is still noticed.
    #[test]
    fn a_count_that_fell_behind_is_not_nothing() {
        let notes = Notes::default();
        notes.add(100);
        notes.see(notes.now());
        notes.freed.store(50, super::Relaxed);
        assert_ne!(notes.unseen(), 0);
        notes.see(notes.now());
        assert_eq!(notes.unseen(), 0);
    }
}
