//! One attempt to allocate.

use std::panic::Location;
use std::sync::Arc;

use cuguard_driver::result::{self, CallError};
use cuguard_driver::sys::CUresult;
use cuguard_registry::{Entry, Key, ResourceKind};

use crate::core::owned::ownership::{Home, NewBlock, OwnedResource, Owner, StreamState};
use crate::core::pools::virtual_pool::{self, VirtualPool};
use crate::core::shared::budget::Refused;
use crate::core::shared::context_state::ContextState;
use crate::core::shared::request::{Failed, Request};

/// Allocates once: checks the budget, calls the driver, records the resource and owns it. The caller has entered the
/// gate. (Invariant 2: recorded after the driver allocated.)
#[inline(always)]
pub(crate) fn allocate(
    state: &ContextState,
    request: &Request,
    kind: ResourceKind,
    type_name: &'static str,
    owner: impl FnOnce() -> Owner,
    call: impl FnOnce() -> result::Result<u64>,
) -> Result<OwnedResource, Failed> {
    let bytes = request.bytes as u64;
    if kind.is_memory() {
        if bytes == 0 {
            return Ok(OwnedResource::nothing(owner(), kind));
        }
        if state.budget.is_limited() {
            state.budget.reserve(kind, bytes)?;
        }
    }
    let address = match call() {
        Ok(address) => address,
        Err(error) => return Err(failed(state, request.operation, kind, bytes, error)),
    };
    let owner = owner();
    let entry = Entry {
        bytes,
        type_name,
        stream: owner.stream(),
    };
    let key = Key::new(kind, address);
    Ok(OwnedResource::new_at(request.site, owner, key, entry))
}

/// The same for device memory whose size only the driver knows: `call` returns it with the address. The size in the
/// request, which is not 0, is an estimate.
pub(crate) fn allocate_of_driver_size(
    state: &ContextState,
    request: &Request,
    type_name: &'static str,
    owner: Owner,
    call: impl FnOnce() -> result::Result<(u64, u64)>,
) -> Result<OwnedResource, Failed> {
    let (kind, estimate) = (ResourceKind::Device, request.bytes as u64);
    state.budget.reserve(kind, estimate)?;
    let (address, bytes) = match call() {
        Ok(allocated) => allocated,
        Err(error) => return Err(failed(state, request.operation, kind, estimate, error)),
    };
    // The memory is there, even if it exceeds the limit by the difference.
    state.budget.add(kind, bytes);
    state.budget.release(kind, estimate);
    let entry = Entry {
        bytes,
        type_name,
        stream: 0,
    };
    let key = Key::new(kind, address);
    Ok(OwnedResource::new_at(request.site, owner, key, entry))
}

/// Allocates a block of a pool in the common case: the context is open and has no budget, and a cache of the calling thread
/// has a block of this size. `None`, with nothing done, in other cases.
#[inline(never)]
pub(crate) fn allocate_cached(
    pool: &VirtualPool,
    stream: &StreamState,
    bytes: usize,
    type_name: &'static str,
    site: &'static Location<'static>,
) -> Option<NewBlock> {
    let (state, bytes) = (stream.state(), bytes as u64);
    let is_common = (1..=virtual_pool::LARGEST_CACHED).contains(&bytes)
        && !state.budget.is_limited()
        && pool.is_of(state)
        && !stream.is_per_thread();
    if !is_common {
        return None;
    }
    let inside = state.try_enter()?;
    let home = Home::known(pool, stream)?;
    let Some(address) = home.allocate_cached(bytes) else {
        drop(inside);
        Home::put(home);
        return None;
    };
    let entry = Entry {
        bytes,
        type_name,
        stream: stream.handle().0 as u64,
    };
    let key = Key::new(ResourceKind::Pooled, address);
    state.registry.insert_at(site, key, entry);
    Some(NewBlock { home, address })
}

/// The same in all cases. The caller has entered the gate. Without a driver call where the pool has such a block.
#[inline(always)]
pub(crate) fn allocate_in_pool(
    request: &Request,
    pool: &Arc<VirtualPool>,
    stream: &Arc<StreamState>,
    type_name: &'static str,
) -> Result<OwnedResource, Failed> {
    let (state, bytes) = (stream.state(), request.bytes as u64);
    let kind = ResourceKind::Pooled;
    if bytes == 0 {
        return Ok(OwnedResource::nothing(Owner::from(stream), kind));
    }
    if state.budget.is_limited() {
        state.budget.reserve(kind, bytes)?;
    }
    let home = Home::find(pool, stream);
    let address = match pool.allocate(&home.id(), bytes) {
        Ok(address) => address,
        Err(error) => {
            state.budget.release(kind, bytes);
            Home::put(home);
            return Err(virtual_pool::failed(state, request.operation, bytes, error));
        }
    };
    let entry = Entry {
        bytes,
        type_name,
        stream: stream.handle().0 as u64,
    };
    let (owner, key) = (Owner::Pooled(home), Key::new(kind, address));
    Ok(OwnedResource::new_at(request.site, owner, key, entry))
}

#[cold]
#[inline(never)]
fn failed(
    state: &ContextState,
    operation: &'static str,
    kind: ResourceKind,
    bytes: u64,
    error: CallError,
) -> Failed {
    state.budget.release(kind, bytes);
    if error.code == CUresult::OUT_OF_MEMORY {
        return Failed::OutOfMemory(Refused::Memory(error));
    }
    let bytes = (bytes != 0).then_some(bytes);
    Failed::Other(Box::new(state.error(operation, error, bytes)))
}
