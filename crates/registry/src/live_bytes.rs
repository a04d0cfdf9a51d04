//! How many resources of one kind are alive, their bytes, and the most bytes that were alive at one time.
//!
//! Every thread counts its own, allocated and freed. The peak needs the sum of all at every moment, the *bound*. It is kept
//! in one of three ways:
//!
//! | threads | the bound | the peak |
//! |---|---|---|
//! | the one that created this | what it counts itself, without an atomic read-modify-write: a [`Biased`] lock keeps others out | exact |
//! | several | one number for all threads, added to and subtracted from with each block | exact |
//! | several that contend | each claims room for one more of its largest blocks, up to [`MOST_SLACK`], and changes the bound only when it needs more or has twice as much unused | too high by at most two such blocks for each thread |

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};

use cuguard_sync::{Biased, OwnerGuard, PerThread, Slot};

/// What a thread claims in advance at most: with larger blocks every allocation changes the bound.
pub(crate) const MOST_SLACK: u64 = 1 << 20;
/// How often the bound is changed by another thread than before until that counts as contention.
const SWITCHES: u32 = 1000;

#[derive(Debug)]
pub(crate) struct LiveBytes {
    threads: PerThread<OfThread>,
    shared: Shared,
    /// What the thread that created this counted while no other one did. Written inside `alone` only; outside of it so that
    /// others can read it. It stays as it is once several threads count.
    first: Counted,
    alone: Biased<()>,
    /// Whether several threads count. Set inside `alone`.
    is_shared: AtomicBool,
}

impl Default for LiveBytes {
    /// For the calling thread first.
    fn default() -> Self {
        Self {
            threads: PerThread::default(),
            shared: Shared::default(),
            first: Counted::default(),
            alone: Biased::new(()),
            is_shared: AtomicBool::new(false),
        }
    }
}

/// What one thread counts. Another one may free what this one allocated, so only sums are meaningful.
#[derive(Debug, Default)]
struct Counted {
    /// How many.
    allocations: AtomicU64,
    frees: AtomicU64,
    /// Their bytes.
    allocated: AtomicU64,
    freed: AtomicU64,
}

impl Counted {
    /// Its part of the bound. Wraps.
    #[inline]
    fn live(&self) -> u64 {
        let allocated = self.allocated.load(Relaxed);
        allocated.wrapping_sub(self.freed.load(Relaxed))
    }
}

/// Adds to a counter that no other thread writes, and returns what it was before.
#[inline(always)]
fn add_to(counter: &AtomicU64, number: u64) -> u64 {
    let before = counter.load(Relaxed);
    counter.store(before.wrapping_add(number), Relaxed);
    before
}

/// The same for frees: who reads the number with acquire ordering, and then what was allocated, finds what was freed there.
#[inline(always)]
fn add_free_to(counter: &AtomicU64, number: u64) {
    let before = counter.load(Relaxed);
    counter.store(before.wrapping_add(number), Release);
}

/// One less, for counters that wrap.
const MINUS_ONE: u64 = u64::MAX;

/// What the first thread counts, which has entered `alone`.
struct First<'a> {
    counted: &'a Counted,
    _inside: OwnerGuard<'a, ()>,
}

impl First<'_> {
    #[inline(always)]
    fn count_free(&self, bytes: u64) {
        add_free_to(&self.counted.freed, bytes);
        add_free_to(&self.counted.frees, 1);
    }
}

/// The slot of one thread.
#[derive(Debug, Default)]
struct OfThread {
    counted: Counted,
    /// Its part of the bound: at least what it allocated less what it freed, and wrapping as that is.
    claimed: AtomicU64,
    /// The largest block since threads contend, at most [`MOST_SLACK`]; 0 before.
    slack: AtomicU64,
}

impl OfThread {
    /// What to claim in advance, after a call about a block of this size.
    #[inline]
    fn slack(&self, shared: &Shared, bytes: u64) -> u64 {
        if !shared.is_contended.load(Relaxed) {
            return 0;
        }
        let slack = self.slack.load(Relaxed).max(bytes.min(MOST_SLACK));
        self.slack.store(slack, Relaxed);
        slack
    }
}

/// On cache lines of its own (processors fetch them in pairs): threads that use different kinds do not contend.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shared {
    /// What the slots have claimed, and what the threads without one have alive.
    claimed: AtomicU64,
    peak: AtomicU64,
    is_contended: AtomicBool,
    /// Contention does not count: see [`LiveBytes::set_exact`].
    is_exact: AtomicBool,
    last_slot: AtomicUsize,
    switches: AtomicU32,
}

