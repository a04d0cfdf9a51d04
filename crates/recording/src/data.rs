//! A recording as plain data: what a reader returns.

use std::sync::Arc;

/// All of a recording but its events.
///
/// ```
/// let recording = cuguard_recording::Recording::default();
/// assert!(recording.stacks.is_empty() && recording.problems.is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// The process.
    pub meta: Meta,
    /// The kinds of resources, by the index that events have.
    pub kinds: Vec<RecordedKind>,
    /// The program and its libraries, in the order in which they were seen.
    pub modules: Vec<Module>,
    /// Stack traces, by the number that events have. The first is unknown.
    pub stacks: Vec<Stack>,
    /// Labels and names of threads, by the number that events have. The first is empty.
    pub names: Vec<String>,
    /// Names of functions that the process resolved itself.
    pub symbols: Vec<Embedded>,
    /// How the process ended.
    pub end: End,
    /// What could not be read, in words.
    pub problems: Vec<String>,
    /// Events in order of time.
    pub events: Vec<Event>,
    /// How many events were dropped by the size limit.
    pub dropped: u64,
    /// From this time on no event is dropped by the size limit; 0 where none is. An allocation before it whose free is
    /// missing may have been freed.
    pub complete_from: u64,
    /// How many events were not written: the file could not grow, or a signal handler interrupted the recording of
    /// another event.
    pub lost: u64,
    /// At least one resource in this many was recorded, and not all were: the largest number that was noted. 0 or 1 where all were.
    pub sample: u32,
    /// When the recording began, in nanoseconds since the program started: all times count from that. 0 where the file does not have it, as
    /// those of older versions; times then count from the begin of the recording.
    pub begin: u64,
    /// Why allocations failed, in order of time.
    pub diagnoses: Vec<Diagnosis>,
    /// What a search at the end of the process found of what was not freed. Empty where there was none.
    pub found: Vec<Found>,
    /// When the exit began, in nanoseconds since the program started: `main` returned, or `exit` was called. What is freed
    /// afterwards was not freed by the program while it ran. `None` where it is unknown, as in files of older versions.
    pub exit_begins: Option<u64>,
    /// How many operations there had been that are no events, such as kernel launches, at times in nanoseconds since the program
    /// started, in order. Empty where they were not counted, and where the process was killed.
    pub work: Vec<(u64, u64)>,
}

/// Why an allocation failed, in the words of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnosis {
    /// The time of the [event](What::OutOfMemory).
    pub time: u64,
    /// Its thread: an index of [`Recording::names`].
    pub thread: u32,
    /// Lines of text.
    pub text: String,
}

/// What was found of something that was not freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// An index of [`Recording::kinds`].
    pub kind: u8,
    /// An address or a handle.
    pub address: u64,
    /// The number of the context that it was allocated in; 0 for none.
    pub context: u32,
    /// Whether the program has its address nowhere: it is lost. Otherwise it is reachable.
    pub lost: bool,
}

/// The process that was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// The version of cuguard.
    pub version: String,
    /// The command line.
    pub command: String,
    /// The process id.
    pub pid: u32,
    /// The name of the machine.
    pub host: String,
    /// The rank in a distributed job, where the launcher sets one.
    pub rank: Option<u32>,
    /// When the program started, in nanoseconds since 1970 UTC. Where [`Recording::begin`] is 0, when the recording began.
    pub started: u64,
}

/// A kind of resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedKind {
    /// As in reports: `device`, `pinned`, `stream`.
    pub name: String,
    /// Whether it takes memory of a device.
    pub on_device: bool,
    /// Whether it is memory at all.
    pub is_memory: bool,
}

/// The program or a library that was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// The file.
    pub path: String,
    /// In hexadecimal; empty where the file has none.
    pub build_id: String,
    /// Addresses of its segments, from the first to one past the last byte. Of a library that can be unloaded: numbers that no
    /// other module has.
    pub start: u64,
    /// The end of these addresses.
    pub end: u64,
    /// What is subtracted from an address for one of the file's symbol table.
    pub bias: u64,
}

/// A stack trace, and what else is known of a call site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// The line of the program, for resources of guards.
    pub site: Option<Site>,
    /// The type of the elements; empty where it is unknown.
    pub type_name: String,
    /// Innermost first.
    pub frames: Vec<Frame>,
    /// How many of the last modules were loaded after it was captured: they may be where others were before.
    pub later_modules: u32,
}

/// A line of source code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site {
    /// The file, as the compiler names it.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1; 0 where it is unknown.
    pub column: u32,
}

/// A frame of a stack trace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Frame {
    /// A return address of the process, or a number in a module that can be unloaded.
    Native(u64),
    /// A frame of an interpreter, by name.
    Foreign {
        /// The function. Shared: any number of stacks may have the frame.
        function: Arc<str>,
        /// Its file.
        file: Arc<str>,
        /// The line that runs.
        line: u32,
    },
}

/// The functions at one address, as the process resolved them. Inlined functions come before the function that they are
/// inlined into.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Embedded {
    /// The return address.
    pub address: u64,
    /// Function and line; the line is missing without debug information.
    pub functions: Vec<(String, Option<Site>)>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// The recording ends without an end: the process was killed, or still runs.
    #[default]
    Open,
    /// The process exited.
    Exit {
        /// When, in nanoseconds since the program started.
        time: u64,
    },
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since the program started. Of an event to be recorded, a time of [`cuguard_sync::clock`].
    pub time: u64,
    /// The name of the thread: an index of [`Recording::names`].
    pub thread: u32,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The driver allocated or created something.
    Allocated {
        /// An index of [`Recording::kinds`].
        kind: u8,
        /// An address or a handle.
        address: u64,
        /// 0 for handles.
        bytes: u64,
        /// An index of [`Recording::stacks`].
        stack: u32,
        /// The stream's handle; 0 for none.
        stream: u64,
        /// The number of the context; 0 for none.
        context: u32,
        /// An index of [`Recording::names`].
        label: u32,
    },
    /// Something was freed or destroyed.
    Freed {
        /// An index of [`Recording::kinds`].
        kind: u8,
        /// An address or a handle.
        address: u64,
        /// The number of the context that it was allocated in; 0 for none.
        context: u32,
    },
    /// Something that the program did not free ended: the teardown of its context freed it, or it was destroyed with its
    /// context.
    Reclaimed {
        /// An index of [`Recording::kinds`].
        kind: u8,
        /// An address or a handle.
        address: u64,
        /// The number of the context that it was allocated in; 0 for none.
        context: u32,
    },
    /// A context was created, or used for the first time.
    ContextCreated {
        /// Its number, from 1.
        context: u32,
        /// The ordinal of its device.
        device: u32,
    },
    /// A context was destroyed or released. What it still had is destroyed with it, unless the kind survives contexts.
    ContextEnded {
        /// Its number, from 1.
        context: u32,
    },
    /// An allocation failed because there was no memory.
    OutOfMemory {
        /// The bytes that were asked for.
        bytes: u64,
        /// An index of [`Recording::stacks`].
        stack: u32,
        /// The number of the context; 0 for none.
        context: u32,
    },
}
