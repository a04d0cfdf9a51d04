//! The kinds of things that are tracked, and how much is recorded of each.

use std::fmt;
use std::str::FromStr;

/// What a guard holds.
///
/// The order is the order of reports: memory first, then handles.
///
/// ```
/// use cuguard::Kind;
///
/// assert_eq!(Kind::StreamOrdered.to_string(), "stream-ordered memory");
/// assert!(Kind::Pinned.is_memory() && !Kind::Event.is_memory());
/// assert!(Kind::Device < Kind::Stream);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
// As wide as the lane beside it in a key, which so has no gaps. The compiler copies gaps, too, in
// pieces, and what was written in pieces and is read whole makes the processor wait.
#[repr(u32)]
pub enum Kind {
    /// Device memory.
    Device,
    /// Device memory that was allocated on a stream and is freed on one.
    StreamOrdered,
    /// Host memory that was allocated for copies and is registered with the driver.
    Pinned,
    /// Host memory of the program's own that is registered with the driver.
    Registered,
    /// Memory that host and device both reach.
    Managed,
    /// A stream.
    Stream,
    /// An event.
    Event,
    /// A loaded module.
    Module,
    /// A memory pool of the program's own.
    MemoryPool,
}

impl Kind {
    /// All kinds, in order.
    ///
    /// ```
    /// use cuguard::Kind;
    ///
    /// assert_eq!(Kind::ALL[0], Kind::Device);
    /// assert!(Kind::ALL.is_sorted());
    /// ```
    pub const ALL: &'static [Self] = &Self::EACH;

    /// How many kinds there are.
    pub const COUNT: usize = 9;

    const EACH: [Self; Self::COUNT] = [
        Self::Device,
        Self::StreamOrdered,
        Self::Pinned,
        Self::Registered,
        Self::Managed,
        Self::Stream,
        Self::Event,
        Self::Module,
        Self::MemoryPool,
    ];

    /// Whether it is memory; else it is a handle, and has no size.
    ///
    /// ```
    /// # use cuguard::Kind;
    /// assert!(Kind::Managed.is_memory());
    /// assert!(!Kind::MemoryPool.is_memory());
    /// ```
    #[must_use]
    pub const fn is_memory(self) -> bool {
        (self as usize) < Self::Stream as usize
    }

    /// The word for it in data such as JSON: one word that never changes.
    ///
    /// ```
    /// # use cuguard::Kind;
    /// assert_eq!(Kind::StreamOrdered.name(), "stream_ordered");
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::StreamOrdered => "stream_ordered",
            Self::Pinned => "pinned",
            Self::Registered => "registered",
            Self::Managed => "managed",
            Self::Stream => "stream",
            Self::Event => "event",
            Self::Module => "module",
            Self::MemoryPool => "memory_pool",
        }
    }

    /// Its place in arrays by kind.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// When teardown frees it: memory may need its stream and its pool, an event its stream.
    pub(crate) const fn teardown_rank(self) -> u8 {
        match self {
            Self::Device
            | Self::StreamOrdered
            | Self::Pinned
            | Self::Registered
            | Self::Managed => 0,
            Self::Event => 1,
            Self::Stream => 2,
            Self::Module => 3,
            Self::MemoryPool => 4,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Device => "device memory",
            Self::StreamOrdered => "stream-ordered memory",
            Self::Pinned => "pinned host memory",
            Self::Registered => "registered host memory",
            Self::Managed => "managed memory",
            Self::Stream => "stream",
            Self::Event => "event",
            Self::Module => "module",
            Self::MemoryPool => "memory pool",
        })
    }
}

/// How much is recorded of everything that is made.
///
/// ```
/// use cuguard::Level;
///
/// assert_eq!("stacks".parse(), Ok(Level::Stacks));
/// assert_eq!(Level::default(), Level::Sites);
/// assert!(Level::Counts < Level::Stacks);
/// assert!("everything".parse::<Level>().is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// How many and how much, by kind; no records. It costs a few nanoseconds.
    ///
    /// Without a record nobody knows what to free: **what is forgotten at this level is counted in
    /// the report and cannot be freed at teardown.** (A context of its own takes it along when it is
    /// destroyed; a primary context does so only when nobody else holds it.) What is given away by
    /// `into_raw` is recorded also at this level, as that is rare.
    Counts,
    /// A record for each thing, with the line of the program that made it (`#[track_caller]`), the
    /// thread and the time. The default.
    #[default]
    Sites,
    /// The whole stack as well.
    Stacks,
}

impl Level {
    pub(crate) const fn to_byte(self) -> u8 {
        self as u8
    }

    pub(crate) const fn from_byte(byte: u8) -> Self {
        match byte {
            0 => Self::Counts,
            1 => Self::Sites,
            _ => Self::Stacks,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Counts => "counts",
            Self::Sites => "sites",
            Self::Stacks => "stacks",
        })
    }
}

/// A word that is no [`Level`].
///
/// ```
/// let error = "all".parse::<cuguard::Level>().unwrap_err();
/// assert_eq!(error.to_string(), "\"all\" is none of counts, sites, stacks");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is none of counts, sites, stacks")]
#[non_exhaustive]
pub struct UnknownLevel {
    /// The word.
    pub word: String,
}

impl FromStr for Level {
    type Err = UnknownLevel;

    fn from_str(word: &str) -> Result<Self, UnknownLevel> {
        match word {
            "counts" => Ok(Self::Counts),
            "sites" => Ok(Self::Sites),
            "stacks" => Ok(Self::Stacks),
            _ => Err(UnknownLevel {
                word: word.to_owned(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, Level};

    #[test]
    fn kinds_are_numbered_in_order() {
        assert!(Kind::ALL.is_sorted());
        for (index, kind) in Kind::ALL.iter().enumerate() {
            assert_eq!(kind.index(), index);
            assert_eq!(
                kind.is_memory(),
                kind.to_string().contains("memory") && *kind != Kind::MemoryPool
            );
        }
    }

    #[test]
    fn levels_survive_the_way_there_and_back() {
        for level in [Level::Counts, Level::Sites, Level::Stacks] {
            assert_eq!(level.to_string().parse(), Ok(level));
            assert_eq!(Level::from_byte(level.to_byte()), level);
        }
    }
}
