//! Graphs and captures that are used in ways that a program should not: calls fail, and nothing is
//! left behind.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::*;
use cuguard_sim::counters;
use cuguard_sys::*;

fn graph() -> CUgraph {
    let mut graph = CUgraph::NULL;
    ok(cu::cuGraphCreate(&mut graph, 0));
    graph
}

fn empty_node(graph: CUgraph, after: &[CUgraphNode]) -> CUgraphNode {
    let mut node = CUgraphNode::NULL;
    let (first, count) = (after.as_ptr(), after.len());
    ok(cu::cuGraphAddEmptyNode(&mut node, graph, first, count));
    node
}

/// Adds a child graph without nodes. Returns its node, and the child graph.
fn add_child(graph: CUgraph) -> (CUgraphNode, CUgraph) {
    let mut empty = CUgraph::NULL;
    ok(cu::cuGraphCreate(&mut empty, 0));
    let (mut node, mut child) = (CUgraphNode::NULL, CUgraph::NULL);
    ok(cu::cuGraphAddChildGraphNode(
        &mut node,
        graph,
        null(),
        0,
        empty,
    ));
    ok(cu::cuGraphChildGraphNodeGetGraph(node, &mut child));
    ok(cu::cuGraphDestroy(empty));
    (node, child)
}

/// Adds a node that allocates, and returns the address.
fn allocation(graph: CUgraph) -> CUdeviceptr {
    let mut params = CUDA_MEM_ALLOC_NODE_PARAMS {
        bytesize: 1000,
        ..Default::default()
    };
    params.poolProps.allocType = mem_allocation_type::PINNED;
    params.poolProps.location.type_ = mem_location_type::DEVICE;
    let mut node = CUgraphNode::NULL;
    ok(cu::cuGraphAddMemAllocNode(
        &mut node,
        graph,
        null(),
        0,
        &mut params,
    ));
    params.dptr
}

fn capture_into(stream: CUstream, graph: CUgraph) -> CUresult {
    let mode = stream_capture_mode::RELAXED;
    cu::cuStreamBeginCaptureToGraph(stream, graph, null(), null(), 0, mode)
}

fn end_capture(stream: CUstream) -> (CUresult, CUgraph) {
    let mut graph = CUgraph::NULL;
    (cu::cuStreamEndCapture(stream, &mut graph), graph)
}

unsafe extern "C" fn count(data: *mut c_void) {
    // SAFETY: a counter that outlives the object.
    let counter = unsafe { &*data.cast::<AtomicUsize>() };
    counter.fetch_add(1, Ordering::AcqRel);
}

/// An object whose destruction counts.
fn object(counter: &'static AtomicUsize) -> CUuserObject {
    let data = std::ptr::from_ref(counter).cast_mut().cast();
    let mut object = CUuserObject::NULL;
    ok(cu::cuUserObjectCreate(&mut object, data, Some(count), 1, 1));
    object
}

#[test]
fn a_count_beyond_the_array() {
    if !is_child() {
        return lives("a_count_beyond_the_array");
    }
    context();
    let graph = graph();
    let node = empty_node(graph, &[]);
    let nodes = [node, CUgraphNode::NULL];
    let (first, max) = (nodes.as_ptr(), usize::MAX);
    let mut out = CUgraphNode::NULL;
    let added = cu::cuGraphAddEmptyNode(&mut out, graph, first, max);
    assert_eq!(added, CUresult::INVALID_VALUE);
    let added = cu::cuGraphAddDependencies(graph, first, first, max);
    assert_eq!(added, CUresult::INVALID_VALUE);
    let stream = stream();
    let mode = stream_capture_mode::RELAXED;
    let began = cu::cuStreamBeginCaptureToGraph(stream, graph, first, null(), max, mode);
    assert_eq!(began, CUresult::INVALID_VALUE);
}