impl LiveBytes {
    /// Counts an allocation. Returns how many the calling thread had counted before, alone or with others.
    #[inline(always)]
    pub(crate) fn add(&self, bytes: u64) -> u64 {
        match self.first(bytes, Biased::try_enter) {
            Some(first) => self.add_alone(&first, bytes),
            None => self.add_otherwise(bytes),
        }
    }

    /// Counts a free.
    #[inline(always)]
    pub(crate) fn sub(&self, bytes: u64) {
        match self.first(bytes, Biased::try_enter) {
            Some(first) => first.count_free(bytes),
            None => self.sub_otherwise(bytes),
        }
    }

    /// Undoes a [`sub`](Self::sub).
    pub(crate) fn restore(&self, bytes: u64) {
        if let Some(first) = self.first_or_share(bytes) {
            self.add_alone(&first, bytes);
            add_to(&first.counted.allocations, MINUS_ONE);
            add_free_to(&first.counted.frees, MINUS_ONE);
            return;
        }
        let slot = self.threads.slot();
        self.add_bytes(&slot, bytes);
        slot.add_release(|one| &one.counted.frees, MINUS_ONE);
    }

    /// What counts for the calling thread alone, if no other one ever counted. Not what has no bytes and so no peak: a thread
    /// that destroys an event of another one needs no `membarrier`.
    #[inline(always)]
    fn first<'a>(
        &'a self,
        bytes: u64,
        enter: impl FnOnce(&'a Biased<()>) -> Option<OwnerGuard<'a, ()>>,
    ) -> Option<First<'a>> {
        if bytes == 0 || self.is_shared.load(Acquire) {
            return None;
        }
        let first = First {
            counted: &self.first,
            _inside: enter(&self.alone)?,
        };
        // Again, inside: another thread may have shared it meanwhile.
        (!self.is_shared.load(Relaxed)).then_some(first)
    }

    /// The same on any thread: from now on several threads count where it is `None`.
    fn first_or_share(&self, bytes: u64) -> Option<First<'_>> {
        let first = self.first(bytes, Biased::enter);
        if first.is_none() && bytes != 0 && !self.is_shared.load(Acquire) {
            self.share();
        }
        first
    }

    #[inline(always)]
    fn add_alone(&self, first: &First<'_>, bytes: u64) -> u64 {
        let counted = first.counted;
        let allocated = add_to(&counted.allocated, bytes).wrapping_add(bytes);
        let live = allocated.wrapping_sub(counted.freed.load(Relaxed));
        if self.shared.peak.load(Relaxed) < live && not_below_zero(live) != 0 {
            self.shared.peak.store(live, Relaxed);
        }
        add_to(&counted.allocations, 1)
    }

    #[inline(never)]
    fn add_otherwise(&self, bytes: u64) -> u64 {
        if let Some(first) = self.first_or_share(bytes) {
            return self.add_alone(&first, bytes);
        }
        let slot = self.threads.slot();
        self.add_bytes(&slot, bytes);
        slot.add(|one| &one.counted.allocations, 1)
    }

    #[inline(never)]
    fn sub_otherwise(&self, bytes: u64) {
        if let Some(first) = self.first_or_share(bytes) {
            return first.count_free(bytes);
        }
        let slot = self.threads.slot();
        slot.add_release(|one| &one.counted.frees, 1);
        self.sub_bytes(&slot, bytes);
    }

    /// From now on several threads count.
    #[cold]
    #[inline(never)]
    fn share(&self) {
        // `None` in a forked child, at exit, and inside a signal handler that interrupted [`First`].
        if let Some(_alone) = self.alone.lock() {
            // What the first thread has counted is read after this.
            self.is_shared.store(true, Release);
        }
    }

    #[inline]
    fn add_bytes(&self, slot: &Slot<'_, OfThread>, bytes: u64) {
        if bytes == 0 {
            return;
        }
        slot.add(|one| &one.counted.allocated, bytes);
        let Some((index, one)) = slot.exclusive() else {
            return self.raise(bytes);
        };
        let live = one.counted.live();
        let claimed = one.claimed.load(Relaxed);
        // Both may be below zero: this thread frees what others allocated.
        if live.wrapping_sub(claimed) as i64 > 0 {
            let claim = live.wrapping_add(one.slack(&self.shared, bytes));
            one.claimed.store(claim, Relaxed);
            self.raise(claim.wrapping_sub(claimed));
            self.shared.note_slot(index);
        }
    }

    #[inline]
    fn sub_bytes(&self, slot: &Slot<'_, OfThread>, bytes: u64) {
        if bytes == 0 {
            return;
        }
        slot.add_release(|one| &one.counted.freed, bytes);
        let Some((index, one)) = slot.exclusive() else {
            self.shared.claimed.fetch_sub(bytes, Relaxed);
            return;
        };
        let live = one.counted.live();
        let claimed = one.claimed.load(Relaxed);
        let slack = one.slack(&self.shared, bytes);
        if claimed.wrapping_sub(live) > 2 * slack {
            let claim = live.wrapping_add(slack);
            one.claimed.store(claim, Relaxed);
            let unused = claimed.wrapping_sub(claim);
            self.shared.claimed.fetch_sub(unused, Relaxed);
            self.shared.note_slot(index);
        }
    }

    /// Adds to what is claimed.
    #[inline]
    fn raise(&self, bytes: u64) {
        let claimed = self.shared.claimed.fetch_add(bytes, Relaxed);
        let bound = claimed.wrapping_add(bytes).wrapping_add(self.first.live());
        // Mostly it is not a new peak, and a read does not contend. A bound below zero is not a peak.
        if self.shared.peak.load(Relaxed) < bound && not_below_zero(bound) != 0 {
            self.shared.peak.fetch_max(bound, Relaxed);
        }
    }

    /// The sum of one counter over all threads, read before what is read next.
    fn sum(&self, counter: impl Fn(&Counted) -> &AtomicU64) -> u64 {
        let slots = self.threads.all().map(|one| &one.counted);
        slots
            .chain([&self.first])
            .fold(0, |sum, one| sum.wrapping_add(counter(one).load(Acquire)))
    }

    /// How many were allocated, and how many of them are alive, each since the start.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let frees = || self.sum(|one| &one.frees);
        difference(|| self.sum(|one| &one.allocations), frees)
    }

    /// What is alive. Never below zero, also where something was removed twice.
    pub(crate) fn live(&self) -> u64 {
        let freed = || self.sum(|one| &one.freed);
        difference(|| self.sum(|one| &one.allocated), freed).1
    }

    /// What is alive, or a little more: for the path of every record. Wraps where something was removed twice.
    #[inline]
    pub(crate) fn bound(&self) -> u64 {
        let claimed = self.shared.claimed.load(Relaxed);
        // The first thread may count meanwhile.
        let freed = || self.first.freed.load(Acquire);
        let (_, first) = difference(|| self.first.allocated.load(Acquire), freed);
        claimed.wrapping_add(first)
    }

    /// Makes the bound exact, though threads contend for it: from the next call of each thread on, it claims nothing in
    /// advance.
    pub(crate) fn set_exact(&self, on: bool) {
        let shared = &self.shared;
        shared.is_exact.store(on, Relaxed);
        let was_contended = shared.switches.load(Relaxed) > SWITCHES;
        shared.is_contended.store(!on && was_contended, Relaxed);
    }

    /// The most that was alive at one time, without what another thread is just counting: one load.
    pub(crate) fn raised_peak(&self) -> u64 {
        self.shared.peak.load(Relaxed)
    }

    /// The most that was alive at one time.
    pub(crate) fn peak(&self) -> u64 {
        // Another thread may have counted its bytes and not yet raised the peak.
        self.raised_peak().max(self.live())
    }
}

