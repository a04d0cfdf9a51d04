//! Graphs: nodes, edges, clones.

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::graphs::*;
use crate::tools::*;

cases! {"graphs":
    create_and_destroy,
    without_a_context,
    dependencies_of_a_new_node,
    lists_of_nodes,
    lists_of_edges,
    edges,
    edge_data,
    cycles,
    clones,
    destroyed_nodes,
    destroyed_graphs,
    copy_nodes,
    fill_nodes,
    host_nodes,
    parameters_of_another_kind,
}

fn add(graph: CUgraph, from: CUgraphNode, to: CUgraphNode) -> CUresult {
    cuGraphAddDependencies(graph, &from, &to, 1)
}

fn remove(graph: CUgraph, from: CUgraphNode, to: CUgraphNode) -> CUresult {
    cuGraphRemoveDependencies(graph, &from, &to, 1)
}

/// There are no flags, and null is not a graph.
fn create_and_destroy(c: &Case) {
    primary(c);
    let mut graph = CUgraph::NULL;
    c.invalid("flags 1", cuGraphCreate(&mut graph, 1));
    c.invalid("into null", cuGraphCreate(std::ptr::null_mut(), 0));
    c.ok("create", cuGraphCreate(&mut graph, 0));
    c.ok("destroy", cuGraphDestroy(graph));
    c.invalid("destroy null", cuGraphDestroy(CUgraph::NULL));
    c.invalid("destroy no instance", cuGraphExecDestroy(CUgraphExec::NULL));
    c.invalid("destroy no node", cuGraphDestroyNode(CUgraphNode::NULL));
    let mut kind = 0;
    c.invalid(
        "type of no node",
        cuGraphNodeGetType(CUgraphNode::NULL, &mut kind),
    );
}

/// A graph needs no context, an instance does.
fn without_a_context(c: &Case) {
    start(c);
    let graph = graph(c);
    empty(c, graph, &[]);
    let mut exec = CUgraphExec::NULL;
    let result = cuGraphInstantiateWithFlags(&mut exec, graph, 0);
    c.expect("instantiate", result, Code::INVALID_CONTEXT);
    c.ok("destroy", cuGraphDestroy(graph));
}

/// A node depends on different nodes of its own graph.
fn dependencies_of_a_new_node(c: &Case) {
    primary(c);
    let (one, other) = (graph(c), graph(c));
    let a = empty(c, one, &[]);
    let b = empty(c, one, &[a]);
    let foreign = empty(c, other, &[]);
    let mut node = CUgraphNode::NULL;
    let mut try_after = |what: &str, after: &[CUgraphNode]| {
        let result = cuGraphAddEmptyNode(&mut node, one, after.as_ptr(), after.len());
        c.invalid(what, result);
    };
    try_after("twice the same", &[a, a]);
    try_after("null", &[CUgraphNode::NULL]);
    try_after("of another graph", &[foreign]);
    let null = std::ptr::null();
    c.invalid("no array", cuGraphAddEmptyNode(&mut node, one, null, 1));
    let nowhere = CUgraph::NULL;
    c.invalid("no graph", cuGraphAddEmptyNode(&mut node, nowhere, null, 0));
    let result = cuGraphAddEmptyNode(std::ptr::null_mut(), one, null, 0);
    c.invalid("into null", result);
    c.same_handle("nodes", nodes(c, one), vec![a, b]);
    c.same("edges of the first", degrees(c, a), (0, 1));
    c.same("edges of the second", degrees(c, b), (1, 0));
}