#[test]
fn a_node_is_destroyed_on_which_a_capture_depends() {
    if !is_child() {
        return lives("a_node_is_destroyed_on_which_a_capture_depends");
    }
    context();
    let (one, event, memory) = (stream(), event(), alloc(64));
    ok(cu::cuStreamBeginCapture_v2(
        one,
        stream_capture_mode::RELAXED,
    ));
    ok(cu::cuMemsetD8Async(memory, 1, 8, one));
    ok(cu::cuEventRecord(event, one));
    let (mut status, mut id, mut graph) = (0, 0, CUgraph::NULL);
    let (mut nodes, mut count) = (null(), 0);
    ok(cu::cuStreamGetCaptureInfo_v2(
        one,
        &mut status,
        &mut id,
        &mut graph,
        &mut nodes,
        &mut count,
    ));
    assert_eq!(count, 1);
    // SAFETY: valid until the next query.
    ok(cu::cuGraphDestroyNode(unsafe { *nodes }));
    ok(cu::cuStreamWaitEvent(one, event, 0));
    ok(cu::cuMemsetD8Async(memory, 1, 8, one));
    let (ended, graph) = end_capture(one);
    ok(ended);
    let mut edges = 0;
    ok(cu::cuGraphGetEdges(
        graph,
        null_mut(),
        null_mut(),
        &mut edges,
    ));
    assert_eq!(edges, 0);
    let (mut clone, mut exec) = (CUgraph::NULL, CUgraphExec::NULL);
    ok(cu::cuGraphClone(&mut clone, graph));
    ok(cu::cuGraphInstantiateWithFlags(&mut exec, clone, 0));
    ok(cu::cuGraphLaunch(exec, one));
    ok(cu::cuStreamSynchronize(one));
}

#[test]
fn a_capture_ends_with_the_stream_of_its_thread() {
    let _turn = turn();
    let context = context();
    let capture = move || {
        ok(cu::cuCtxSetCurrent(context));
        let stream = CUstream::PER_THREAD;
        ok(cu::cuStreamBeginCapture_v2(
            stream,
            stream_capture_mode::GLOBAL,
        ));
    };
    std::thread::spawn(capture).join().unwrap();
    ok(cu::cuMemFree_v2(alloc(10)));
    assert_eq!(counters().graphs, 0);
    release();
}

#[test]
fn edge_data_is_not_written_without_room_for_it() {
    let _turn = turn();
    context();
    let graph = graph();
    let first = empty_node(graph, &[]);
    let last = [empty_node(graph, &[first]), empty_node(graph, &[first])];
    let sink = empty_node(graph, &last);
    let untouched = CUgraphEdgeData {
        from_port: 7,
        ..CUgraphEdgeData::default()
    };
    let mut data = [untouched; 4];
    let (none, to) = (null_mut(), data.as_mut_ptr());
    let mut count = 1;
    ok(cu::cuGraphGetEdges_v2(graph, none, none, to, &mut count));
    assert_eq!((count, data), (4, [untouched; 4]));
    count = 1;
    ok(cu::cuGraphNodeGetDependencies_v2(
        sink, none, to, &mut count,
    ));
    assert_eq!((count, data), (2, [untouched; 4]));
    count = 1;
    ok(cu::cuGraphNodeGetDependentNodes_v2(
        first, none, to, &mut count,
    ));
    assert_eq!((count, data), (2, [untouched; 4]));
    let mut nodes = [CUgraphNode::NULL; 2];
    count = 1;
    ok(cu::cuGraphNodeGetDependencies_v2(
        sink,
        nodes.as_mut_ptr(),
        to,
        &mut count,
    ));
    assert_eq!(count, 1);
    assert_eq!(data[0], CUgraphEdgeData::default());
    assert_eq!(data[1], untouched);
    ok(cu::cuGraphDestroy(graph));
    release();
}

