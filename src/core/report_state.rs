//! The report of a context: made once, by teardown or by the exit handler.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{MutexGuard, PoisonError};
use std::time::Instant;

use cuguard_registry::{Snapshot, SnapshotReason};
use cuguard_report as report;
use cuguard_sync::process;

use super::context_state::{ContextState, this_thread};
use super::open_contexts;

/// How far the telling of what leaked has come.
#[derive(Debug, Default)]
pub(crate) enum ReportState {
    #[default]
    Unknown,
    /// What there was when teardown looked.
    Known(Box<Snapshot>),
    /// It is being told, by the thread with this number.
    Telling(usize),
    Told,
}

/// Says that it is told, however the telling ends.
struct Told<'a>(&'a ContextState);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        *self.0.lock_story() = ReportState::Told;
        self.0.told.notify_all();
        open_contexts::remove(self.0);
    }
}

impl ContextState {
    pub(crate) fn lock_story(&self) -> MutexGuard<'_, ReportState> {
        self.story.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pools that stay for memory which was released to the program are no leak.
    fn escape_stray_pools(&self) {
        for pool in self.escaped_pools().values() {
            self.registry.escape(pool.key(), 0);
        }
    }

    /// Takes down what there is. False where somebody else tells already.
    pub(super) fn note(&self, reason: SnapshotReason) -> bool {
        self.escape_stray_pools();
        // Locked, so that a guard that is dropped meanwhile is in it, or knows that it is late.
        let mut story = self.lock_story();
        let ours = matches!(*story, ReportState::Unknown);
        if ours {
            *story = ReportState::Known(Box::new(self.snapshot(reason)));
        }
        ours
    }

    /// Whether all is told.
    pub(crate) fn is_told(&self) -> bool {
        matches!(*self.lock_story(), ReportState::Told)
    }

    /// Reports what there was, once. Calls no driver.
    pub(crate) fn tell(&self) {
        let story = {
            let mut story = self.lock_story();
            if matches!(*story, ReportState::Telling(_) | ReportState::Told) {
                return;
            }
            std::mem::replace(&mut *story, ReportState::Telling(this_thread()))
        };
        let _told = Told(self);
        self.escape_stray_pools();
        let mut snapshot = match story {
            ReportState::Known(mut snapshot) => {
                snapshot.failed_frees = self.registry.failed_frees();
                snapshot.broken = self.registry.broken();
                snapshot.not_released = self.registry.not_released();
                *snapshot
            }
            _ if self.is_dropped() => self.snapshot(SnapshotReason::KeptOpen),
            _ => self.snapshot(SnapshotReason::NeverClosed),
        };
        // Those that come after this are told at the end of the process.
        snapshot.late_drops = self.registry.late().take();
        // The report may run the program's logger. Whatever that does, the rest is done, and a drop
        // does not panic.
        let reported = catch_unwind(AssertUnwindSafe(|| {
            report::emit(&snapshot, &self.report, process::is_exiting());
        }));
        drop(reported);
    }

    /// Lets another thread that is just telling end, for a while. (Not for ever: it may wait for a
    /// lock that the thread holds which called `exit`.)
    pub(crate) fn let_telling_end(&self, until: Instant) {
        let mut story = self.lock_story();
        while matches!(*story, ReportState::Telling(thread) if thread != this_thread()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.told.wait_timeout(story, left);
            story = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
