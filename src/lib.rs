//! RAII wrappers for CUDA resources: everything is freed on drop, and what leaks is reported.
//!
//! CUDA programs run out of memory while memory looks free: an error path skips a free, a context
//! outlives its use, a library keeps buffers. Here every allocation, stream, event, module and
//! context has one owner and is freed on drop: while a panic unwinds, on any thread, in any order. A
//! context that is dropped first stays open until the last of its resources is dropped. Every resource
//! is recorded with the call site or stack trace that created it, and what leaked is reported when a
//! context is closed, or at exit.
//!
//! `cuguard` is built on [`cust`](https://docs.rs/cust/0.3) and works beside it.
//!
//! # Five minutes
//!
//! ```
//! # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
//! use cuguard::prelude::*;
//!
//! let context = Context::new(0)?;
//!
//! // Memory: freed when it goes. Copies are plain and complete when they return.
//! let mut weights = DeviceBuffer::from_slice(&context, &[1.0_f32, 2.0, 3.0])?.named("weights");
//! weights.copy_from_slice(&[4.0, 5.0, 6.0])?;
//! assert_eq!(weights.to_vec()?, [4.0, 5.0, 6.0]);
//!
//! // Work in flight: borrowed until the scope has waited.
//! let stream = Stream::new(&context)?;
//! let input = PinnedBuffer::from_slice(&context, &[7.0_f32, 8.0, 9.0])?;
//! let mut output = PinnedBuffer::<f32>::zeroed(&context, 3)?;
//! stream.scope(|s| {
//!     let (input, mut output) = (s.bind_host(&input), s.bind_host_mut(&mut output));
//!     let mut weights = s.bind_mut(&mut weights)?;
//!     s.upload(&mut weights, &input)?;
//!     s.download(&mut output, &weights)
//! })?;
//! assert_eq!(*output, [7.0, 8.0, 9.0]);
//!
//! // Stream-ordered memory: allocated and freed in the order of the stream's work.
//! let scratch = DeviceBuffer::<u8>::zeroed_on(&stream, 1 << 20)?;
//! drop(scratch);
//!
//! // What is alive, and since when; what a piece of code leaves behind.
//! println!("{} bytes in {} things", context.live_bytes(), context.live_count());
//! cuguard::assert_no_leaks!(context, {
//!     let _temporary = DeviceBox::new(&context, &42)?;
//! });
//! # drop((weights, stream, input, output));
//! context.close()?;
//! # Ok::<(), cuguard::Error>(())
//! ```
//!
//! # More data than memory
//!
//! [`Chunked`] streams a slice of any length through the device, in pieces that fit: copies of one
//! piece overlap with work on another, and where memory runs out the pieces become smaller.
//!
//! ```
//! # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
//! # let context = cuguard::Context::new(0)?;
//! # let mut pixels = vec![0_u8; 100_000];
//! let summary = cuguard::Chunked::new(&context).update(&mut pixels, |s, mut piece| {
//!     s.fill(&mut piece.data, 255) // or a kernel
//! })?;
//! println!("{} pieces", summary.pieces);
//! # assert_eq!(pixels, [255; 100_000]);
//! # Ok::<(), cuguard::Error>(())
//! ```
//!
//! Kernels that call `malloc` have a heap of their own on the device, and are refused silently when
//! it is full; [`DeviceHeap`] sets its size.
//!
//! # Set-up
//!
//! 1. On a machine without a CUDA toolkit, first give `cust_raw`, the crate at the bottom, an empty
//!    folder to find; else its build script stops with "Could not find a cuda installation". In the
//!    folder of your program (this also fits a `config.toml` that has a table `[env]` already):
//!
//!    ```console
//!    $ mkdir -p .cargo/no-cuda/lib64 && touch .cargo/no-cuda/lib64/.gitkeep
//!    $ cat >> .cargo/config.toml <<'END'
//!
//!    [env.CUDA_LIBRARY_PATH]
//!    value = ".cargo/no-cuda"
//!    relative = true
//!    END
//!    ```
//!
//! 2. Depend on a clone of the repository, as the crate is not published yet; `git = "…"` with its
//!    address does as well. The feature `sim` compiles the simulated GPU in, for tests on machines
//!    without a GPU; see `cuguard::sim`.
//!
//!    ```toml
//!    [dependencies]
//!    cuguard = { path = "../cuguard" }
//!
//!    [dev-dependencies]
//!    cuguard = { path = "../cuguard", features = ["sim"] }
//!    ```
//!
//!    A test selects it with `cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap()` in its
//!    first line; each test of a program may do so.
//!
//! 3. For reports with lines: a debug build has them, a release build has the names of functions only,
//!    unless it keeps its line tables.
//!
//!    ```toml
//!    [profile.release]
//!    debug = "line-tables-only"
//!    ```
//!
//! The program has no `NEEDED libcuda.so.1`: it builds without a CUDA toolkit, starts without a
//! driver, and loads the driver at its first CUDA call. `CUGUARD_DRIVER` selects it: `real` (the
//! default), `sim`, `auto` or the path of a library; see [`driver`].
//!
//! The two environment variables have opposite precedence:
//!
//! | variable | set in the program too | so that |
//! |---|---|---|
//! | `LEAK_REPORT` | wins over [`ContextBuilder::report`] | any program can be examined as it is |
//! | `CUGUARD_DRIVER` | the program's [`driver::select`] wins | a test for the simulated GPU never runs on a real one |
//!
//! A report looks up the names of functions in the debug information. In a debug build that takes a few
//! tenths of a second, as the code that reads it is not optimised; with this it takes a third of that:
//!
//! ```toml
//! [profile.dev.package]
//! addr2line.opt-level = 3
//! gimli.opt-level = 3
//! object.opt-level = 3
//! miniz_oxide.opt-level = 3
//! ```
//!
//! A stripped program has no names: its frames are `module+offset`, with the build id of each module at
//! the end, for `addr2line` or `debuginfod` elsewhere; the line that allocated what leaked comes first all
//! the same.
//!
//! A program that uses `cust` alone must still mention `cuguard` somewhere (`use cuguard as _;`
//! does), or the compiler leaves it out and the linker misses `cuInit`.
//!
//! # `LEAK_REPORT`
//!
//! Unset: no report; a context that is torn down with something in it is one line in the log, or on
//! standard error where no logger takes warnings. `0`, `off`, `no` or `false`: not even that line, whatever
//! other words stand beside it.
//! `LEAK_REPORT=1`: a report on standard error, with the stacks that made what leaked. Otherwise a list,
//! as in `LEAK_REPORT=json,file=leaks-%p.json,exitcode=23`, or `LEAK_REPORT=github,exitcode=1` in a GitHub
//! workflow; [`ReportSettings`] has all words, and is also how a program sets them itself. A word that is not known is named on standard error, and
//! the program runs on.
//!
//! A report comes when a context is torn down, and when the process exits for contexts that are still
//! open: never dropped, kept in a `static`, or dropped and [kept open](Context) by resources that were
//! never dropped. Guards that are dropped after [`Context::close`] are counted: where a report is on, it
//! has one line for each such context at exit. They are no further leak, as the close has reported what
//! they owned, so they do not count for the exit code. Neither does a context that is never dropped and
//! has no resources: it takes memory until the process exits, hundreds of MiB on a GPU, but may be meant
//! to, in a `static`. A report says so.
//!
//! How much is recorded is a [`Level`]: counts alone, the line that made a thing (the default), or
//! the whole stack (what a report asks for). What that costs stands in `benches/RESULTS.md`: on an
//! H200 a stream-ordered pair of allocation and free takes about 0.7 µs; counts add some 50 ns to
//! that, call sites 0.1 µs, stacks of 24 frames 0.3 µs, and all of it takes nearly twice as long where
//! the machine is in its slow state. A program that makes millions of small things can
//! record one in a hundred with [`sample=100`](ReportSettings::sample); all are counted, and the
//! report says that its groups are estimates.
//!
//! # Out of memory
//!
//! An allocation that finds too little memory answers [`Error::OutOfMemory`], with a report that says
//! why. [`OutOfMemory`] is plain data; [`causes`](OutOfMemory::causes) is its verdict, the largest
//! cause first, and [`advice`](OutOfMemory::advice) says what helps. The error's own text is one line.
//! `{:#}` or [`to_text`](OutOfMemory::to_text) is all of it: the verdict and what helps, where the
//! memory is, which lines of the program hold it, what was tried. [`to_json`](OutOfMemory::to_json) is
//! for programs; `docs/out-of-memory-schema.md` describes it. What cannot be known is called unknown:
//! other processes, for one, where NVML is missing.
//!
//! ```
//! # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
//! use cuguard::prelude::*;
//! use cuguard::Error;
//! use cuguard::oom::Cause;
//!
//! let context = Context::new(0)?;
//! match DeviceBuffer::<f32>::zeroed(&context, 1 << 40) {
//!     Err(Error::OutOfMemory(why)) => {
//!         eprintln!("{why:#}");
//!         assert!(matches!(why.causes()[0], Cause::LargerThanDevice { .. }));
//!     }
//!     other => drop(other?),
//! }
//! # Ok::<(), cuguard::Error>(())
//! ```
//!
//! Before an allocation fails it climbs a ladder, and is tried again after each rung: callbacks of
//! the program give back what they can, frees that wait for their streams are waited for, for some
//! seconds at most, pools are trimmed. [`OomPolicy`] turns rungs off, and the report says what each
//! of them brought.
//!
//! A stream, an event, a module, a memory pool and a launch take memory too (a launch for the local
//! memory of its kernel). Where the driver has too little for them, they climb the same ladder and
//! fail with the same error. How much they wanted the driver does not tell, so `asked.bytes` is `None`,
//! and callbacks are told `u64::MAX`.
//!
//! - [`Context::release_on_oom`] registers a callback. It runs on the thread that allocates, in
//!   the middle of the allocation. So it must not wait for a lock that the allocating code may hold:
//!   a cache that allocates under its own lock would wait for itself. `try_lock`, and let go of
//!   nothing where that fails. Closing the context waits for one that another thread is in, for a
//!   second at most.
//! - [`memory_limit`](ContextBuilder::memory_limit) keeps a context below a budget, with the same
//!   error, as if the device were that small.
//! - [`Context::mark_oom_baseline`] remembers what is alive; the report then says what each place has grown
//!   by since. Make one, after the first steps, when all that is meant to stay is there. One in each
//!   step would only show the growth of the last.
//! - [`Context::largest_block`] tries what could be had in one block now; with
//!   [`OomPolicy::probe_largest`] the report does so too.
//! - [`Chunked`] works in pieces that fit, and `cuguard doctor` looks at the machine from outside.
//!
//! ```
//! # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
//! use std::sync::{Arc, Mutex};
//! use cuguard::prelude::*;
//!
//! let context = Context::builder().memory_limit(64 << 20).build()?;
//! let cache = Arc::new(Mutex::new(Vec::new()));
//! let _callback = context.release_on_oom({
//!     let cache = Arc::clone(&cache);
//!     move |_bytes| {
//!         if let Ok(mut cache) = cache.try_lock() {
//!             cache.clear();
//!         }
//!     }
//! });
//! let entry = DeviceBuffer::<u8>::zeroed(&context, 48 << 20)?;
//! cache.lock().unwrap().push(entry);
//! let needed = DeviceBuffer::<u8>::zeroed(&context, 32 << 20)?; // the cache makes room
//! # assert!(cache.lock().unwrap().is_empty());
//! # Ok::<(), cuguard::Error>(())
//! ```
//!
//! The questions that are asked most, and where the report has the answer. Each example runs on a
//! simulated GPU: `CUGUARD_DRIVER=sim cargo run --example oom_leak`.
//!
//! | out of memory … | what the report shows | what to do | example |
//! |---|---|---|---|
//! | "… but half the card is free" | `lie unused in … pages that small blocks keep`: memory comes in pages of 2 MiB, and one small block keeps a whole one. The lines that made these blocks follow. Where the driver itself calls the memory free: `… are free, and yet it was refused` | put small blocks that live long into one large buffer or a [`MemoryPool`]; look for limits outside the program, as of MPS, and at [`OomPolicy::probe_largest`] | `oom_fragmented` |
//! | "… with no process running" | `another process holds … (pid …)` names one that was overlooked; in a container it may be this one, by its number outside, and the report says so. `this process holds … that none of its guards took` are other libraries, code that calls the driver itself, or the local memory of kernels, which the driver takes for the whole device at a launch and keeps until the context goes. `taken by contexts themselves, or by somebody not known here` is one that cannot be seen: in another container, or just ending | end it, or wait for it; `cuguard doctor` lists who is on the card and what no process explains. See what libraries keep (workspaces of cuBLAS); hand memory to guards with `from_raw` | `oom_other_process` |
//! | "… with batch size 1, after clearing the cache" | `memory pools have … that they do not use`, and `trim pools` brought little: blocks that are in use keep the pool's pieces | free these blocks, or take what lives long from a [`MemoryPool`] of its own | `oom_hoarded_pool` |
//! | "… after some hours" | `the context's own data takes …, and grows`, with the line that grows and by how much since the [checkpoint](Context::mark_oom_baseline) | see why that line's memory is kept | `oom_leak` |
//! | "… although it worked yesterday" | `other processes`, `other contexts` and `the rest` under `where the memory is`: what today is there beside the program | end what is not needed, or set a [`memory_limit`](ContextBuilder::memory_limit) for each of those that share the card | `oom_other_process` |
//! | "… my model should fit" | `larger than the device`; or `lost because blocks take whole pages`: what was asked for and what that takes stand side by side | work in pieces with [`Chunked`]; make large blocks a multiple of 2 MiB | `oom_too_large`, `chunked` |
//! | "… and I have just freed it" | `wait to be freed on … streams`: stream-ordered frees come after the work before them, and bring nothing back before somebody has waited for the stream; to ask whether it is idle does not do | leave [`OomPolicy::wait`] on, and [long enough](OomPolicy::wait_at_most); or synchronise the stream | |
//!
//! An error that names two causes has `why:` for the larger and `and:` for the rest; the advice
//! follows for each, and leaves out what is in force already.
//!
//! # How a process ends
//!
//! | end | report |
//! |---|---|
//! | a context is closed, or it and all its resources are dropped, also by a panic that unwinds | then |
//! | `main` returns, or panics; `std::process::exit` | at exit: contexts that are still open, with what keeps them open and where they were dropped; guards dropped after a close: one line |
//! | a thread still tears down or reports when the process exits | the exit waits for it, some seconds at most |
//! | abort, `panic = "abort"`, a fatal signal, `_exit` | none: nothing runs then |
//! | a fork | the child has none of its parent's contexts: all guards are inert in it, and it reports nothing |
//! | `dlclose` of a library that has this crate in it | at exit: the library stays loaded |
//!
//! From the first exit handler on no guard calls the driver, which may be gone already: what is
//! dropped then does nothing, what is used answers [`Error::ProcessEnding`].
//!
//! With `exitcode=N` a process that leaked ends in cuguard's exit handler: C's streams are flushed,
//! and handlers that were registered before the first context was made do not run.
//!
//! # What it cannot see
//!
//! - What other code takes from the driver: `cust`'s own types, libraries, in-kernel `malloc`,
//!   other processes. The registry holds what guards of this crate made.
//! - An abort or a fatal signal: then there is no report.
//! - At [`Level::Counts`] there are no records: what is alive at a [`Context::close`] is counted, but
//!   neither named nor freed, and its guards, which turn inert, do not free it either. It is lost until
//!   the driver's context is destroyed (the primary context, by its last holder) or, for stream-ordered
//!   memory, until the process exits. With [`sample=N`](ReportSettings::sample) the same holds for what
//!   no sample met. With `free_leaks=no` a close frees nothing, so that other tools see the leaks. A
//!   context that is dropped loses nothing at any level: its guards free what they own.
//! - Memory that was given away with `into_raw`: it is listed as escaped and left alone. When memory
//!   runs out, what may be left of it is named.
//!
//! # What is safe
//!
//! No safe function shows device memory that nobody wrote, lets host memory go while a copy is in
//! flight, or frees what the device still uses. Work that runs on its own borrows what it uses
//! through [`Stream::scope`], which waits at its end, panic or not; on a driver that refuses to say
//! whether the work is done, and does not say either that the context is lost, the process is
//! aborted rather than let the device write into memory that is used for other things. What the
//! crate cannot know is `unsafe` and says what it asks for: launches, uninitialized memory, raw
//! addresses, a driver by the path of its library. A type with elements is `Send` and `Sync` where the
//! slice or borrow that it stands for is.
//!
//! The exceptions are `cust`'s, and reached through `Deref`: a
//! [`cust::memory::DeviceSlice`](https://docs.rs/cust/0.3/cust/memory/struct.DeviceSlice.html) that is
//! copied out of a buffer, or swapped against another one with `mem::swap`, does not keep the buffer
//! alive and ignores scopes that have it bound (what the buffer itself frees, copies and binds stays
//! its own memory); a reference to `cust`'s stream or function does not notice that the context is closed; and `cust`'s
//! `Stream::add_callback` takes closures that borrow.
//!
//! What `cust` does with a stream-ordered buffer on the default stream of the buffer's context
//! (`set_8`, copies) is done before the buffer is freed, and before its own copies. Work on other
//! streams is not in order with it: that of a scope comes after a [`Context::synchronize`]. What `cust`
//! does on another stream is `unsafe` there. Call [`record_stream`](DeviceBuffer::record_stream) each time after
//! such work is enqueued: the buffer's own stream then waits for what the other stream has by that
//! moment, and so does the free. Work that is enqueued later is not covered.
//!
//! Inside a host function of a stream the driver permits no call: operations fail there with
//! `CUDA_ERROR_NOT_PERMITTED`. Guards and contexts may be dropped there; their frees and teardowns are
//! deferred. They are done by the first later operation that may wait for the device, on any thread and
//! in any context: one that synchronizes, copies or allocates synchronously, runs out of memory, or opens
//! or closes a context. Until then they count as live. Where no such operation comes, they stay live
//! until the process exits, and are no leak. A host function must not wait for the device, and so not for
//! the close of a context.
//!
//! # Coming from `cust`
//!
//! | `cust` | `cuguard` |
//! |---|---|
//! | `cust::quick_init()?` | [`Context::new(0)?`](Context::new) |
//! | `Context::new(Device::get_device(1)?)?` | [`Context::new(1)?`](Context::new) |
//! | a context that must be current on each thread | nothing: any thread, any time; [`Context::make_current`] for `cust` itself |
//! | `DeviceBuffer::from_slice(&v)?` | [`DeviceBuffer::from_slice(&context, &v)?`](DeviceBuffer::from_slice) |
//! | `DeviceBuffer::zeroed(n)?` | [`DeviceBuffer::zeroed(&context, n)?`](DeviceBuffer::zeroed) |
//! | `DeviceBuffer::zeroed_async(n, &stream)?` (unsafe) | [`DeviceBuffer::zeroed_on(&stream, n)?`](DeviceBuffer::zeroed_on) |
//! | `buffer.copy_to(&mut v)?` | [`buffer.copy_to_slice(&mut v)?`](DeviceBuffer::copy_to_slice) |
//! | `buffer.as_host_vec()?` | [`buffer.to_vec()?`](DeviceBuffer::to_vec) |
//! | `unsafe { buffer.async_copy_from(&v, &stream)? }` | [`stream.scope(...)`](Stream::scope), safe |
//! | `LockedBuffer::from_slice(&v)?` | [`PinnedBuffer::from_slice(&context, &v)?`](PinnedBuffer::from_slice) |
//! | `DeviceBox::new(&v)?` | [`DeviceBox::new(&context, &v)?`](DeviceBox::new) |
//! | `UnifiedBuffer::from_slice(&v)?` | [`ManagedBuffer::from_slice(&context, &v)?`](ManagedBuffer::from_slice) |
//! | `Stream::new(StreamFlags::NON_BLOCKING, None)?` (the flag is dropped) | [`Stream::new(&context)?`](Stream::new) (really non-blocking) |
//! | `stream.synchronize()?` | the same: [`Stream::synchronize`]; a scope has waited already |
//! | `CurrentContext::synchronize()?` | [`context.synchronize()?`](Context::synchronize) |
//! | `Event::new(EventFlags::DEFAULT)?`, `event.record(&stream)?` | [`Event::new(&context)?`](Event::new), [`event.record(&stream)?`](Event::record) |
//! | `end.elapsed_time_f32(&begin)?` | [`end.elapsed_since(&begin)?`](Event::elapsed_since), a `Duration` |
//! | `Module::from_ptx(ptx, &[])?` | [`Module::from_ptx(&context, ptx)?`](Module::from_ptx) |
//! | `module.get_function("f")?` | [`module.function("f")?`](Module::function) |
//! | `module.get_global::<T>(&name)?` | [`module.global::<T>("name")?`](Module::global) |
//! | `launch!(f<<<grid, block, 0, stream>>>(...))?` | [`s.launch(&f, grid, block, 0, &[...])?`](Scope::launch) in a scope; `cust::launch!` takes a [`Function`] and a [`Stream`] too |
//! | errors in `drop` are lost | recorded, and in the report; to get one as a `Result`, free with the guard's own `close()`, as [`DeviceBuffer::close`] |

