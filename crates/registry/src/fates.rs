//! What a search found of what is live, in the recording.

use cuguard_recording::{Found, is_on, record_found};

use crate::group::Fate;
use crate::record::{Key, Record};
use crate::registry::Registry;

impl Registry {
    /// Adds to the recording what a search found of each live resource. Those that `fate` does not call lost or reachable
    /// are left out: nothing is known of them.
    ///
    /// ```
    /// use cuguard_registry::{Fate, TrackingLevel, Registry};
    ///
    /// Registry::new(TrackingLevel::Stacks, 32).record_fates(|_, _| Fate::Lost); // nothing without a recording
    /// ```
    pub fn record_fates(&self, fate: impl Fn(&Key, &Record) -> Fate) {
        if !is_on() {
            return;
        }
        let mut found = Vec::new();
        self.for_each(|key, record| {
            let lost = match fate(key, record) {
                Fate::Lost => true,
                Fate::Reachable => false,
                Fate::Unclassified | Fate::DestroyedWithContext | Fate::FreedLate => return,
            };
            let context = match key.is_by_address() {
                true => record.context(),
                false => self.context(),
            };
            found.push(Found {
                kind: key.kind.index() as u8,
                address: key.address,
                context,
                lost,
            });
        });
        // Not above: the registry is locked there.
        record_found(found);
    }
}
