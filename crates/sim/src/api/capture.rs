//! Stream capture: the work of a stream becomes a graph.

use cuguard_sys::{
    CUgraph, CUgraphEdgeData, CUgraphNode, CUresult, CUstream, CUstreamCaptureMode,
    CUstreamCaptureStatus, stream_capture_mode, stream_capture_status as status,
    stream_update_capture_dependencies_flags as update,
};

use super::graph::{check_edge_data, graph_handle, node_handle, read_nodes};
use super::{read, write_optional, write_out};
use crate::handle::Id;
use crate::result::{DriverResult, check, valid};
use crate::state::{DriverState, lock};
use crate::thread_state;

/// Like a real driver, accepts any number.
pub unsafe fn cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let new = unsafe { read(mode) }?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(mode, thread_state::replace_capture_mode(new)) }
}

pub unsafe fn cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode) -> DriverResult {
    let mut state = lock();
    let stream = state.stream(stream)?;
    valid(mode <= stream_capture_mode::RELAXED)?;
    state.check_can_capture(stream)?;
    state.begin_capture(stream, mode, None)
}

/// As of CUDA 10.0, which had the global mode only.
pub unsafe fn cuStreamBeginCapture(stream: CUstream) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe { cuStreamBeginCapture_v2(stream, stream_capture_mode::GLOBAL) }
}

pub unsafe fn cuStreamBeginCaptureToGraph(
    stream: CUstream,
    graph: CUgraph,
    after: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
    mode: CUstreamCaptureMode,
) -> DriverResult {
    let mut state = lock();
    let stream = state.stream(stream)?;
    let graph = state.graph(graph)?;
    valid(mode <= stream_capture_mode::RELAXED)?;
    // SAFETY: as the caller guarantees.
    let after = unsafe {
        check_edge_data(data, count)?;
        read_nodes(&state, graph, after, count)?
    };
    state.check_can_capture(stream)?;
    state.begin_capture(stream, mode, Some((graph, after)))
}

/// A capture that fails here has ended nevertheless, and its graph is null. Like a real driver, accepts
/// null, and then the graph is leaked.
pub unsafe fn cuStreamEndCapture(stream: CUstream, out: *mut CUgraph) -> DriverResult {
    let mut state = lock();
    let stream = state.stream(stream)?;
    let ended = state.end_capture(stream);
    let graph = ended.map_or(CUgraph::NULL, graph_handle);
    // SAFETY: as the caller guarantees.
    unsafe { write_optional(out, graph) };
    ended.map(drop)
}

/// `CUstreamCaptureStatus`
fn status_of(state: &DriverState, stream: Id) -> CUstreamCaptureStatus {
    match state.capture_of(stream) {
        None => status::NONE,
        Some((_, capture)) if capture.invalidated => status::INVALIDATED,
        Some(_) => status::ACTIVE,
    }
}

pub unsafe fn cuStreamIsCapturing(
    stream: CUstream,
    out: *mut CUstreamCaptureStatus,
) -> DriverResult {
    let mut state = lock();
    let stream = state.stream(stream)?;
    check(
        state.implicit_captures(stream).is_empty(),
        CUresult::STREAM_CAPTURE_IMPLICIT,
    )?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, status_of(&state, stream)) }
}

pub unsafe fn cuStreamGetCaptureInfo(
    stream: CUstream,
    out: *mut CUstreamCaptureStatus,
    id: *mut u64,
) -> DriverResult {
    let null = std::ptr::null_mut();
    // SAFETY: as the caller guarantees.
    unsafe { cuStreamGetCaptureInfo_v2(stream, out, id, null, std::ptr::null_mut(), null.cast()) }
}

pub unsafe fn cuStreamGetCaptureInfo_v2(
    stream: CUstream,
    out: *mut CUstreamCaptureStatus,
    id: *mut u64,
    graph: *mut CUgraph,
    dependencies: *mut *const CUgraphNode,
    count: *mut usize,
) -> DriverResult {
    let data = std::ptr::null_mut();
    // SAFETY: as the caller guarantees.
    unsafe { cuStreamGetCaptureInfo_v3(stream, out, id, graph, dependencies, data, count) }
}

pub unsafe fn cuStreamGetCaptureInfo_v3(
    stream: CUstream,
    out: *mut CUstreamCaptureStatus,
    id: *mut u64,
    graph: *mut CUgraph,
    dependencies: *mut *const CUgraphNode,
    data: *mut *const CUgraphEdgeData,
    count: *mut usize,
) -> DriverResult {
    let mut state = lock();
    let stream = state.stream(stream)?;
    check(
        state.implicit_captures(stream).is_empty(),
        CUresult::STREAM_CAPTURE_IMPLICIT,
    )?;
    let status = status_of(&state, stream);
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, status) }?;
    let Some((number, capture)) = state.capture_of(stream) else {
        return Ok(());
    };
    if status != status::ACTIVE {
        return Ok(());
    }
    let captured = graph_handle(capture.graph);
    // SAFETY: as the caller guarantees.
    unsafe {
        write_optional(id, number);
        write_optional(graph, captured);
    }
    let nodes = state.capture_dependencies(stream);
    let nodes: Vec<_> = nodes.into_iter().map(node_handle).collect();
    let list = state.captures.keep_list(stream, nodes);
    // SAFETY: as the caller guarantees. The list is valid until the next such call for the stream.
    unsafe {
        write_optional(count, list.nodes.len());
        write_optional(dependencies, list.nodes.as_ptr());
        write_optional(data, list.edges.as_ptr());
    }
    Ok(())
}

pub unsafe fn cuStreamUpdateCaptureDependencies(
    stream: CUstream,
    nodes: *mut CUgraphNode,
    count: usize,
    flags: u32,
) -> DriverResult {
    let mut state = lock();
    let stream = state.stream(stream)?;
    valid(flags <= update::SET_CAPTURE_DEPENDENCIES)?;
    let graph = state.captured_graph(stream)?;
    // SAFETY: as the caller guarantees.
    let nodes = unsafe { read_nodes(&state, graph, nodes, count) }?;
    let replace = flags == update::SET_CAPTURE_DEPENDENCIES;
    state.update_capture_dependencies(stream, nodes, replace)
}

pub unsafe fn cuStreamUpdateCaptureDependencies_v2(
    stream: CUstream,
    nodes: *mut CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
    flags: u32,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe {
        check_edge_data(data, count)?;
        cuStreamUpdateCaptureDependencies(stream, nodes, count, flags)
    }
}
