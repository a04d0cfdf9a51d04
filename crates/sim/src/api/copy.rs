//! Copies. With unified addressing the address determines the kind of memory; the name of a function
//! only determines which side may be pageable host memory.

use std::ffi::c_void;

use cuguard_sys::{CUcontext, CUdeviceptr, CUresult, CUstream};

use super::{begin_work, check_context};
use crate::copy_engine;
use crate::handle::Id;
use crate::memory::{Extent, Shape};
use crate::result::DriverResult;
use crate::state::{DriverState, Operand, lock, run_now, wait_for_work};

/// Both sides of a copy: the memory, and whether it is pageable.
pub(super) struct Plan {
    pub(super) to: (Extent, bool),
    pub(super) from: (Extent, bool),
}

/// Resolves the sides of a copy on a stream; `None` if there is nothing to copy.
pub(super) trait Planner: FnOnce(&DriverState, Id) -> DriverResult<Option<Plan>> {}
impl<F: FnOnce(&DriverState, Id) -> DriverResult<Option<Plan>>> Planner for F {}

/// Copies on a stream. As measured on a real driver, pageable source memory is read before this
/// returns, and a copy to pageable memory is complete when this returns.
///
/// Without a stream, the copy is synchronous, on the legacy default stream.
pub(super) fn copy(stream: Option<CUstream>, plan: impl Planner) -> DriverResult {
    let (mut state, id) = begin_work(stream.unwrap_or(CUstream::NULL))?;
    let Some(Plan { to, mut from }) = plan(&state, id)? else {
        return Ok(());
    };
    let asynchronous = stream.is_some();
    if asynchronous && from.1 {
        // Without the lock, since large sources take a while. The stream may be destroyed meanwhile.
        drop(state);
        // SAFETY: the source is valid during the call.
        let staged = unsafe { from.0.staged() }.ok_or(CUresult::OUT_OF_MEMORY);
        state = lock();
        match staged.and_then(|staged| state.check_stream(id).map(|()| staged)) {
            Ok(staged) => from.0 = staged,
            Err(code) => {
                // Another thread may wait for the memory to be unused.
                drop((to, from));
                state.notify_memory_waiters();
                return Err(code);
            }
        }
    }
    let to_pageable = to.1;
    // SAFETY: the program guarantees that its memory is valid and unused until the copy is complete;
    // the extents keep simulated memory allocated.
    let run = move || copy_engine::run(|| unsafe { to.0.copy_from(&from.0) });
    if !asynchronous {
        return run_now(state, id, run);
    }
    let number = state.submit(id, None, Some(Box::new(run)), None)?;
    if to_pageable {
        drop(wait_for_work(state, id, number));
    }
    Ok(())
}

/// A copy of contiguous bytes.
fn linear(dst: Operand, src: Operand, bytes: usize) -> impl Planner {
    move |state: &DriverState, stream: Id| {
        if bytes == 0 {
            return Ok(None);
        }
        let to = state.resolve(stream, dst, Shape::contiguous(bytes))?;
        let from = state.resolve(stream, src, Shape::contiguous(bytes))?;
        Ok(Some(Plan { to, from }))
    }
}

macro_rules! copies {
    ($($sync:ident $async:ident: $to:ident($dst:ty) $from:ident($src:ty);)*) => {$(
        pub unsafe fn $sync(dst: $dst, src: $src, bytes: usize) -> DriverResult {
            copy(None, linear(Operand::$to(dst as u64), Operand::$from(src as u64), bytes))
        }

        pub unsafe fn $async(dst: $dst, src: $src, bytes: usize, stream: CUstream) -> DriverResult {
            copy(Some(stream), linear(Operand::$to(dst as u64), Operand::$from(src as u64), bytes))
        }
    )*};
}

copies! {
    cuMemcpy cuMemcpyAsync: Any(CUdeviceptr) Any(CUdeviceptr);
    cuMemcpyHtoD_v2 cuMemcpyHtoDAsync_v2: Known(CUdeviceptr) Any(*const c_void);
    cuMemcpyDtoH_v2 cuMemcpyDtoHAsync_v2: Any(*mut c_void) Device(CUdeviceptr);
    cuMemcpyDtoD_v2 cuMemcpyDtoDAsync_v2: Known(CUdeviceptr) Known(CUdeviceptr);
}

/// Checks the contexts of a copy between devices; the addresses determine the rest.
fn check_peers(dst: CUcontext, src: CUcontext) -> DriverResult {
    let state = lock();
    check_context(&state, dst)?;
    check_context(&state, src)
}

pub unsafe fn cuMemcpyPeer(
    dst: CUdeviceptr,
    dst_context: CUcontext,
    src: CUdeviceptr,
    src_context: CUcontext,
    bytes: usize,
) -> DriverResult {
    check_peers(dst_context, src_context)?;
    copy(
        None,
        linear(Operand::Known(dst), Operand::Known(src), bytes),
    )
}

pub unsafe fn cuMemcpyPeerAsync(
    dst: CUdeviceptr,
    dst_context: CUcontext,
    src: CUdeviceptr,
    src_context: CUcontext,
    bytes: usize,
    stream: CUstream,
) -> DriverResult {
    check_peers(dst_context, src_context)?;
    copy(
        Some(stream),
        linear(Operand::Known(dst), Operand::Known(src), bytes),
    )
}
