//! Copies. With unified addressing an address tells by itself what it belongs to; the name of a
//! function says only which sides the driver must know.

use std::ffi::c_void;

use cuguard_sys::{CUcontext, CUdeviceptr, CUresult, CUstream};

use super::check;
use crate::area::{Area, Shape};
use crate::engine;
use crate::handle::{self, Id, Kind};
use crate::lock::{Guard, lock};
use crate::machine::{Answer, Machine};
use crate::wait::{run_now, wait_for_work};

/// One side of a copy.
#[derive(Clone, Copy, Debug)]
pub(super) enum Side {
    /// Must be memory that the driver knows.
    Known(u64),
    /// May also be pageable host memory.
    Any(u64),
}

impl Side {
    fn host<T>(pointer: *const T) -> Self {
        Self::Any(pointer as u64)
    }

    /// The bytes, and whether they are pageable.
    pub(super) fn resolve(
        self,
        machine: &Machine,
        stream: Id,
        shape: Shape,
    ) -> Result<(Area, bool), CUresult> {
        match self {
            Self::Known(address) => Ok((machine.known_area(stream, address, shape)?, false)),
            Self::Any(address) => machine.any_area(stream, address, shape),
        }
    }
}

/// All that a copy does once it runs, and what must be known of both sides before.
pub(super) struct Plan {
    pub(super) to: Area,
    pub(super) from: Area,
    pub(super) from_pageable: bool,
    pub(super) to_pageable: bool,
}

impl Plan {
    fn run(self) {
        // SAFETY: the program promised that its memory is valid and left alone until the copy is
        // done; simulated memory is kept alive by the areas.
        unsafe { self.to.copy_from(&self.from) };
    }

    /// Takes the bytes out of pageable memory.
    fn stage(&mut self) -> Answer {
        // SAFETY: the source is valid now, during the call; afterwards it need not be.
        self.from = unsafe { self.from.staged() }.ok_or(CUresult::OUT_OF_MEMORY)?;
        Ok(())
    }
}

/// What makes a plan, for a stream; `None` where there is nothing to copy.
pub(super) trait Planner: FnOnce(&Machine, Id) -> Result<Option<Plan>, CUresult> {}
impl<F: FnOnce(&Machine, Id) -> Result<Option<Plan>, CUresult>> Planner for F {}

/// Copies on the legacy default stream and returns when it is done.
pub(super) fn copy_now(plan: impl Planner) -> Answer {
    let mut machine = lock();
    let context = machine.current()?;
    let legacy = machine.contexts[&context].legacy;
    machine.join_implied_order(legacy);
    match plan(&machine, legacy)? {
        Some(plan) => run_now(machine, legacy, move || engine::run(|| plan.run())).map(drop),
        None => Ok(()),
    }
}

/// Copies on a stream. From pageable memory, the bytes are taken before this returns; to pageable
/// memory, this returns only when they are there. Measured so on a real driver.
pub(super) fn copy_on(stream: CUstream, plan: impl Planner) -> Answer {
    let mut machine = lock();
    let stream = machine.stream(stream)?;
    machine.join_implied_order(stream);
    let Some(mut plan) = plan(&machine, stream)? else {
        return Ok(());
    };
    if plan.from_pageable {
        // Large sources take a while, in which others may use the machine. The plan keeps the
        // memory it is for; the stream may be gone afterwards.
        drop(machine);
        let staged = plan.stage();
        machine = lock();
        if let Err(code) = staged.and_then(|()| machine.check_stream(stream)) {
            return give_up(machine, plan, code);
        }
    }
    let to_pageable = plan.to_pageable;
    let run = Box::new(move || engine::run(|| plan.run()));
    let number = machine.submit(stream, None, Some(run), None)?;
    if to_pageable {
        drop(wait_for_work(machine, stream, number));
    }
    Ok(())
}

/// Lets go of the memory that a plan holds; somebody may wait for it.
fn give_up(machine: Guard, plan: Plan, code: CUresult) -> Answer {
    drop(machine);
    drop(plan);
    lock().tell_watchers();
    Err(code)
}

/// The plan of a copy of one run of bytes.
fn linear(dst: Side, src: Side, bytes: usize) -> impl Planner {
    move |machine: &Machine, stream: Id| {
        if bytes == 0 {
            return Ok(None);
        }
        let (to, to_pageable) = dst.resolve(machine, stream, Shape::run(bytes))?;
        let (from, from_pageable) = src.resolve(machine, stream, Shape::run(bytes))?;
        Ok(Some(Plan {
            to,
            from,
            from_pageable,
            to_pageable,
        }))
    }
}

pub(crate) unsafe fn cuMemcpy(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize) -> Answer {
    copy_now(linear(Side::Any(dst), Side::Any(src), bytes))
}

pub(crate) unsafe fn cuMemcpyHtoD_v2(dst: CUdeviceptr, src: *const c_void, bytes: usize) -> Answer {
    copy_now(linear(Side::Known(dst), Side::host(src), bytes))
}

pub(crate) unsafe fn cuMemcpyDtoH_v2(dst: *mut c_void, src: CUdeviceptr, bytes: usize) -> Answer {
    copy_now(linear(Side::host(dst), Side::Known(src), bytes))
}

pub(crate) unsafe fn cuMemcpyDtoD_v2(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize) -> Answer {
    copy_now(linear(Side::Known(dst), Side::Known(src), bytes))
}

pub(crate) unsafe fn cuMemcpyAsync(
    dst: CUdeviceptr,
    src: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Answer {
    copy_on(stream, linear(Side::Any(dst), Side::Any(src), bytes))
}

pub(crate) unsafe fn cuMemcpyHtoDAsync_v2(
    dst: CUdeviceptr,
    src: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> Answer {
    copy_on(stream, linear(Side::Known(dst), Side::host(src), bytes))
}

pub(crate) unsafe fn cuMemcpyDtoHAsync_v2(
    dst: *mut c_void,
    src: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Answer {
    copy_on(stream, linear(Side::host(dst), Side::Known(src), bytes))
}

pub(crate) unsafe fn cuMemcpyDtoDAsync_v2(
    dst: CUdeviceptr,
    src: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Answer {
    copy_on(stream, linear(Side::Known(dst), Side::Known(src), bytes))
}

/// The contexts of a copy between devices must be alive; the addresses tell the rest.
fn check_peers(dst: CUcontext, src: CUcontext) -> Answer {
    let machine = lock();
    for context in [dst, src] {
        let id = handle::decode(Kind::Context, context.0);
        let alive = id.is_some_and(|id| machine.check_alive(id).is_ok());
        check(alive, CUresult::INVALID_CONTEXT)?;
    }
    Ok(())
}

pub(crate) unsafe fn cuMemcpyPeer(
    dst: CUdeviceptr,
    dst_context: CUcontext,
    src: CUdeviceptr,
    src_context: CUcontext,
    bytes: usize,
) -> Answer {
    check_peers(dst_context, src_context)?;
    copy_now(linear(Side::Known(dst), Side::Known(src), bytes))
}

pub(crate) unsafe fn cuMemcpyPeerAsync(
    dst: CUdeviceptr,
    dst_context: CUcontext,
    src: CUdeviceptr,
    src_context: CUcontext,
    bytes: usize,
    stream: CUstream,
) -> Answer {
    check_peers(dst_context, src_context)?;
    copy_on(stream, linear(Side::Known(dst), Side::Known(src), bytes))
}
