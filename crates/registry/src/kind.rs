//! The kinds of resources, and how much is recorded of each.

use std::fmt;
use std::str::FromStr;

/// A kind of resource.
///
/// The order is the order of reports: memory first, then handles.
///
/// ```
/// use cuguard::ResourceKind;
///
/// assert_eq!(ResourceKind::StreamOrdered.to_string(), "stream-ordered memory");
/// assert!(ResourceKind::Pinned.is_memory() && !ResourceKind::Event.is_memory());
/// assert!(ResourceKind::Device < ResourceKind::Stream);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
// As wide as the slot beside it in a key, which then has no padding. The compiler copies a key with
// padding in pieces, and reading whole what was written in pieces stalls store forwarding.
#[repr(u32)]
pub enum ResourceKind {
    /// Device memory.
    Device,
    /// Stream-ordered device memory.
    StreamOrdered,
    /// Device memory of a pool of cuguard.
    Pooled,
    /// Page-locked host memory that cuguard allocated and registered.
    Pinned,
    /// The program's own host memory, registered with the driver.
    Registered,
    /// Write-combined page-locked host memory, which the driver allocated.
    WriteCombined,
    /// Managed memory.
    Managed,
    /// A CUDA array or mipmapped array, which only the audit library records.
    Array,
    /// Physical memory of the virtual memory management functions, by its handle. Only the audit library records it,
    /// and the kinds of memory below.
    Physical,
    /// Physical memory whose handle was released while it is mapped: its address alone keeps it.
    Mapped,
    /// Memory of another process or another API, imported.
    Imported,
    /// Memory that a graph allocates for itself.
    GraphMemory,
    /// A stream.
    Stream,
    /// An event.
    Event,
    /// A loaded module.
    Module,
    /// A memory pool of the driver that the program created.
    MemoryPool,
    /// A pool of cuguard. What it holds is in [`Snapshot::pools`](crate::Snapshot::pools).
    Pool,
    /// Access of this context to the memory of a context on another device.
    PeerAccess,
    /// A graph.
    Graph,
    /// An executable graph.
    GraphExec,
    /// A reserved range of addresses. It has a size and takes no memory. Only the audit library records it, and the
    /// kinds below.
    AddressRange,
    /// A context.
    Context,
    /// A loaded library, which is a module of all contexts.
    Library,
}

impl ResourceKind {
    /// All kinds, in order.
    ///
    /// ```
    /// use cuguard::ResourceKind;
    ///
    /// assert_eq!(ResourceKind::ALL[0], ResourceKind::Device);
    /// assert!(ResourceKind::ALL.is_sorted());
    /// ```
    pub const ALL: &'static [Self] = &[
        Self::Device,
        Self::StreamOrdered,
        Self::Pooled,
        Self::Pinned,
        Self::Registered,
        Self::WriteCombined,
        Self::Managed,
        Self::Array,
        Self::Physical,
        Self::Mapped,
        Self::Imported,
        Self::GraphMemory,
        Self::Stream,
        Self::Event,
        Self::Module,
        Self::MemoryPool,
        Self::Pool,
        Self::PeerAccess,
        Self::Graph,
        Self::GraphExec,
        Self::AddressRange,
        Self::Context,
        Self::Library,
    ];

    /// How many kinds there are.
    pub const COUNT: usize = Self::ALL.len();

    /// Whether it is memory. Otherwise it is a handle without a size, or a range of addresses, whose size is no memory.
    #[must_use]
    pub const fn is_memory(self) -> bool {
        (self as usize) < Self::Stream as usize
    }

    /// Whether it takes memory of a device, which the process itself allocated.
    ///
    /// ```
    /// use cuguard::ResourceKind;
    ///
    /// assert!(ResourceKind::Managed.is_device_memory() && !ResourceKind::Pinned.is_device_memory());
    /// ```
    #[must_use]
    pub const fn is_device_memory(self) -> bool {
        match self {
            Self::Pinned | Self::Registered | Self::WriteCombined | Self::Imported => false,
            _ => self.is_memory(),
        }
    }

    /// How many kinds take memory of a device.
    const DEVICE_COUNT: usize = {
        let (mut at, mut count) = (0, 0);
        while at < Self::COUNT {
            count += Self::ALL[at].is_device_memory() as usize;
            at += 1;
        }
        count
    };

    /// Those that take memory of a device, for sums on the path of every record.
    pub(crate) const OF_DEVICES: [Self; Self::DEVICE_COUNT] = {
        let mut found = [Self::Device; Self::DEVICE_COUNT];
        let (mut at, mut count) = (0, 0);
        while at < Self::COUNT {
            if Self::ALL[at].is_device_memory() {
                found[count] = Self::ALL[at];
                count += 1;
            }
            at += 1;
        }
        found
    };

    /// The name in JSON and the words in text, by index.
    const NAMES: [(&'static str, &'static str); Self::COUNT] = [
        ("device", "device memory"),
        ("stream_ordered", "stream-ordered memory"),
        ("pooled", "pool memory"),
        ("pinned", "pinned host memory"),
        ("registered", "registered host memory"),
        ("write_combined", "write-combined host memory"),
        ("managed", "managed memory"),
        ("array", "array memory"),
        ("physical", "physical memory"),
        ("mapped", "mapped physical memory"),
        ("imported", "imported memory"),
        ("graph_memory", "graph memory"),
        ("stream", "stream"),
        ("event", "event"),
        ("module", "module"),
        ("memory_pool", "memory pool"),
        ("pool", "pool"),
        ("peer_access", "peer access"),
        ("graph", "graph"),
        ("graph_exec", "executable graph"),
        ("address_range", "reserved address range"),
        ("context", "context"),
        ("library", "library"),
    ];

    /// Its name in JSON, which never changes.
    ///
    /// ```
    /// # use cuguard::ResourceKind;
    /// assert_eq!(ResourceKind::StreamOrdered.name(), "stream_ordered");
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }

    /// Its index in arrays by kind.
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The order in which teardown frees: an executable graph refers to memory and modules; memory may need its stream
    /// and its pool, an event its stream.
    pub(crate) const fn teardown_rank(self) -> u8 {
        match self {
            Self::GraphExec => 0,
            Self::Graph => 1,
            Self::Event => 3,
            Self::Stream => 4,
            Self::Module => 5,
            Self::MemoryPool | Self::Pool => 6,
            _ => 2,
        }
    }
}

