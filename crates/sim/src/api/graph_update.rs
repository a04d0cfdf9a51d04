//! Changes of instantiated graphs: parameters of nodes, and updates from a graph.

use cuguard_sys::{
    CUDA_HOST_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUevent, CUgraph,
    CUgraphExec, CUgraphExecUpdateResultInfo, CUgraphNode, CUresult,
    graph_exec_update_result as outcome, memory_type,
};

use super::graph::node_handle;
use super::graph_nodes::{
    check_node_context, copy_params, event_of_node, fill_params, host_params,
};
use super::{read, write_optional, write_out};
use crate::graph::{NodeParams, Step, UpdateFailure};
use crate::handle::Id;
use crate::result::{DriverResult, check, valid};
use crate::state::{DriverState, lock};

/// Whether memory is on the host, for a copy.
fn on_host(state: &DriverState, memory_type: u32, device: u64) -> bool {
    match memory_type {
        memory_type::HOST => true,
        memory_type::UNIFIED => state.map.find(device).is_none_or(|range| range.on_host()),
        _ => false,
    }
}

/// What the parameters of a copy must keep: whether each side is on the host or an array, and whether
/// it has one dimension.
fn copy_kind(state: &DriverState, copy: &CUDA_MEMCPY3D) -> [bool; 5] {
    let array = |memory_type| memory_type == memory_type::ARRAY;
    [
        on_host(state, copy.dstMemoryType, copy.dstDevice),
        on_host(state, copy.srcMemoryType, copy.srcDevice),
        array(copy.dstMemoryType),
        array(copy.srcMemoryType),
        copy.Height == 1 && copy.Depth == 1,
    ]
}

/// Whether parameters of an instantiated node may be replaced by others.
fn may_replace(state: &DriverState, old: &NodeParams, new: &NodeParams) -> bool {
    match (old, new) {
        (NodeParams::Copy(old), NodeParams::Copy(new)) => {
            copy_kind(state, old) == copy_kind(state, new)
        }
        (NodeParams::Fill(old), NodeParams::Fill(new)) => (old.height == 1) == (new.height == 1),
        // The address of an allocation belongs to its graph.
        (NodeParams::Allocate(old), NodeParams::Allocate(new)) => old.address == new.address,
        (NodeParams::Free(old), NodeParams::Free(new)) => old == new,
        _ => old.node_type() == new.node_type(),
    }
}

/// Replaces the parameters of a node of an instantiated graph.
pub(super) fn replace(
    exec: CUgraphExec,
    node: CUgraphNode,
    make: impl FnOnce(&mut DriverState) -> DriverResult<NodeParams>,
) -> DriverResult {
    let mut state = lock();
    let exec = state.exec(exec)?;
    let node = state.node(node)?;
    let new = make(&mut state)?;
    let found = state.graphs.execs.get_mut(&exec);
    let step = found.and_then(|exec| exec.step(node).map(|step| step.params.clone()));
    let old = step.ok_or(CUresult::INVALID_VALUE)?;
    valid(may_replace(&state, &old, &new))?;
    let since = state.last_range;
    let found = state.graphs.execs.get_mut(&exec);
    if let Some(step) = found.and_then(|exec| exec.step(node)) {
        step.set_params(new, since);
    }
    Ok(())
}

pub unsafe fn cuGraphExecMemcpyNodeSetParams(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: *const CUDA_MEMCPY3D,
    context: CUcontext,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let copy = unsafe { read(params) }?;
    replace(exec, node, |state| {
        check_node_context(state, context)?;
        copy_params(state, copy)
    })
}

pub unsafe fn cuGraphExecMemsetNodeSetParams(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: *const CUDA_MEMSET_NODE_PARAMS,
    context: CUcontext,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let fill = unsafe { read(params) }?;
    replace(exec, node, |state| {
        check_node_context(state, context)?;
        fill_params(state, fill)
    })
}

pub unsafe fn cuGraphExecHostNodeSetParams(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: *const CUDA_HOST_NODE_PARAMS,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let host = unsafe { read(params) }?;
    replace(exec, node, |_| host_params(host))
}

pub unsafe fn cuGraphExecEventRecordNodeSetEvent(
    exec: CUgraphExec,
    node: CUgraphNode,
    event: CUevent,
) -> DriverResult {
    replace(exec, node, |state| {
        event_of_node(state, event).map(NodeParams::Record)
    })
}

pub unsafe fn cuGraphExecEventWaitNodeSetEvent(
    exec: CUgraphExec,
    node: CUgraphNode,
    event: CUevent,
) -> DriverResult {
    replace(exec, node, |state| {
        event_of_node(state, event).map(NodeParams::Wait)
    })
}

