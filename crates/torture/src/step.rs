//! The steps of a program: small plain data. Numbers pick from what there is, modulo the count: every
//! sequence of steps is a valid program, and so is every part of one. So failing programs shrink.

use arbitrary::{Arbitrary, Unstructured};
use proptest::prelude::{Strategy, any};

use crate::mode::Mode;

/// An enum whose variants are picked by a number.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$text:meta])* $variant:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$text])* $variant,)*
        }

        impl $name {
            pub(crate) fn pick(number: u8) -> Self {
                const ALL: &[$name] = &[$($name::$variant,)*];
                ALL[usize::from(number) % ALL.len()]
            }
        }
    };
}

choice! {
    /// The type of a new resource.
    ResourceType {
        /// A `DeviceBuffer<u8>`.
        Device,
        /// A `DeviceBuffer<u32>`, which kernels check.
        Words,
        /// A `DeviceBox<u32>`.
        One,
        /// A stream-ordered `DeviceBuffer<u8>`.
        OnStream,
        /// The same, from a pool of the program.
        InPool,
        /// A `PinnedBuffer<u8>`.
        Pinned,
        /// A `RegisteredVec`.
        Registered,
        /// A `ManagedBuffer<u8>`.
        Managed,
        /// A `Stream`.
        Stream,
        /// An `Event`.
        Event,
        /// A `DriverPool`.
        Pool,
    }
}

/// How a resource is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Make {
    /// Its type.
    pub what: ResourceType,
    /// Picks the context, the stream or the pool.
    pub place: u8,
    /// Its size, see [`size`].
    pub len: u8,
    /// The seed of its contents; 0 means zeros.
    pub seed: u8,
    /// Its label scope and its own label.
    pub label: u8,
}

/// One piece of work in a [`Stream::scope`](cuguard::Stream::scope).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// On the back part of the memory, else on its front part.
    pub back: bool,
    /// The operation.
    pub task: Task,
}

choice! {
    /// The operation of a piece of work.
    Task {
        /// From the host to the device.
        Upload,
        /// From the device to the host.
        Download,
        /// One value everywhere.
        Fill,
        /// One byte everywhere.
        FillBytes,
        /// Zero everywhere.
        Zero,
        /// From other memory on the device.
        Copy,
        /// Records an event.
        Record,
        /// Makes the stream wait for an event.
        Wait,
    }
}

/// How a scope ends, after so many pieces of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// After all work is enqueued.
    Plain,
    /// By a panic.
    Panic(u8),
    /// By an error of the program.
    Error(u8),
    /// The context is closed within the scope.
    Close(u8),
    /// The context of the host memory is closed within the scope, which goes on.
    CloseHost(u8),
}

/// What a value is decoded from: bytes, one after the other.
trait Decode: Sized {
    fn decode(next: &mut impl FnMut() -> u8) -> Self;
}

impl Decode for u8 {
    fn decode(next: &mut impl FnMut() -> u8) -> Self {
        next()
    }
}

impl Decode for bool {
    fn decode(next: &mut impl FnMut() -> u8) -> Self {
        next() & 1 == 0
    }
}

impl Decode for Make {
    fn decode(next: &mut impl FnMut() -> u8) -> Self {
        Self {
            what: ResourceType::pick(next()),
            place: next(),
            len: next(),
            seed: next(),
            label: next(),
        }
    }
}

impl Decode for [Work; 4] {
    fn decode(next: &mut impl FnMut() -> u8) -> Self {
        let (first, second) = (next(), next());
        [first & 15, first >> 4, second & 15, second >> 4].map(|bits| Work {
            back: bits & 8 != 0,
            task: Task::pick(bits & 7),
        })
    }
}

/// The last byte of a scope: the number of its host memory, and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastByte {
    /// Picks the host memory and the event.
    pub host: u8,
    /// How the scope ends.
    pub end: End,
}

impl Decode for LastByte {
    fn decode(next: &mut impl FnMut() -> u8) -> Self {
        let host = next();
        let after = (host >> 3) % 5;
        let end = match host & 7 {
            0..=3 => End::Plain,
            4 => End::Panic(after),
            5 => End::CloseHost(after),
            6 => End::Error(after),
            _ => End::Close(after),
        };
        Self { host, end }
    }
}

