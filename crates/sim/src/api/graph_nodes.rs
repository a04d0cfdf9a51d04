//! Nodes of graphs: how they are added, and their parameters.

use cuguard_sys::{
    CUDA_HOST_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUevent, CUgraph,
    CUgraphNode, CUresult,
};

use super::graph::{graph_handle, node_handle, read_nodes};
use super::{check_context, copy_sides, event, fill, read, write_out};
use crate::graph::{HostFunction, NodeParams};
use crate::handle::{self, Id, Kind};
use crate::result::{DriverResult, check, valid};
use crate::state::{DriverState, lock};

/// Where a node is added.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) out: *mut CUgraphNode,
    pub(super) graph: CUgraph,
    pub(super) after: *const CUgraphNode,
    pub(super) count: usize,
}

/// Adds a node whose parameters are checked by `make`.
///
/// # Safety
///
/// The pointers of the place are null or valid.
pub(super) unsafe fn add(
    place: Place,
    make: impl FnOnce(&mut DriverState, Id) -> DriverResult<NodeParams>,
) -> DriverResult {
    valid(!place.out.is_null())?;
    let mut state = lock();
    let graph = state.graph(place.graph)?;
    // SAFETY: as the caller guarantees.
    let after = unsafe { read_nodes(&state, graph, place.after, place.count) }?;
    let distinct = |(index, node): (usize, &Id)| !after[..index].contains(node);
    valid(after.iter().enumerate().all(distinct))?;
    let params = make(&mut state, graph)?;
    let node = state.add_node(graph, params, &after);
    // SAFETY: as the caller guarantees.
    unsafe { write_out(place.out, node_handle(node)) }
}

/// The parameters of a node, if it is of the kind that `select` accepts.
pub(super) fn get<T>(
    node: CUgraphNode,
    select: impl FnOnce(NodeParams) -> Option<T>,
) -> DriverResult<T> {
    let state = lock();
    let params = state.node_params(state.node(node)?)?;
    select(params).ok_or(CUresult::INVALID_VALUE)
}

/// Replaces the parameters of a node by others of the same kind.
pub(super) fn set(
    node: CUgraphNode,
    make: impl FnOnce(&mut DriverState) -> DriverResult<NodeParams>,
) -> DriverResult {
    let mut state = lock();
    let id = state.node(node)?;
    let params = make(&mut state)?;
    valid(state.node_params(id)?.node_type() == params.node_type())?;
    state.graphs.set_params(id, params);
    Ok(())
}

/// A copy that a node can have.
pub(super) fn copy_params(state: &DriverState, copy: CUDA_MEMCPY3D) -> DriverResult<NodeParams> {
    copy_sides::check_3d(state, &copy)?;
    Ok(NodeParams::Copy(copy))
}

/// A fill that a node can have.
pub(super) fn fill_params(
    state: &DriverState,
    fill: CUDA_MEMSET_NODE_PARAMS,
) -> DriverResult<NodeParams> {
    fill::check_node(state, &fill)?;
    Ok(NodeParams::Fill(fill))
}

/// A host function that a node can have.
pub(super) fn host_params(host: CUDA_HOST_NODE_PARAMS) -> DriverResult<NodeParams> {
    let function = host.fn_.ok_or(CUresult::INVALID_VALUE)?;
    let data = host.userData;
    Ok(NodeParams::Host(HostFunction { function, data }))
}

/// The context of a node; null is the current one. Copies and fills execute on the stream of the
/// launch, so it is only checked.
pub(super) fn check_node_context(state: &DriverState, context: CUcontext) -> DriverResult {
    match context.is_null() {
        true => state.current().map(drop),
        false => check_context(state, context),
    }
}

pub unsafe fn cuGraphAddEmptyNode(
    out: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
) -> DriverResult {
    let place = Place {
        out,
        graph,
        after,
        count,
    };
    // SAFETY: as the caller guarantees.
    unsafe { add(place, |_, _| Ok(NodeParams::Empty)) }
}

pub unsafe fn cuGraphAddMemcpyNode(
    out: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
    params: *const CUDA_MEMCPY3D,
    context: CUcontext,
) -> DriverResult {
    let place = Place {
        out,
        graph,
        after,
        count,
    };
    // SAFETY: as the caller guarantees.
    unsafe {
        let copy = read(params)?;
        add(place, |state, _| {
            check_node_context(state, context)?;
            copy_params(state, copy)
        })
    }
}

pub unsafe fn cuGraphMemcpyNodeGetParams(
    node: CUgraphNode,
    out: *mut CUDA_MEMCPY3D,
) -> DriverResult {
    let copy = get(node, |params| match params {
        NodeParams::Copy(copy) => Some(copy),
        _ => None,
    })?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, copy) }
}

pub unsafe fn cuGraphMemcpyNodeSetParams(
    node: CUgraphNode,
    params: *const CUDA_MEMCPY3D,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let copy = unsafe { read(params) }?;
    set(node, |state| copy_params(state, copy))
}

