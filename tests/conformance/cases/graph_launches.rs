//! Instantiated graphs: launches, changes, updates.

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::graphs::*;
use crate::host;
use crate::tools::*;

cases! {"graph_launches":
    instances,
    instances_for_devices,
    a_launch_executes_every_node,
    nodes_execute_in_order,
    launches_are_stream_ordered,
    streams_of_launches,
    contexts_of_launches,
    an_instance_outlives_its_graph,
    disabled_nodes,
    other_parameters,
    parameters_that_stay,
    updates,
    updates_that_fail,
}

/// What a device may launch has nodes, and only kernels, copies, fills and graphs of these. The host may launch it too.
fn instances_for_devices(c: &Case) {
    primary(c);
    let (stream, ptr) = (independent(c), alloc(c, 64));
    let params = |flags| CUDA_GRAPH_INSTANTIATE_PARAMS {
        flags,
        ..CUDA_GRAPH_INSTANTIATE_PARAMS::default()
    };
    let mut exec = CUgraphExec::NULL;
    let no_nodes = graph(c);
    let mut found = params(4);
    let result = cuGraphInstantiateWithParams(&mut exec, no_nodes, &mut found);
    c.invalid("no nodes", result);
    let error = graph_instantiate_result::ERROR;
    c.same("why", found.result_out, error);
    for what in ["an empty node", "a host function"] {
        let graph = graph(c);
        let node = match what {
            "an empty node" => empty(c, graph, &[]),
            _ => marker(c, graph, 1, &[]),
        };
        let mut found = params(4);
        let result = cuGraphInstantiateWithParams(&mut exec, graph, &mut found);
        c.invalid(what, result);
        let why = graph_instantiate_result::NODE_OPERATION_NOT_SUPPORTED;
        c.same("why", found.result_out, why);
        c.yes("the node", found.hErrNode_out == node);
    }
    let graph = graph(c);
    fill(c, graph, &fill_of(ptr, 9, 64), &[]);
    let mut try_flags = |flags| cuGraphInstantiateWithFlags(&mut exec, graph, flags);
    c.invalid("with automatic frees", try_flags(5));
    c.invalid("with an upload", try_flags(6));
    c.ok("with priorities", try_flags(12));
    c.ok("alone", try_flags(4));
    let mut flags = 99;
    c.ok("read the flags", cuGraphExecGetFlags(exec, &mut flags));
    c.same("flags", flags, 4);
    c.ok("upload", cuGraphUpload(exec, stream));
    run(c, exec, stream);
    c.same("filled", read(c, ptr, 2), vec![9, 9]);
}

/// Some flags exist, and are for one kind of instantiation only.
fn instances(c: &Case) {
    primary(c);
    let graph = graph(c);
    marker(c, graph, 1, &[]);
    let (mut exec, mut flags) = (CUgraphExec::NULL, 99);
    let mut try_flags = |flags| cuGraphInstantiateWithFlags(&mut exec, graph, flags);
    c.invalid("unknown flags", try_flags(1024));
    c.invalid("upload needs a stream", try_flags(2));
    c.invalid(
        "host functions cannot be launched by a device",
        try_flags(4),
    );
    c.ok("priorities", try_flags(8));
    c.ok("automatic free", try_flags(1));
    c.ok("read the flags", cuGraphExecGetFlags(exec, &mut flags));
    c.same("flags", flags, 1);
    c.invalid("into null", cuGraphExecGetFlags(exec, std::ptr::null_mut()));
    let null = std::ptr::null_mut();
    c.invalid(
        "instantiate into null",
        cuGraphInstantiateWithFlags(null, graph, 0),
    );
    let result = cuGraphInstantiateWithFlags(&mut exec, CUgraph::NULL, 0);
    c.invalid("instantiate null", result);
    let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS {
        flags: 2,
        hUploadStream: independent(c),
        ..CUDA_GRAPH_INSTANTIATE_PARAMS::default()
    };
    let result = cuGraphInstantiateWithParams(&mut exec, graph, &mut params);
    c.ok("instantiate and upload", result);
    c.same(
        "outcome",
        params.result_out,
        graph_instantiate_result::SUCCESS,
    );
    c.ok("read the flags", cuGraphExecGetFlags(exec, &mut flags));
    c.same("flags", flags, 0);
    params.flags = 1024;
    let result = cuGraphInstantiateWithParams(&mut exec, graph, &mut params);
    c.invalid("unknown flags", result);
    c.same(
        "outcome",
        params.result_out,
        graph_instantiate_result::ERROR,
    );
    let result = cuGraphInstantiateWithParams(&mut exec, graph, std::ptr::null_mut());
    c.invalid("no parameters", result);
}

