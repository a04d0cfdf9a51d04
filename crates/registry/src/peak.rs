//! The peak of device memory since a moment, exactly; see [`PeakWatch`].
//!
//! The peaks of the counters are by kind and since the context exists, and the most of a sum is not the sum of the most. So
//! while a peak is watched, each allocation adds up what is alive. Otherwise it costs nothing: that a peak is watched is a bit
//! of the level, which every allocation reads.

use std::sync::Arc;

use crate::registry::Registry;
use crate::snapshot::{ContextInfo, Snapshot};
use crate::watches::Watch;

/// A snapshot is made when a peak above the limit exceeds the last one's by this share.
const STEP: u64 = 64;

/// The most bytes of device memory that are alive at one time, from its creation to its drop.
///
/// Memory that was alive before counts. Exact, but for what happens at the same moment: a peak that another thread ends
/// before the allocating one has looked may be missed, and blocks of different kinds that are allocated and freed meanwhile
/// may be counted together.
///
/// ```
/// use std::panic::Location;
/// use cuguard_registry::{Entry, Key, ResourceKind, TrackingLevel, PeakWatch, Registry};
///
/// let registry = Registry::new(TrackingLevel::Sites, 1);
/// let watch = PeakWatch::new(&registry, 1000);
/// let (key, entry) = (Key::new(ResourceKind::Device, 0x1000), Entry { bytes: 1500, ..Entry::of_handle("f32") });
/// registry.insert_at(Location::caller(), key, entry);
/// registry.remove(key, 1500);
/// assert_eq!(watch.peak(), 1500);
/// // What was alive then.
/// assert_eq!(watch.snapshot().unwrap().live[0].amount.bytes, 1500);
/// ```
#[derive(Debug)]
pub struct PeakWatch<'r> {
    registry: &'r Registry,
    watch: Arc<Watch>,
}

impl<'r> PeakWatch<'r> {
    /// Watches from now on, until the drop. What is alive at a peak of `limit` bytes or more is kept, within 2 %.
    #[must_use]
    pub fn new(registry: &'r Registry, limit: u64) -> Self {
        let watch = Arc::new(Watch::new(limit));
        registry.watches.list().push(watch.clone());
        registry.counters.set_exact(true);
        registry.set_watched(true);
        // What is alive already may be more.
        registry.observe_peak();
        Self { registry, watch }
    }

    /// The most bytes so far.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.watch.seen().peak
    }

    /// What was alive at the peak, if that was the limit or more.
    #[must_use]
    pub fn snapshot(&self) -> Option<Snapshot> {
        self.watch.seen().snapshot.clone()
    }
}

impl Drop for PeakWatch<'_> {
    fn drop(&mut self) {
        let mut list = self.registry.watches.list();
        list.retain(|watch| !Arc::ptr_eq(watch, &self.watch));
        // Under the lock: another watch may begin now.
        if list.is_empty() {
            self.registry.set_watched(false);
            self.registry.counters.set_exact(false);
        }
    }
}

