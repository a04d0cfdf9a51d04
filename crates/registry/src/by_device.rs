//! Device memory by device, of records under keys [by address](crate::Key::by_address): one registry has those of all devices.

use std::sync::OnceLock;

use crate::counters::Totals;
use crate::kind::ResourceKind;
use crate::live_bytes::LiveBytes;
use crate::owner::{DEVICE_SLOTS, Owner};
use crate::record::Record;

/// What is alive of all kinds of device memory together, by device. Exact as [`Counters`](crate::counters::Counters) are.
pub(crate) struct ByDevice([OnceLock<Box<LiveBytes>>; DEVICE_SLOTS]);

impl Default for ByDevice {
    fn default() -> Self {
        Self([const { OnceLock::new() }; DEVICE_SLOTS])
    }
}

impl ByDevice {
    /// Its counters, if it is device memory.
    #[inline]
    fn of(&self, kind: ResourceKind, owner: Owner) -> Option<&LiveBytes> {
        let slot = || &self.0[owner.device_slot()];
        kind.is_device_memory()
            .then(|| &**slot().get_or_init(Box::default))
    }

    /// Counts an allocation.
    #[inline]
    pub(crate) fn add(&self, kind: ResourceKind, owner: Owner, bytes: u64) {
        if let Some(live) = self.of(kind, owner) {
            live.add(bytes);
        }
    }

    /// Counts a free.
    #[inline]
    pub(crate) fn sub(&self, kind: ResourceKind, record: &Record) {
        if let Some(live) = self.of(kind, record.owner()) {
            live.sub(record.bytes());
        }
    }

    /// Undoes a [`sub`](Self::sub).
    #[cold]
    pub(crate) fn restore(&self, kind: ResourceKind, record: &Record) {
        if let Some(live) = self.of(kind, record.owner()) {
            live.restore(record.bytes());
        }
    }

    /// The devices that had memory, by ordinal; first what is on an unknown one.
    pub(crate) fn totals(&self) -> Vec<(Option<u32>, Totals)> {
        let slots = (0_u32..).zip(&self.0);
        slots
            .filter_map(|(slot, live)| Some((slot.checked_sub(1), Totals::of(live.get()?))))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Entry, Key, Owner, Registry, ResourceKind, Trace, TrackingLevel};

    /// Live bytes and the peak of each device.
    fn figures(registry: &Registry) -> Vec<(Option<u32>, u64, u64)> {
        let totals = registry.device_totals().into_iter();
        totals
            .map(|(device, totals)| (device, totals.bytes, totals.peak_bytes))
            .collect()
    }

    fn insert(registry: &Registry, kind: ResourceKind, address: u64, bytes: u64, owner: Owner) {
        let entry = Entry {
            bytes,
            ..Entry::of_handle("")
        };
        let key = Key::by_address(kind, address);
        registry.insert_traced(key, entry, Trace::new(&[7]), owner);
    }

    /// By every way in which a record ends, and comes back.
    #[test]
    fn each_end_of_a_record_counts_once() {
        let registry = Registry::new(TrackingLevel::Stacks, 8);
        assert_eq!(figures(&registry), []);
        let on = |context, device| Owner::context(context).on(Some(device));
        insert(&registry, ResourceKind::Device, 0x1000, 100, on(1, 0));
        insert(&registry, ResourceKind::Managed, 0x2000, 30, on(2, 1));
        insert(&registry, ResourceKind::Device, 0x3000, 7, on(2, 1));
        insert(&registry, ResourceKind::Pinned, 0x4000, 9000, on(1, 0));
        insert(&registry, ResourceKind::Mapped, 0x5000, 1, Owner::default());
        insert(&registry, ResourceKind::StreamOrdered, 0x6000, 4, on(0, 1));
        assert_eq!(
            figures(&registry),
            [(None, 1, 1), (Some(0), 100, 100), (Some(1), 41, 41)]
        );
        // A free that fails.
        let removed = registry.remove_any(&[ResourceKind::Device], 0x1000);
        assert_eq!(figures(&registry)[1], (Some(0), 0, 100));
        registry.put_back_removed(&removed.expect("it was inserted"));
        assert_eq!(figures(&registry)[1], (Some(0), 100, 100));
        // Physical memory that stays mapped without its handle is the same memory.
        insert(&registry, ResourceKind::Physical, 0x7, 50, on(0, 1));
        let key = |kind, address| Key::by_address(kind, address);
        let (handle, mapped) = (
            key(ResourceKind::Physical, 0x7),
            key(ResourceKind::Mapped, 0x8000),
        );
        assert!(registry.rekey(handle, mapped));
        assert_eq!(figures(&registry)[2], (Some(1), 91, 91));
        // An address that was freed unseen, from the table and from the newest records.
        registry.for_each(|_, _| {});
        insert(&registry, ResourceKind::Device, 0x3000, 8, on(2, 1));
        insert(&registry, ResourceKind::Device, 0x3000, 9, on(2, 0));
        registry.for_each(|_, _| {});
        let live = |registry: &Registry| -> Vec<u64> {
            let figures = figures(registry).into_iter();
            figures.map(|(_, bytes, _)| bytes).collect()
        };
        assert_eq!(live(&registry), [1, 109, 84]);
        // On another thread, and with the context.
        std::thread::scope(|scope| {
            let freed = || registry.remove(key(ResourceKind::StreamOrdered, 0x6000), 4);
            assert!(scope.spawn(freed).join().expect("it runs").is_some());
        });
        registry.destroy_context(2, |_, _| false);
        assert_eq!(live(&registry), [1, 100, 50]);
        let device_bytes: u64 = ResourceKind::ALL
            .iter()
            .filter(|kind| kind.is_device_memory())
            .map(|kind| registry.totals(*kind).bytes)
            .sum();
        assert_eq!(device_bytes, 151);
    }
}
