//! Assertions for tests: nothing leaks, memory stays below a limit, memory does not grow.
//!
//! | macro | fails when |
//! |---|---|
//! | [`assert_no_leaks!`](crate::assert_no_leaks) | something is live, or a block leaves something behind |
//! | [`assert_peak_below!`](crate::assert_peak_below) | device memory reaches a limit while a block runs |
//! | [`assert_no_growth!`](crate::assert_no_growth) | what is live keeps growing while a block runs again and again |
//!
//! All of them return the value of the block, in which `?` and `return` work as outside. When one fails, its message
//! has the call sites. They look at the whole context, so allocations of other threads count too.

use std::time::Duration;

use cuguard_registry::{Amount, Diff, PeakWatch, Rounds, Snapshot, SnapshotReason, TrackingLevel};
use cuguard_report::{ByteSize, Report, display_diff};

use crate::core::deferred;
use crate::guards::Context;

#[doc(no_inline)]
pub use crate::{assert_no_growth, assert_no_leaks, assert_peak_below};

/// How many call sites a message shows.
const SHOWN: usize = 10;

/// How often [`assert_no_growth!`](crate::assert_no_growth) runs its block before it measures, unless another number is given.
pub const WARM_UP: usize = 2;

/// The most device memory that is live at one time, since its creation; for
/// [`assert_peak_below!`](crate::assert_peak_below).
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, DeviceBuffer, test::PeakBelow};
///
/// let context = Context::new(0)?;
/// let below = PeakBelow::new(&context, 1 << 20);
/// drop(DeviceBuffer::<u8>::zeroed(&context, 1000)?);
/// assert_eq!(below.peak(), 1000);
/// below.check();
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Debug)]
pub struct PeakBelow<'c> {
    context: &'c Context,
    watch: PeakWatch<'c>,
    limit: u64,
}

impl<'c> PeakBelow<'c> {
    /// Waits for the device, so that what is dropped already is freed, and begins.
    ///
    /// # Panics
    ///
    /// If waiting for the device fails.
    #[must_use]
    #[track_caller]
    pub fn new(context: &'c Context, limit: u64) -> Self {
        settle(context, "assert_peak_below!");
        Self {
            context,
            watch: PeakWatch::new(&context.state().registry, limit),
            limit,
        }
    }

    /// The most bytes so far.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.watch.peak()
    }

    /// Ends.
    ///
    /// # Panics
    ///
    /// If the peak is not below the limit, with what was live then.
    #[track_caller]
    pub fn check(self) {
        let peak = self.peak();
        if peak >= self.limit {
            let snapshot = self.watch.snapshot().unwrap_or_default();
            panic!("{}", self.message(peak, snapshot));
        }
    }

    fn message(&self, peak: u64, mut snapshot: Snapshot) -> String {
        snapshot.info = self.context.state().info(SnapshotReason::Requested);
        // Of the memory that the limit is about.
        snapshot.live.retain(|group| group.kind.is_device_memory());
        snapshot
            .escaped
            .retain(|group| group.kind.is_device_memory());
        snapshot
            .unrecorded
            .retain(|(kind, _)| kind.is_device_memory());
        snapshot.totals.retain(|(kind, _)| kind.is_device_memory());
        format!(
            "assert_peak_below!: device memory reached {}; it must stay below {}. Live then:\n{:.*}{}",
            ByteSize(peak),
            ByteSize(self.limit),
            SHOWN,
            snapshot.display(),
            hint(snapshot.level),
        )
    }
}

/// Measures what is live after each iteration of a block; for [`assert_no_growth!`](crate::assert_no_growth).
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, DeviceBuffer, test::NoGrowth};
///
/// let context = Context::new(0)?;
/// let mut growth = NoGrowth::new(&context, 10, 1);
/// let mut cache = None;
/// let mut runs = 0;
/// while growth.again() {
///     cache = Some(DeviceBuffer::<u8>::zeroed(&context, 1000)?);
///     runs += 1;
/// }
/// growth.check();
/// assert_eq!(runs, 11);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Debug)]
pub struct NoGrowth<'c> {
    context: &'c Context,
    iterations: usize,
    warm_up: usize,
    /// How often the block was begun.
    begun: usize,
    /// After the warm-up, and after each iteration that follows it.
    rounds: Rounds,
    /// What is live after the warm-up, and now.
    live: Option<(Amount, Amount)>,
    is_complete: bool,
}

