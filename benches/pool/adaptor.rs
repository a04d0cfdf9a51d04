//! The allocators: what differs between them, for works that are the same.

use cuguard::memory::Source;
use cuguard::report::ReportSettings;
use cuguard::{Context, DeviceBuffer, DriverPool, Error, Pool, Stream, TrackingLevel};

use crate::Outcome;

/// A pool of a context.
pub trait Allocator: Sized + Sync {
    /// Its name in the figures.
    const NAME: &str;

    type On<'a>: Source + Copy
    where
        Self: 'a;

    /// A fresh pool.
    fn new(context: &Context) -> Outcome<Self>;

    /// It, to allocate from in the order of a stream.
    fn on<'a>(&'a self, stream: &'a Stream) -> Self::On<'a>;

    /// Bytes of the device that it holds.
    fn held(&self) -> Outcome<u64>;

    /// What its manual advises against fragmentation, when an allocation was refused.
    fn make_room(&self) -> Outcome;
}

/// cuguard's pool.
pub struct Own(Pool);

impl Allocator for Own {
    const NAME: &str = "cuguard";

    type On<'a> = cuguard::memory::PoolStream<'a>;

    fn new(context: &Context) -> Outcome<Self> {
        Ok(Self(Pool::new(context)?))
    }

    fn on<'a>(&'a self, stream: &'a Stream) -> Self::On<'a> {
        self.0.on(stream)
    }

    fn held(&self) -> Outcome<u64> {
        Ok(self.0.stats().held)
    }

    /// It does this by itself when an allocation is refused; asked for, it says why it could not.
    fn make_room(&self) -> Outcome {
        self.0.compact()?;
        Ok(())
    }
}

/// The driver's pool.
pub struct Driver(DriverPool);

impl Allocator for Driver {
    const NAME: &str = "cuguard DriverPool";

    type On<'a> = cuguard::memory::DriverPoolStream<'a>;

    fn new(context: &Context) -> Outcome<Self> {
        let pool = DriverPool::new(context)?;
        pool.set_release_threshold(u64::MAX)?;
        Ok(Self(pool))
    }

    fn on<'a>(&'a self, stream: &'a Stream) -> Self::On<'a> {
        self.0.on(stream)
    }

    fn held(&self) -> Outcome<u64> {
        Ok(self.0.reserved_bytes()?)
    }

    fn make_room(&self) -> Outcome {
        Ok(self.0.trim_to(0)?)
    }
}

/// Uninitialized memory, which no work here reads before it is written.
pub fn block(source: &impl Source, bytes: usize) -> cuguard::Result<DeviceBuffer<u8>> {
    // SAFETY: read by nothing but kernels that run after it is filled.
    unsafe { DeviceBuffer::uninitialized(source, bytes) }
}

/// A large block: at once, or after [`Allocator::make_room`]. What was needed for it is noted.
pub fn large<A: Allocator>(
    pool: &A,
    stream: &Stream,
    bytes: usize,
    note: &dyn Fn(&str),
) -> cuguard::Result<DeviceBuffer<u8>> {
    let source = pool.on(stream);
    let error = match block(&source, bytes) {
        Ok(block) => return Ok(block),
        Err(error) => error,
    };
    note(&refused(&error));
    if let Err(error) = pool.make_room() {
        note(&format!("make_room: {error}"));
    }
    let again = block(&source, bytes);
    if again.is_ok() {
        note("had after make_room");
    }
    again
}

/// What was tried before an allocation failed.
fn refused(error: &Error) -> String {
    let Error::OutOfMemory(facts) = error else {
        return error.to_string();
    };
    let tried: Vec<_> = facts
        .recovery
        .iter()
        .filter(|result| result.tried)
        .map(|result| format!("{} freed {} MiB", result.step.name(), result.freed >> 20))
        .collect();
    let bytes = facts.request.bytes.unwrap_or(0);
    let free = facts.free.unwrap_or(0);
    format!(
        "refused: {} MiB with {} MiB free; {}",
        bytes >> 20,
        free >> 20,
        tried.join(", ")
    )
}

/// What a context records, and how the figures call it.
pub const LEVELS: [(TrackingLevel, &str); 3] = [
    (TrackingLevel::Counts, ""),
    (TrackingLevel::Sites, " sites"),
    (TrackingLevel::Stacks, " stacks"),
];

/// An allocator to be measured: a pool of a context of its own, and a stream. Dropped in this order.
pub struct Setup<A> {
    /// In the figures.
    pub name: String,
    pub pool: A,
    pub stream: Stream,
    pub context: Context,
}

impl<A: Allocator> Setup<A> {
    pub fn new(level: TrackingLevel, suffix: &str) -> Outcome<Self> {
        let context = context(level)?;
        Ok(Self {
            name: format!("{}{suffix}", A::NAME),
            pool: A::new(&context)?,
            stream: Stream::new(&context)?,
            context,
        })
    }

    /// One for each level.
    pub fn at_all_levels() -> Outcome<Vec<Self>> {
        LEVELS
            .iter()
            .map(|(level, suffix)| Self::new(*level, suffix))
            .collect()
    }
}

/// A context that reports nothing.
pub fn context(level: TrackingLevel) -> cuguard::Result<Context> {
    Context::builder()
        .level(level)
        .report(ReportSettings::silent().depth(64))
        .build()
}