/// Copies, fills and host functions, also of pageable memory.
fn a_launch_executes_every_node(c: &Case) {
    primary(c);
    let (stream, graph) = (independent(c), graph(c));
    let (a, b) = (alloc(c, 64), alloc(c, 64));
    let (source, mut target) = ([7_u8; 64], [0_u8; 64]);
    let up = copy(c, graph, &upload_of(a, source.as_ptr().cast(), 64), &[]);
    let part = fill(c, graph, &fill_of(a, 9, 16), &[up]);
    let over = copy(c, graph, &copy_of(b, a, 64), &[part]);
    let called = marker(c, graph, 3, &[over]);
    copy(
        c,
        graph,
        &download_of(target.as_mut_ptr().cast(), b, 64),
        &[called],
    );
    let exec = instantiate(c, graph);
    c.same("nothing has executed", host::marks(), vec![]);
    run(c, exec, stream);
    c.same("filled", target[..16].to_vec(), vec![9; 16]);
    c.same("copied", target[16..].to_vec(), vec![7; 48]);
    c.same("called", host::marks(), vec![3]);
    target.fill(0);
    run(c, exec, stream);
    c.same("copied again", target[16..].to_vec(), vec![7; 48]);
}

/// A node executes after the nodes on which it depends.
fn nodes_execute_in_order(c: &Case) {
    primary(c);
    let (stream, graph) = (independent(c), graph(c));
    let last = marker(c, graph, 4, &[]);
    let third = marker(c, graph, 3, &[]);
    let second = marker(c, graph, 2, &[]);
    let first = marker(c, graph, 1, &[]);
    for (from, to) in [
        (first, second),
        (second, third),
        (third, last),
        (first, last),
    ] {
        let result = cuGraphAddDependencies(graph, &from, &to, 1);
        c.ok("edge", result);
    }
    let exec = instantiate(c, graph);
    for _ in 0..2 {
        c.ok("launch", cuGraphLaunch(exec, stream));
    }
    c.ok("wait", cuStreamSynchronize(stream));
    c.same("order", host::marks(), vec![1, 2, 3, 4, 1, 2, 3, 4]);
}

/// A launch executes between the work before and after it on its stream.
fn launches_are_stream_ordered(c: &Case) {
    primary(c);
    let (stream, graph) = (independent(c), graph(c));
    let fork = marker(c, graph, 2, &[]);
    empty(c, graph, &[fork]);
    empty(c, graph, &[fork]);
    let exec = instantiate(c, graph);
    let (gate, result) = host::Gate::close(stream);
    c.require("a gate", result);
    let before = cuLaunchHostFunc(stream, Some(host::mark), host::number(1));
    c.ok("before", before);
    c.ok("launch", cuGraphLaunch(exec, stream));
    let after = cuLaunchHostFunc(stream, Some(host::mark), host::number(3));
    c.ok("after", after);
    c.expect(
        "the launch is not complete",
        cuStreamQuery(stream),
        Code::NOT_READY,
    );
    c.same("nothing has executed", host::marks(), vec![]);
    gate.open();
    c.ok("wait", cuStreamSynchronize(stream));
    c.same("order", host::marks(), vec![1, 2, 3]);
}

