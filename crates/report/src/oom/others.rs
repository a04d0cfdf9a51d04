//! What holds memory of the device beside the context: pools, other contexts, processes.

/// A memory pool.
///
/// ```
/// use cuguard::oom::PoolUse;
///
/// assert_eq!(PoolUse { reserved: 300, used: 100, ..PoolUse::default() }.unused(), 200);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolUse {
    /// Its name.
    pub name: String,
    /// What it has reserved of the device.
    pub reserved: u64,
    /// What is allocated from it.
    pub used: u64,
    /// Its release threshold, where that is known.
    pub threshold: Option<u64>,
    /// Whether it is a pool of cuguard, from which only guards allocate.
    pub of_cuguard: bool,
}

/// What graphs of this process have reserved of the device: for memory that their nodes allocate.
///
/// ```
/// use cuguard_report::oom::GraphMemoryUse;
///
/// assert_eq!(GraphMemoryUse { reserved: 300, used: 100 }.lost(), 200);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphMemoryUse {
    /// All of it.
    pub reserved: u64,
    /// What graphs use, or the driver keeps for their launches.
    pub used: u64,
}

/// What graphs reserve at a time. Measured on an H200.
pub const GRAPH_CHUNK: u64 = 32 << 20;

impl GraphMemoryUse {
    /// What launches reserved that failed for lack of memory. Nothing can use it, and the driver releases it when the process
    /// ends.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.reserved.saturating_sub(self.used)
    }
}

/// Another context of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherContext {
    /// Its number, as in reports.
    pub number: u64,
    /// The device memory that its guards hold, stream-ordered memory too.
    pub bytes: u64,
    /// How much of it is stream-ordered, and so in pools.
    pub pooled: u64,
    /// In how many blocks.
    pub pooled_blocks: u64,
    /// What the rest occupies in whole pages; `None` where not every block has a record.
    pub taken: Option<u64>,
    /// Managed memory, which may be on the host.
    pub managed: u64,
    /// Escaped device memory, which the new owner may have freed.
    pub escaped: u64,
    /// Escaped stream-ordered memory.
    pub pooled_escaped: u64,
}

/// The processes that hold memory of a device.
///
/// ```
/// assert!(matches!(cuguard::oom::Processes::default(), cuguard::oom::Processes::Unknown(_)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Processes {
    /// Those that are visible, the largest first. In a container others may be hidden, and this process may
    /// be listed under another pid.
    Known(Vec<ProcessUse>),
    /// They are not known; the reason.
    Unknown(String),
}

/// A process that holds memory of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessUse {
    /// Its process id.
    pub pid: u32,
    /// Its name, where that is known.
    pub name: Option<String>,
    /// What it holds, where that is known.
    pub bytes: Option<u64>,
    /// Whether it is this process.
    pub own: bool,
}

impl PoolUse {
    /// What it has reserved and does not use.
    #[must_use]
    pub const fn unused(&self) -> u64 {
        self.reserved.saturating_sub(self.used)
    }
}

impl OtherContext {
    /// What its blocks outside of pools occupy, as far as is known.
    pub(super) fn taken_outside_pools(&self) -> u64 {
        let plain = self.bytes.saturating_sub(self.pooled);
        plain.max(self.taken.unwrap_or(0))
    }
}

impl Default for Processes {
    fn default() -> Self {
        Self::Unknown("not queried".to_owned())
    }
}
