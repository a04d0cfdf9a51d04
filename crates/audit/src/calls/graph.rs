//! Graphs, executable graphs, and the memory that they allocate. Graphs survive contexts.

use std::ffi::c_char;

use cuguard_registry::ResourceKind;
use cuguard_sys::*;

use super::{Address, Call, New, is_freed};
use crate::real::queries;
use crate::shortage;
use crate::state;
use crate::state::graphs::{self, Plan};
use crate::state::work;

/// How deep child graphs are looked through.
const MAX_NESTING: u32 = 16;

type Create = unsafe extern "C-unwind" fn(*mut CUgraph, u32) -> CUresult;

/// `cuGraphCreate`
pub(crate) unsafe fn create(call: &Call, real: Create, out: *mut CUgraph, flags: u32) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, flags) };
    // SAFETY: the driver wrote to it.
    unsafe { call.created(result, out, New::in_process(ResourceKind::Graph, 0)) }
}

type Clone = unsafe extern "C-unwind" fn(*mut CUgraph, CUgraph) -> CUresult;

/// `cuGraphClone`
pub(crate) unsafe fn clone(
    call: &Call,
    real: Clone,
    out: *mut CUgraph,
    original: CUgraph,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, original) };
    // SAFETY: the driver wrote to it.
    unsafe { call.created(result, out, New::in_process(ResourceKind::Graph, 0)) }
}

type Destroy = unsafe extern "C-unwind" fn(CUgraph) -> CUresult;

/// `cuGraphDestroy`
pub(crate) unsafe fn destroy(call: &Call, real: Destroy, graph: CUgraph) -> CUresult {
    // SAFETY: as the caller guarantees.
    call.freed(&[ResourceKind::Graph], graph, || unsafe { real(graph) })
}

/// `CUDA_CHILD_GRAPH_NODE_PARAMS`
#[repr(C)]
#[derive(Clone, Copy)]
struct ChildGraph {
    graph: CUgraph,
    ownership: u32,
}

/// `CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE`
const MOVE: u32 = 1;

/// After a node was added.
///
/// # Safety
///
/// `parameters` is null or what the driver read.
unsafe fn added_node(result: CUresult, parameters: *const CUgraphNodeParams) -> CUresult {
    if !result.is_success() || parameters.is_null() {
        return result;
    }
    // SAFETY: as the caller guarantees.
    match unsafe { (&raw const (*parameters).type_).read_unaligned() } {
        graph_node_type::MEM_ALLOC | graph_node_type::MEM_FREE => graphs::note_memory_node(),
        graph_node_type::GRAPH => {
            // SAFETY: the parameters of this type are in the union behind the reserved words.
            let child = unsafe {
                (&raw const (*parameters).reserved1)
                    .cast::<ChildGraph>()
                    .read_unaligned()
            };
            if child.ownership == MOVE {
                // Destroyed with the graph that it is part of now.
                state::forget(ResourceKind::Graph, child.graph.address());
            }
        }
        _ => {}
    }
    result
}

type AddNode = unsafe extern "C-unwind" fn(
    *mut CUgraphNode,
    CUgraph,
    *const CUgraphNode,
    usize,
    *mut CUgraphNodeParams,
) -> CUresult;

/// `cuGraphAddNode`
pub(crate) unsafe fn add_node(
    _: &Call,
    real: AddNode,
    out: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    parameters: *mut CUgraphNodeParams,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    unsafe {
        let result = real(out, graph, dependencies, count, parameters);
        added_node(result, parameters)
    }
}

type AddNodeV2 = unsafe extern "C-unwind" fn(
    *mut CUgraphNode,
    CUgraph,
    *const CUgraphNode,
    *const CUgraphEdgeData,
    usize,
    *mut CUgraphNodeParams,
) -> CUresult;

/// `cuGraphAddNode_v2` and `_v3`
pub(crate) unsafe fn add_node_v2(
    _: &Call,
    real: AddNodeV2,
    out: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
    parameters: *mut CUgraphNodeParams,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    unsafe {
        let result = real(out, graph, dependencies, edges, count, parameters);
        added_node(result, parameters)
    }
}

type AddAllocNode = unsafe extern "C-unwind" fn(
    *mut CUgraphNode,
    CUgraph,
    *const CUgraphNode,
    usize,
    *mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> CUresult;

/// `cuGraphAddMemAllocNode`
pub(crate) unsafe fn add_alloc_node(
    call: &Call,
    real: AddAllocNode,
    out: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    parameters: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, graph, dependencies, count, parameters) };
    if result.is_success() {
        graphs::note_memory_node();
        return result;
    }
    let bytes = match parameters.is_null() {
        true => 0,
        // SAFETY: the driver read it.
        false => unsafe { (&raw const (*parameters).bytesize).read_unaligned() as u64 },
    };
    call.refused(result, &New::in_process(ResourceKind::GraphMemory, bytes))
}

type AddFreeNode = unsafe extern "C-unwind" fn(
    *mut CUgraphNode,
    CUgraph,
    *const CUgraphNode,
    usize,
    CUdeviceptr,
) -> CUresult;

/// `cuGraphAddMemFreeNode`
pub(crate) unsafe fn add_free_node(
    _: &Call,
    real: AddFreeNode,
    out: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    address: CUdeviceptr,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, graph, dependencies, count, address) };
    if result.is_success() {
        graphs::note_memory_node();
    }
    result
}