pub unsafe fn cuGraphAddMemsetNode(
    out: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
    params: *const CUDA_MEMSET_NODE_PARAMS,
    context: CUcontext,
) -> DriverResult {
    let place = Place {
        out,
        graph,
        after,
        count,
    };
    // SAFETY: as the caller guarantees.
    unsafe {
        let fill = read(params)?;
        add(place, |state, _| {
            check_node_context(state, context)?;
            // Measured: without a context, memory that a graph allocates is refused.
            valid(!context.is_null() || !state.is_graph_address(fill.dst, 1))?;
            fill_params(state, fill)
        })
    }
}

pub unsafe fn cuGraphMemsetNodeGetParams(
    node: CUgraphNode,
    out: *mut CUDA_MEMSET_NODE_PARAMS,
) -> DriverResult {
    let fill = get(node, |params| match params {
        NodeParams::Fill(fill) => Some(fill),
        _ => None,
    })?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, fill) }
}

pub unsafe fn cuGraphMemsetNodeSetParams(
    node: CUgraphNode,
    params: *const CUDA_MEMSET_NODE_PARAMS,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let fill = unsafe { read(params) }?;
    set(node, |state| fill_params(state, fill))
}

pub unsafe fn cuGraphAddHostNode(
    out: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
    params: *const CUDA_HOST_NODE_PARAMS,
) -> DriverResult {
    let place = Place {
        out,
        graph,
        after,
        count,
    };
    // SAFETY: as the caller guarantees.
    unsafe {
        let host = read(params)?;
        add(place, |_, _| host_params(host))
    }
}

pub unsafe fn cuGraphHostNodeGetParams(
    node: CUgraphNode,
    out: *mut CUDA_HOST_NODE_PARAMS,
) -> DriverResult {
    let host = get(node, |params| match params {
        NodeParams::Host(host) => Some(host.params()),
        _ => None,
    })?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, host) }
}

pub unsafe fn cuGraphHostNodeSetParams(
    node: CUgraphNode,
    params: *const CUDA_HOST_NODE_PARAMS,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let host = unsafe { read(params) }?;
    set(node, |_| host_params(host))
}

/// The node of a child graph, which is a clone.
pub(super) fn child_params(
    state: &mut DriverState,
    graph: Id,
    child: CUgraph,
) -> DriverResult<NodeParams> {
    let child = state.graph(child)?;
    valid(child != graph)?;
    check(
        !state.graphs.has_memory_nodes(child),
        CUresult::NOT_SUPPORTED,
    )?;
    // A limit of the simulation.
    valid(state.graphs.can_nest(child, graph))?;
    let clone = state.graphs.clone_graph(&mut state.ids, child);
    Ok(NodeParams::Child(clone))
}

pub unsafe fn cuGraphAddChildGraphNode(
    out: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
    child: CUgraph,
) -> DriverResult {
    let place = Place {
        out,
        graph,
        after,
        count,
    };
    // SAFETY: as the caller guarantees.
    unsafe { add(place, |state, graph| child_params(state, graph, child)) }
}

pub unsafe fn cuGraphChildGraphNodeGetGraph(node: CUgraphNode, out: *mut CUgraph) -> DriverResult {
    let child = get(node, |params| match params {
        NodeParams::Child(child) => Some(child),
        _ => None,
    })?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, graph_handle(child)) }
}

/// The event of a node.
pub(super) fn event_of_node(state: &DriverState, event: CUevent) -> DriverResult<Id> {
    valid(!event.is_null())?;
    event::find(state, event)
}

macro_rules! event_nodes {
    ($($kind:ident: $add:ident $get:ident $set:ident;)*) => {$(
        pub unsafe fn $add(
            out: *mut CUgraphNode,
            graph: CUgraph,
            after: *const CUgraphNode,
            count: usize,
            event: CUevent,
        ) -> DriverResult {
            let place = Place { out, graph, after, count };
            // SAFETY: as the caller guarantees.
            unsafe { add(place, |state, _| event_of_node(state, event).map(NodeParams::$kind)) }
        }

        pub unsafe fn $get(node: CUgraphNode, out: *mut CUevent) -> DriverResult {
            let event = get(node, |params| match params {
                NodeParams::$kind(event) => Some(event),
                _ => None,
            })?;
            // SAFETY: as the caller guarantees.
            unsafe { write_out(out, CUevent(handle::encode(Kind::Event, event))) }
        }

        pub unsafe fn $set(node: CUgraphNode, event: CUevent) -> DriverResult {
            set(node, |state| event_of_node(state, event).map(NodeParams::$kind))
        }
    )*};
}

event_nodes! {
    Record: cuGraphAddEventRecordNode cuGraphEventRecordNodeGetEvent cuGraphEventRecordNodeSetEvent;
    Wait: cuGraphAddEventWaitNode cuGraphEventWaitNodeGetEvent cuGraphEventWaitNodeSetEvent;
}
