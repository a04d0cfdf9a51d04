//! Leak-checked RAII for CUDA in Rust.
//!
//! Every allocation, stream, event, module and context has one owner and is freed on drop: during unwinding, on any
//! thread, in any order. cuguard records where each was created and reports what leaked, at context teardown or at
//! exit. When an allocation fails, the error says why: fragmentation, a pool that hoards, another process, a call
//! site that grows. Usable beside [`cust`](https://docs.rs/cust/0.3), whose types guards dereference to.
//!
//! # Quick start
//!
//! ```
//! # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
//! use cuguard::prelude::*;
//!
//! let context = Context::new(0)?;
//!
//! // Device memory: freed on drop. Copies are synchronous.
//! let mut weights = DeviceBuffer::from_slice(&context, &[1.0_f32, 2.0, 3.0])?.with_label("weights");
//! weights.copy_from_slice(&[4.0, 5.0, 6.0])?;
//! assert_eq!(weights.to_vec()?, [4.0, 5.0, 6.0]);
//!
//! // Asynchronous work borrows what it uses until the scope has synchronized the stream.
//! let stream = Stream::new(&context)?;
//! let input = PinnedBuffer::from_slice(&context, &[7.0_f32, 8.0, 9.0])?;
//! stream.scope(|s| s.upload(&mut s.bind_mut(&mut weights)?, &s.bind_host(&input)))?;
//! assert_eq!(weights.to_vec()?, [7.0, 8.0, 9.0]);
//!
//! // What is live, and whether a block of code leaks.
//! println!("{} bytes in {} resources", context.live_bytes(), context.live_count());
//! cuguard::assert_no_leaks!(context, {
//!     let _temporary = DeviceBox::new(&context, &42)?;
//! });
//! # drop((weights, stream, input));
//! context.close()?;
//! # Ok::<(), cuguard::Error>(())
//! ```
//!
//! `LEAK_REPORT=1` prints a report of what leaked, with stack traces. Without it, a leak is one line on stderr.
//!
//! # Set-up
//!
//! The default feature `cust` makes guards dereference to types of `cust`. On a machine without a CUDA toolkit it needs the
//! environment variable `CUDA_LIBRARY_PATH`; without the feature, there is nothing to set up. The program needs no driver to
//! build or to start: it is loaded at the first CUDA call. `CUGUARD_DRIVER` selects it: `real` (the default), `sim`, `auto`
//! or a path. See [`guide::set_up`].
//!
//! # Modules
//!
//! The root has what most programs name. The rest is in [`context`], [`device`], [`memory`], [`stream`], [`code`],
//! [`graph`] and [`scope`]; leak reports are in [`report`] and [`snapshot`], out-of-memory errors in [`oom`], assertions for
//! tests in [`test`](mod@test).
//!
//! # Guide
//!
//! The manual is [`guide`]: [guards](guide::guards), [streams and scopes](guide::streams_and_scopes), [pools](guide::pools),
//! [kernels](guide::kernels), [any CUDA program](guide::any_cuda_program), [devices and
//! interop](guide::devices_and_interop), [leak reports](guide::leak_reports), [recordings](guide::recordings), [out of
//! memory](guide::out_of_memory), [testing without a GPU](guide::testing_without_a_gpu), coming from
//! [`cust`](guide::coming_from_cust) or [`cudarc`](guide::coming_from_cudarc), [which tool for which problem](guide::which_tool), and
//! [what the crate cannot see](guide::limits).

#[doc(inline)]
pub use cuguard_driver as driver;

#[doc(no_inline)]
pub use bytemuck;

/// What [elements](guide::guards#element-types) of device memory implement, and the macro that derives it. The derived
/// code names the crate `cust_core`, which must be a dependency then. It is the trait of `cust` too.
#[doc(inline)]
pub use cust_core::DeviceCopy;

#[cfg(feature = "nvrtc")]
#[doc(inline)]
pub use cuguard_nvrtc as nvrtc;

#[cfg(feature = "sim")]
#[doc(inline)]
pub use cuguard_sim as sim;

pub mod chunked;
mod core;
#[cfg(feature = "cust")]
mod cust_interop;
mod error;
mod exit;
mod guards;
pub mod guide;
mod live;
mod recovery;
pub mod scope;
pub mod test;

