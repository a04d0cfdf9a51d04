//! Shared by the unit tests.

use std::panic::Location;

use cuguard_registry::{Entry, Key, Registry};

/// Records at the calling line.
pub(crate) trait Insert {
    /// [`Registry::insert_at`] the calling line.
    fn insert(&self, key: Key, entry: Entry);
}

impl Insert for Registry {
    #[track_caller]
    fn insert(&self, key: Key, entry: Entry) {
        self.insert_at(Location::caller(), key, entry);
    }
}