/// The steps that a byte picks, each with what the bytes after it say.
macro_rules! actions {
    ($($(#[$doc:meta])* $bytes:pat => $variant:ident { $($field:ident: $type:ty),* },)*) => {
        /// What a step does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the fields are numbers that pick something")]
        pub enum Action {
            $($(#[$doc])* $variant { $($field: $type),* },)*
        }

        impl Action {
            fn decode(byte: u8, next: &mut impl FnMut() -> u8) -> Self {
                match byte {
                    $($bytes => Self::$variant { $($field: <$type>::decode(next)),* },)*
                }
            }
        }
    };
}

actions! {
    /// Compares the contents of memory with the model.
    0..=15 => Read { resource: u8 },
    /// Work on a part of memory: the number `work` has the operation and the size of the part.
    16..=27 => View { to: u8, from: u8, begin: u8, work: u8 },
    /// Clones device memory.
    28..=31 => Clone { resource: u8, label: u8 },
    /// Writes to memory.
    32..=39 => Write { resource: u8, seed: u8 },
    /// Creates a resource.
    40..=95 => Make { make: Make },
    /// Drops a resource.
    96..=115 => Drop { resource: u8 },
    /// Drops a resource inside a host function of a stream.
    116..=119 => DropInHostFunction { resource: u8, stream: u8 },
    /// Closes a resource.
    120..=131 => Close { resource: u8 },
    /// Forgets a resource, as `mem::forget` does.
    132..=139 => Forget { resource: u8 },
    /// Names a resource.
    140..=147 => Rename { resource: u8, label: u8 },
    /// Waits for a stream, or for a context.
    148..=151 => Synchronize { stream: u8 },
    /// Work on a stream, on memory `to`, with memory `from` and on the host.
    152..=187 => Scope { stream: u8, to: u8, from: u8, work: [Work; 4], last: LastByte },
    /// Records an event.
    188..=193 => Record { event: u8, stream: u8 },
    /// Makes a stream wait for an event.
    194..=197 => WaitFor { stream: u8, event: u8 },
    /// Makes a stream wait for another.
    198..=201 => OrderAfter { stream: u8, other: u8 },
    /// Records that a stream uses memory.
    202..=203 => RecordStream { resource: u8, stream: u8 },
    /// Releases ownership of memory.
    204..=213 => IntoRaw { resource: u8 },
    /// Takes ownership of escaped memory.
    214..=223 => FromRaw { raw: u8, place: u8 },
    /// Frees escaped memory without the crate.
    224..=227 => FreeRaw { raw: u8 },
    /// Creates up to 4 resources and panics.
    228..=232 => Panic { first: Make, count: u8 },
    /// Allocates more than there is.
    233..=234 => TooLarge { what: u8, context: u8 },
    /// Copies with a wrong length.
    235..=236 => WrongLength { resource: u8 },
    /// Checks memory with a kernel.
    237..=241 => Kernel { resource: u8 },
    /// Sets the recording level.
    242..=245 => Level { context: u8, level: u8 },
    /// Creates a context: its own one if `flags` is odd, and without freeing leaks if all of 14 is set.
    246..=252 => Open { flags: u8, level: u8 },
    /// Closes or drops a context.
    _ => End { context: u8, close: bool },
}

/// One step, and the thread that does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// 0 is the main thread, 1 and 2 are others; 3 is 1, also in [`Mode::Quick`].
    pub thread: u8,
    /// The action.
    pub action: Action,
}

/// The bytes of a resource of size number `len`: mostly small, sometimes none, sometimes more than the
/// simulated GPU allocates from the heap.
#[must_use]
pub fn size(len: u8, mode: Mode) -> usize {
    let bytes = match len {
        0..=191 => usize::from(len),
        192..=239 => usize::from(len) * 17,
        240..=251 => usize::from(len) * 111,
        _ => (64 << 10) + usize::from(len),
    };
    match mode {
        Mode::Thorough => bytes,
        Mode::Quick => bytes.min(4096),
    }
}

impl Step {
    /// The most bytes of a step.
    pub const BYTES: usize = 9;

    /// A step from as many bytes as it needs. Zeros make the simplest step.
    pub fn decode(mut next: impl FnMut() -> u8) -> Self {
        let operation = next();
        let thread = match next() {
            0..=223 => 0,
            224..=239 => 1,
            240..=251 => 2,
            _ => 3,
        };
        let action = Action::decode(operation, &mut next);
        Self { thread, action }
    }
}

impl<'a> Arbitrary<'a> for Step {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        // Missing bytes are zeros.
        Ok(Self::decode(|| bytes.arbitrary().unwrap_or(0)))
    }
}

/// Random steps, which shrink towards reads of the first resource.
pub fn steps() -> impl Strategy<Value = Step> {
    any::<[u8; Step::BYTES]>().prop_map(|bytes| {
        let mut bytes = bytes.into_iter();
        Step::decode(|| bytes.next().unwrap_or(0))
    })
}
