//! One run of a program as plain data: all that is shown is computed from it.

pub use cuguard_recording::RecordedKind;

/// The end of an allocation that was not freed.
pub const FOREVER: u64 = u64::MAX;

/// What the times of a run count from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// The start of the program.
    #[default]
    Program,
    /// The begin of the recording: it is of an older version.
    Recording,
    /// The first context of the process: it is a leak report of the crate.
    Context,
}

impl Origin {
    /// The word of JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Program => "program",
            Self::Recording => "recording",
            Self::Context => "context",
        }
    }

    /// In words: `the start of the program`.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Program => "the start of the program",
            Self::Recording => "the begin of the recording",
            Self::Context => "the first context",
        }
    }
}

/// One run: a process, with its allocations and call sites.
///
/// Everything is referred to by index, so that ten million allocations fit into memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// The file that it was read from.
    pub source: String,
    /// The command line.
    pub command: String,
    /// The process id.
    pub pid: u32,
    /// The name of the machine.
    pub host: String,
    /// The rank in a distributed job.
    pub rank: Option<u32>,
    /// What times count from.
    pub origin: Origin,
    /// That moment, in nanoseconds since 1970 UTC; 0 where it is unknown.
    pub started: u64,
    /// When the recording began, in nanoseconds since the origin: at the first use of CUDA.
    pub begin: u64,
    /// The last moment, in nanoseconds since the origin.
    pub end: u64,
    /// When its exit began, in nanoseconds since the origin: `main` returned, or `exit` was called. `None` where it is unknown.
    pub exit_begins: Option<u64>,
    /// How many operations it had done that are no allocations and frees, such as kernel launches, at times in nanoseconds since the
    /// origin, in order. Empty where they were not counted.
    pub work: Vec<(u64, u64)>,
    /// Whether the process exited. Otherwise it was killed, or still runs.
    pub exited: bool,
    /// The kinds of resources.
    pub kinds: Vec<RecordedKind>,
    /// Call sites. The first is unknown.
    pub sites: Vec<CallSite>,
    /// Labels and names of threads. The first is empty.
    pub names: Vec<String>,
    /// In order of [`Allocation::start`].
    pub allocations: Vec<Allocation>,
    /// Contexts and out-of-memory errors, in order of time.
    pub marks: Vec<Mark>,
    /// What could not be read, in words.
    pub problems: Vec<String>,
    /// At least one resource in this many was recorded, and not all were: the largest number of any context. 0 or 1 where all were.
    pub sample: u32,
    /// Whether it is read from a leak report, which has no history: allocations that were freed are not in it.
    pub is_report: bool,
}

impl Run {
    /// What the figures do not have, in words: a reader must know it before them.
    ///
    /// ```
    /// use cuguard_view::Run;
    ///
    /// assert!(Run::default().caveats().is_empty());
    /// let sampled = Run { sample: 100, ..Run::default() };
    /// assert!(sampled.caveats()[0].starts_with("at least one resource in 100 is recorded"));
    /// ```
    #[must_use]
    pub fn caveats(&self) -> Vec<String> {
        let mut caveats = Vec::new();
        if self.is_report {
            caveats.push("a leak report has only what was not freed: the peak, what was allocated in all and out-of-memory errors are not known".to_owned());
        }
        let sample = self.sample;
        if sample > 1 && self.is_report {
            caveats.push(format!(
                "figures are estimates: at least one resource in {sample} was recorded"
            ));
        } else if sample > 1 {
            caveats.push(format!(
                "at least one resource in {sample} is recorded (sample={sample}, the largest of all contexts): counts and bytes are those of the samples, not of the whole program"
            ));
        }
        caveats
    }
}

/// A call site: the stack trace, resolved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallSite {
    /// The type of the elements; empty where it is unknown.
    pub type_name: String,
    /// Innermost first. Empty for an unknown call site.
    pub frames: Vec<Frame>,
}

/// A frame of a stack trace, with names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    /// The function, or the module and offset, or the address.
    pub function: String,
    /// The source file; empty where it is unknown.
    pub file: String,
    /// The line; 0 where it is unknown.
    pub line: u32,
    /// The file name of the program or library; empty where it is unknown.
    pub library: String,
    /// Whether it is the program's own, as far as can be told, and not of a library or a runtime.
    pub in_app: bool,
}

/// One allocation, or a handle with no bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// When it was allocated, in nanoseconds since the [origin](Run::origin).
    pub start: u64,
    /// When it was freed, or [`FOREVER`].
    pub end: u64,
    /// An address or a handle.
    pub address: u64,
    /// 0 for handles.
    pub bytes: u64,
    /// The stream's handle; 0 for none.
    pub stream: u64,
    /// An index of [`Run::sites`].
    pub site: u32,
    /// An index of [`Run::names`].
    pub thread: u32,
    /// An index of [`Run::names`].
    pub label: u32,
    /// The number of its context; 0 for none.
    pub context: u32,
    /// An index of [`Run::kinds`].
    pub kind: u8,
    /// Whether the program did not free it: it ended with its context, or the teardown of the context freed it. What is
    /// alive at the end of the run has [`FOREVER`] as its end instead.
    pub leaked: bool,
    /// Whether the program still had its address when it was searched for at the end.
    pub fate: Fate,
}

/// What a search at the end of the process found of an allocation that was alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// It was not searched for.
    #[default]
    Unknown,
    /// The program had its address nowhere: a leak.
    Lost,
    /// The program still had its address.
    Reachable,
}

/// A moment that is shown on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Nanoseconds since the [origin](Run::origin).
    pub time: u64,
    /// What happened.
    pub kind: MarkKind,
}

/// What happened at a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// A context was created.
    ContextCreated {
        /// Its number.
        context: u32,
        /// The ordinal of its device.
        device: u32,
    },
    /// A context ended.
    ContextEnded {
        /// Its number.
        context: u32,
    },
    /// An allocation failed for lack of memory.
    OutOfMemory {
        /// The bytes that were asked for; 0 where only the driver knows.
        bytes: u64,
        /// An index of [`Run::sites`].
        site: u32,
        /// An index of [`Run::names`].
        thread: u32,
        /// Why, in the words of the process: lines of text. Empty where it is not recorded.
        diagnosis: String,
    },
}