/// A node that can be disabled.
fn with_switch<T>(
    exec: CUgraphExec,
    node: CUgraphNode,
    body: impl FnOnce(&mut Step) -> DriverResult<T>,
) -> DriverResult<T> {
    let mut state = lock();
    let exec = state.exec(exec)?;
    let node = state.node(node)?;
    let found = state.graphs.execs.get_mut(&exec);
    let step = found.and_then(|exec| exec.step(node));
    let step = step.filter(|step| step.params.can_be_disabled());
    body(step.ok_or(CUresult::INVALID_VALUE)?)
}

pub unsafe fn cuGraphNodeSetEnabled(
    exec: CUgraphExec,
    node: CUgraphNode,
    enabled: u32,
) -> DriverResult {
    with_switch(exec, node, |step| {
        step.enabled = enabled != 0;
        Ok(())
    })
}

pub unsafe fn cuGraphNodeGetEnabled(
    exec: CUgraphExec,
    node: CUgraphNode,
    out: *mut u32,
) -> DriverResult {
    let enabled = with_switch(exec, node, |step| Ok(step.enabled))?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, enabled.into()) }
}

/// Updates steps of an instantiated graph from a graph with the same topology.
fn update(
    state: &mut DriverState,
    exec: Id,
    steps: &[Step],
    within: Option<Id>,
) -> Result<(), UpdateFailure> {
    let Some(mut own) = state.graphs.execs.remove(&exec) else {
        return Err(UpdateFailure::Topology);
    };
    let updated = own.update(steps, within, |old, new| may_replace(state, old, new));
    state.graphs.execs.insert(exec, own);
    updated
}

pub unsafe fn cuGraphExecUpdate_v2(
    exec: CUgraphExec,
    graph: CUgraph,
    info: *mut CUgraphExecUpdateResultInfo,
) -> DriverResult {
    let mut state = lock();
    let exec = state.exec(exec)?;
    let graph = state.graph(graph)?;
    let steps = state.steps(graph).ok_or(CUresult::INVALID_VALUE)?;
    let updated = update(&mut state, exec, &steps, None);
    let (result, node) = match updated {
        Ok(()) => (outcome::SUCCESS, None),
        Err(UpdateFailure::Topology) => (outcome::ERROR_TOPOLOGY_CHANGED, None),
        Err(UpdateFailure::Type(node)) => (outcome::ERROR_NODE_TYPE_CHANGED, Some(node)),
        Err(UpdateFailure::Parameters(node)) => (outcome::ERROR_PARAMETERS_CHANGED, Some(node)),
    };
    let details = CUgraphExecUpdateResultInfo {
        result,
        errorNode: node.map_or(CUgraphNode::NULL, node_handle),
        errorFromNode: CUgraphNode::NULL,
    };
    // SAFETY: as the caller guarantees.
    unsafe { write_optional(info, details) };
    check(updated.is_ok(), CUresult::GRAPH_EXEC_UPDATE_FAILURE)?;
    replace_objects(&mut state, exec, graph)
}

/// An updated instance holds the references to user objects of the other graph.
fn replace_objects(state: &mut DriverState, exec: Id, graph: Id) -> DriverResult {
    let objects = state.graph_data(graph)?.objects.clone();
    for (object, count) in &objects {
        state.graphs.retain(*object, (*count).into());
    }
    if let Some(exec) = state.graphs.execs.get_mut(&exec) {
        let old = std::mem::replace(&mut exec.objects, objects);
        let last = exec.last.clone();
        state.release_objects(old, last);
    }
    Ok(())
}

/// As of CUDA 10.2.
pub unsafe fn cuGraphExecUpdate(
    exec: CUgraphExec,
    graph: CUgraph,
    node: *mut CUgraphNode,
    result: *mut u32,
) -> DriverResult {
    let mut info = CUgraphExecUpdateResultInfo::default();
    // SAFETY: as the caller guarantees.
    unsafe {
        let updated = cuGraphExecUpdate_v2(exec, graph, &raw mut info);
        write_optional(node, info.errorNode);
        write_optional(result, info.result);
        updated
    }
}

/// The graph must have the topology of the child graph that was instantiated.
pub unsafe fn cuGraphExecChildGraphNodeSetParams(
    exec: CUgraphExec,
    node: CUgraphNode,
    graph: CUgraph,
) -> DriverResult {
    let mut state = lock();
    let exec = state.exec(exec)?;
    let node = state.node(node)?;
    let graph = state.graph(graph)?;
    let is_child = matches!(state.node_params(node)?, NodeParams::Child(_));
    valid(is_child)?;
    let steps = state.steps(graph).ok_or(CUresult::INVALID_VALUE)?;
    let updated = update(&mut state, exec, &steps, Some(node));
    check(updated.is_ok(), CUresult::GRAPH_EXEC_UPDATE_FAILURE)
}
