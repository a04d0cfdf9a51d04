//! Child graphs, events in graphs, nodes of any kind, user objects.

use std::ffi::CString;
use std::time::{Duration, Instant};

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::graphs::*;
use crate::host;
use crate::tools::*;
use graph_node_type as kind;

cases! {"graph_objects":
    child_graphs,
    other_child_graphs,
    events,
    nodes_of_any_kind,
    user_objects,
    user_objects_of_graphs,
    user_objects_of_launches,
    user_objects_of_updates,
    drawings,
    pointers_to_graph_memory,
    roots,
}

/// A node with a child graph.
fn child(c: &Case, graph: CUgraph, of: CUgraph) -> CUgraphNode {
    let mut node = CUgraphNode::NULL;
    let result = cuGraphAddChildGraphNode(&mut node, graph, std::ptr::null(), 0, of);
    c.require("cuGraphAddChildGraphNode", result);
    node
}

/// The graph of a node.
fn graph_of(c: &Case, node: CUgraphNode) -> CUgraph {
    let mut graph = CUgraph::NULL;
    let result = cuGraphChildGraphNodeGetGraph(node, &mut graph);
    c.require("cuGraphChildGraphNodeGetGraph", result);
    graph
}

/// A child graph is a clone that belongs to its node.
fn child_graphs(c: &Case) {
    primary(c);
    let (stream, graph, inner) = (independent(c), graph(c), graph(c));
    let called = marker(c, inner, 2, &[]);
    let mut node = CUgraphNode::NULL;
    let null = std::ptr::null();
    let result = cuGraphAddChildGraphNode(&mut node, graph, null, 0, CUgraph::NULL);
    c.invalid("null", result);
    let before = marker(c, graph, 1, &[]);
    let node = child(c, graph, inner);
    let result = cuGraphAddDependencies(graph, &before, &node, 1);
    c.ok("after another node", result);
    marker(c, graph, 3, &[node]);
    let clone = graph_of(c, node);
    c.no("another graph", clone == inner);
    c.same("its nodes", types(c, clone), vec![kind::HOST]);
    let mut found = CUgraphNode::NULL;
    let result = cuGraphNodeFindInClone(&mut found, called, clone);
    c.ok("find its node", result);
    c.invalid("destroy it", cuGraphDestroy(clone));
    c.ok("destroy the original", cuGraphDestroy(inner));
    let exec = instantiate(c, graph);
    run(c, exec, stream);
    c.same("order", host::marks(), vec![1, 2, 3]);
    c.invalid("disable it", cuGraphNodeSetEnabled(exec, node, 0));
    c.ok("destroy the node", cuGraphDestroyNode(node));
    run(c, exec, stream);
    c.same("order", host::marks(), vec![1, 2, 3, 1, 2, 3]);
}

/// The child graph of an instance takes the parameters of a graph with the same topology.
fn other_child_graphs(c: &Case) {
    primary(c);
    let (stream, graph, inner) = (independent(c), graph(c), graph(c));
    let called = marker(c, inner, 1, &[]);
    let node = child(c, graph, inner);
    let exec = instantiate(c, graph);
    c.ok(
        "change the original",
        cuGraphHostNodeSetParams(called, &mark(2)),
    );
    run(c, exec, stream);
    c.same("the clone executes", host::marks(), vec![1]);
    let result = cuGraphExecChildGraphNodeSetParams(exec, node, inner);
    c.ok("set", result);
    run(c, exec, stream);
    c.same("the other executes", host::marks(), vec![1, 2]);
    empty(c, inner, &[]);
    let result = cuGraphExecChildGraphNodeSetParams(exec, node, inner);
    c.expect("another topology", result, Code::GRAPH_EXEC_UPDATE_FAILURE);
    let result = cuGraphExecChildGraphNodeSetParams(exec, node, CUgraph::NULL);
    c.invalid("null", result);
}

