//! The guards: one type a file, each a typed owner of one resource.
//!
//! They translate between the caller's types and `core`, which owns and frees. What this folder must not know: scopes
//! and chunks, which borrow guards.

mod context;
mod context_builder;
mod device_heap;
mod event;
mod keep;
mod memory;
mod module;
mod stream;
#[cfg(doctest)]
mod thread_refusals;

pub use context::{Context, ContextGuard, MemoryInfo};
pub use context_builder::ContextBuilder;
pub use device_heap::DeviceHeap;
pub use event::Event;
pub(crate) use memory::bytes_of;
pub use memory::{DeviceBox, DeviceBuffer, ManagedBuffer, MemoryPool, PinnedBuffer, RegisteredVec};
pub use module::{Function, Global, Module};
pub use stream::{Stream, StreamBuilder};
