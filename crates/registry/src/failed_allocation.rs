//! Why allocations failed, in the recording.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use cuguard_recording::{Event, What, record_diagnosis};

/// How many diagnoses of one call site are recorded: a program that tries with less and less memory needs no more, and each has names of
/// functions to be looked up.
const DIAGNOSES: u32 = 4;

/// An allocation that failed, as it is recorded.
#[derive(Debug)]
#[must_use = "without its diagnosis, the recording does not say why it failed"]
pub struct FailedAllocation(pub(crate) Option<Event>);

impl FailedAllocation {
    /// Adds to the recording why it failed. `text` is called only if that is written: while a recording is on, for the first few failures
    /// of a call site.
    pub fn diagnose(self, text: impl FnOnce() -> String) {
        static COUNTS: LazyLock<Mutex<HashMap<u32, u32>>> = LazyLock::new(Mutex::default);
        let Some(event) = self.0 else {
            return;
        };
        let What::OutOfMemory { stack, .. } = event.what else {
            return;
        };
        let count = {
            let mut counts = cuguard_sync::lock(&COUNTS);
            let count = counts.entry(stack).or_default();
            *count = count.saturating_add(1);
            *count
        };
        if count <= DIAGNOSES {
            record_diagnosis(&event, &text());
        }
    }
}
