//! The steps that cases about graphs begin with. A step that fails stops the case.

use crate::case::Case;
use crate::driver::*;
use crate::host;
use crate::tools::current;

/// A graph without nodes.
pub(crate) fn graph(c: &Case) -> CUgraph {
    let mut graph = CUgraph::NULL;
    c.require("cuGraphCreate", cuGraphCreate(&mut graph, 0));
    graph
}

/// A node that does nothing, after others.
pub(crate) fn empty(c: &Case, graph: CUgraph, after: &[CUgraphNode]) -> CUgraphNode {
    let mut node = CUgraphNode::NULL;
    let result = cuGraphAddEmptyNode(&mut node, graph, after.as_ptr(), after.len());
    c.require("cuGraphAddEmptyNode", result);
    node
}

/// A node that marks `number` when it executes, after others.
pub(crate) fn marker(
    c: &Case,
    graph: CUgraph,
    number: usize,
    after: &[CUgraphNode],
) -> CUgraphNode {
    let mut node = CUgraphNode::NULL;
    let params = mark(number);
    let result = cuGraphAddHostNode(&mut node, graph, after.as_ptr(), after.len(), &params);
    c.require("cuGraphAddHostNode", result);
    node
}

/// The host function that marks a number.
pub(crate) fn mark(number: usize) -> CUDA_HOST_NODE_PARAMS {
    CUDA_HOST_NODE_PARAMS {
        fn_: Some(host::mark),
        userData: std::ptr::without_provenance_mut(number),
    }
}

/// A fill of bytes.
pub(crate) fn fill_of(dst: CUdeviceptr, value: u8, bytes: usize) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS {
        dst,
        value: value.into(),
        elementSize: 1,
        width: bytes,
        height: 1,
        ..CUDA_MEMSET_NODE_PARAMS::default()
    }
}

/// A node that fills bytes, after others.
pub(crate) fn fill(
    c: &Case,
    graph: CUgraph,
    params: &CUDA_MEMSET_NODE_PARAMS,
    after: &[CUgraphNode],
) -> CUgraphNode {
    let mut node = CUgraphNode::NULL;
    let (first, count) = (after.as_ptr(), after.len());
    let result = cuGraphAddMemsetNode(&mut node, graph, first, count, params, current(c));
    c.require("cuGraphAddMemsetNode", result);
    node
}

/// A copy of contiguous bytes of device memory.
pub(crate) fn copy_of(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        dstMemoryType: memory_type::DEVICE,
        dstDevice: dst,
        srcMemoryType: memory_type::DEVICE,
        srcDevice: src,
        WidthInBytes: bytes,
        Height: 1,
        Depth: 1,
        ..CUDA_MEMCPY3D::default()
    }
}

/// A copy of contiguous bytes from host memory.
pub(crate) fn upload_of(dst: CUdeviceptr, src: *const c_void, bytes: usize) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcMemoryType: memory_type::HOST,
        srcHost: src,
        srcDevice: 0,
        ..copy_of(dst, 0, bytes)
    }
}

/// A copy of contiguous bytes to host memory.
pub(crate) fn download_of(dst: *mut c_void, src: CUdeviceptr, bytes: usize) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        dstMemoryType: memory_type::HOST,
        dstHost: dst,
        dstDevice: 0,
        ..copy_of(0, src, bytes)
    }
}

/// A node that copies, after others.
pub(crate) fn copy(
    c: &Case,
    graph: CUgraph,
    params: &CUDA_MEMCPY3D,
    after: &[CUgraphNode],
) -> CUgraphNode {
    let mut node = CUgraphNode::NULL;
    let (first, count) = (after.as_ptr(), after.len());
    let result = cuGraphAddMemcpyNode(&mut node, graph, first, count, params, CUcontext::NULL);
    c.require("cuGraphAddMemcpyNode", result);
    node
}

/// An instance of a graph.
pub(crate) fn instantiate(c: &Case, graph: CUgraph) -> CUgraphExec {
    let mut exec = CUgraphExec::NULL;
    let result = cuGraphInstantiateWithFlags(&mut exec, graph, 0);
    c.require("cuGraphInstantiate", result);
    exec
}

/// Launches an instance and waits for it.
pub(crate) fn run(c: &Case, exec: CUgraphExec, stream: CUstream) {
    c.ok("launch", cuGraphLaunch(exec, stream));
    c.ok("wait for the launch", cuStreamSynchronize(stream));
}

/// The nodes of a graph.
pub(crate) fn nodes(c: &Case, graph: CUgraph) -> Vec<CUgraphNode> {
    let mut nodes = [CUgraphNode::NULL; 32];
    let mut count = nodes.len();
    let result = cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count);
    c.require("cuGraphGetNodes", result);
    nodes[..count].to_vec()
}

/// The types of a graph's nodes.
pub(crate) fn types(c: &Case, graph: CUgraph) -> Vec<u32> {
    let types = nodes(c, graph).into_iter().map(|node| {
        let mut found = 99;
        c.require("cuGraphNodeGetType", cuGraphNodeGetType(node, &mut found));
        found
    });
    types.collect()
}

/// The number of nodes that a node depends on, and of those that depend on it.
pub(crate) fn degrees(c: &Case, node: CUgraphNode) -> (usize, usize) {
    let (mut before, mut after) = (99, 99);
    let null = std::ptr::null_mut();
    let result = cuGraphNodeGetDependencies(node, null, &mut before);
    c.require("cuGraphNodeGetDependencies", result);
    let result = cuGraphNodeGetDependentNodes(node, null, &mut after);
    c.require("cuGraphNodeGetDependentNodes", result);
    (before, after)
}

/// Begins a capture in the relaxed mode.
pub(crate) fn begin(c: &Case, stream: CUstream) {
    let result = cuStreamBeginCapture_v2(stream, stream_capture_mode::RELAXED);
    c.require("cuStreamBeginCapture", result);
}

/// Ends a capture.
pub(crate) fn end(c: &Case, stream: CUstream) -> CUgraph {
    let mut graph = CUgraph(1);
    c.ok("end", cuStreamEndCapture(stream, &mut graph));
    graph
}

/// Whether a stream captures: 0 no, 1 yes, 2 the capture is invalid.
pub(crate) fn status(c: &Case, stream: CUstream) -> u32 {
    let mut status = 99;
    let result = cuStreamIsCapturing(stream, &mut status);
    c.require("cuStreamIsCapturing", result);
    status
}

/// The nodes on which the next work of a capturing stream depends.
pub(crate) fn next_dependencies(c: &Case, stream: CUstream) -> Vec<CUgraphNode> {
    let (mut status, mut id, mut graph) = (99, 0, CUgraph::NULL);
    let (mut nodes, mut count) = (std::ptr::null(), 99);
    let result = cuStreamGetCaptureInfo_v2(
        stream,
        &mut status,
        &mut id,
        &mut graph,
        &mut nodes,
        &mut count,
    );
    c.require("cuStreamGetCaptureInfo", result);
    handles(nodes, count)
}
