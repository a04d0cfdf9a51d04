//! Capture of streams into graphs.

use std::ffi::c_void;

use cuguard_registry::ResourceKind;
use cuguard_sys::*;

use super::{Address, Call, New};
use crate::state::{self, graphs};

/// Notes a capture that began.
fn began(result: CUresult) -> CUresult {
    if result.is_success() {
        graphs::capture_began();
    }
    result
}

type Begin = unsafe extern "C-unwind" fn(CUstream) -> CUresult;

/// `cuStreamBeginCapture`
pub(crate) unsafe fn begin(_: &Call, real: Begin, stream: CUstream) -> CUresult {
    // SAFETY: as the caller guarantees.
    began(unsafe { real(stream) })
}

type BeginV2 = unsafe extern "C-unwind" fn(CUstream, CUstreamCaptureMode) -> CUresult;

/// `cuStreamBeginCapture_v2`
pub(crate) unsafe fn begin_v2(
    _: &Call,
    real: BeginV2,
    stream: CUstream,
    mode: CUstreamCaptureMode,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    began(unsafe { real(stream, mode) })
}

type BeginToGraph = unsafe extern "C-unwind" fn(
    CUstream,
    CUgraph,
    *const CUgraphNode,
    *const CUgraphEdgeData,
    usize,
    CUstreamCaptureMode,
) -> CUresult;

/// `cuStreamBeginCaptureToGraph`
pub(crate) unsafe fn begin_to_graph(
    _: &Call,
    real: BeginToGraph,
    stream: CUstream,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
    mode: CUstreamCaptureMode,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    began(unsafe { real(stream, graph, dependencies, edges, count, mode) })
}

type BeginAgain = unsafe extern "C-unwind" fn(
    CUstream,
    CUstreamCaptureMode,
    CUgraph,
    Option<CUgraphRecaptureCallback>,
    *mut c_void,
) -> CUresult;

/// `cuStreamBeginRecaptureToGraph`
pub(crate) unsafe fn begin_again(
    _: &Call,
    real: BeginAgain,
    stream: CUstream,
    mode: CUstreamCaptureMode,
    graph: CUgraph,
    callback: Option<CUgraphRecaptureCallback>,
    data: *mut c_void,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    began(unsafe { real(stream, mode, graph, callback, data) })
}

/// The errors of captures, all of which end one.
const CAPTURE_ERRORS: std::ops::RangeInclusive<u32> =
    CUresult::STREAM_CAPTURE_UNSUPPORTED.0..=CUresult::STREAM_CAPTURE_WRONG_THREAD.0;

/// Notes a capture that ended.
fn ended(result: CUresult) -> CUresult {
    if result.is_success() || CAPTURE_ERRORS.contains(&result.0) {
        graphs::capture_ended();
    }
    result
}

type End = unsafe extern "C-unwind" fn(CUstream, *mut CUgraph) -> CUresult;

/// `cuStreamEndCapture`
pub(crate) unsafe fn end(call: &Call, real: End, stream: CUstream, out: *mut CUgraph) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = ended(unsafe { real(stream, out) });
    if result.is_success() && !out.is_null() {
        // SAFETY: the driver wrote to it.
        let graph = unsafe { out.read_unaligned() };
        // A capture into a graph that the program created.
        if state::contains(ResourceKind::Graph, graph.address()) {
            return result;
        }
    }
    // SAFETY: the driver wrote to it.
    unsafe { call.created(result, out, New::in_process(ResourceKind::Graph, 0)) }
}

/// `cuStreamEndCapture` of a guard, which owns the graph.
pub(crate) unsafe fn end_by_guard(
    _: &Call,
    real: End,
    stream: CUstream,
    out: *mut CUgraph,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    ended(unsafe { real(stream, out) })
}
