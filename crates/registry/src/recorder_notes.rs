//! What a recording has beside events: why allocations failed, and what a search found of what is live.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use cuguard_recording::{Event, Found, What, is_on, record_diagnosis};

use crate::group::Fate;
use crate::record::{Key, Record};
use crate::registry::Registry;

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
            let mut counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
            let count = counts.entry(stack).or_default();
            *count = count.saturating_add(1);
            *count
        };
        if count <= DIAGNOSES {
            record_diagnosis(&event, &text());
        }
    }
}

/// Adds to the recording what a search found of each live resource. Those that `fate` does not call lost or reachable are left out: nothing
/// is known of them.
///
/// ```
/// use cuguard_registry::{Fate, Level, Registry, record_fates};
///
/// record_fates(&Registry::new(Level::Stacks, 32), |_, _| Fate::Lost); // nothing without a recording
/// ```
pub fn record_fates(registry: &Registry, fate: impl Fn(&Key, &Record) -> Fate) {
    if !is_on() {
        return;
    }
    let mut found = Vec::new();
    registry.for_each(|key, record| {
        let lost = match fate(key, record) {
            Fate::Lost => true,
            Fate::Reachable => false,
            Fate::Unclassified | Fate::DestroyedWithContext | Fate::FreedLate => return,
        };
        let context = match key.is_by_address() {
            true => record.context(),
            false => registry.context(),
        };
        found.push(Found {
            kind: key.kind.index() as u8,
            address: key.address,
            context,
            lost,
        });
    });
    // Not above: the registry is locked there.
    cuguard_recording::record_found(found);
}