/// A graph is launched on any stream, also the default ones.
fn streams_of_launches(c: &Case) {
    primary(c);
    let graph = graph(c);
    marker(c, graph, 1, &[]);
    let exec = instantiate(c, graph);
    for stream in [
        CUstream::NULL,
        CUstream::PER_THREAD,
        independent(c),
        stream(c, 0),
    ] {
        c.ok("launch", cuGraphLaunch(exec, stream));
        c.ok("upload", cuGraphUpload(exec, stream));
    }
    synchronize(c);
    c.same("calls", host::marks(), vec![1; 4]);
    c.invalid(
        "launch null",
        cuGraphLaunch(CUgraphExec::NULL, CUstream::NULL),
    );
}

/// A graph is launched in the context of its stream, whatever is current.
fn contexts_of_launches(c: &Case) {
    primary(c);
    let (stream, graph) = (independent(c), graph(c));
    marker(c, graph, 1, &[]);
    let exec = instantiate(c, graph);
    c.require("no context", cuCtxSetCurrent(CUcontext::NULL));
    c.ok("launch without a context", cuGraphLaunch(exec, stream));
    create(c);
    let launched = cuGraphLaunch(exec, stream);
    c.ok("launch while another context is current", launched);
    c.ok("wait", cuStreamSynchronize(stream));
    c.same("calls", host::marks(), vec![1; 2]);
}

/// An instance does not need its graph, nor a launch its instance.
fn an_instance_outlives_its_graph(c: &Case) {
    primary(c);
    let (stream, graph) = (independent(c), graph(c));
    marker(c, graph, 1, &[]);
    let exec = instantiate(c, graph);
    marker(c, graph, 2, &[]);
    c.ok("destroy the graph", cuGraphDestroy(graph));
    let (gate, result) = host::Gate::close(stream);
    c.require("a gate", result);
    c.ok("launch", cuGraphLaunch(exec, stream));
    c.ok("destroy the instance", cuGraphExecDestroy(exec));
    gate.open();
    c.ok("wait", cuStreamSynchronize(stream));
    c.same("what was instantiated", host::marks(), vec![1]);
}

/// Copies and fills can be disabled in an instance.
fn disabled_nodes(c: &Case) {
    primary(c);
    let (stream, graph) = (independent(c), graph(c));
    let memory = alloc(c, 64);
    write(c, memory, &[5; 64]);
    let filled = fill(c, graph, &fill_of(memory, 1, 32), &[]);
    let called = marker(c, graph, 1, &[filled]);
    let exec = instantiate(c, graph);
    let mut enabled = 99;
    c.ok("ask", cuGraphNodeGetEnabled(exec, filled, &mut enabled));
    c.same("enabled", enabled, 1);
    c.ok("disable", cuGraphNodeSetEnabled(exec, filled, 0));
    c.ok("ask", cuGraphNodeGetEnabled(exec, filled, &mut enabled));
    c.same("enabled", enabled, 0);
    run(c, exec, stream);
    c.same("not filled", read(c, memory, 2), vec![5, 5]);
    c.same("called", host::marks(), vec![1]);
    c.ok("enable by 2", cuGraphNodeSetEnabled(exec, filled, 2));
    c.ok("ask", cuGraphNodeGetEnabled(exec, filled, &mut enabled));
    c.same("enabled", enabled, 1);
    run(c, exec, stream);
    c.same("filled", read(c, memory, 2), vec![1, 1]);
    c.invalid(
        "disable a host function",
        cuGraphNodeSetEnabled(exec, called, 0),
    );
    let result = cuGraphNodeGetEnabled(exec, called, &mut enabled);
    c.invalid("ask a host function", result);
    let result = cuGraphNodeGetEnabled(exec, filled, std::ptr::null_mut());
    c.invalid("into null", result);
}