/// An array that is too short gets the first nodes, one that is too long gets null behind them.
fn lists_of_nodes(c: &Case) {
    primary(c);
    let graph = graph(c);
    let made = [
        empty(c, graph, &[]),
        empty(c, graph, &[]),
        empty(c, graph, &[]),
    ];
    let (mut found, mut count) = ([CUgraphNode(1); 5], 2);
    let result = cuGraphGetNodes(graph, found.as_mut_ptr(), &mut count);
    c.ok("two of three", result);
    c.same("count", count, 2);
    c.yes("the first two", found[..2] == made[..2]);
    c.yes("nothing else is written", found[2..] == [CUgraphNode(1); 3]);
    count = 5;
    let result = cuGraphGetNodes(graph, found.as_mut_ptr(), &mut count);
    c.ok("room for five", result);
    c.same("count", count, 3);
    c.yes("all", found[..3] == made);
    c.yes("null behind them", found[3..] == [CUgraphNode::NULL; 2]);
    let null = std::ptr::null_mut();
    c.ok("only count", cuGraphGetNodes(graph, null, &mut count));
    c.same("count", count, 3);
    let result = cuGraphGetNodes(graph, found.as_mut_ptr(), std::ptr::null_mut());
    c.invalid("without a count", result);
    c.invalid(
        "of no graph",
        cuGraphGetNodes(CUgraph::NULL, null, &mut count),
    );
    c.ok(
        "count the roots",
        cuGraphGetRootNodes(graph, null, &mut count),
    );
    c.same("roots", count, 3);
    c.ok("an edge", add(graph, made[0], made[2]));
    c.ok(
        "count the roots",
        cuGraphGetRootNodes(graph, null, &mut count),
    );
    c.same("roots", count, 2);
}

/// Edges have two ends, and both are read.
fn lists_of_edges(c: &Case) {
    primary(c);
    let graph = graph(c);
    let a = empty(c, graph, &[]);
    let b = empty(c, graph, &[a]);
    let (mut from, mut to) = ([CUgraphNode(1); 3], [CUgraphNode(1); 3]);
    let (mut count, null) = (3, std::ptr::null_mut::<CUgraphNode>());
    let mut data = [CUgraphEdgeData::default(); 3];
    let result = cuGraphGetEdges(graph, from.as_mut_ptr(), to.as_mut_ptr(), &mut count);
    c.ok("edges", result);
    c.same("count", count, 1);
    c.yes("from the first to the second", (from[0], to[0]) == (a, b));
    count = 3;
    let (starts, ends) = (from.as_mut_ptr(), to.as_mut_ptr());
    let result = cuGraphGetEdges_v2(graph, starts, ends, data.as_mut_ptr(), &mut count);
    c.ok("edges with data", result);
    c.yes("no data", data[0] == CUgraphEdgeData::default());
    c.ok(
        "without data",
        cuGraphGetEdges_v2(graph, starts, ends, null.cast(), &mut count),
    );
    c.invalid(
        "without ends",
        cuGraphGetEdges(graph, starts, null, &mut count),
    );
    c.invalid(
        "without starts",
        cuGraphGetEdges(graph, null, ends, &mut count),
    );
    count = 99;
    c.ok("only count", cuGraphGetEdges(graph, null, null, &mut count));
    c.same("count", count, 1);
    let mut nodes = [CUgraphNode(1); 2];
    count = 2;
    let result = cuGraphNodeGetDependencies(b, nodes.as_mut_ptr(), &mut count);
    c.ok("dependencies", result);
    c.yes("the first, then null", nodes == [a, CUgraphNode::NULL]);
    let result = cuGraphNodeGetDependencies(b, nodes.as_mut_ptr(), null.cast());
    c.invalid("without a count", result);
}

/// An edge exists once, and has different ends of one graph. Of several edges, those before one that
/// cannot be added are added.
fn edges(c: &Case) {
    primary(c);
    let (graph, other) = (graph(c), graph(c));
    let (a, b, e) = (
        empty(c, graph, &[]),
        empty(c, graph, &[]),
        empty(c, graph, &[]),
    );
    let foreign = empty(c, other, &[]);
    c.ok("a to b", add(graph, a, b));
    c.invalid("again", add(graph, a, b));
    c.invalid("to itself", add(graph, a, a));
    c.invalid("from another graph", add(graph, foreign, a));
    c.invalid("in another graph", add(graph, foreign, foreign));
    let null = std::ptr::null();
    c.ok("none", cuGraphAddDependencies(graph, null, null, 0));
    c.invalid("no arrays", cuGraphAddDependencies(graph, null, null, 1));
    c.ok("b to e", add(graph, b, e));
    let result = cuGraphAddDependencies(graph, [a, a].as_ptr(), [e, b].as_ptr(), 2);
    c.invalid("a to e, and a to b again", result);
    c.same("edges of a", degrees(c, a), (0, 2));
    c.same("edges of e", degrees(c, e), (2, 0));
    let (mut found, mut count) = ([CUgraphNode::NULL; 2], 2);
    let result = cuGraphNodeGetDependencies(e, found.as_mut_ptr(), &mut count);
    c.ok("dependencies of e", result);
    c.yes("in the order of their edges", found == [b, a]);
    c.ok("remove a to e", remove(graph, a, e));
    c.invalid("again", remove(graph, a, e));
    c.ok(
        "remove none",
        cuGraphRemoveDependencies(graph, null, null, 0),
    );
    c.same("edges of e", degrees(c, e), (1, 0));
}