/// Nodes record events and wait for them.
fn events(c: &Case) {
    primary(c);
    let (stream, graph) = (independent(c), graph(c));
    let (one, other) = (event(c, 0), event(c, 0));
    let (mut recorded, mut waiting) = (CUgraphNode::NULL, CUgraphNode::NULL);
    let null = std::ptr::null();
    let result = cuGraphAddEventRecordNode(&mut recorded, graph, null, 0, CUevent::NULL);
    c.invalid("record null", result);
    let result = cuGraphAddEventRecordNode(&mut recorded, graph, null, 0, one);
    c.ok("record", result);
    let result = cuGraphAddEventWaitNode(&mut waiting, graph, &recorded, 1, other);
    c.ok("wait", result);
    let mut found = CUevent::NULL;
    c.ok(
        "its event",
        cuGraphEventRecordNodeGetEvent(recorded, &mut found),
    );
    c.yes("as given", found == one);
    let result = cuGraphEventWaitNodeGetEvent(recorded, &mut found);
    c.invalid("its event as of a wait", result);
    c.ok("set", cuGraphEventRecordNodeSetEvent(recorded, other));
    c.ok("set", cuGraphEventWaitNodeSetEvent(waiting, one));
    let exec = instantiate(c, graph);
    run(c, exec, stream);
    let mut elapsed = 0.0;
    let result = cuEventElapsedTime(&mut elapsed, other, other);
    c.ok("the event is recorded", result);
    let result = cuEventElapsedTime(&mut elapsed, one, one);
    c.expect("the other is not", result, Code::INVALID_HANDLE);
    let result = cuGraphExecEventRecordNodeSetEvent(exec, recorded, one);
    c.ok("set in the instance", result);
    let result = cuGraphExecEventWaitNodeSetEvent(exec, waiting, other);
    c.ok("set in the instance", result);
    run(c, exec, stream);
    let result = cuEventElapsedTime(&mut elapsed, other, one);
    c.ok("the other is recorded", result);
    let result = cuGraphExecEventRecordNodeSetEvent(exec, recorded, CUevent::NULL);
    c.invalid("set null", result);
    c.invalid("disable it", cuGraphNodeSetEnabled(exec, recorded, 0));
}

/// The parameters of any kind of node, in one structure.
fn params(kind: u32) -> CUgraphNodeParams {
    CUgraphNodeParams {
        type_: kind,
        reserved0: [0; 3],
        reserved1: [0; 29],
        reserved2: 0,
    }
}

/// One function adds all kinds of nodes.
fn nodes_of_any_kind(c: &Case) {
    primary(c);
    let (stream, graph, inner) = (independent(c), graph(c), graph(c));
    let mut node = CUgraphNode::NULL;
    let mut add = |params: *mut CUgraphNodeParams| {
        cuGraphAddNode(&mut node, graph, std::ptr::null(), 0, params)
    };
    c.invalid("no parameters", add(std::ptr::null_mut()));
    c.invalid("type 77", add(&mut params(77)));
    c.ok("empty", add(&mut params(kind::EMPTY)));
    let mut reserved = params(kind::EMPTY);
    reserved.reserved0[0] = 1;
    c.invalid("a reserved field", add(&mut reserved));
    let mut of_event = params(kind::EVENT_RECORD);
    of_event.reserved1[0] = event(c, 0).0 as i64;
    c.ok("an event", add(&mut of_event));
    let mut of_graph = params(kind::GRAPH);
    of_graph.reserved1[0] = inner.0 as i64;
    c.ok("a child graph", add(&mut of_graph));
    let mut of_fill = params(kind::MEMSET);
    let memory = alloc(c, 64);
    // Destination, pitch, value and element size, width, height, context.
    of_fill.reserved1[..6].copy_from_slice(&[memory as i64, 0, 7 | 1 << 32, 8, 1, 0]);
    c.ok("a fill", add(&mut of_fill));
    let mut of_host = params(kind::HOST);
    of_host.reserved1[0] = host::mark as *const () as i64;
    of_host.reserved1[1] = 5;
    c.ok("a host function", add(&mut of_host));
    of_host.reserved1[1] = 6;
    c.ok("set", cuGraphNodeSetParams(node, &mut of_host));
    c.invalid("set a fill", cuGraphNodeSetParams(node, &mut of_fill));
    let want = vec![
        kind::EMPTY,
        kind::EVENT_RECORD,
        kind::GRAPH,
        kind::MEMSET,
        kind::HOST,
    ];
    c.same("types", types(c, graph), want);
    let exec = instantiate(c, graph);
    run(c, exec, stream);
    c.same("called", host::marks(), vec![6]);
    c.same("filled", read(c, memory, 8), vec![7; 8]);
    of_host.reserved1[1] = 8;
    let result = cuGraphExecNodeSetParams(exec, node, &mut of_host);
    c.ok("set in the instance", result);
    run(c, exec, stream);
    c.same("called", host::marks(), vec![6, 8]);
}

/// A user object that marks `number` when it is destroyed.
fn object(c: &Case, number: usize, references: u32) -> CUuserObject {
    let mut object = CUuserObject::NULL;
    let data = host::number(number);
    let result = cuUserObjectCreate(&mut object, data, Some(host::mark), references, 1);
    c.require("cuUserObjectCreate", result);
    object
}

