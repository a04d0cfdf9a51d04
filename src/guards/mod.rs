//! The guards: one type a file, each the typed owner of one resource.
//!
//! A guard converts between the caller's types and `core`, which owns and frees. Scopes and chunked streaming borrow
//! guards; this folder must not import them.

mod code;
mod context;
mod context_builder;
mod context_guard;
mod context_settings;
mod device;
mod device_attribute;
mod device_heap;
mod device_identity;
mod event;
mod graph;
mod graph_memory;
mod keep;
mod memory;
mod memory_info;
mod peer_access;
mod pool_builder;
mod profiler;
mod raw_context;
mod raw_handles;
mod stream;
mod stream_builder;
#[cfg(doctest)]
mod thread_refusals;

pub use code::{
    Dim3, Function, FunctionAttributes, Global, LaunchConfig, LinkedImage, Linker, Module,
    ModuleBuilder, SuggestedBlock,
};
pub use context::Context;
pub use context_builder::ContextBuilder;
pub use context_guard::ContextGuard;
pub use context_settings::{ContextLimit, Schedule};
pub use device::Device;
pub use device_attribute::{DeviceAttribute, ParseDeviceAttributeError};
pub use device_heap::DeviceHeap;
pub use device_identity::{ComputeCapability, DeviceUuid, ParseDeviceError};
pub use event::Event;
pub(crate) use graph::GraphParts;
pub use graph::{Graph, GraphExec};
pub(crate) use graph_memory::{Exported, GraphRange};
pub use graph_memory::{GraphMemory, GraphMemoryMut};
pub use memory::{
    Compaction, DeviceBox, DeviceBuffer, DevicePointer, DeviceView, DeviceViewMut, DriverPool,
    DriverPoolStream, ManagedAdvice, ManagedBuffer, MemoryLocation, PinnedBuffer, PitchedBuffer,
    Pool, PoolStats, PoolStream, RegisteredVec, Source, WriteCombinedBuffer,
};
pub(crate) use memory::{
    DeviceMemory, PoolRef, bytes_of, check_alignment, check_len, check_range, host_vec,
};
pub use memory_info::MemoryInfo;
pub use peer_access::PeerAccess;
pub use pool_builder::PoolBuilder;
pub use profiler::Profiler;
pub use stream::Stream;
pub use stream_builder::StreamBuilder;