/// Adds what the memory nodes of a graph allocate and free.
fn add_nodes(graph: CUgraph, plan: &mut Plan, nesting: u32) {
    let mut count = 0;
    // SAFETY: the number can be written to; the graph was just instantiated.
    let result = unsafe { queries::cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count) };
    if !result.is_success() {
        return;
    }
    let mut nodes = vec![CUgraphNode::NULL; count];
    // SAFETY: there is room for as many nodes.
    let result = unsafe { queries::cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count) };
    if !result.is_success() {
        return;
    }
    for node in nodes.into_iter().take(count) {
        let mut kind = 0;
        // SAFETY: a node of the graph; the type can be written to.
        if !unsafe { queries::cuGraphNodeGetType(node, &mut kind) }.is_success() {
            continue;
        }
        match kind {
            graph_node_type::MEM_ALLOC => {
                let mut parameters = CUDA_MEM_ALLOC_NODE_PARAMS::default();
                // SAFETY: a node of this type; the parameters can be written to.
                let result =
                    unsafe { queries::cuGraphMemAllocNodeGetParams(node, &mut parameters) };
                if result.is_success() {
                    let allocation = (parameters.dptr, parameters.bytesize as u64);
                    plan.allocations.push(allocation);
                }
            }
            graph_node_type::MEM_FREE => {
                let mut address = 0;
                // SAFETY: as above.
                let result = unsafe { queries::cuGraphMemFreeNodeGetParams(node, &mut address) };
                if result.is_success() {
                    plan.frees.push(address);
                }
            }
            graph_node_type::GRAPH if nesting < MAX_NESTING => {
                let mut child = CUgraph::NULL;
                // SAFETY: as above.
                let result = unsafe { queries::cuGraphChildGraphNodeGetGraph(node, &mut child) };
                if result.is_success() {
                    add_nodes(child, plan, nesting + 1);
                }
            }
            _ => {}
        }
    }
}

impl Call {
    /// After a call that instantiates a graph.
    ///
    /// # Safety
    ///
    /// `out` is null or what the driver wrote to.
    unsafe fn instantiated(
        &self,
        result: CUresult,
        out: *const CUgraphExec,
        graph: CUgraph,
    ) -> CUresult {
        if result.is_success() && !out.is_null() && graphs::any_memory_node() {
            let mut plan = Plan::default();
            add_nodes(graph, &mut plan, 0);
            // SAFETY: as the caller guarantees.
            graphs::instantiated(unsafe { out.read_unaligned() }.address(), plan);
        }
        // SAFETY: as above.
        unsafe { self.created(result, out, New::in_process(ResourceKind::GraphExec, 0)) }
    }
}

type Instantiate = unsafe extern "C-unwind" fn(
    *mut CUgraphExec,
    CUgraph,
    *mut CUgraphNode,
    *mut c_char,
    usize,
) -> CUresult;

/// `cuGraphInstantiate` and `_v2`
pub(crate) unsafe fn instantiate(
    call: &Call,
    real: Instantiate,
    out: *mut CUgraphExec,
    graph: CUgraph,
    error_node: *mut CUgraphNode,
    log: *mut c_char,
    log_size: usize,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, graph, error_node, log, log_size) };
    // SAFETY: the driver wrote to it.
    unsafe { call.instantiated(result, out, graph) }
}

type InstantiateWithFlags = unsafe extern "C-unwind" fn(*mut CUgraphExec, CUgraph, u64) -> CUresult;

/// `cuGraphInstantiateWithFlags`
pub(crate) unsafe fn instantiate_with_flags(
    call: &Call,
    real: InstantiateWithFlags,
    out: *mut CUgraphExec,
    graph: CUgraph,
    flags: u64,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, graph, flags) };
    // SAFETY: the driver wrote to it.
    unsafe { call.instantiated(result, out, graph) }
}

type InstantiateWithParams = unsafe extern "C-unwind" fn(
    *mut CUgraphExec,
    CUgraph,
    *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
) -> CUresult;

/// `cuGraphInstantiateWithParams`
pub(crate) unsafe fn instantiate_with_params(
    call: &Call,
    real: InstantiateWithParams,
    out: *mut CUgraphExec,
    graph: CUgraph,
    parameters: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, graph, parameters) };
    // SAFETY: the driver wrote to it.
    unsafe { call.instantiated(result, out, graph) }
}

type Launch = unsafe extern "C-unwind" fn(CUgraphExec, CUstream) -> CUresult;

/// `cuGraphLaunch`
pub(crate) unsafe fn launch(
    call: &Call,
    real: Launch,
    exec: CUgraphExec,
    stream: CUstream,
) -> CUresult {
    let plan = graphs::plan_of(exec.address());
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(exec, stream) };
    if result.is_success() {
        work::graph_launched();
    }
    if let Some(plan) = plan {
        if result.is_success() {
            graphs::launched(&plan, stream.address());
            if !plan.allocations.is_empty() {
                shortage::created(call.name(), ResourceKind::GraphMemory);
            }
        } else {
            let bytes = plan.allocations.iter().map(|(_, bytes)| bytes).sum();
            return call.refused(result, &New::in_process(ResourceKind::GraphMemory, bytes));
        }
    }
    result
}

type DestroyExec = unsafe extern "C-unwind" fn(CUgraphExec) -> CUresult;

/// `cuGraphExecDestroy`. Memory that it allocated and that is not freed stays allocated.
pub(crate) unsafe fn destroy_exec(call: &Call, real: DestroyExec, exec: CUgraphExec) -> CUresult {
    let plan = graphs::begin_destroy(exec.address());
    // SAFETY: as the caller guarantees.
    let result = call.freed(&[ResourceKind::GraphExec], exec, || unsafe { real(exec) });
    if !is_freed(result) {
        graphs::destroy_failed(exec.address(), plan);
    }
    result
}