/// A user object is destroyed when its last reference is released.
fn user_objects(c: &Case) {
    primary(c);
    let (mut made, null) = (CUuserObject::NULL, std::ptr::null_mut());
    let mut create = |references, flags| {
        cuUserObjectCreate(&mut made, null, Some(host::mark), references, flags)
    };
    c.invalid("no flags", create(1, 0));
    c.invalid("flags 2", create(1, 2));
    c.invalid("no references", create(0, 1));
    let result = cuUserObjectCreate(&mut made, null, None, 1, 1);
    c.invalid("no function", result);
    let result = cuUserObjectCreate(std::ptr::null_mut(), null, Some(host::mark), 1, 1);
    c.invalid("into null", result);
    let object = object(c, 1, 2);
    c.invalid("retain 0", cuUserObjectRetain(object, 0));
    c.invalid("release 0", cuUserObjectRelease(object, 0));
    c.invalid("retain null", cuUserObjectRetain(CUuserObject::NULL, 1));
    c.ok("retain 1", cuUserObjectRetain(object, 1));
    c.ok("release 2", cuUserObjectRelease(object, 2));
    c.same("not destroyed", host::marks(), vec![]);
    c.ok("release the last", cuUserObjectRelease(object, 1));
    c.same("destroyed", host::marks(), vec![1]);
}

/// Graphs, clones and instances hold references.
fn user_objects_of_graphs(c: &Case) {
    primary(c);
    let (graph, object) = (graph(c), object(c, 1, 2));
    c.ok("retain", cuGraphRetainUserObject(graph, object, 1, 0));
    c.invalid("flags 2", cuGraphRetainUserObject(graph, object, 1, 2));
    c.invalid("retain 0", cuGraphRetainUserObject(graph, object, 0, 0));
    c.ok("move", cuGraphRetainUserObject(graph, object, 2, 1));
    c.ok("release more", cuGraphReleaseUserObject(graph, object, 4));
    c.ok("release", cuGraphReleaseUserObject(graph, object, 1));
    let mut clone = CUgraph::NULL;
    c.ok("clone", cuGraphClone(&mut clone, graph));
    let exec = instantiate(c, graph);
    c.ok("destroy the graph", cuGraphDestroy(graph));
    c.ok("destroy the clone", cuGraphDestroy(clone));
    c.same("not destroyed", host::marks(), vec![]);
    c.ok("destroy the instance", cuGraphExecDestroy(exec));
    c.same("destroyed", host::marks(), vec![1]);
}

/// Waits until host functions have recorded these numbers, for ten seconds at most.
fn expect_marks(c: &Case, what: &str, want: Vec<usize>) {
    let end = Instant::now() + Duration::from_secs(10);
    while host::marks().len() < want.len() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    c.same(what, host::marks(), want);
}

/// An instance that is destroyed while it is launched releases its references when the launch completes.
fn user_objects_of_launches(c: &Case) {
    primary(c);
    let (stream, graph, object) = (independent(c), graph(c), object(c, 1, 1));
    c.ok("move", cuGraphRetainUserObject(graph, object, 1, 1));
    empty(c, graph, &[]);
    let exec = instantiate(c, graph);
    c.ok("destroy the graph", cuGraphDestroy(graph));
    let (gate, result) = host::Gate::close(stream);
    c.require("cuLaunchHostFunc", result);
    c.ok("launch", cuGraphLaunch(exec, stream));
    c.ok("destroy the instance", cuGraphExecDestroy(exec));
    c.same("not destroyed", host::marks(), vec![]);
    gate.open();
    wait_for(c, stream);
    expect_marks(c, "destroyed", vec![1]);
}

/// An update releases the references of the graph before, when its launches are complete, and holds those of the other graph.
fn user_objects_of_updates(c: &Case) {
    primary(c);
    let stream = independent(c);
    let with_object = |number| {
        let (graph, object) = (graph(c), object(c, number, 1));
        c.ok("move", cuGraphRetainUserObject(graph, object, 1, 1));
        empty(c, graph, &[]);
        graph
    };
    let [one, two, three] = [1, 2, 3].map(with_object);
    let exec = instantiate(c, one);
    c.ok("destroy the first", cuGraphDestroy(one));
    let mut info = CUgraphExecUpdateResultInfo::default();
    c.ok("update", cuGraphExecUpdate_v2(exec, two, &mut info));
    expect_marks(c, "the first is destroyed", vec![1]);
    c.ok("destroy the second", cuGraphDestroy(two));
    c.same("the instance holds the second", host::marks(), vec![1]);
    let (gate, result) = host::Gate::close(stream);
    c.require("cuLaunchHostFunc", result);
    c.ok("launch", cuGraphLaunch(exec, stream));
    c.ok("update", cuGraphExecUpdate_v2(exec, three, &mut info));
    c.same("the launch holds the second", host::marks(), vec![1]);
    gate.open();
    wait_for(c, stream);
    expect_marks(c, "the second is destroyed", vec![1, 2]);
    c.ok("destroy the third", cuGraphDestroy(three));
    c.ok("destroy the instance", cuGraphExecDestroy(exec));
    expect_marks(c, "the third is destroyed", vec![1, 2, 3]);
}

