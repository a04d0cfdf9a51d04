//! How much memory was freed on one stream, and how much of that has been waited for.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Two counters of bytes that only grow. Aligned to a cache line, because every stream-ordered free writes here.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct FreeProgress {
    /// Freed on the stream.
    freed: AtomicU64,
    /// Of those, known to be complete.
    complete: AtomicU64,
}

/// A point in the stream, by what had been freed on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FreePoint(u64);

impl FreeProgress {
    /// Counts memory that was just freed on the stream. After the free: who reads the point and then records an event
    /// records it after that free.
    #[inline]
    pub(crate) fn add(&self, bytes: u64) {
        // Not `fetch_add`, which costs more than the rest of a free. If two threads free on one stream at the same
        // time, one update may be lost, or the counter falls behind. It then still differs from `complete` (see
        // `point`), which is all that matters.
        let freed = self.freed.load(Acquire);
        self.freed.store(freed.wrapping_add(bytes), Release);
    }

    /// The current point, for a wait that begins now.
    pub(crate) fn point(&self) -> FreePoint {
        let freed = self.freed.load(Acquire);
        if freed == self.complete.load(Relaxed) {
            return FreePoint(freed);
        }
        // One more than was freed. A thread in the middle of `add` stores a sum of block sizes later, and the counter
        // falls behind by all that others have freed since: that sum must not equal `complete` by then.
        FreePoint(self.freed.fetch_add(1, Acquire).wrapping_add(1))
    }

    /// A wait for this point of the stream has returned.
    pub(crate) fn complete_to(&self, point: FreePoint) {
        let newer = |complete| {
            let freed = self.freed.load(Relaxed);
            // Another wait may have reached a later point meanwhile.
            let is_old = (point.0..=freed).contains(&complete);
            (!is_old).then_some(point.0)
        };
        let _ = self.complete.fetch_update(Release, Acquire, newer);
    }

    /// An upper bound of the bytes that were freed and not waited for, plus one for each wait in progress.
    pub(crate) fn pending(&self) -> u64 {
        // In this order: what is complete was freed before.
        let complete = self.complete.load(Acquire);
        let freed = self.freed.load(Relaxed);
        // Where the counter fell behind, the number is unknown.
        freed.checked_sub(complete).unwrap_or(u64::MAX)
    }

    /// Runs `wait`, which waits for the stream. The frees are pending until it succeeds, so that other threads wait
    /// for them too.
    pub(crate) fn track_wait<T, E>(&self, wait: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let point = self.point();
        wait().inspect(|_| self.complete_to(point))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::FreeProgress;

    #[test]
    fn a_wait_completes_what_was_freed_before_and_no_more() {
        let progress = FreeProgress::default();
        progress.add(100);
        let early = progress.point();
        progress.add(10);
        let late = progress.point();
        assert!((110..=112).contains(&progress.pending()));
        progress.complete_to(late);
        assert_eq!(progress.pending(), 0);
        // A wait for an earlier point returns later.
        progress.complete_to(early);
        assert_eq!(progress.pending(), 0);
        progress.add(1);
        assert_eq!(progress.pending(), 1);
        let waited = progress.track_wait(|| Err::<(), ()>(()));
        assert!(waited.is_err());
        assert!((1..=2).contains(&progress.pending()));
    }

    /// The frees are pending while a wait for them runs.
    #[test]
    fn a_wait_hides_nothing() {
        let progress = FreeProgress::default();
        progress.add(5);
        let during = progress.track_wait(|| Ok::<_, ()>(progress.pending()));
        assert!(during.is_ok_and(|bytes| (5..=6).contains(&bytes)));
        assert_eq!(progress.pending(), 0);
    }

    /// One thread is in the middle of [`add`](FreeProgress::add) while another frees, waits, and frees again. With
    /// blocks of one size, the late sum equals what is complete; but the last free is pending.
    #[test]
    fn a_sum_that_comes_late_hides_no_free() {
        let progress = FreeProgress::default();
        let late = progress.freed.load(Relaxed) + 100;
        progress.add(100);
        let point = progress.point();
        progress.add(100);
        progress.freed.store(late, Relaxed);
        progress.complete_to(point);
        assert_ne!(progress.pending(), 0);
        // The next wait completes all of it.
        progress.complete_to(progress.point());
        assert_eq!(progress.pending(), 0);

        let late = progress.freed.load(Relaxed) + 100;
        progress.add(100);
        progress.complete_to(progress.point());
        progress.add(100);
        progress.freed.store(late, Relaxed);
        assert_ne!(progress.pending(), 0);
    }

    /// A reader never gets "unknown" while one thread frees and waits.
    #[test]
    fn a_concurrent_reader_gets_a_number() {
        let (progress, over) = (FreeProgress::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    assert_ne!(progress.pending(), u64::MAX);
                }
            });
            for _ in 0..2_000_000 {
                progress.add(10);
                progress.complete_to(progress.point());
            }
            over.store(true, Relaxed);
        });
        assert_eq!(progress.pending(), 0);
    }

    /// A lost update is still noticed.
    #[test]
    fn a_count_that_fell_behind_is_not_nothing() {
        let progress = FreeProgress::default();
        progress.add(100);
        progress.complete_to(progress.point());
        progress.freed.store(50, Relaxed);
        assert_ne!(progress.pending(), 0);
        progress.complete_to(progress.point());
        assert_eq!(progress.pending(), 0);
    }
}