#[test]
fn a_graph_retains_too_many_references() {
    if !is_child() {
        return lives("a_graph_retains_too_many_references");
    }
    static DESTROYED: AtomicUsize = AtomicUsize::new(0);
    context();
    let (graph, object) = (graph(), object(&DESTROYED));
    ok(cu::cuGraphRetainUserObject(graph, object, u32::MAX, 0));
    let retained = cu::cuGraphRetainUserObject(graph, object, 1, 0);
    assert_eq!(retained, CUresult::INVALID_VALUE);
    ok(cu::cuUserObjectRelease(object, 1));
    assert_eq!(DESTROYED.load(Ordering::Acquire), 0);
    ok(cu::cuGraphDestroy(graph));
    assert_eq!(DESTROYED.load(Ordering::Acquire), 1);
}

#[test]
fn graphs_that_are_nested_too_deep() {
    if !is_child() {
        return lives("graphs_that_are_nested_too_deep");
    }
    context();
    let (top, empty) = (graph(), graph());
    let (mut at, mut depth) = (top, 0);
    let mut node = CUgraphNode::NULL;
    let refused = loop {
        let added = cu::cuGraphAddChildGraphNode(&mut node, at, null(), 0, empty);
        if added != CUresult::SUCCESS || depth == 20_000 {
            break added;
        }
        depth += 1;
        ok(cu::cuGraphChildGraphNodeGetGraph(node, &mut at));
    };
    assert_eq!(refused, CUresult::INVALID_VALUE);
    // A graph as deep as possible is a child of no graph.
    let outer = graph();
    let added = cu::cuGraphAddChildGraphNode(&mut node, outer, null(), 0, top);
    assert_eq!(added, CUresult::INVALID_VALUE);
    let mut exec = CUgraphExec::NULL;
    ok(cu::cuGraphInstantiateWithFlags(&mut exec, top, 0));
    ok(cu::cuGraphDestroy(top));
}

#[test]
fn addresses_of_graphs_are_reused() {
    let _turn = turn();
    context();
    let outer = graph();
    let in_child = || {
        let (node, child) = add_child(outer);
        let address = allocation(child);
        ok(cu::cuGraphDestroyNode(node));
        address
    };
    assert_eq!(in_child(), in_child());
    let in_cycle = || {
        let graph = graph();
        let address = allocation(graph);
        let first = empty_node(graph, &[]);
        let last = empty_node(graph, &[first]);
        ok(cu::cuGraphAddDependencies(graph, &last, &first, 1));
        ok(cu::cuGraphDestroy(graph));
        address
    };
    assert_eq!(in_cycle(), in_cycle());
    ok(cu::cuGraphDestroy(outer));
    release();
}

#[test]
fn memory_in_a_child_graph_has_one_instance() {
    let _turn = turn();
    context();
    let graph = graph();
    let (_, child) = add_child(graph);
    allocation(child);
    let (mut one, mut two) = (CUgraphExec::NULL, CUgraphExec::NULL);
    ok(cu::cuGraphInstantiateWithFlags(&mut one, graph, 0));
    let second = cu::cuGraphInstantiateWithFlags(&mut two, graph, 0);
    assert_eq!(second, CUresult::NOT_SUPPORTED);
    ok(cu::cuGraphExecDestroy(one));
    ok(cu::cuGraphInstantiateWithFlags(&mut two, graph, 0));
    ok(cu::cuGraphExecDestroy(two));
    ok(cu::cuGraphDestroy(graph));
    release();
}

#[test]
fn the_id_of_a_stream_during_a_capture() {
    let _turn = turn();
    context();
    let (one, other) = (stream(), stream());
    ok(cu::cuStreamBeginCapture_v2(
        one,
        stream_capture_mode::GLOBAL,
    ));
    let mut id = 0;
    let queried = cu::cuStreamGetId(other, &mut id);
    assert_eq!(queried, CUresult::STREAM_CAPTURE_UNSUPPORTED);
    assert_eq!(end_capture(one).0, CUresult::STREAM_CAPTURE_INVALIDATED);
    ok(cu::cuStreamGetId(other, &mut id));
    for stream in [one, other] {
        ok(cu::cuStreamDestroy_v2(stream));
    }
    release();
}

