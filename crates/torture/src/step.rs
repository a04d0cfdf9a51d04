//! The steps of a program: plain small data. Whatever a step points at is taken modulo what there
//! is, so every sequence of steps is a program, and so is every part of one: that is what lets
//! failing programs shrink.

use arbitrary::{Arbitrary, Unstructured};
use proptest::prelude::{Strategy, any};

/// What can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A `DeviceBuffer<u8>`.
    Device,
    /// A `DeviceBuffer<u32>`, which kernels can check.
    Words,
    /// A `DeviceBox<u32>`.
    One,
    /// A stream-ordered `DeviceBuffer<u8>`.
    OnStream,
    /// The same from a pool of the program's own.
    InPool,
    /// A `PinnedBuffer<u8>`.
    Pinned,
    /// A registered vector.
    Registered,
    /// A `ManagedBuffer<u8>`.
    Managed,
    /// A `Stream`.
    Stream,
    /// An `Event`.
    Event,
    /// A `MemoryPool`.
    Pool,
}

impl What {
    const ALL: [Self; 11] = [
        Self::Device,
        Self::Words,
        Self::One,
        Self::OnStream,
        Self::InPool,
        Self::Pinned,
        Self::Registered,
        Self::Managed,
        Self::Stream,
        Self::Event,
        Self::Pool,
    ];

    pub(crate) fn pick(byte: u8) -> Self {
        Self::ALL[usize::from(byte) % Self::ALL.len()]
    }
}

/// How something is made: numbers that say where, how large, and with what in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Make {
    /// What it is.
    pub what: What,
    /// The context, the stream or the pool, by number.
    pub place: u8,
    /// Its size, see [`size`].
    pub len: u8,
    /// What it is filled with; 0 is zeros.
    pub seed: u8,
    /// The labels that it is made in and that it gets.
    pub label: u8,
}

/// One piece of work in a [`Stream::scope`](cuguard::Stream::scope).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// On the back part of the memory, else on its front part.
    pub back: bool,
    /// What is done.
    pub task: Task,
}

/// What a piece of work does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
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
    /// Puts an event into the stream.
    Record,
    /// Has the stream wait for an event.
    Wait,
}

impl Work {
    fn decode(bits: u8) -> Self {
        let task = match bits & 7 {
            0 => Task::Upload,
            1 => Task::Download,
            2 => Task::Fill,
            3 => Task::FillBytes,
            4 => Task::Zero,
            5 => Task::Copy,
            6 => Task::Record,
            _ => Task::Wait,
        };
        Self {
            back: bits & 8 != 0,
            task,
        }
    }
}

/// How a scope ends, after so many pieces of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// When all is given.
    Plain,
    /// By a panic.
    Panic(u8),
    /// By an error of the program's own.
    Error(u8),
    /// The context is closed within the scope.
    Close(u8),
}

/// What a step does. Numbers pick from what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are numbers that pick something")]
pub enum Action {
    /// Looks whether memory has what it should have.
    Read { thing: u8 },
    /// Writes to memory.
    Write { thing: u8, seed: u8 },
    /// Makes something.
    Make(Make),
    /// Drops something.
    Drop { thing: u8 },
    /// Drops something inside a host function of a stream.
    DropInHostFunction { thing: u8, stream: u8 },
    /// Closes something.
    Close { thing: u8 },
    /// Forgets something.
    Forget { thing: u8 },
    /// Gives something a name.
    Rename { thing: u8, label: u8 },
    /// Waits for a stream, or for a context.
    Synchronize { stream: u8 },
    /// Work on a stream, on memory `to`, with memory `from` and on the host.
    Scope {
        stream: u8,
        to: u8,
        from: u8,
        host: u8,
        work: [Work; 4],
        end: End,
    },
    /// Records an event.
    Record { event: u8, stream: u8 },
    /// Has a stream wait for an event.
    WaitFor { stream: u8, event: u8 },
    /// Has a stream wait for another.
    OrderAfter { stream: u8, other: u8 },
    /// Tells that a stream uses memory.
    UsedOn { thing: u8, stream: u8 },
    /// Gives memory away.
    IntoRaw { thing: u8 },
    /// Takes back memory that was given away.
    FromRaw { raw: u8, place: u8 },
    /// Frees memory that was given away behind the registry's back.
    FreeRaw { raw: u8 },
    /// Makes things and panics.
    Panic { first: Make, count: u8 },
    /// Asks for more than there is.
    TooLarge { what: u8, context: u8 },
    /// Copies with a length that does not fit.
    WrongLength { thing: u8 },
    /// Has a kernel check memory; on the simulated GPU, reads it.
    Kernel { thing: u8 },
    /// Changes what is recorded.
    Level { context: u8, level: u8 },
    /// Makes a context.
    Open {
        own: bool,
        level: u8,
        free_leaks: bool,
    },
    /// Ends a context.
    End { context: u8, close: bool },
}

