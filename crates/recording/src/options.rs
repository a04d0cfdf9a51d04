//! How a recording is made, and what it needs to know of the caller's numbers.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

use crate::data::{RecordedKind, Site};
use crate::format;

/// What happens when a recording reaches its size limit.
///
/// ```
/// use cuguard_recording::Policy;
///
/// assert_eq!("last".parse(), Ok(Policy::Last));
/// let error = "first".parse::<Policy>().unwrap_err().to_string();
/// assert_eq!(error, "`first` is not a policy for recordings; accepted are all, last, aggregate");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// Every event is kept, whatever the limit.
    #[default]
    All,
    /// The last events are kept: the oldest chunk is overwritten. Stacks and names are kept.
    Last,
    /// From the limit on, an allocation that the same thread frees within 100 ms is left out, unless many others come in
    /// between; others are kept. At twice the limit the recording ends.
    Aggregate,
}

impl Policy {
    /// All policies.
    pub const ALL: [Self; 3] = [Self::All, Self::Last, Self::Aggregate];

    /// Its name in `LEAK_REPORT`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Last => "last",
            Self::Aggregate => "aggregate",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that is not a [`Policy`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a policy for recordings; accepted are all, last, aggregate")]
pub struct ParsePolicyError(String);

impl FromStr for Policy {
    type Err = ParsePolicyError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|policy| policy.name() == word);
        found.ok_or_else(|| ParsePolicyError(word.to_owned()))
    }
}

/// How a recording is made.
///
/// ```
/// use cuguard_recording::{Options, Policy};
///
/// let options = Options::new("run.cgr").limit(256 << 20, Policy::Last);
/// assert_eq!(options.path.to_str(), Some("run.cgr"));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The file.
    pub path: PathBuf,
    /// The most bytes of the file, by [`policy`](Self::policy); 0 for no limit.
    pub limit: u64,
    /// What happens at the limit.
    pub policy: Policy,
    /// The version of the program that records.
    pub version: String,
    /// The rank in a distributed job.
    pub rank: Option<u32>,
    /// Whether a recording that exists is replaced; a file that is not a recording never is, and the start fails. Otherwise,
    /// and where another process records into it or this one did before it executed another program, the process id is
    /// appended to the path, and a number where that exists, too.
    pub replace: bool,
    /// Whether [`addresses`](crate::addresses) returns those of all stacks, to embed their symbols.
    pub keep_addresses: bool,
    pub(crate) chunk_size: u32,
    /// How long the program has run, in tests.
    pub(crate) age: Option<u64>,
}

impl Options {
    /// Records everything into this file. A recording that exists there is replaced.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            limit: 0,
            policy: Policy::All,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            rank: None,
            replace: true,
            keep_addresses: false,
            chunk_size: format::CHUNK_SIZE,
            age: None,
        }
    }

    /// Limits the size of the file.
    #[must_use]
    pub fn limit(mut self, bytes: u64, policy: Policy) -> Self {
        (self.limit, self.policy) = (bytes, policy);
        self
    }

    /// The rank in a distributed job.
    #[must_use]
    pub fn rank(mut self, rank: Option<u32>) -> Self {
        self.rank = rank;
        self
    }

    /// Whether a recording that exists is replaced.
    #[must_use]
    pub fn replace(mut self, replace: bool) -> Self {
        self.replace = replace;
        self
    }

    /// Whether [`addresses`](crate::addresses) returns those of all stacks.
    #[must_use]
    pub fn keep_addresses(mut self, keep: bool) -> Self {
        self.keep_addresses = keep;
        self
    }
}

/// What the numbers in events mean. A recording looks each one up once, before the first event with it.
pub trait Definitions: Sync {
    /// The kinds of resources, in the order of their indexes.
    fn kinds(&self) -> Vec<RecordedKind>;
    /// The call site with this number, which is not 0.
    fn stack(&self, id: u32) -> Option<StackDefinition>;
    /// The label or the name of a thread with this number, which is not 0.
    fn name(&self, id: u32) -> Option<String>;
}

/// A call site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackDefinition {
    /// The line of the program.
    pub site: Option<Site>,
    /// The type of the elements; empty where it is unknown.
    pub type_name: &'static str,
    /// Frames of `cuguard_stack::capture_frames`, innermost first.
    pub frames: &'static [usize],
}

/// A name for something alive.
///
/// ```
/// use cuguard_recording::{Label, record_label};
///
/// record_label(&Label { time: 2, thread: 1, kind: 0, address: 0x7f00_0000_0000, created: 1, label: 3 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// When it was named.
    pub time: u64,
    /// The name of the thread.
    pub thread: u32,
    /// The kind of the resource.
    pub kind: u8,
    /// Its address or handle.
    pub address: u64,
    /// The time of the event of its allocation.
    pub created: u64,
    /// Its name.
    pub label: u32,
}

/// Why a recording did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// There is one recording a process.
    #[error("the process records into {} already", .0.display())]
    Already(PathBuf),
    /// The process is a forked child, whose threads are not all there.
    #[error("a forked child cannot record")]
    Forked,
    /// The file cannot be created.
    #[error("cannot record into {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}