#[test]
fn a_graph_that_is_being_captured() {
    let _turn = turn();
    context();
    let (one, other, graph) = (stream(), stream(), graph());
    let (node, child) = add_child(graph);
    ok(capture_into(one, child));
    assert_eq!(cu::cuGraphDestroy(graph), CUresult::ILLEGAL_STATE);
    assert_eq!(cu::cuGraphDestroyNode(node), CUresult::ILLEGAL_STATE);
    assert_eq!(capture_into(other, child), CUresult::ILLEGAL_STATE);
    assert_eq!(capture_into(other, graph), CUresult::ILLEGAL_STATE);
    let memory = alloc(8);
    ok(cu::cuMemsetD8Async(memory, 0, 8, one));
    ok(end_capture(one).0);
    ok(capture_into(other, graph));
    assert_eq!(capture_into(one, child), CUresult::ILLEGAL_STATE);
    ok(end_capture(other).0);
    ok(cu::cuGraphDestroy(graph));
    ok(cu::cuMemFree_v2(memory));
    for stream in [one, other] {
        ok(cu::cuStreamDestroy_v2(stream));
    }
    release();
}

#[test]
fn objects_of_a_graph_that_is_discarded_with_a_context() {
    static DESTROYED: AtomicUsize = AtomicUsize::new(0);
    let _turn = turn();
    let own = create();
    let (stream, graph, object) = (stream(), graph(), object(&DESTROYED));
    ok(cu::cuGraphRetainUserObject(graph, object, 1, 1));
    ok(capture_into(stream, graph));
    ok(cu::cuCtxDestroy_v2(own));
    assert_eq!(DESTROYED.load(Ordering::Acquire), 1);
}

#[test]
fn a_graph_of_the_program_is_counted_during_a_capture() {
    let _turn = turn();
    context();
    let (graph, stream) = (graph(), stream());
    assert_eq!(counters().graphs, 1);
    ok(capture_into(stream, graph));
    assert_eq!(counters().graphs, 1);
    ok(end_capture(stream).0);
    assert_eq!(counters().graphs, 1);
    ok(cu::cuGraphDestroy(graph));
    ok(cu::cuStreamDestroy_v2(stream));
    release();
}

/// Compiled code, which the simulated GPU does not execute.
const COMPILED: &[u8] = include_bytes!("data/linked.cubin");

#[test]
fn a_graph_with_compiled_code_fails_when_it_is_launched() {
    let _turn = turn();
    context();
    let (stream, mut module, mut function) = (stream(), CUmodule::NULL, CUfunction::NULL);
    ok(cu::cuModuleLoadData(&mut module, COMPILED.as_ptr().cast()));
    let name = c"empty".as_ptr();
    ok(cu::cuModuleGetFunction(&mut function, module, name));
    let mode = stream_capture_mode::RELAXED;
    ok(cu::cuStreamBeginCapture_v2(stream, mode));
    let none = null_mut();
    ok(cu::cuLaunchKernel(
        function, 1, 1, 1, 1, 1, 1, 0, stream, none, none,
    ));
    let (result, graph) = end_capture(stream);
    ok(result);
    let mut exec = CUgraphExec::NULL;
    ok(cu::cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    assert_eq!(cu::cuGraphLaunch(exec, stream), CUresult::NOT_SUPPORTED);
    ok(cu::cuStreamSynchronize(stream));
    ok(cu::cuGraphExecDestroy(exec));
    ok(cu::cuGraphDestroy(graph));
    ok(cu::cuModuleUnload(module));
    ok(cu::cuStreamDestroy_v2(stream));
    release();
}
