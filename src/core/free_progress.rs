//! What is known of the frees in one stream: how much was freed, and how much of that somebody has
//! waited for.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Two counters of bytes that only grow: freed on the stream, and seen to be free. In a line of memory
/// of their own, as every stream-ordered free writes here.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct FreeProgress {
    freed: AtomicU64,
    seen: AtomicU64,
}

/// A moment in the stream: what had been freed by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FreePoint(u64);

impl FreeProgress {
    /// Memory was freed on the stream. After the free: who looks at the moment and then marks the stream
    /// marks it after the free, too.
    #[inline]
    pub(crate) fn add(&self, bytes: u64) {
        // Not in one step, which would take longer than all the rest. Of two threads that free on one
        // stream at the same time, one may be forgotten, or the counter falls behind. Then it differs from
        // what was seen all the same (see `now`), and that is what matters.
        let freed = self.freed.load(Acquire);
        self.freed.store(freed.wrapping_add(bytes), Release);
    }

    /// This moment, for who waits from now on.
    pub(crate) fn now(&self) -> FreePoint {
        let freed = self.freed.load(Acquire);
        if freed == self.seen.load(Relaxed) {
            return FreePoint(freed);
        }
        // One more than was freed. A thread that is in the middle of `add` writes a sum of blocks later,
        // and the counter falls behind by all that others have freed since: what it writes must not be
        // what is seen by then.
        FreePoint(self.freed.fetch_add(1, Acquire).wrapping_add(1))
    }

    /// Somebody has waited until the stream was past this moment.
    pub(crate) fn see(&self, moment: FreePoint) {
        let newer = |seen| {
            let freed = self.freed.load(Relaxed);
            // Others may have waited for more meanwhile.
            let is_old = (moment.0..=freed).contains(&seen);
            (!is_old).then_some(moment.0)
        };
        let _ = self.seen.fetch_update(Release, Acquire, newer);
    }

    /// At most so many bytes were freed that nobody has waited for, and one more for each that waits.
    pub(crate) fn unseen(&self) -> u64 {
        // In this order: what is seen was freed before.
        let seen = self.seen.load(Acquire);
        let freed = self.freed.load(Relaxed);
        // Where the one fell behind, nobody knows how many.
        freed.checked_sub(seen).unwrap_or(u64::MAX)
    }

    /// Has `wait` wait for the stream. Until it got there, others still find that there is something to
    /// wait for.
    pub(crate) fn note_wait<T, E>(&self, wait: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
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
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::FreeProgress;

    #[test]
    fn what_was_waited_for_is_seen_and_no_more() {
        let notes = FreeProgress::default();
        notes.add(100);
        let early = notes.now();
        notes.add(10);
        let late = notes.now();
        assert!((110..=112).contains(&notes.unseen()));
        notes.see(late);
        assert_eq!(notes.unseen(), 0);
        // One that waited for less comes later.
        notes.see(early);
        assert_eq!(notes.unseen(), 0);
        notes.add(1);
        assert_eq!(notes.unseen(), 1);
        let waited = notes.note_wait(|| Err::<(), ()>(()));
        assert!(waited.is_err());
        assert!((1..=2).contains(&notes.unseen()));
    }

    /// While one waits, others still find what there is to wait for.
    #[test]
    fn a_wait_hides_nothing() {
        let notes = FreeProgress::default();
        notes.add(5);
        let during = notes.note_wait(|| Ok::<_, ()>(notes.unseen()));
        assert!(during.is_ok_and(|bytes| (5..=6).contains(&bytes)));
        assert_eq!(notes.unseen(), 0);
    }

    /// One thread is in the middle of [`add`](FreeProgress::add) while another frees, waits, and frees again. What
    /// it then writes is what was seen, where all blocks are of one size; but the last free was not.
    #[test]
    fn a_sum_that_comes_late_hides_no_free() {
        let notes = FreeProgress::default();
        let late = notes.freed.load(Relaxed) + 100;
        notes.add(100);
        let moment = notes.now();
        notes.add(100);
        notes.freed.store(late, Relaxed);
        notes.see(moment);
        assert_ne!(notes.unseen(), 0);
        // The next wait sees all of it.
        notes.see(notes.now());
        assert_eq!(notes.unseen(), 0);

        let late = notes.freed.load(Relaxed) + 100;
        notes.add(100);
        notes.see(notes.now());
        notes.add(100);
        notes.freed.store(late, Relaxed);
        assert_ne!(notes.unseen(), 0);
    }

    /// Who only looks finds what there is, and never that nobody knows, while another frees and waits.
    #[test]
    fn who_looks_meanwhile_finds_a_number() {
        let (notes, over) = (FreeProgress::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    assert_ne!(notes.unseen(), u64::MAX);
                }
            });
            for _ in 0..2_000_000 {
                notes.add(10);
                notes.see(notes.now());
            }
            over.store(true, Relaxed);
        });
        assert_eq!(notes.unseen(), 0);
    }

    /// A free that was forgotten in the count is still noticed.
    #[test]
    fn a_count_that_fell_behind_is_not_nothing() {
        let notes = FreeProgress::default();
        notes.add(100);
        notes.see(notes.now());
        notes.freed.store(50, Relaxed);
        assert_ne!(notes.unseen(), 0);
        notes.see(notes.now());
        assert_eq!(notes.unseen(), 0);
    }
}
