//! How many allocations were refused for lack of memory, by device.

use std::collections::BTreeMap;
use std::sync::Mutex;

use cuguard_sync::lock;

use crate::counters::Amount;

/// Counts allocations that were refused for lack of memory.
///
/// ```
/// use cuguard_registry::{Amount, Refusals};
///
/// static REFUSALS: Refusals = Refusals::new();
/// REFUSALS.count(Some(0), 512);
/// REFUSALS.count(Some(0), 256);
/// assert_eq!(REFUSALS.all(), [(Some(0), Amount::new(2, 768))]);
/// ```
#[derive(Debug, Default)]
pub struct Refusals(Mutex<BTreeMap<Option<u32>, Amount>>);

impl Refusals {
    /// None yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Counts one. `device` is `None` for memory of the host, and where it is not known; `bytes` is 0 where only the driver knows
    /// how many it was asked for.
    pub fn count(&self, device: Option<u32>, bytes: u64) {
        *lock(&self.0).entry(device).or_default() += Amount::new(1, bytes);
    }

    /// How many by device, and how many bytes were asked for.
    pub fn all(&self) -> Vec<(Option<u32>, Amount)> {
        lock(&self.0)
            .iter()
            .map(|(device, amount)| (*device, *amount))
            .collect()
    }
}