impl Registry {
    /// Called after every allocation while a peak is watched.
    #[cold]
    #[inline(never)]
    pub(crate) fn observe_peak(&self) {
        let bytes = self.counters.exact_device_bytes();
        // Released before a snapshot is made, which may take long.
        let watches: Vec<Arc<Watch>> = self.watches.list().clone();
        for watch in watches {
            let mut seen = watch.seen();
            seen.peak = seen.peak.max(bytes);
            if bytes < watch.limit || bytes <= seen.copied.saturating_add(seen.copied / STEP) {
                continue;
            }
            seen.copied = bytes;
            // Other threads that allocate wait: what is copied is close to the peak.
            seen.snapshot = Some(self.snapshot(ContextInfo::default()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::PeakWatch;
    use crate::{Entry, Key, Registry, ResourceKind, TrackingLevel};

    fn insert(registry: &Registry, kind: ResourceKind, address: u64, bytes: u64) {
        let entry = Entry {
            bytes,
            ..Entry::of_handle("f32")
        };
        registry.insert(Key::new(kind, address), entry);
    }

    fn remove(registry: &Registry, kind: ResourceKind, address: u64, bytes: u64) {
        registry.remove(Key::new(kind, address), bytes);
    }

    /// At every level, and the most of a sum, not the sum of the most of each kind.
    #[test]
    fn a_peak_since_a_moment_over_kinds() {
        for level in [
            TrackingLevel::Counts,
            TrackingLevel::Sites,
            TrackingLevel::Stacks,
        ] {
            let registry = Registry::new(level, 8);
            insert(&registry, ResourceKind::Device, 1, 5000);
            remove(&registry, ResourceKind::Device, 1, 5000);
            insert(&registry, ResourceKind::Device, 2, 100);
            let watch = PeakWatch::new(&registry, 10_000);
            assert_eq!(watch.peak(), 100, "{level}");
            insert(&registry, ResourceKind::StreamOrdered, 3, 700);
            remove(&registry, ResourceKind::StreamOrdered, 3, 700);
            insert(&registry, ResourceKind::Managed, 4, 600);
            // No memory of a device.
            insert(&registry, ResourceKind::Pinned, 5, 90_000);
            assert_eq!(watch.peak(), 800, "{level}");
            assert_eq!(watch.snapshot(), None);
            assert_eq!(registry.level(), level);
            drop(watch);
            insert(&registry, ResourceKind::Device, 6, 90_000);
            assert_eq!(registry.totals(ResourceKind::Device).peak_bytes, 90_100);
        }
    }

    #[test]
    fn what_is_recorded_by_address_counts() {
        let registry = Registry::new(TrackingLevel::Stacks, 8);
        let watch = PeakWatch::new(&registry, u64::MAX);
        let insert = |kind, address, bytes| {
            let entry = Entry {
                bytes,
                ..Entry::of_handle("")
            };
            registry.insert_stack(Key::by_address(kind, address), entry, &[7], 1);
        };
        insert(ResourceKind::Device, 0x1000, 500);
        registry.remove_any(&[ResourceKind::Device], 0x1000);
        insert(ResourceKind::Managed, 0x2000, 300);
        insert(ResourceKind::Pinned, 0x3000, 9000);
        assert_eq!(watch.peak(), 500);
    }

    #[test]
    fn watches_may_overlap_and_the_level_may_change() {
        let registry = Registry::new(TrackingLevel::Sites, 8);
        let outer = PeakWatch::new(&registry, 0);
        insert(&registry, ResourceKind::Device, 1, 100);
        let inner = PeakWatch::new(&registry, 0);
        registry.set_level(TrackingLevel::Counts);
        insert(&registry, ResourceKind::Device, 2, 50);
        remove(&registry, ResourceKind::Device, 1, 100);
        drop(outer);
        insert(&registry, ResourceKind::Device, 3, 300);
        assert_eq!(inner.peak(), 350);
        assert_eq!(registry.level(), TrackingLevel::Counts);
    }

    #[test]
    fn what_was_alive_at_the_peak_is_kept() {
        let registry = Registry::new(TrackingLevel::Sites, 8);
        let watch = PeakWatch::new(&registry, 1000);
        for address in 0..100 {
            insert(&registry, ResourceKind::Device, address, 100);
        }
        for address in 0..100 {
            remove(&registry, ResourceKind::Device, address, 100);
        }
        assert_eq!(watch.peak(), 10_000);
        let copied = watch.snapshot().unwrap().live[0].amount.bytes;
        assert!((9_800..=10_000).contains(&copied), "{copied}");
    }

    #[test]
    fn threads_together_reach_at_least_what_each_had() {
        let registry = Registry::new(TrackingLevel::Sites, 8);
        let watch = PeakWatch::new(&registry, u64::MAX);
        thread::scope(|scope| {
            for thread in 1..=4_u64 {
                let registry = &registry;
                scope.spawn(move || {
                    for round in 0..500 {
                        let address = thread * 1000 + round;
                        insert(registry, ResourceKind::Device, address, 100 * thread);
                        remove(registry, ResourceKind::Device, address, 100 * thread);
                    }
                });
            }
        });
        assert!((400..=1000).contains(&watch.peak()), "{}", watch.peak());
    }
}