impl<'c> NoGrowth<'c> {
    /// For a block that runs `warm_up` times, to fill what it fills once, and then `iterations` times.
    ///
    /// # Panics
    ///
    /// If there are no iterations.
    #[must_use]
    #[track_caller]
    pub fn new(context: &'c Context, iterations: usize, warm_up: usize) -> Self {
        assert!(
            iterations > 0,
            "assert_no_growth!: the number of iterations is 0; at least 1 is needed"
        );
        Self {
            context,
            iterations,
            warm_up,
            begun: 0,
            rounds: Rounds::default(),
            live: None,
            is_complete: false,
        }
    }

    /// Whether the block runs once more. Waits for the device and measures.
    ///
    /// # Panics
    ///
    /// If waiting for the device fails.
    #[track_caller]
    pub fn again(&mut self) -> bool {
        if self.begun >= self.warm_up {
            settle(self.context, "assert_no_growth!");
            let context = self.context;
            self.rounds.add(&context.snapshot());
            let live = Amount::new(context.live_count(), context.live_bytes());
            let (before, _) = self.live.unwrap_or((live, live));
            self.live = Some((before, live));
        }
        self.is_complete = self.begun == self.warm_up + self.iterations;
        self.begun += usize::from(!self.is_complete);
        !self.is_complete
    }

    /// Ends.
    ///
    /// # Panics
    ///
    /// If a call site grows, with all that do; or if the block ended the iterations.
    #[track_caller]
    pub fn check(self) {
        let all = self.warm_up + self.iterations;
        assert!(
            self.is_complete,
            "assert_no_growth!: the block ended iteration {} of {all} with `break`",
            self.begun
        );
        let diff = self.rounds.growth();
        if !diff.is_empty() {
            panic!("{}", self.message(&diff));
        }
    }

    fn message(&self, diff: &Diff) -> String {
        let (before, after) = self.live.unwrap_or_default();
        format!(
            "assert_no_growth!: {} over {} iterations, after {} for warm-up; what is live went from {} in {} to {} in {}. By call site:\n{:.*}{}",
            growing(diff.changes.len()),
            self.iterations,
            self.warm_up,
            ByteSize(before.bytes),
            resources(before.count),
            ByteSize(after.bytes),
            resources(after.count),
            SHOWN,
            display_diff(diff),
            hint(self.context.snapshot().level),
        )
    }
}

fn growing(call_sites: usize) -> String {
    match call_sites {
        1 => "1 call site grows".to_owned(),
        _ => format!("{call_sites} call sites grow"),
    }
}

fn resources(count: u64) -> String {
    format!(
        "{count} {}",
        if count == 1 { "resource" } else { "resources" }
    )
}

fn hint(level: TrackingLevel) -> &'static str {
    match level {
        TrackingLevel::Counts => {
            "\n(Call sites are recorded at TrackingLevel::Sites and TrackingLevel::Stacks; the level is counts.)"
        }
        _ => "",
    }
}

/// How long frees on other threads are waited for.
const OTHERS: Duration = Duration::from_secs(10);

/// Waits until what was dropped is freed: memory on streams, and what host functions dropped.
#[track_caller]
fn settle(context: &Context, name: &str) {
    if let Err(error) = context.synchronize() {
        panic!("{name}: waiting for the device failed: {error}");
    }
    // What a host function drops is freed when the next operation begins, on whatever thread.
    deferred::finish(OTHERS);
}

