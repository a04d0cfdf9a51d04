//! What can be set.

use std::time::Duration;

/// How much a pool may hold and keep, and which mechanisms it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The most physical memory that the pool may hold, in bytes.
    pub limit: u64,
    /// The idle memory that is kept when idle memory is released after the decay time, in bytes.
    pub keep: u64,
    /// How long memory stays idle before it is released.
    pub decay: Duration,
    /// Whether a block's last page is shared with another block.
    pub share_tails: bool,
    /// Whether half-empty pages are merged when memory runs short.
    pub merge: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limit: u64::MAX,
            keep: 0,
            decay: Duration::from_secs(10),
            share_tails: true,
            merge: true,
        }
    }
}
