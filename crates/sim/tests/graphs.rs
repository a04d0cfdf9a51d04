//! Graphs: what is counted, what is detected, and how nodes execute.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::*;
use cuguard_sim::counters;
use cuguard_sys::*;

fn graph() -> CUgraph {
    let mut graph = CUgraph::NULL;
    ok(cu::cuGraphCreate(&mut graph, 0));
    graph
}

fn instantiate(graph: CUgraph) -> CUgraphExec {
    let mut exec = CUgraphExec::NULL;
    ok(cu::cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    exec
}

fn fill(graph: CUgraph, dst: CUdeviceptr, value: u32, after: &[CUgraphNode]) -> CUgraphNode {
    let params = CUDA_MEMSET_NODE_PARAMS {
        dst,
        value,
        elementSize: 1,
        width: 8,
        height: 1,
        pitch: 0,
    };
    let (mut node, mut context) = (CUgraphNode::NULL, CUcontext::NULL);
    // Without a context, memory that a graph allocates is refused.
    ok(cu::cuCtxGetCurrent(&mut context));
    let (first, count) = (after.as_ptr(), after.len());
    ok(cu::cuGraphAddMemsetNode(
        &mut node, graph, first, count, &params, context,
    ));
    node
}

fn allocation(graph: CUgraph) -> (CUgraphNode, CUdeviceptr) {
    let mut params = CUDA_MEM_ALLOC_NODE_PARAMS {
        bytesize: 1000,
        ..Default::default()
    };
    params.poolProps.allocType = mem_allocation_type::PINNED;
    params.poolProps.location.type_ = mem_location_type::DEVICE;
    let mut node = CUgraphNode::NULL;
    let null = std::ptr::null();
    ok(cu::cuGraphAddMemAllocNode(
        &mut node,
        graph,
        null,
        0,
        &mut params,
    ));
    (node, params.dptr)
}

fn host(graph: CUgraph, function: CUhostFn, data: *mut std::ffi::c_void, after: &[CUgraphNode]) {
    let params = CUDA_HOST_NODE_PARAMS {
        fn_: Some(function),
        userData: data,
    };
    let mut node = CUgraphNode::NULL;
    let (first, count) = (after.as_ptr(), after.len());
    ok(cu::cuGraphAddHostNode(
        &mut node, graph, first, count, &params,
    ));
}

#[test]
fn what_is_not_destroyed_is_counted() {
    let _turn = turn();
    context();
    let stream = stream();
    let before = counters();
    assert_eq!((before.graphs, before.graph_execs), (0, 0));
    let (one, inner) = (graph(), graph());
    let mut node = CUgraphNode::NULL;
    let null = std::ptr::null();
    ok(cu::cuGraphAddChildGraphNode(&mut node, one, null, 0, inner));
    assert_eq!(
        counters().graphs,
        2,
        "a child graph is not a graph of the program"
    );
    ok(cu::cuStreamBeginCapture_v2(stream, 0));
    assert_eq!(
        counters().graphs,
        2,
        "nor is a graph before its capture ends"
    );
    let mut captured = CUgraph::NULL;
    ok(cu::cuStreamEndCapture(stream, &mut captured));
    let (_, address) = allocation(captured);
    let exec = instantiate(captured);
    ok(cu::cuGraphLaunch(exec, stream));
    let now = counters();
    assert_eq!((now.graphs, now.graph_execs), (3, 1));
    assert_eq!((now.graph_memory.count, now.graph_memory.bytes), (1, 1000));
    assert_eq!(now.allocations().count, before.allocations().count + 1);
    ok(cu::cuMemFreeAsync(address, stream));
    ok(cu::cuStreamSynchronize(stream));
    ok(cu::cuGraphExecDestroy(exec));
    for graph in [one, inner, captured] {
        ok(cu::cuGraphDestroy(graph));
    }
    ok(cu::cuDeviceGraphMemTrim(0));
    ok(cu::cuStreamDestroy_v2(stream));
    let after = counters();
    assert_eq!((after.graphs, after.graph_execs), (0, 0));
    assert_eq!(after.allocations().count, before.allocations().count);
    assert_eq!(after.device_bytes_in_use, before.device_bytes_in_use);
    release();
}

#[test]
fn a_launch_without_enough_memory_executes_nothing() {
    let _turn = turn();
    context();
    let (graph, memory) = (graph(), alloc(8));
    ok(cu::cuMemsetD8_v2(memory, 5, 8));
    fill(graph, memory, 1, &[]);
    let (_, address) = allocation(graph);
    let exec = instantiate(graph);
    let rest = free_bytes() / (2 * MIB) * (2 * MIB);
    let hog = alloc(rest);
    let launched = cu::cuGraphLaunch(exec, CUstream::NULL);
    assert_eq!(launched, CUresult::OUT_OF_MEMORY);
    let mut byte = 0_u8;
    ok(cu::cuMemcpyDtoH_v2((&raw mut byte).cast(), memory, 1));
    assert_eq!(byte, 5);
    ok(cu::cuMemFree_v2(hog));
    ok(cu::cuGraphLaunch(exec, CUstream::NULL));
    ok(cu::cuMemFree_v2(address));
    ok(cu::cuMemFree_v2(memory));
    ok(cu::cuGraphExecDestroy(exec));
    ok(cu::cuGraphDestroy(graph));
    ok(cu::cuDeviceGraphMemTrim(0));
    release();
}

/// The line of the misuse in `call` for which a test in a process of its own aborts.
fn aborted(name: &str, call: &str) -> String {
    let output = child(name);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "the child did not abort: {text}");
    let mut lines = text.lines();
    let start = format!("cuguard-sim: misuse in {call}: ");
    let line = lines.find(|line| line.starts_with(&start));
    line.unwrap_or_else(|| panic!("no misuse was reported: {text}"))
        .to_owned()
}