/// For tests: `assert_no_leaks!(context)` panics with a leak report if anything is live in the context.
/// `assert_no_leaks!(context, code)` panics if `code` leaks in it, and returns the value of `code`.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # use cuguard::{Context, DeviceBuffer, assert_no_leaks};
/// let context = Context::new(0)?;
/// assert_no_leaks!(context);
/// let sum = assert_no_leaks!(context, {
///     let numbers = DeviceBuffer::from_slice(&context, &[4, 5, 6])?;
///     numbers.to_vec()?.iter().sum::<i32>()
/// });
/// assert_eq!(sum, 15);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[macro_export]
macro_rules! assert_no_leaks {
    ($context:expr $(,)?) => {{
        let snapshot = $context.snapshot();
        assert!(
            snapshot.is_clean(),
            "assert_no_leaks!: the context is not empty\n{}",
            $crate::report::Report::display(&snapshot)
        );
    }};
    ($context:expr, $body:expr $(,)?) => {{
        let context: &$crate::Context = &$context;
        let checkpoint = $crate::report::Checkpoint::new(context.snapshot());
        let result = $body;
        let leaked = checkpoint.left_behind(&context.snapshot());
        assert!(
            leaked.is_clean(),
            "assert_no_leaks!: the code leaked\n{}",
            $crate::report::Report::display(&leaked)
        );
        result
    }};
}

/// For tests: fails if device memory of the context reaches `bytes` while the block runs. Returns the value of the block.
///
/// Counts is what is live: also what was allocated before the block, from each allocation until its drop. The peak is exact,
/// and not sampled. Host memory does not count, nor does memory that a pool holds without a live allocation in it.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, DeviceBuffer, assert_peak_below};
///
/// let context = Context::new(0)?;
/// let sum: u32 = assert_peak_below!(context, 64 << 20, {
///     let batch = DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
///     batch.to_vec()?.iter().sum()
/// });
/// assert_eq!(sum, 6);
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// The message shows what was live at the peak, the largest call sites first:
///
/// ```should_panic
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # use cuguard::{Context, DeviceBuffer, assert_peak_below};
/// # let context = Context::new(0).unwrap();
/// assert_peak_below!(context, 1 << 20, {
///     let _large = DeviceBuffer::<f32>::zeroed(&context, 1 << 20).unwrap();
/// });
/// ```
#[macro_export]
macro_rules! assert_peak_below {
    ($context:expr, $bytes:expr, $body:expr $(,)?) => {{
        let below = $crate::test::PeakBelow::new(&$context, $bytes);
        let result = $body;
        below.check();
        result
    }};
}

/// For tests: runs the block again and again, and fails if a call site grows: what is live of it in the context, in bytes or in number,
/// memory or any other resource. Returns the value of the last run.
///
/// The block runs [`WARM_UP`](crate::test::WARM_UP) times first, or as often as `warm_up = N` says; then `iterations` times.
/// After each run the device is waited for, so that memory that is freed later, on a stream or after a host function, does
/// not count. A call site grows if it leaves something behind in two iterations or more, and until the end: a cache that is filled once
/// does not grow, nor one that is full, or filled and emptied again. A leak that happens once in ten runs needs some tens of iterations.
/// [`assert_no_leaks!`](crate::assert_no_leaks) permits nothing that stays.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, DeviceBuffer, assert_no_growth};
///
/// let context = Context::new(0)?;
/// let mut cache = None; // filled by the first step
/// let sum: u32 = assert_no_growth!(context, 20, {
///     let batch = DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
///     let sum = batch.to_vec()?.iter().sum();
///     cache.get_or_insert(batch);
///     sum
/// });
/// assert_eq!(sum, 6);
/// assert_no_growth!(context, 20, warm_up = 0, { cache = None });
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// The message shows the call sites that grew:
///
/// ```should_panic
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # use cuguard::{Context, DeviceBuffer, assert_no_growth};
/// # let context = Context::new(0).unwrap();
/// let mut history = Vec::new();
/// assert_no_growth!(context, 20, {
///     history.push(DeviceBuffer::<f32>::zeroed(&context, 1024).unwrap());
/// });
/// ```
#[macro_export]
macro_rules! assert_no_growth {
    ($context:expr, $iterations:expr, warm_up = $warm_up:expr, $body:expr $(,)?) => {{
        let mut growth = $crate::test::NoGrowth::new(&$context, $iterations, $warm_up);
        let mut result = ::core::option::Option::None;
        while growth.again() {
            result = ::core::option::Option::Some($body);
        }
        growth.check();
        result.expect("the block ran at least once")
    }};
    ($context:expr, $iterations:expr, $body:expr $(,)?) => {
        $crate::assert_no_growth!(
            $context,
            $iterations,
            warm_up = $crate::test::WARM_UP,
            $body
        )
    };
}