impl fmt::Display for ResourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(Self::NAMES[self.index()].1)
    }
}

/// How much is recorded of every resource.
///
/// ```
/// use cuguard::TrackingLevel;
///
/// assert_eq!("stacks".parse(), Ok(TrackingLevel::Stacks));
/// assert_eq!(TrackingLevel::default(), TrackingLevel::Sites);
/// assert!(TrackingLevel::Counts < TrackingLevel::Stacks);
/// assert!("everything".parse::<TrackingLevel>().is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum TrackingLevel {
    /// Counts and bytes by kind, without records. Costs a few nanoseconds.
    ///
    /// **Leaks are counted in the report, and teardown cannot free them**, because it does not know
    /// their addresses. (A dedicated context frees them when it is destroyed, a primary context only
    /// when nothing else holds it.) Escaped resources have a record also at this level: they are few.
    Counts,
    /// A record for each resource, with its call site (`#[track_caller]`), thread and time. The default.
    #[default]
    Sites,
    /// The stack trace as well.
    Stacks,
}

impl TrackingLevel {
    const NAMES: [(&'static str, Self); 3] = [
        ("counts", Self::Counts),
        ("sites", Self::Sites),
        ("stacks", Self::Stacks),
    ];

    pub(crate) const fn to_byte(self) -> u8 {
        self as u8
    }

    pub(crate) const fn from_byte(byte: u8) -> Self {
        Self::NAMES[if byte < 3 { byte as usize } else { 2 }].1
    }
}

impl fmt::Display for TrackingLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(Self::NAMES[*self as usize].0)
    }
}

/// A word that is not a [`TrackingLevel`].
///
/// ```
/// let error = "all".parse::<cuguard::TrackingLevel>().unwrap_err();
/// assert_eq!(error.to_string(), "\"all\" is none of counts, sites, stacks");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is none of counts, sites, stacks")]
#[non_exhaustive]
pub struct ParseTrackingLevelError {
    /// The word.
    pub word: String,
}

impl FromStr for TrackingLevel {
    type Err = ParseTrackingLevelError;

    fn from_str(word: &str) -> Result<Self, ParseTrackingLevelError> {
        let found = Self::NAMES.iter().find(|(name, _)| *name == word);
        found
            .map(|(_, level)| *level)
            .ok_or_else(|| ParseTrackingLevelError {
                word: word.to_owned(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::{ResourceKind, TrackingLevel};

    #[test]
    fn kinds_are_numbered_in_order() {
        assert!(ResourceKind::ALL.is_sorted());
        for (index, kind) in ResourceKind::ALL.iter().enumerate() {
            assert_eq!(kind.index(), index);
            assert_eq!(
                kind.is_memory(),
                kind.to_string().contains("memory") && *kind != ResourceKind::MemoryPool
            );
        }
    }

    #[test]
    fn levels_round_trip() {
        for level in [
            TrackingLevel::Counts,
            TrackingLevel::Sites,
            TrackingLevel::Stacks,
        ] {
            assert_eq!(level.to_string().parse(), Ok(level));
            assert_eq!(TrackingLevel::from_byte(level.to_byte()), level);
        }
    }
}