/// A graph is written to a file in the DOT language.
fn drawings(c: &Case) {
    primary(c);
    let graph = graph(c);
    let first = empty(c, graph, &[]);
    marker(c, graph, 1, &[first]);
    let name = format!("cuguard-graph-{}.dot", std::process::id());
    let file = std::env::temp_dir().join(name);
    let path = CString::new(file.to_string_lossy().into_owned()).unwrap_or_default();
    c.ok("draw", cuGraphDebugDotPrint(graph, path.as_ptr(), 0));
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let _ = std::fs::remove_file(&file);
    // The number of the graph is the driver's.
    let number = text.split("label=\"graph_").nth(1).unwrap_or_default();
    let number = number.split('"').next().unwrap_or_default();
    let want = format!(
        "digraph dot {{\nsubgraph cluster_{number} {{\nlabel=\"graph_{number}\" graph[style=\"dashed\"];\n\
         \"graph_{number}_node_0\"[style=\"solid\" shape=\"rectangle\" label=\"0\nEMPTY\n\"];\n\n\
         \"graph_{number}_node_1\"[style=\"solid\" shape=\"rectangle\" label=\"1\nHOST\n\"];\n\n\
         \"graph_{number}_node_0\" -> \"graph_{number}_node_1\";\n}}\n}}\n"
    );
    // The card's driver writes an empty line behind it.
    c.same("the drawing", text.trim_end(), want.trim_end());
    let nowhere = c"/nonexistent/graph.dot".as_ptr();
    let result = cuGraphDebugDotPrint(graph, nowhere, 0);
    c.expect("a folder that is not there", result, Code::OPERATING_SYSTEM);
    let null = std::ptr::null();
    c.invalid("no path", cuGraphDebugDotPrint(graph, null, 0));
    let result = cuGraphDebugDotPrint(CUgraph::NULL, path.as_ptr(), 0);
    c.invalid("no graph", result);
}

/// Memory of a graph has no context and no pool.
fn pointers_to_graph_memory(c: &Case) {
    primary(c);
    let stream = independent(c);
    let result = cuStreamBeginCapture_v2(stream, stream_capture_mode::RELAXED);
    c.require("cuStreamBeginCapture", result);
    let memory = alloc_async(c, 1000, stream);
    let mut graph = CUgraph::NULL;
    c.require("cuStreamEndCapture", cuStreamEndCapture(stream, &mut graph));
    run(c, instantiate(c, graph), stream);
    let ask = |attribute| {
        let mut value = [0_u64; 2];
        let result = cuPointerGetAttribute(value.as_mut_ptr().cast(), attribute, memory);
        c.ok(format_args!("attribute {attribute}"), result);
        value[0]
    };
    c.same("type", ask(pointer_attribute::MEMORY_TYPE), 2);
    c.same("context", ask(pointer_attribute::CONTEXT), 0);
    c.same("pool", ask(pointer_attribute::MEMPOOL_HANDLE), 0);
    c.same("device", ask(pointer_attribute::DEVICE_ORDINAL), 0);
    c.same("size", ask(pointer_attribute::RANGE_SIZE), 1000);
    c.same("mapped", ask(pointer_attribute::MAPPED), 1);
    c.yes("start", ask(pointer_attribute::RANGE_START_ADDR) == memory);
    let which = pointer_attribute::IS_LEGACY_CUDA_IPC_CAPABLE;
    c.same("shared by handle", ask(which), 0);
    c.invalid("free in the middle", cuMemFreeAsync(memory + 512, stream));
    c.invalid("fill beyond", cuMemsetD8_v2(memory, 0, 1001));
    c.ok(
        "free on another stream",
        cuMemFreeAsync(memory, independent(c)),
    );
}

/// The roots, the last one first.
fn roots(c: &Case) {
    primary(c);
    let graph = graph(c);
    let a = empty(c, graph, &[]);
    empty(c, graph, &[a]);
    let (b, e) = (empty(c, graph, &[]), empty(c, graph, &[]));
    let (mut found, mut count) = ([CUgraphNode(1); 4], 4);
    let result = cuGraphGetRootNodes(graph, found.as_mut_ptr(), &mut count);
    c.ok("roots", result);
    c.same("count", count, 3);
    c.yes("in order, then null", found == [e, b, a, CUgraphNode::NULL]);
}
