//! Copies. With unified addressing an address tells by itself what it belongs to; the name of a
//! function says only which sides the driver must know.

use std::ffi::c_void;

use cuguard_sys::{CUcontext, CUdeviceptr, CUresult, CUstream};

use super::check;
use crate::handle::{self, Kind};
use crate::machine::{Answer, Machine, lock, wait_until};
use crate::memory_block::Span;
use crate::queue::run_now;

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

    fn address(self) -> u64 {
        match self {
            Self::Known(address) | Self::Any(address) => address,
        }
    }

    /// The bytes, and whether they are pageable.
    fn resolve(self, machine: &Machine, bytes: usize) -> Result<(Vec<Span>, bool), CUresult> {
        check_length(machine, self.address(), bytes)?;
        match self {
            Self::Known(address) => Ok((machine.map.span(address, bytes)?, false)),
            Self::Any(address) => machine.map.span_or_pageable(address, bytes),
        }
    }
}

/// A length that wraps around the address space: a real driver was seen to take it, and to
/// corrupt the context by it.
pub(super) fn check_length(machine: &Machine, address: u64, bytes: usize) -> Answer {
    match address.checked_add(bytes as u64) {
        Some(_) => Ok(()),
        None => Err(machine.misused(
            CUresult::INVALID_VALUE,
            format!("{bytes} bytes from {address:#x} wrap around the address space"),
        )),
    }
}

/// A list of bytes with source and destination, all that a copy does once it runs.
pub(super) type Moves = Vec<(Span, Span)>;

/// Cuts two runs of spans, equal in length, into pairs.
pub(super) fn pair_up(dst: &[Span], src: &[Span], moves: &mut Moves) {
    let (mut d, mut s) = (dst.iter(), src.iter());
    let (mut to, mut from) = (d.next().cloned(), s.next().cloned());
    while let (Some(t), Some(f)) = (&to, &from) {
        let len = t.len().min(f.len());
        moves.push((t.part(0, len), f.part(0, len)));
        let rest = |span: &Span, more: &mut std::slice::Iter<'_, Span>| match span.len() - len {
            0 => more.next().cloned(),
            left => Some(span.part(len, left)),
        };
        (to, from) = (rest(t, &mut d), rest(f, &mut s));
    }
}

fn run(moves: &Moves) {
    for (to, from) in moves {
        // SAFETY: the program promised that its memory is valid and left alone until the copy is
        // done; simulated memory is kept alive by the spans.
        unsafe { to.copy_from(from) };
    }
}

/// What a copy needs to know of both sides before it runs.
pub(super) struct Plan {
    pub(super) moves: Moves,
    pub(super) from_pageable: bool,
    pub(super) to_pageable: bool,
}

/// Copies on the legacy default stream and returns when it is done.
pub(super) fn copy_now(plan: impl FnOnce(&Machine) -> Result<Plan, CUresult>) -> Answer {
    let machine = lock();
    let context = machine.current()?;
    let plan = plan(&machine)?;
    let legacy = machine.contexts[&context].legacy;
    if !plan.moves.is_empty() {
        drop(run_now(machine, legacy, || run(&plan.moves)));
    }
    Ok(())
}

/// Copies on a stream. From pageable memory, the bytes are taken before this returns; to pageable
/// memory, this returns only when they are there. Measured so on a real driver.
pub(super) fn copy_on(
    stream: CUstream,
    plan: impl FnOnce(&Machine) -> Result<Plan, CUresult>,
) -> Answer {
    let mut machine = lock();
    let stream = machine.stream(stream)?;
    let mut plan = plan(&machine)?;
    if plan.moves.is_empty() {
        return Ok(());
    }
    if plan.from_pageable {
        for (_, from) in &mut plan.moves {
            // SAFETY: the source is valid now, during the call; afterwards it need not be.
            *from = unsafe { from.staged() }.ok_or(CUresult::OUT_OF_MEMORY)?;
        }
    }
    let moves = plan.moves;
    let number = machine.submit(
        stream,
        Vec::new(),
        Some(Box::new(move || run(&moves))),
        None,
    )?;
    if plan.to_pageable {
        let mut machine = wait_until(machine, |machine| machine.is_done(stream, number));
        machine.observe(stream, number);
    }
    Ok(())
}

/// The plan of a copy of one run of bytes.
fn linear(dst: Side, src: Side, bytes: usize) -> impl FnOnce(&Machine) -> Result<Plan, CUresult> {
    move |machine| {
        let mut plan = Plan {
            moves: Moves::new(),
            from_pageable: false,
            to_pageable: false,
        };
        if bytes > 0 {
            let (to, to_pageable) = dst.resolve(machine, bytes)?;
            let (from, from_pageable) = src.resolve(machine, bytes)?;
            pair_up(&to, &from, &mut plan.moves);
            (plan.from_pageable, plan.to_pageable) = (from_pageable, to_pageable);
        }
        Ok(plan)
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