#[doc(inline)]
pub use cuguard_driver as driver;

#[cfg(feature = "sim")]
#[doc(inline)]
pub use cuguard_sim as sim;

pub mod chunked;
mod core;
mod error;
mod exit;
mod guards;
mod recovery;
pub mod scope;

pub use chunked::Chunked;
pub use cuguard_registry::{Kind, Level, in_label as label};
pub use error::{DriverError, Error, Result};
pub use guards::{
    Context, ContextBuilder, ContextGuard, DeviceBox, DeviceBuffer, DeviceHeap, Event, Function,
    Global, ManagedBuffer, MemoryInfo, MemoryPool, Module, PinnedBuffer, RegisteredVec, Stream,
    StreamBuilder,
};
pub use scope::Scope;

/// Out of memory: what is tried before an allocation fails ([`OomPolicy`]), and why it failed
/// ([`OutOfMemory`]).
///
/// [`OomPolicy`]: oom::OomPolicy
/// [`OutOfMemory`]: oom::OutOfMemory
pub mod oom {
    pub use crate::core::{OomPolicy, ReleaseCallback};
    pub use cuguard_report::oom::{
        Cause, FailedRequest, KindUsage, Limit, OtherContext, OutOfMemory, PageUse, PoolUse,
        ProcessUse, Processes, RecoveryResult, RecoveryStep, Settings, SiteUsage,
    };
}

/// Reports: their settings, and snapshots as text and JSON.
pub mod report {
    pub use cuguard_report::{
        ByteSize, Checkpoint, Colour, PatternError, Problem, Report, ReportSettings, display_diff,
    };
}

/// Snapshots: what is live, grouped by call site, as plain data.
pub mod snapshot {
    pub use cuguard_registry::{
        Amount, Change, ContextInfo, Diff, FailedCall, FailedFreeGroup, Group, LabelScope,
        LateDrops, MAX_DEPTH, Origin, Site, Snapshot, SnapshotReason, Totals, Trend, UnknownLevel,
    };
}

/// What most programs need.
///
/// ```
/// use cuguard::prelude::*;
/// ```
pub mod prelude {
    pub use crate::{
        Context, DeviceBox, DeviceBuffer, Event, ManagedBuffer, MemoryPool, Module, PinnedBuffer,
        RegisteredVec, Stream, report::Report,
    };
}

/// Checks that a piece of code leaves nothing behind in a context, or that the context has nothing
/// in it at all. Fails with the report as its message. For tests.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, DeviceBuffer, assert_no_leaks};
///
/// let context = Context::new(0)?;
/// assert_no_leaks!(context);
/// let _kept = DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
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