/// Edges have no data, except between kernels.
fn edge_data(c: &Case) {
    primary(c);
    let graph = graph(c);
    let (a, b) = (empty(c, graph, &[]), empty(c, graph, &[]));
    let mut data = CUgraphEdgeData {
        type_: 7,
        ..CUgraphEdgeData::default()
    };
    let try_with = |data: &CUgraphEdgeData| cuGraphAddDependencies_v2(graph, &a, &b, data, 1);
    c.invalid("type 7", try_with(&data));
    data.type_ = 1;
    c.invalid("programmatic", try_with(&data));
    data = CUgraphEdgeData::default();
    data.from_port = 1;
    c.invalid("a port", try_with(&data));
    data = CUgraphEdgeData::default();
    data.reserved[0] = 1;
    c.invalid("a reserved byte", try_with(&data));
    c.ok("zeros", try_with(&CUgraphEdgeData::default()));
}

/// A cycle can be made, but not instantiated.
fn cycles(c: &Case) {
    primary(c);
    let graph = graph(c);
    let a = empty(c, graph, &[]);
    let b = empty(c, graph, &[a]);
    c.ok("b to a", add(graph, b, a));
    let mut exec = CUgraphExec(1);
    let result = cuGraphInstantiateWithFlags(&mut exec, graph, 0);
    c.invalid("instantiate", result);
    let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS::default();
    let result = cuGraphInstantiateWithParams(&mut exec, graph, &mut params);
    c.invalid("instantiate with parameters", result);
    let want = graph_instantiate_result::INVALID_STRUCTURE;
    c.same("reason", params.result_out, want);
    c.no("a node is named", params.hErrNode_out.is_null());
    c.ok("remove b to a", remove(graph, b, a));
    c.ok(
        "instantiate",
        cuGraphInstantiateWithFlags(&mut exec, graph, 0),
    );
}

/// A clone has nodes of its own, which the nodes of the original find.
fn clones(c: &Case) {
    primary(c);
    let (original, other) = (graph(c), graph(c));
    let a = empty(c, original, &[]);
    let b = marker(c, original, 1, &[a]);
    let foreign = empty(c, other, &[]);
    let (mut clone, mut second) = (CUgraph::NULL, CUgraph::NULL);
    c.invalid("into null", cuGraphClone(std::ptr::null_mut(), original));
    c.invalid("of null", cuGraphClone(&mut clone, CUgraph::NULL));
    c.ok("clone", cuGraphClone(&mut clone, original));
    c.same("types", types(c, clone), types(c, original));
    let mut found = CUgraphNode(1);
    c.ok("find", cuGraphNodeFindInClone(&mut found, b, clone));
    c.no("another node", found == b);
    c.same("edges", degrees(c, found), (1, 0));
    let cloned = found;
    let result = cuGraphNodeFindInClone(&mut found, foreign, clone);
    c.invalid("find a foreign node", result);
    c.yes("nothing found is null", found.is_null());
    let result = cuGraphNodeFindInClone(&mut found, b, other);
    c.invalid("find in no clone", result);
    let result = cuGraphNodeFindInClone(&mut found, cloned, original);
    c.invalid("find backwards", result);
    c.ok("clone the clone", cuGraphClone(&mut second, clone));
    let result = cuGraphNodeFindInClone(&mut found, b, second);
    c.invalid("find over two clones", result);
    let result = cuGraphNodeFindInClone(&mut found, cloned, second);
    c.ok("find over one", result);
    c.ok("destroy the node of the clone", cuGraphDestroyNode(cloned));
    let result = cuGraphNodeFindInClone(&mut found, b, clone);
    c.invalid("find it", result);
    c.same("the original has it", nodes(c, original).len(), 2);
    c.ok("destroy the original", cuGraphDestroy(original));
    c.same("the clone stays", nodes(c, clone).len(), 1);
}

