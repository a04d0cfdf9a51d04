//! What a pool of cuguard holds, as plain data.

/// What a pool of cuguard holds at one moment, in bytes; see [`Snapshot::pools`](crate::Snapshot::pools).
///
/// ```
/// use cuguard::snapshot::PoolUsage;
///
/// let mut pool = PoolUsage::new(3);
/// assert_eq!(pool.name(), "pool 3");
/// pool.label = Some("activations".into());
/// assert_eq!(pool.name(), "pool \"activations\"");
/// (pool.held, pool.used) = (64 << 20, 10 << 20);
/// assert_eq!(pool.idle(), 54 << 20);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolUsage {
    /// Its number; the process counts its pools from 1. The record of the pool has it as its address.
    pub number: u64,
    /// The name that the program gave it.
    pub label: Option<String>,
    /// Whether all buffers of the context come from it. It ends with the context, and is no leak.
    pub of_context: bool,
    /// Physical memory, all of it.
    pub held: u64,
    /// Blocks that are alive, rounded up.
    pub used: u64,
    /// Freed blocks that threads keep for their next allocations.
    pub cached_by_threads: u64,
    /// Freed blocks that are mapped and free parts of pages, for allocations of the same size. Without what threads keep.
    pub cached: u64,
    /// Physical memory that is mapped nowhere.
    pub unmapped: u64,
    /// Physical memory in pages of 2 MiB.
    pub pages: u64,
    /// Those that a compaction leaves where they are.
    pub pinned_pages: u64,
}

impl PoolUsage {
    /// An empty pool.
    #[must_use]
    pub fn new(number: u64) -> Self {
        Self {
            number,
            ..Self::default()
        }
    }

    /// Its name in reports.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.label {
            Some(label) => format!("pool {label:?}"),
            None => format!("pool {}", self.number),
        }
    }

    /// What it holds and no live block uses: freed blocks, pages without blocks, and the rest of pages that are in use.
    #[must_use]
    pub fn idle(&self) -> u64 {
        self.held.saturating_sub(self.used)
    }
}
