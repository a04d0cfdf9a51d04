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
            .filter_map(|(slot, live)| Some((slot.checked_sub(1), live.get()?.totals())))
            .collect()
    }
}
