//! What graphs use of device memory: figures, and addresses.

/// What graphs use of a device's memory, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GraphUsage {
    /// In blocks, what is allocated now.
    pub(super) allocated: u64,
    /// In chunks, and with what is kept for the next launch. A real driver reports this as used, too.
    pub(crate) used: u64,
    /// In chunks: what launches reserved that were refused. No launch uses it, and it stays reserved until the process ends.
    /// (The conformance suite tests that.)
    pub(super) stuck: u64,
    pub(crate) used_high: u64,
    pub(crate) reserved_high: u64,
}

impl GraphUsage {
    pub(crate) const fn reserved(&self) -> u64 {
        self.used + self.stuck
    }

    pub(super) fn note_peak(&mut self) {
        self.used_high = self.used_high.max(self.used);
        self.reserved_high = self.reserved_high.max(self.reserved());
    }
}

/// An address that a node allocates at.
#[derive(Debug)]
pub(crate) struct GraphAddress {
    pub(crate) device: u32,
    pub(crate) bytes: u64,
    /// Of the reserved addresses.
    pub(super) size: u64,
    /// The graph, and its instances.
    pub(super) owners: usize,
}
