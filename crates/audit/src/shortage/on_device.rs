//! Which of the process's memory is on the device that ran out. There is one registry for all devices.

use std::collections::HashSet;

use cuguard_registry::{Key, Record, Registry, ResourceKind};
use cuguard_sys::CUdevice;

use crate::state::{contexts, mappings};

/// The memory on one device.
pub(super) struct OnDevice {
    /// Whether the driver shows no other device.
    is_only: bool,
    /// The contexts on the device.
    contexts: Vec<u32>,
    /// The records of memory on the device that no context owns: stream-ordered, physical and graph memory.
    without_context: HashSet<Key>,
}

impl OnDevice {
    pub(super) fn new(
        registry: &Registry,
        device: CUdevice,
        is_current: bool,
        is_only: bool,
    ) -> Self {
        let mut contexts = contexts::on_device(device);
        if is_current {
            // Also where the program did not create it by a recorded call.
            contexts.push(contexts::current());
        }
        let mut without_context = HashSet::new();
        registry.for_each(|key, record| {
            if key.kind.is_device_memory() && record.context() == 0 {
                without_context.insert(*key);
            }
        });
        // Not above, where the registry is locked: the driver is called.
        without_context.retain(|key| match key.kind {
            ResourceKind::Physical | ResourceKind::Mapped => {
                let own = mappings::device_of(key.kind, key.address);
                own.map_or(is_only, |own| own == device)
            }
            _ => is_only || contexts::device_of_pointer(key.address) == Some(device),
        });
        Self {
            is_only,
            contexts,
            without_context,
        }
    }

    /// Whether a record counts: all but memory of other devices.
    pub(super) fn has(&self, key: &Key, record: &Record) -> bool {
        match (key.kind.is_device_memory(), record.context()) {
            (false, _) => true,
            (true, 0) => self.without_context.contains(key),
            (true, context) => self.is_only || self.contexts.contains(&context),
        }
    }
}