/// One step, and the thread that does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// 0 is the program's own, 1 and 2 are others; 3 is 1, also where other threads are too slow
    /// for what is asked.
    pub thread: u8,
    /// What is done.
    pub action: Action,
}

/// The bytes of a thing of size number `len`, `largest` at most: mostly small, sometimes none,
/// sometimes more than the simulated GPU takes from the heap.
#[must_use]
pub fn size(len: u8, largest: usize) -> usize {
    let bytes = match len {
        0..=191 => usize::from(len),
        192..=239 => usize::from(len) * 17,
        240..=251 => usize::from(len) * 111,
        _ => (64 << 10) + usize::from(len),
    };
    bytes.min(largest)
}

impl Step {
    /// The most bytes that a step is made from.
    pub const BYTES: usize = 9;

    /// A step from bytes, of which it takes as many as it needs. Zeros make the simplest step.
    pub fn decode(mut next: impl FnMut() -> u8) -> Self {
        let operation = next();
        let thread = match next() {
            0..=223 => 0,
            224..=239 => 1,
            240..=251 => 2,
            _ => 3,
        };
        let action = match operation {
            0..=23 => Action::Read { thing: next() },
            24..=39 => Action::Write {
                thing: next(),
                seed: next(),
            },
            40..=95 => Action::Make(Self::make(&mut next)),
            96..=115 => Action::Drop { thing: next() },
            116..=119 => Action::DropInHostFunction {
                thing: next(),
                stream: next(),
            },
            120..=131 => Action::Close { thing: next() },
            132..=139 => Action::Forget { thing: next() },
            140..=147 => Action::Rename {
                thing: next(),
                label: next(),
            },
            148..=151 => Action::Synchronize { stream: next() },
            152..=187 => Self::scope(&mut next),
            188..=193 => Action::Record {
                event: next(),
                stream: next(),
            },
            194..=197 => Action::WaitFor {
                stream: next(),
                event: next(),
            },
            198..=201 => Action::OrderAfter {
                stream: next(),
                other: next(),
            },
            202..=203 => Action::UsedOn {
                thing: next(),
                stream: next(),
            },
            204..=213 => Action::IntoRaw { thing: next() },
            214..=223 => Action::FromRaw {
                raw: next(),
                place: next(),
            },
            224..=227 => Action::FreeRaw { raw: next() },
            228..=232 => Action::Panic {
                first: Self::make(&mut next),
                count: next() % 5,
            },
            233..=234 => Action::TooLarge {
                what: next(),
                context: next(),
            },
            235..=236 => Action::WrongLength { thing: next() },
            237..=241 => Action::Kernel { thing: next() },
            242..=245 => Action::Level {
                context: next(),
                level: next(),
            },
            246..=252 => {
                let kind = next();
                Action::Open {
                    own: kind & 1 != 0,
                    free_leaks: kind & 14 != 14,
                    level: next(),
                }
            }
            _ => Action::End {
                context: next(),
                close: next() & 1 == 0,
            },
        };
        Self { thread, action }
    }

    fn make(next: &mut impl FnMut() -> u8) -> Make {
        Make {
            what: What::pick(next()),
            place: next(),
            len: next(),
            seed: next(),
            label: next(),
        }
    }

    fn scope(next: &mut impl FnMut() -> u8) -> Action {
        let (stream, to, from) = (next(), next(), next());
        let (first, second) = (next(), next());
        let work = [first & 15, first >> 4, second & 15, second >> 4].map(Work::decode);
        let how = next();
        let after = (how >> 3) % 5;
        Action::Scope {
            stream,
            to,
            from,
            host: how,
            work,
            end: match how & 7 {
                0..=3 => End::Plain,
                4 | 5 => End::Panic(after),
                6 => End::Error(after),
                _ => End::Close(after),
            },
        }
    }
}

impl<'a> Arbitrary<'a> for Step {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        // Where there are no more bytes, these are zeros.
        Ok(Self::decode(|| bytes.arbitrary().unwrap_or(0)))
    }
}

/// Random steps, which shrink towards reads of the first thing.
pub fn steps() -> impl Strategy<Value = Step> {
    any::<[u8; Step::BYTES]>().prop_map(|bytes| {
        let mut bytes = bytes.into_iter();
        Step::decode(|| bytes.next().unwrap_or(0))
    })
}