impl Shared {
    #[inline]
    fn note_slot(&self, index: usize) {
        if self.last_slot.load(Relaxed) != index {
            self.note_switch(index);
        }
    }

    #[cold]
    fn note_switch(&self, index: usize) {
        self.last_slot.store(index, Relaxed);
        let is_contended = self.switches.fetch_add(1, Relaxed) == SWITCHES;
        if is_contended && !self.is_exact.load(Relaxed) {
            self.is_contended.store(true, Relaxed);
        }
    }
}

/// How often two sums are read, at most.
const READS: usize = 8;

/// What was allocated, and how much of it is alive. Other threads allocate and free meanwhile. What was freed is read first,
/// or else a resource that is allocated and freed in between would count as freed only; so it counts as alive, and both are read
/// again.
fn difference(allocated: impl Fn() -> u64, freed: impl Fn() -> u64) -> (u64, u64) {
    let mut before = freed();
    let mut least = (0, u64::MAX);
    for _ in 0..READS {
        let all = allocated();
        // What was put back under another kind was freed less often than never.
        let live = not_below_zero(all.wrapping_sub(before));
        if live <= least.1 {
            least = (all, live);
        }
        let after = freed();
        if after == before {
            break;
        }
        before = after;
    }
    least
}

fn not_below_zero(bytes: u64) -> u64 {
    if bytes > i64::MAX as u64 { 0 } else { bytes }
}

#[cfg(test)]
mod tests;