/// A node is destroyed with its edges.
fn destroyed_nodes(c: &Case) {
    primary(c);
    let graph = graph(c);
    let a = empty(c, graph, &[]);
    let b = empty(c, graph, &[a]);
    let e = empty(c, graph, &[a, b]);
    c.ok("destroy", cuGraphDestroyNode(b));
    c.same_handle("nodes", nodes(c, graph), vec![a, e]);
    c.same("edges of the first", degrees(c, a), (0, 1));
    c.same("edges of the last", degrees(c, e), (1, 0));
}

/// A destroyed graph, or instance, is none.
fn destroyed_graphs(c: &Case) {
    primary(c);
    let graph = graph(c);
    let exec = instantiate(c, graph);
    c.ok("destroy", cuGraphDestroy(graph));
    c.invalid("again", cuGraphDestroy(graph));
    let mut count = 0;
    let result = cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count);
    c.invalid("its nodes", result);
    c.ok("launch its instance", cuGraphLaunch(exec, CUstream::NULL));
    c.ok("destroy the instance", cuGraphExecDestroy(exec));
    c.invalid("again", cuGraphExecDestroy(exec));
    c.invalid("launch it", cuGraphLaunch(exec, CUstream::NULL));
}

/// A copy is checked when its node is added.
fn copy_nodes(c: &Case) {
    primary(c);
    let graph = graph(c);
    let (a, b) = (alloc(c, 4096), alloc(c, 4096));
    let mut node = CUgraphNode::NULL;
    let mut try_copy = |params: &CUDA_MEMCPY3D| {
        cuGraphAddMemcpyNode(
            &mut node,
            graph,
            std::ptr::null(),
            0,
            params,
            CUcontext::NULL,
        )
    };
    let good = copy_of(a, b, 64);
    c.invalid("from nowhere", try_copy(&copy_of(a, 0x10, 64)));
    c.invalid("out of bounds", try_copy(&copy_of(a, b, 1 << 30)));
    c.invalid("no bytes", try_copy(&copy_of(a, b, 0)));
    c.invalid("no rows", try_copy(&CUDA_MEMCPY3D { Height: 0, ..good }));
    let unknown = CUDA_MEMCPY3D {
        srcMemoryType: 9,
        ..good
    };
    c.invalid("memory type 9", try_copy(&unknown));
    c.invalid("from null", try_copy(&upload_of(a, std::ptr::null(), 8)));
    let narrow = CUDA_MEMCPY3D {
        Height: 2,
        srcPitch: 4,
        ..good
    };
    c.invalid("a pitch below the width", try_copy(&narrow));
    let unified = CUDA_MEMCPY3D {
        srcMemoryType: memory_type::UNIFIED,
        ..good
    };
    c.ok("unified", try_copy(&unified));
    let null = std::ptr::null();
    let context = CUcontext::NULL;
    let result = cuGraphAddMemcpyNode(&mut node, graph, null, 0, std::ptr::null(), context);
    c.invalid("no parameters", result);
    let result = cuGraphAddMemcpyNode(&mut node, graph, null, 0, &good, context);
    c.ok("a copy", result);
    let mut found = CUDA_MEMCPY3D::default();
    c.ok(
        "its parameters",
        cuGraphMemcpyNodeGetParams(node, &mut found),
    );
    c.yes("as given", found == good);
    let other = copy_of(b, a, 32);
    c.ok("set others", cuGraphMemcpyNodeSetParams(node, &other));
    c.ok(
        "its parameters",
        cuGraphMemcpyNodeGetParams(node, &mut found),
    );
    c.yes("as set", found == other);
    let wild = copy_of(b, 0x10, 32);
    c.invalid("set a wild copy", cuGraphMemcpyNodeSetParams(node, &wild));
    let result = cuGraphMemcpyNodeGetParams(node, std::ptr::null_mut());
    c.invalid("into null", result);
}

