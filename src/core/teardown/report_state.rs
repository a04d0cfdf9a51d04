//! The report of a context: made once, by teardown or by the exit handler.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::MutexGuard;
use std::time::Instant;

use cuguard_registry::SnapshotReason;
use cuguard_report as report;
use cuguard_sync::process;

use crate::core::owned::escaped_pools;
use crate::core::shared::context_state::{ContextState, ReportState, this_thread};
use crate::core::shared::lock::lock;
use crate::core::shared::open_contexts;

/// Sets `Reported` on drop, however the report ends.
struct SetReported<'a>(&'a ContextState);

impl Drop for SetReported<'_> {
    fn drop(&mut self) {
        *self.0.lock_report() = ReportState::Reported;
        self.0.reported.notify_all();
        open_contexts::remove(self.0);
    }
}

impl ContextState {
    pub(crate) fn lock_report(&self) -> MutexGuard<'_, ReportState> {
        lock(&self.report_state)
    }

    /// Takes the snapshot that is reported later. False if the exit handler reports already.
    pub(in crate::core) fn take_snapshot(&self, reason: SnapshotReason) -> bool {
        escaped_pools::mark_all_of(self);
        // Locked, so that a guard that is dropped meanwhile is in the snapshot or counts as a late drop.
        let mut state = self.lock_report();
        let is_ours = matches!(*state, ReportState::Pending);
        if is_ours {
            *state = ReportState::Taken(Box::new(self.snapshot(reason)));
        }
        is_ours
    }

    /// Reports the context, once. Does not call the driver.
    pub(crate) fn report_once(&self) {
        let taken = {
            let mut state = self.lock_report();
            if matches!(*state, ReportState::Reporting(_) | ReportState::Reported) {
                return;
            }
            std::mem::replace(&mut *state, ReportState::Reporting(this_thread()))
        };
        let _reported = SetReported(self);
        escaped_pools::mark_all_of(self);
        let mut snapshot = match taken {
            ReportState::Taken(mut snapshot) => {
                snapshot.failed_frees = self.registry.failed_frees();
                snapshot.broken = self.registry.broken();
                snapshot.not_released = self.registry.not_released();
                *snapshot
            }
            _ if self.is_dropped() => self.snapshot(SnapshotReason::KeptOpen),
            _ => self.snapshot(SnapshotReason::NeverClosed),
        };
        // Later ones are reported at exit.
        snapshot.late_drops = self.registry.late().take();
        // The report may run the program's logger, and a drop must not panic.
        drop(catch_unwind(AssertUnwindSafe(|| {
            report::emit(&snapshot, &self.report, process::is_exiting());
        })));
    }

    /// Waits for a report on another thread, until `until`: it may need a lock that the thread which called `exit`
    /// holds.
    pub(crate) fn wait_for_report(&self, until: Instant) {
        let left = until.saturating_duration_since(Instant::now());
        let in_progress = |state: &mut ReportState| matches!(*state, ReportState::Reporting(thread) if thread != this_thread());
        let waited = self
            .reported
            .wait_timeout_while(self.lock_report(), left, in_progress);
        drop(waited);
    }
}
