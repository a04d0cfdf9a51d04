//! Nodes of any kind: `cuGraphAddNode` and the functions that set parameters of any kind.

use cuguard_sys::{
    CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY3D,
    CUDA_MEMSET_NODE_PARAMS, CUcontext, CUdeviceptr, CUevent, CUgraph, CUgraphEdgeData,
    CUgraphExec, CUgraphNode, CUgraphNodeParams, CUresult, graph_node_type as kind,
};

use super::graph::check_edge_data;
use super::graph_kernels::kernel_params;
use super::graph_memory::{allocate_params, free_params};
use super::graph_nodes::{
    Place, add, check_node_context, child_params, copy_params, event_of_node, fill_params,
    host_params, set,
};
use super::graph_update::replace;
use super::read;
use crate::graph::NodeParams;
use crate::handle::Id;
use crate::result::{DriverResult, valid};
use crate::state::DriverState;
use crate::trace::not_simulated;

/// The parameters of a copy.
#[repr(C)]
#[derive(Clone, Copy)]
struct CopyNode {
    flags: i32,
    reserved: i32,
    context: CUcontext,
    copy: CUDA_MEMCPY3D,
}

/// The parameters of a fill.
#[repr(C)]
#[derive(Clone, Copy)]
struct FillNode {
    fill: CUDA_MEMSET_NODE_PARAMS,
    context: CUcontext,
}

/// The parameters of one kind of node.
///
/// # Safety
///
/// The union of the parameters holds a `T`.
unsafe fn variant<T: Copy>(params: &CUgraphNodeParams) -> T {
    const { assert!(size_of::<T>() <= size_of::<[i64; 29]>()) };
    // SAFETY: the union is large enough, by the assertion, and holds a `T`.
    unsafe { (&raw const params.reserved1).cast::<T>().read_unaligned() }
}

/// The parameters of nodes that exist already can be replaced by these.
///
/// # Safety
///
/// The union holds the parameters of the type.
unsafe fn replaceable(state: &DriverState, params: &CUgraphNodeParams) -> DriverResult<NodeParams> {
    // SAFETY: as the caller guarantees.
    unsafe {
        match params.type_ {
            kind::MEMCPY => {
                let node: CopyNode = variant(params);
                valid(node.flags == 0 && node.reserved == 0)?;
                check_node_context(state, node.context)?;
                copy_params(state, node.copy)
            }
            kind::MEMSET => {
                let node: FillNode = variant(params);
                check_node_context(state, node.context)?;
                fill_params(state, node.fill)
            }
            kind::HOST => host_params(variant::<CUDA_HOST_NODE_PARAMS>(params)),
            kind::EVENT_RECORD => {
                event_of_node(state, variant::<CUevent>(params)).map(NodeParams::Record)
            }
            kind::WAIT_EVENT => {
                event_of_node(state, variant::<CUevent>(params)).map(NodeParams::Wait)
            }
            _ => Err(CUresult::INVALID_VALUE),
        }
    }
}

/// The parameters of a new node.
///
/// # Safety
///
/// As for [`replaceable`].
unsafe fn new(
    state: &mut DriverState,
    graph: Id,
    params: &CUgraphNodeParams,
) -> DriverResult<NodeParams> {
    // SAFETY: as the caller guarantees.
    unsafe {
        match params.type_ {
            kind::EMPTY => Ok(NodeParams::Empty),
            kind::GRAPH => child_params(state, graph, variant::<CUgraph>(params)),
            kind::MEM_ALLOC => {
                let node: CUDA_MEM_ALLOC_NODE_PARAMS = variant(params);
                allocate_params(state, node.poolProps, node.bytesize)
            }
            kind::MEM_FREE => free_params(state, graph, variant::<CUdeviceptr>(params)),
            kind::KERNEL => kernel_params(state, variant::<CUDA_KERNEL_NODE_PARAMS>(params)),
            kind::EXT_SEMAS_SIGNAL
            | kind::EXT_SEMAS_WAIT
            | kind::BATCH_MEM_OP
            | kind::CONDITIONAL => Err(not_simulated()),
            _ => replaceable(state, params),
        }
    }
}

/// Parameters that replace those of a node.
///
/// # Safety
///
/// As for [`replaceable`].
unsafe fn any(state: &mut DriverState, params: &CUgraphNodeParams) -> DriverResult<NodeParams> {
    // SAFETY: as the caller guarantees.
    unsafe {
        match params.type_ {
            kind::KERNEL => kernel_params(state, variant::<CUDA_KERNEL_NODE_PARAMS>(params)),
            _ => replaceable(state, params),
        }
    }
}

pub unsafe fn cuGraphAddNode_v2(
    out: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
    params: *mut CUgraphNodeParams,
) -> DriverResult {
    let place = Place {
        out,
        graph,
        after,
        count,
    };
    let mut address = None;
    // SAFETY: as the caller guarantees.
    unsafe {
        let found = read(params)?;
        valid(found.reserved0 == [0; 3] && found.reserved2 == 0)?;
        check_edge_data(data, count)?;
        add(place, |state, graph| {
            let made = new(state, graph, &found)?;
            if let NodeParams::Allocate(allocation) = &made {
                address = Some(allocation.address);
            }
            Ok(made)
        })?;
        if let Some(address) = address {
            let node = (&raw mut (*params).reserved1).cast::<CUDA_MEM_ALLOC_NODE_PARAMS>();
            (&raw mut (*node).dptr).write_unaligned(address);
        }
    }
    Ok(())
}

pub unsafe fn cuGraphAddNode(
    out: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
    params: *mut CUgraphNodeParams,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe { cuGraphAddNode_v2(out, graph, after, std::ptr::null(), count, params) }
}

pub unsafe fn cuGraphNodeSetParams(
    node: CUgraphNode,
    params: *mut CUgraphNodeParams,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe {
        let found = read(params)?;
        set(node, |state| any(state, &found))
    }
}

pub unsafe fn cuGraphExecNodeSetParams(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: *mut CUgraphNodeParams,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe {
        let found = read(params)?;
        replace(exec, node, |state| any(state, &found))
    }
}