/// The parameters of an instance change without those of its graph.
fn other_parameters(c: &Case) {
    let context = primary(c);
    let (stream, graph) = (independent(c), graph(c));
    let (a, b, host) = (alloc(c, 64), alloc(c, 64), [8_u8; 64]);
    let first = copy_of(a, b, 64);
    write(c, b, &[3; 64]);
    let copied = copy(c, graph, &first, &[]);
    let filled = fill(c, graph, &fill_of(b, 1, 32), &[copied]);
    let called = marker(c, graph, 1, &[filled]);
    let exec = instantiate(c, graph);
    let other = copy_of(a, b + 32, 16);
    let result = cuGraphExecMemcpyNodeSetParams(exec, copied, &other, context);
    c.ok("another copy", result);
    let elements = CUDA_MEMSET_NODE_PARAMS {
        elementSize: 4,
        value: 0x0404_0404,
        ..fill_of(a + 32, 0, 8)
    };
    let result = cuGraphExecMemsetNodeSetParams(exec, filled, &elements, context);
    c.ok("another fill, of other elements", result);
    c.ok(
        "another function",
        cuGraphExecHostNodeSetParams(exec, called, &mark(2)),
    );
    run(c, exec, stream);
    c.same(
        "copied and filled",
        read(c, a, 64)[..16].to_vec(),
        vec![3; 16],
    );
    c.same("filled", read(c, a + 32, 32), vec![4; 32]);
    c.same("not filled", read(c, b, 1), vec![3]);
    c.same("called", host::marks(), vec![2]);
    let mut found = CUDA_MEMCPY3D::default();
    c.ok(
        "the graph's copy",
        cuGraphMemcpyNodeGetParams(copied, &mut found),
    );
    c.yes("as before", found == first);
    let upload = upload_of(a, host.as_ptr().cast(), 64);
    let result = cuGraphExecMemcpyNodeSetParams(exec, copied, &upload, context);
    c.invalid("from other kind of memory", result);
}

/// What cannot change: the kind of memory, the number of dimensions, the kind of the node.
fn parameters_that_stay(c: &Case) {
    let context = primary(c);
    let graph = graph(c);
    let (a, b) = (alloc(c, 4096), alloc(c, 4096));
    let host = pinned(c, 4096);
    let copied = copy(c, graph, &upload_of(a, host, 64), &[]);
    let filled = fill(c, graph, &fill_of(b, 1, 64), &[]);
    let called = marker(c, graph, 1, &[]);
    let exec = instantiate(c, graph);
    let set =
        |node, params: &CUDA_MEMCPY3D| cuGraphExecMemcpyNodeSetParams(exec, node, params, context);
    let pageable = [0_u8; 64];
    let upload = upload_of(a, pageable.as_ptr().cast(), 64);
    c.ok("from pageable memory", set(copied, &upload));
    c.ok("fewer bytes", set(copied, &upload_of(a, host, 32)));
    c.invalid("from device memory", set(copied, &copy_of(a, b, 64)));
    let rows = CUDA_MEMCPY3D {
        Height: 2,
        srcPitch: 64,
        dstPitch: 64,
        ..upload_of(a, host, 16)
    };
    c.invalid("two rows", set(copied, &rows));
    c.invalid("nowhere", set(copied, &upload_of(0x10, host, 16)));
    c.invalid("no bytes", set(copied, &upload_of(a, host, 0)));
    c.invalid("of a fill", set(filled, &upload_of(a, host, 64)));
    let rows = CUDA_MEMSET_NODE_PARAMS {
        height: 2,
        pitch: 64,
        ..fill_of(b, 1, 16)
    };
    let set = |params: &CUDA_MEMSET_NODE_PARAMS| {
        cuGraphExecMemsetNodeSetParams(exec, filled, params, context)
    };
    c.invalid("fill two rows", set(&rows));
    c.invalid("fill nowhere", set(&fill_of(0x10, 1, 16)));
    c.ok("fill other memory", set(&fill_of(a, 1, 64)));
    let none = CUDA_HOST_NODE_PARAMS::default();
    let result = cuGraphExecHostNodeSetParams(exec, called, &none);
    c.invalid("no function", result);
}

