//! Kernel nodes of graphs, which run, or are checked and skipped, as launches are.

use std::cell::Cell;
use std::ffi::c_void;

use crate::common::*;
use cuguard_sim::{Config, Misuse, configure, misuses};
use cuguard_sys::*;

const PTX: &[u8] = b".version 6.4
.target sm_52
.address_size 64
.visible .entry store(.param .u64 to, .param .u32 value) {
    .reg .b64 %to; .reg .b32 %value;
    ld.param.u64 %to, [to]; ld.param.u32 %value, [value]; st.global.u32 [%to], %value; ret;
}
\0";

fn function() -> CUfunction {
    let (mut module, mut function) = (CUmodule::NULL, CUfunction::NULL);
    ok(cu::cuModuleLoadData(&mut module, PTX.as_ptr().cast()));
    let name = c"store".as_ptr();
    ok(cu::cuModuleGetFunction(&mut function, module, name));
    function
}

/// A launch of one thread.
fn params(function: CUfunction, arguments: &mut [*mut c_void]) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func: function,
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        kernelParams: arguments.as_mut_ptr(),
        ..Default::default()
    }
}

/// The second argument of a node.
fn value(node: CUgraphNode) -> u32 {
    let mut found = CUDA_KERNEL_NODE_PARAMS::default();
    ok(cu::cuGraphKernelNodeGetParams_v2(node, &mut found));
    // SAFETY: the node has two arguments, of which the second is a u32, and nothing changes it.
    unsafe {
        found
            .kernelParams
            .add(1)
            .read()
            .cast::<u32>()
            .read_unaligned()
    }
}

fn nodes(graph: CUgraph) -> Vec<CUgraphNode> {
    let (mut nodes, mut count) = ([CUgraphNode::NULL; 8], 8);
    ok(cu::cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count));
    nodes[..count].to_vec()
}

#[test]
fn kernels_are_nodes_with_a_copy_of_their_arguments() {
    configure(Config::new().skip_kernels(true).misuse(Misuse::Error)).unwrap();
    context();
    let (function, stream) = (function(), stream());
    let (mut memory, number) = (alloc(64), Cell::new(5_u32));
    let mut arguments = [(&raw mut memory).cast(), number.as_ptr().cast()];
    let launch = |grid, arguments: *mut *mut c_void| {
        let none = std::ptr::null_mut();
        cu::cuLaunchKernel(function, grid, 1, 1, 1, 1, 1, 0, stream, arguments, none)
    };
    let invalid = CUresult::INVALID_VALUE;

    // A captured launch.
    ok(cu::cuStreamBeginCapture_v2(stream, 0));
    ok(launch(1, arguments.as_mut_ptr()));
    assert_eq!(launch(1, std::ptr::null_mut()), invalid);
    assert_eq!(launch(0, arguments.as_mut_ptr()), invalid);
    let mut graph = CUgraph::NULL;
    ok(cu::cuStreamEndCapture(stream, &mut graph));
    number.set(6);
    let captured = nodes(graph);
    assert_eq!(captured.len(), 1);
    assert_eq!(value(captured[0]), 5);
    let mut kind = 99;
    ok(cu::cuGraphNodeGetType(captured[0], &mut kind));
    assert_eq!(kind, graph_node_type::KERNEL);

    // A node of the program.
    let mut node = CUgraphNode::NULL;
    let given = params(function, &mut arguments);
    let (after, count) = (captured.as_ptr(), captured.len());
    ok(cu::cuGraphAddKernelNode_v2(
        &mut node, graph, after, count, &given,
    ));
    assert_eq!(value(node), 6);
    number.set(7);
    let given = params(function, &mut arguments);
    ok(cu::cuGraphKernelNodeSetParams_v2(node, &given));
    assert_eq!(value(node), 7);
    let empty = CUDA_KERNEL_NODE_PARAMS {
        gridDimX: 0,
        ..given
    };
    assert_eq!(cu::cuGraphKernelNodeSetParams_v2(node, &empty), invalid);
    assert_eq!(value(node), 7);

    // An instance.
    let mut exec = CUgraphExec::NULL;
    ok(cu::cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    ok(cu::cuGraphLaunch(exec, stream));
    ok(cu::cuGraphNodeSetEnabled(exec, captured[0], 0));
    ok(cu::cuGraphExecKernelNodeSetParams_v2(exec, node, &given));
    ok(cu::cuGraphLaunch(exec, stream));
    ok(cu::cuStreamSynchronize(stream));
    assert!(misuses().is_empty(), "{:?}", misuses());

    // Memory that was freed since.
    ok(cu::cuMemFree_v2(memory));
    assert_eq!(cu::cuGraphLaunch(exec, stream), invalid);
    let found = misuses();
    assert_eq!(found.len(), 1);
    assert!(
        found[0].contains("argument 1 of the kernel store"),
        "{found:?}"
    );
}

#[test]
fn kernel_nodes_run_in_their_order() {
    if !is_child() {
        return lives("kernel_nodes_run_in_their_order");
    }
    context();
    let (function, stream) = (function(), stream());
    let (mut memory, mut number) = (alloc(64), 5_u32);
    let mut arguments = [(&raw mut memory).cast(), (&raw mut number).cast()];
    let given = params(function, &mut arguments);
    let mut graph = CUgraph::NULL;
    ok(cu::cuGraphCreate(&mut graph, 0));
    let (mut first, mut second) = (CUgraphNode::NULL, CUgraphNode::NULL);
    ok(cu::cuGraphAddKernelNode_v2(
        &mut first,
        graph,
        std::ptr::null(),
        0,
        &given,
    ));
    number = 6;
    let mut arguments = [(&raw mut memory).cast(), (&raw mut number).cast()];
    let given = params(function, &mut arguments);
    ok(cu::cuGraphAddKernelNode_v2(
        &mut second,
        graph,
        &first,
        1,
        &given,
    ));
    let mut exec = CUgraphExec::NULL;
    ok(cu::cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    let read = || {
        let mut found = 0_u32;
        let to = (&raw mut found).cast();
        ok(cu::cuGraphLaunch(exec, stream));
        ok(cu::cuMemcpyDtoHAsync_v2(to, memory, 4, stream));
        ok(cu::cuStreamSynchronize(stream));
        found
    };
    assert_eq!(read(), 6);
    ok(cu::cuGraphNodeSetEnabled(exec, second, 0));
    assert_eq!(read(), 5);
    ok(cu::cuGraphExecDestroy(exec));
    ok(cu::cuGraphDestroy(graph));
}