pub use chunked::Chunked;
#[doc(inline)]
pub use cuguard_registry::{ResourceKind, TrackingLevel, label};
pub use error::{DriverError, Error, Result};
pub use guards::{
    Context, Device, DeviceBox, DeviceBuffer, DeviceView, DeviceViewMut, DriverPool, Event,
    Function, LaunchConfig, ManagedBuffer, Module, PinnedBuffer, Pool, RegisteredVec, Stream,
};
pub use scope::Scope;

/// Contexts: their settings, limits and figures.
pub mod context {
    #[doc(no_inline)]
    pub use crate::guards::Context;
    pub use crate::guards::{
        ContextBuilder, ContextGuard, ContextLimit, DeviceHeap, MemoryInfo, Profiler, Schedule,
    };
}

/// Devices: what they are, what they can do, and their access to each other.
pub mod device {
    #[doc(no_inline)]
    pub use crate::guards::Device;
    pub use crate::guards::{
        ComputeCapability, DeviceAttribute, DeviceUuid, ParseDeviceAttributeError,
        ParseDeviceError, PeerAccess,
    };
}

/// Memory: buffers, views of them, and what managed memory is advised of.
pub mod memory {
    #[cfg_attr(feature = "cust", doc(no_inline))]
    pub use crate::guards::DevicePointer;
    pub use crate::guards::{
        Compaction, DriverPoolStream, ManagedAdvice, MemoryLocation, PitchedBuffer, PoolBuilder,
        PoolStats, PoolStream, Source, WriteCombinedBuffer,
    };
    #[doc(no_inline)]
    pub use crate::guards::{
        DeviceBox, DeviceBuffer, DeviceView, DeviceViewMut, DriverPool, ManagedBuffer,
        PinnedBuffer, Pool, RegisteredVec,
    };
}

/// Streams and events. Work is enqueued in a [`Scope`].
pub mod stream {
    pub use crate::guards::StreamBuilder;
    #[doc(no_inline)]
    pub use crate::guards::{Event, Stream};
}

/// Device code: modules, their kernels and variables, linking, occupancy. Typed kernels are in [`scope`].
pub mod code {
    pub use crate::guards::{
        Dim3, FunctionAttributes, Global, LinkedImage, Linker, ModuleBuilder, SuggestedBlock,
    };
    #[doc(no_inline)]
    pub use crate::guards::{Function, LaunchConfig, Module};
}

/// Graphs: work that is captured once and launched any number of times.
pub mod graph {
    pub use crate::guards::{Graph, GraphExec, GraphMemory, GraphMemoryMut};
}

/// Out of memory: what is tried before an allocation fails ([`OomPolicy`](oom::OomPolicy)), and why it failed.
pub mod oom {
    pub use crate::core::{OomPolicy, ReleaseCallback};
    #[doc(inline)]
    pub use cuguard_registry::{Growth, Rise};
    #[doc(inline)]
    pub use cuguard_report::oom::{
        Cause, FailedRequest, GraphMemoryUse, KindUsage, Limit, OtherContext, OutOfMemory, PageUse,
        PoolUse, ProcessUse, Processes, RecoveryResult, RecoveryStep, Settings, SiteUsage,
    };
}

/// Reports: their settings, and snapshots as text and JSON.
pub mod report {
    pub use crate::live::metrics;
    #[doc(inline)]
    pub use cuguard_report::{
        ByteSize, Checkpoint, Colour, DumpSignal, FailOn, ParseDumpSignalError, ParseFailOnError,
        ParsePatternError, Problem, RecordPolicy, Report, ReportSettings, display_diff,
    };
}

/// Snapshots: what is live, grouped by call site, as plain data.
pub mod snapshot {
    #[doc(inline)]
    pub use cuguard_registry::{
        Amount, Change, ContextInfo, Diff, FailedCall, FailedFreeGroup, Fate, Group, LabelScope,
        MAX_DEPTH, Origin, ParseTrackingLevelError, PoolUsage, Site, Snapshot, SnapshotReason,
        Totals, Trend,
    };
}

/// What most programs need: `use cuguard::prelude::*;`.
pub mod prelude {
    pub use crate::{
        Context, Device, DeviceBox, DeviceBuffer, DeviceView, DeviceViewMut, DriverPool, Event,
        LaunchConfig, ManagedBuffer, Module, PinnedBuffer, Pool, RegisteredVec, Stream,
        report::Report,
    };
}