/// An instance takes the parameters of a graph with the same nodes and edges.
fn updates(c: &Case) {
    primary(c);
    let (stream, graph) = (independent(c), graph(c));
    let first = marker(c, graph, 1, &[]);
    let second = marker(c, graph, 2, &[first]);
    let exec = instantiate(c, graph);
    let (mut clone, mut node) = (CUgraph::NULL, CUgraphNode::NULL);
    c.require("clone", cuGraphClone(&mut clone, graph));
    c.require("find", cuGraphNodeFindInClone(&mut node, second, clone));
    c.ok("change the clone", cuGraphHostNodeSetParams(node, &mark(3)));
    let mut info = CUgraphExecUpdateResultInfo {
        result: 99,
        errorNode: CUgraphNode(1),
        errorFromNode: CUgraphNode(1),
    };
    c.ok("update", cuGraphExecUpdate_v2(exec, clone, &mut info));
    c.same("outcome", info.result, graph_exec_update_result::SUCCESS);
    c.yes(
        "no node",
        info.errorNode.is_null() && info.errorFromNode.is_null(),
    );
    run(c, exec, stream);
    c.same("called", host::marks(), vec![1, 3]);
    let null = std::ptr::null_mut();
    c.ok(
        "without the outcome",
        cuGraphExecUpdate_v2(exec, graph, null),
    );
    run(c, exec, stream);
    c.same("called", host::marks(), vec![1, 3, 1, 2]);
    let result = cuGraphExecUpdate_v2(exec, CUgraph::NULL, &mut info);
    c.invalid("from null", result);
}

/// Other nodes, edges, types or kinds of memory do not fit.
fn updates_that_fail(c: &Case) {
    primary(c);
    let graph = graph(c);
    let (a, b, host) = (alloc(c, 64), alloc(c, 64), pinned(c, 64));
    let copied = copy(c, graph, &upload_of(a, host, 64), &[]);
    let called = marker(c, graph, 1, &[copied]);
    let exec = instantiate(c, graph);
    let clone = || {
        let (mut clone, mut copied_in, mut called_in) = Default::default();
        c.require("clone", cuGraphClone(&mut clone, graph));
        c.require(
            "find",
            cuGraphNodeFindInClone(&mut copied_in, copied, clone),
        );
        c.require(
            "find",
            cuGraphNodeFindInClone(&mut called_in, called, clone),
        );
        (clone, copied_in, called_in)
    };
    let fails = |what: &str, other: CUgraph, want: u32| {
        let mut info = CUgraphExecUpdateResultInfo::default();
        let result = cuGraphExecUpdate_v2(exec, other, &mut info);
        c.expect(what, result, Code::GRAPH_EXEC_UPDATE_FAILURE);
        c.same(format_args!("{what}: outcome"), info.result, want);
        info.errorNode
    };
    let (other, _, _) = clone();
    empty(c, other, &[]);
    let node = fails(
        "one node more",
        other,
        graph_exec_update_result::ERROR_TOPOLOGY_CHANGED,
    );
    c.yes("names none", node.is_null());
    let (other, from, to) = clone();
    c.ok("remove", cuGraphRemoveDependencies(other, &from, &to, 1));
    fails(
        "one edge less",
        other,
        graph_exec_update_result::ERROR_TOPOLOGY_CHANGED,
    );
    let (other, from, to) = clone();
    c.ok("destroy", cuGraphDestroyNode(to));
    let replaced = empty(c, other, &[from]);
    let want = graph_exec_update_result::ERROR_NODE_TYPE_CHANGED;
    let node = fails("another type", other, want);
    c.yes("names the node", node == replaced);
    let (other, from, _) = clone();
    c.ok(
        "another copy",
        cuGraphMemcpyNodeSetParams(from, &copy_of(a, b, 64)),
    );
    let want = graph_exec_update_result::ERROR_PARAMETERS_CHANGED;
    let node = fails("another kind of memory", other, want);
    c.yes("names the node", node == from);
}
