//! Copies. With unified addressing the address determines the kind of memory; the name of a function
//! only determines which side may be pageable host memory.

use std::ffi::c_void;

use cuguard_sys::{CUDA_MEMCPY3D, CUcontext, CUdeviceptr, CUresult, CUstream, memory_type};

use super::copy_sides::{Plan, Planner};
use super::graph_nodes::copy_params;
use super::{begin_work, check_context};
use crate::copy_engine;
use crate::handle::Id;
use crate::memory::Shape;
use crate::result::DriverResult;
use crate::state::{DriverState, Operand, lock, run_now, wait_for_work};

/// Copies on a stream. As measured on a real driver, pageable source memory is read before this
/// returns, and a copy to pageable memory is complete when this returns.
///
/// Without a stream, the copy is synchronous, on the legacy default stream. On a capturing stream, the
/// copy becomes a node with these parameters; a copy without parameters cannot be captured.
pub(super) fn copy(
    stream: Option<CUstream>,
    plan: impl Planner,
    node: Option<CUDA_MEMCPY3D>,
) -> DriverResult {
    let (mut state, id) = begin_work(stream.unwrap_or(CUstream::NULL))?;
    if state.is_capturing(id) {
        return capture(&mut state, id, node);
    }
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
    let run = work(Plan { to, from });
    if !asynchronous {
        return run_now(state, id, run);
    }
    let number = state.submit(id, None, Some(Box::new(run)), None)?;
    if to_pageable {
        drop(wait_for_work(state, id, number));
    }
    Ok(())
}

/// The work of a copy.
pub(super) fn work(Plan { to, from }: Plan) -> impl FnOnce() + Send {
    // SAFETY: the program guarantees that its memory is valid and unused until the copy is complete;
    // the extents keep simulated memory allocated.
    copy_engine::work(move || unsafe { to.0.copy_from(&from.0) })
}

fn capture(state: &mut DriverState, stream: Id, node: Option<CUDA_MEMCPY3D>) -> DriverResult {
    let Some(node) = node else {
        return state.check_not_capturing(stream);
    };
    if node.WidthInBytes == 0 || node.Height == 0 || node.Depth == 0 {
        return Ok(());
    }
    let params = copy_params(state, node)?;
    state.capture(stream, params)
}

/// The parameters of a node that copies contiguous bytes, with the type of both memories.
pub(super) fn linear_node(dst: (u32, u64), src: (u32, u64), bytes: usize) -> CUDA_MEMCPY3D {
    let host = |(memory_type, address)| match memory_type {
        memory_type::HOST => address as *mut c_void,
        _ => std::ptr::null_mut(),
    };
    let device = |(memory_type, address)| match memory_type {
        memory_type::HOST => 0,
        _ => address,
    };
    CUDA_MEMCPY3D {
        dstMemoryType: dst.0,
        dstHost: host(dst),
        dstDevice: device(dst),
        srcMemoryType: src.0,
        srcHost: host(src),
        srcDevice: device(src),
        WidthInBytes: bytes,
        Height: 1,
        Depth: 1,
        ..CUDA_MEMCPY3D::default()
    }
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
    ($($sync:ident $async:ident:
       $to:ident($dst:ty, $dst_type:ident) $from:ident($src:ty, $src_type:ident);)*) => {$(
        pub unsafe fn $sync(dst: $dst, src: $src, bytes: usize) -> DriverResult {
            let plan = linear(Operand::$to(dst as u64), Operand::$from(src as u64), bytes);
            copy(None, plan, None)
        }

        pub unsafe fn $async(dst: $dst, src: $src, bytes: usize, stream: CUstream) -> DriverResult {
            let (dst, src) = (dst as u64, src as u64);
            let (to, from) = (memory_type::$dst_type, memory_type::$src_type);
            let node = linear_node((to, dst), (from, src), bytes);
            let plan = linear(Operand::$to(dst), Operand::$from(src), bytes);
            copy(Some(stream), plan, Some(node))
        }
    )*};
}

copies! {
    cuMemcpy cuMemcpyAsync: Any(CUdeviceptr, UNIFIED) Any(CUdeviceptr, UNIFIED);
    cuMemcpyHtoD_v2 cuMemcpyHtoDAsync_v2: Known(CUdeviceptr, DEVICE) Any(*const c_void, HOST);
    cuMemcpyDtoH_v2 cuMemcpyDtoHAsync_v2: Any(*mut c_void, HOST) Device(CUdeviceptr, DEVICE);
    cuMemcpyDtoD_v2 cuMemcpyDtoDAsync_v2: Known(CUdeviceptr, DEVICE) Known(CUdeviceptr, DEVICE);
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
    let plan = linear(Operand::Known(dst), Operand::Known(src), bytes);
    copy(None, plan, None)
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
    let plan = linear(Operand::Known(dst), Operand::Known(src), bytes);
    copy(Some(stream), plan, None)
}