#[test]
fn a_launch_that_uses_freed_memory() {
    if is_child() {
        context();
        let (graph, memory) = (graph(), alloc(64));
        fill(graph, memory, 1, &[]);
        let exec = instantiate(graph);
        ok(cu::cuMemFree_v2(memory));
        let _ = cu::cuGraphLaunch(exec, CUstream::NULL);
        return;
    }
    let line = aborted("a_launch_that_uses_freed_memory", "cuGraphLaunch");
    assert!(line.contains("memory that is not allocated"), "{line}");
}

#[test]
fn a_node_that_does_not_depend_on_the_allocation_of_its_memory() {
    if is_child() {
        context();
        let (graph, stream) = (graph(), stream());
        let (_, memory) = allocation(graph);
        fill(graph, memory, 1, &[]);
        let exec = instantiate(graph);
        let _gate = Gate::close(stream);
        let _ = cu::cuGraphLaunch(exec, stream);
        return;
    }
    let line = aborted(
        "a_node_that_does_not_depend_on_the_allocation_of_its_memory",
        "cuGraphLaunch",
    );
    assert!(line.contains("nothing orders the two"), "{line}");
}

#[test]
fn a_destroyed_node() {
    if is_child() {
        context();
        let (graph, memory) = (graph(), alloc(64));
        let node = fill(graph, memory, 1, &[]);
        ok(cu::cuGraphDestroyNode(node));
        let _ = cu::cuGraphDestroyNode(node);
        return;
    }
    let line = aborted("a_destroyed_node", "cuGraphDestroyNode");
    assert!(
        line.contains("graph node") && line.contains("was destroyed"),
        "{line}"
    );
}

/// Waits until two threads are here.
unsafe extern "C" fn meet(data: *mut std::ffi::c_void) {
    // SAFETY: a counter that outlives the launch.
    let arrived = unsafe { &*data.cast::<AtomicUsize>() };
    arrived.fetch_add(1, Ordering::AcqRel);
    eventually("both are here", || arrived.load(Ordering::Acquire) >= 2);
}

unsafe extern "C" fn count(data: *mut std::ffi::c_void) {
    // SAFETY: a counter that outlives the launch.
    let counter = unsafe { &*data.cast::<AtomicUsize>() };
    counter.fetch_add(1, Ordering::AcqRel);
}

#[test]
fn independent_nodes_execute_at_the_same_time() {
    let _turn = turn();
    context();
    let (graph, stream, arrived) = (graph(), stream(), AtomicUsize::new(0));
    let data = std::ptr::from_ref(&arrived).cast_mut().cast();
    host(graph, meet, data, &[]);
    host(graph, meet, data, &[]);
    let exec = instantiate(graph);
    ok(cu::cuGraphLaunch(exec, stream));
    ok(cu::cuStreamSynchronize(stream));
    assert_eq!(arrived.load(Ordering::Acquire), 2);
    ok(cu::cuGraphExecDestroy(exec));
    ok(cu::cuGraphDestroy(graph));
    ok(cu::cuStreamDestroy_v2(stream));
    release();
}

#[test]
fn a_wide_graph_executes_entirely_before_what_follows() {
    let _turn = turn();
    context();
    let (graph, stream, counter) = (graph(), stream(), AtomicUsize::new(0));
    let data = std::ptr::from_ref(&counter).cast_mut().cast();
    for _ in 0..100 {
        let memory = alloc(8);
        let root = fill(graph, memory, 1, &[]);
        host(graph, count, data, &[root]);
    }
    let exec = instantiate(graph);
    for launches in 1..=3 {
        ok(cu::cuGraphLaunch(exec, stream));
        ok(cu::cuStreamSynchronize(stream));
        assert_eq!(counter.load(Ordering::Acquire), 100 * launches);
    }
    ok(cu::cuGraphExecDestroy(exec));
    ok(cu::cuGraphDestroy(graph));
    ok(cu::cuStreamDestroy_v2(stream));
    release();
}

#[test]
fn a_capture_ends_with_its_context() {
    let _turn = turn();
    context();
    let own = create();
    ok(cu::cuStreamBeginCapture_v2(stream(), 0));
    ok(cu::cuCtxDestroy_v2(own));
    context();
    let memory = alloc(64);
    ok(cu::cuMemFree_v2(memory));
    assert_eq!(counters().graphs, 0);
    release();
    release();
}
