//! What the driver functions do, one file a topic. [`crate::entry_points`] exports them.
//!
//! The functions trust their callers as a driver does: pointers are valid for what the driver's
//! documentation says is read or written through them, which is what "as the caller guarantees"
//! below refers to. Null is always an error.
//!
//! Must not know the C functions, nor how calls are counted and admitted.

#![allow(
    non_snake_case,
    reason = "the functions keep the driver's names, so that its documentation applies"
)]

mod array;
mod capture;
mod clusters;
mod context;
mod context_event;
mod context_lifetime;
mod copy;
mod copy_2d;
mod copy_3d;
mod copy_batch;
mod copy_sides;
mod device;
mod device_queries;
mod event;
mod fill;
mod function;
mod graph;
mod graph_drawing;
mod graph_kernels;
mod graph_launch;
mod graph_memory;
mod graph_node_params;
mod graph_nodes;
mod graph_update;
mod host;
mod init;
mod jit_log;
mod launch;
mod launch_arguments;
mod launch_limits;
mod library;
mod linker;
mod managed_batch;
mod managed_location;
mod memory;
mod module;
mod occupancy;
mod old_launch;
mod older_versions;
mod peer;
mod pointer;
mod pool_location;
mod primary_context;
mod range;
mod stream;
mod stream_attribute;
mod stream_ordered;
mod user_object;
mod virtual_memory;

pub use array::*;
pub use capture::*;
pub use clusters::*;
pub use context::*;
pub use context_event::*;
pub use context_lifetime::*;
pub use copy::*;
pub use copy_2d::*;
pub use copy_3d::*;
pub use copy_batch::*;
pub use device::*;
pub use device_queries::*;
pub use event::*;
pub use fill::*;
pub use function::*;
pub use graph::*;
pub use graph_drawing::*;
pub use graph_kernels::*;
pub use graph_launch::*;
pub use graph_memory::*;
pub use graph_node_params::*;
pub use graph_nodes::*;
pub use graph_update::*;
pub use host::*;
pub use init::*;
pub use launch::*;
pub use library::*;
pub use linker::*;
pub use managed_batch::*;
pub use managed_location::*;
pub use memory::*;
pub use module::*;
pub use occupancy::*;
pub use old_launch::*;
pub use older_versions::*;
pub use peer::*;
pub use pointer::*;
pub use pool_location::*;
pub use primary_context::*;
pub use range::*;
pub use stream::*;
pub use stream_attribute::*;
pub use stream_ordered::*;
pub use user_object::*;
pub use virtual_memory::*;

use std::sync::Arc;

use cuguard_sys::{CUarray, CUcontext, CUresult, CUstream};

use crate::fault;
use crate::functions::Function;
use crate::handle::{self, Id, Kind};
use crate::memory::MemoryBlock;
use crate::result::{DriverResult, check, valid};
use crate::state::{DriverState, StateGuard, lock};

/// Writes a result. Null is an error.
///
/// # Safety
///
/// `out` is null or valid for a write.
pub(crate) unsafe fn write_out<T>(out: *mut T, value: T) -> DriverResult {
    valid(!out.is_null())?;
    // SAFETY: not null, so valid by the caller's guarantee. C callers need not align.
    unsafe { out.write_unaligned(value) };
    Ok(())
}

/// Writes a result that the caller may not want.
///
/// # Safety
///
/// `out` is null or valid for a write.
pub(crate) unsafe fn write_optional<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: as in `write_out`.
        unsafe { out.write_unaligned(value) };
    }
}

/// Reads a parameter struct. Null is an error.
///
/// # Safety
///
/// `from` is null or valid for a read.
unsafe fn read<T: Copy>(from: *const T) -> DriverResult<T> {
    valid(!from.is_null())?;
    // SAFETY: not null, so valid by the caller's guarantee.
    Ok(unsafe { from.read_unaligned() })
}

/// Writes the pointer that `allocate` returns. Like a real driver, a failed allocation writes null.
///
/// # Safety
///
/// `out` is null or valid for a write.
unsafe fn write_allocation<T>(
    function: Function,
    out: *mut T,
    null: T,
    allocate: impl FnOnce() -> DriverResult<T>,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe { write_optional(out, null) };
    fault::on_call(function)?;
    valid(!out.is_null())?;
    let pointer = allocate()?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, pointer) }
}

/// A new block for an allocation, unless a fault makes that fail. Allocated before anything else, so
/// that there is nothing to undo if the host is out of memory.
fn allocate_block(bytes: usize) -> DriverResult<Arc<MemoryBlock>> {
    fault::on_allocation(bytes as u64)?;
    MemoryBlock::allocate(bytes).ok_or(CUresult::OUT_OF_MEMORY)
}

/// Locks the state and orders new work on a stream after its implicit dependencies.
fn begin_work(stream: CUstream) -> DriverResult<(StateGuard, Id)> {
    let mut state = lock();
    let stream = state.stream(stream)?;
    state.check_implicit(stream)?;
    state.join_implicit_dependencies(stream);
    Ok((state, stream))
}

/// Fails unless a context is live.
fn check_context(state: &DriverState, context: CUcontext) -> DriverResult {
    let id = handle::decode(Kind::Context, context.0);
    let live = id.is_some_and(|id| state.check_alive(id).is_ok());
    check(live, CUresult::INVALID_CONTEXT)
}

/// The id of a live array.
fn find_array(state: &DriverState, array: CUarray) -> DriverResult<Id> {
    let is_live = |id| state.arrays.contains_key(&id);
    state.live_id(Kind::Array, array.0, CUresult::INVALID_HANDLE, is_live)
}