/// A fill is checked when its node is added.
fn fill_nodes(c: &Case) {
    primary(c);
    let graph = graph(c);
    let a = alloc(c, 4096);
    let host = pinned(c, 4096) as CUdeviceptr;
    let mut node = CUgraphNode::NULL;
    let mut try_fill = |params: CUDA_MEMSET_NODE_PARAMS| {
        cuGraphAddMemsetNode(
            &mut node,
            graph,
            std::ptr::null(),
            0,
            &params,
            CUcontext::NULL,
        )
    };
    let good = fill_of(a, 1, 64);
    let element = |bytes, dst| CUDA_MEMSET_NODE_PARAMS {
        elementSize: bytes,
        dst,
        ..good
    };
    let rows = |pitch, height| CUDA_MEMSET_NODE_PARAMS {
        pitch,
        height,
        ..good
    };
    c.invalid("elements of three bytes", try_fill(element(3, a)));
    c.invalid("an unaligned element", try_fill(element(4, a + 1)));
    c.invalid("no bytes", try_fill(fill_of(a, 1, 0)));
    c.invalid("no rows", try_fill(rows(0, 0)));
    c.invalid("a pitch below the width", try_fill(rows(32, 2)));
    c.invalid("nowhere", try_fill(fill_of(0x10, 1, 8)));
    c.invalid("out of bounds", try_fill(fill_of(a, 1, 1 << 30)));
    c.ok("rows", try_fill(rows(128, 2)));
    c.ok("pinned memory", try_fill(fill_of(host, 1, 8)));
    let large = CUDA_MEMSET_NODE_PARAMS {
        value: 0x1ff,
        ..good
    };
    c.ok("a value beyond its element", try_fill(large));
    c.ok("bytes", try_fill(good));
    let mut found = CUDA_MEMSET_NODE_PARAMS::default();
    c.ok(
        "its parameters",
        cuGraphMemsetNodeGetParams(node, &mut found),
    );
    c.yes("as given", found == good);
    c.ok(
        "set others",
        cuGraphMemsetNodeSetParams(node, &fill_of(a, 2, 8)),
    );
    let result = cuGraphMemsetNodeSetParams(node, &element(3, a));
    c.invalid("set elements of three bytes", result);
}

/// A host function is not null.
fn host_nodes(c: &Case) {
    primary(c);
    let graph = graph(c);
    let node = marker(c, graph, 5, &[]);
    let mut found = CUDA_HOST_NODE_PARAMS::default();
    c.ok("its parameters", cuGraphHostNodeGetParams(node, &mut found));
    c.same("its argument", found.userData.addr(), 5);
    let none = CUDA_HOST_NODE_PARAMS::default();
    let (mut other, null) = (CUgraphNode::NULL, std::ptr::null());
    let result = cuGraphAddHostNode(&mut other, graph, null, 0, &none);
    c.invalid("no function", result);
    let result = cuGraphAddHostNode(&mut other, graph, null, 0, std::ptr::null());
    c.invalid("no parameters", result);
    c.invalid("set no function", cuGraphHostNodeSetParams(node, &none));
    c.ok("set another", cuGraphHostNodeSetParams(node, &mark(6)));
}

/// A node has the parameters of its own kind only.
fn parameters_of_another_kind(c: &Case) {
    primary(c);
    let graph = graph(c);
    let node = fill(c, graph, &fill_of(alloc(c, 64), 1, 8), &[]);
    let (mut copy, mut host) = Default::default();
    let (mut event, mut child, mut address) = Default::default();
    let mut allocation = CUDA_MEM_ALLOC_NODE_PARAMS::default();
    c.invalid("copy", cuGraphMemcpyNodeGetParams(node, &mut copy));
    c.invalid("host function", cuGraphHostNodeGetParams(node, &mut host));
    c.invalid("child", cuGraphChildGraphNodeGetGraph(node, &mut child));
    c.invalid("record", cuGraphEventRecordNodeGetEvent(node, &mut event));
    c.invalid("wait", cuGraphEventWaitNodeGetEvent(node, &mut event));
    c.invalid(
        "allocation",
        cuGraphMemAllocNodeGetParams(node, &mut allocation),
    );
    c.invalid("free", cuGraphMemFreeNodeGetParams(node, &mut address));
    c.invalid(
        "set a host function",
        cuGraphHostNodeSetParams(node, &mark(1)),
    );
}
