//! Who has memory of the device beside the guards of the context: pools, other contexts, processes.

/// A memory pool of the driver's.
///
/// ```
/// assert_eq!(cuguard::oom::PoolUse::new("the device's pool", 300, 100).unused(), 200);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolUse {
    /// What it is called.
    pub name: String,
    /// What it has taken from the device.
    pub reserved: u64,
    /// What is allocated from it.
    pub used: u64,
    /// What it may keep when it has nothing to do, where the driver tells.
    pub threshold: Option<u64>,
}

/// Another context of this process.
///
/// ```
/// assert_eq!(cuguard::oom::OtherContext::new(2, 4096).bytes, 4096);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherContext {
    /// Its number, as in reports.
    pub number: u64,
    /// The device memory that its guards hold, stream-ordered memory too.
    pub bytes: u64,
    /// How much of it is stream-ordered, and so lies in pools.
    pub pooled: u64,
    /// How many blocks that is.
    pub pooled_blocks: u64,
    /// What the rest takes in whole pages; `None` where not every block has a record.
    pub taken: Option<u64>,
    /// Managed memory, which may lie on the host.
    pub managed: u64,
    /// Device memory that was given away; whoever has it may have freed it.
    pub given_away: u64,
    /// The same of stream-ordered memory.
    pub pooled_given_away: u64,
}

/// Which processes hold memory of a device.
///
/// ```
/// assert!(matches!(cuguard::oom::Processes::default(), cuguard::oom::Processes::Unknown(_)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Processes {
    /// Those that can be seen, the largest first. In a container others may be hidden, and this process
    /// may be listed under another number.
    Known(Vec<ProcessUse>),
    /// Nobody could be asked; says why.
    Unknown(String),
}

/// A process that holds memory of a device.
///
/// ```
/// let process = cuguard::oom::ProcessUse::new(4711, 1 << 30);
/// assert_eq!(process.pid, 4711);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessUse {
    /// Its number.
    pub pid: u32,
    /// What it is called, where that may be known.
    pub name: Option<String>,
    /// What it holds, where that may be known.
    pub bytes: Option<u64>,
    /// Whether it is this process.
    pub own: bool,
}

impl PoolUse {
    /// A pool with so many bytes, and so many of them in use.
    ///
    /// ```
    /// assert_eq!(cuguard::oom::PoolUse::new("", 2, 1).reserved, 2);
    /// ```
    #[must_use]
    pub fn new(name: impl Into<String>, reserved: u64, used: u64) -> Self {
        Self {
            name: name.into(),
            reserved,
            used,
            threshold: None,
        }
    }

    /// What it has and does not use.
    ///
    /// ```
    /// assert_eq!(cuguard::oom::PoolUse::new("", 2, 1).unused(), 1);
    /// ```
    #[must_use]
    pub const fn unused(&self) -> u64 {
        self.reserved.saturating_sub(self.used)
    }
}

impl OtherContext {
    /// A context with this number, whose guards hold so much.
    ///
    /// ```
    /// assert_eq!(cuguard::oom::OtherContext::new(2, 1).number, 2);
    /// ```
    #[must_use]
    pub const fn new(number: u64, bytes: u64) -> Self {
        Self {
            number,
            bytes,
            pooled: 0,
            pooled_blocks: 0,
            taken: None,
            managed: 0,
            given_away: 0,
            pooled_given_away: 0,
        }
    }

    /// What its blocks outside of pools take of the device, as far as is known.
    pub(super) const fn taken_outside_pools(&self) -> u64 {
        let plain = self.bytes.saturating_sub(self.pooled);
        match self.taken {
            Some(taken) if taken > plain => taken,
            _ => plain,
        }
    }
}

impl Default for Processes {
    fn default() -> Self {
        Self::Unknown("nobody was asked".to_owned())
    }
}

impl ProcessUse {
    /// Another process that holds so much.
    ///
    /// ```
    /// assert!(!cuguard::oom::ProcessUse::new(1, 2).own);
    /// ```
    #[must_use]
    pub const fn new(pid: u32, bytes: u64) -> Self {
        Self {
            pid,
            name: None,
            bytes: Some(bytes),
            own: false,
        }
    }
}
