//! Graphs: creation, clones, nodes and edges.

use cuguard_sys::{CUgraph, CUgraphEdgeData, CUgraphNode, CUresult};

use super::{read, write_optional, write_out};
use crate::graph::NodeParams;
use crate::handle::{self, Id, Kind};
use crate::result::{DriverResult, check, valid};
use crate::state::{DriverState, lock};

pub(super) fn graph_handle(id: Id) -> CUgraph {
    CUgraph(handle::encode(Kind::Graph, id))
}

pub(super) fn node_handle(id: Id) -> CUgraphNode {
    CUgraphNode(handle::encode(Kind::GraphNode, id))
}

pub unsafe fn cuGraphCreate(out: *mut CUgraph, flags: u32) -> DriverResult {
    valid(!out.is_null() && flags == 0)?;
    let mut state = lock();
    let state = &mut *state;
    let id = state.graphs.create(&mut state.ids);
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, graph_handle(id)) }
}

/// Instances of the graph, and launches of them, are not affected.
pub unsafe fn cuGraphDestroy(graph: CUgraph) -> DriverResult {
    let mut state = lock();
    let id = state.graph(graph)?;
    // A child graph belongs to its node.
    valid(state.graph_data(id)?.parent.is_none())?;
    check(!state.is_captured(id), CUresult::ILLEGAL_STATE)?;
    state.release_graph_memory(id);
    let destroyed = state.graphs.remove_graph(id);
    state.destroyed_objects.extend(destroyed);
    Ok(())
}

pub unsafe fn cuGraphClone(out: *mut CUgraph, original: CUgraph) -> DriverResult {
    valid(!out.is_null())?;
    let mut state = lock();
    let state = &mut *state;
    let original = state.graph(original)?;
    check(
        !state.graphs.has_memory_nodes(original),
        CUresult::NOT_SUPPORTED,
    )?;
    let id = state.graphs.clone_graph(&mut state.ids, original);
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, graph_handle(id)) }
}

pub unsafe fn cuGraphNodeFindInClone(
    out: *mut CUgraphNode,
    original: CUgraphNode,
    clone: CUgraph,
) -> DriverResult {
    valid(!out.is_null())?;
    // SAFETY: as the caller guarantees.
    unsafe { write_optional(out, CUgraphNode::NULL) };
    let state = lock();
    let original = state.node(original)?;
    let clone = state.graph_data(state.graph(clone)?)?;
    let mut nodes = clone.nodes.iter();
    let found = nodes.find(|(_, node)| node.origin == Some(original));
    let (id, _) = found.ok_or(CUresult::INVALID_VALUE)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, node_handle(*id)) }
}

/// Writes handles to an array of `*count`. Null only counts them. What the array has beyond them is
/// set to null.
///
/// # Safety
///
/// `count` is null or valid, and `out` is null or valid for `*count` writes.
unsafe fn write_nodes(out: *mut CUgraphNode, count: *mut usize, nodes: &[Id]) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let room = unsafe { read(count) }?;
    if out.is_null() {
        // SAFETY: as the caller guarantees.
        return unsafe { write_out(count, nodes.len()) };
    }
    for index in 0..room {
        let node = nodes
            .get(index)
            .map_or(CUgraphNode::NULL, |id| node_handle(*id));
        // SAFETY: within the array.
        unsafe { out.add(index).write_unaligned(node) };
    }
    // SAFETY: as the caller guarantees.
    unsafe { write_out(count, room.min(nodes.len())) }
}

pub unsafe fn cuGraphGetNodes(
    graph: CUgraph,
    out: *mut CUgraphNode,
    count: *mut usize,
) -> DriverResult {
    let state = lock();
    let graph = state.graph_data(state.graph(graph)?)?;
    let nodes: Vec<_> = graph.nodes.keys().copied().collect();
    // SAFETY: as the caller guarantees.
    unsafe { write_nodes(out, count, &nodes) }
}

pub unsafe fn cuGraphGetRootNodes(
    graph: CUgraph,
    out: *mut CUgraphNode,
    count: *mut usize,
) -> DriverResult {
    let state = lock();
    let roots = state.graph_data(state.graph(graph)?)?.roots();
    // SAFETY: as the caller guarantees.
    unsafe { write_nodes(out, count, &roots) }
}

/// Writes the data of edges, which have none: no node has ports. Only if the nodes were written, too:
/// otherwise `*count` is the number of edges, and not what the caller has room for.
///
/// # Safety
///
/// `count` is null or valid. If neither `nodes` nor `data` is null, `data` is valid for `*count` writes.
unsafe fn write_edge_data(
    data: *mut CUgraphEdgeData,
    nodes: *const CUgraphNode,
    count: *const usize,
) -> DriverResult {
    if nodes.is_null() || data.is_null() {
        return Ok(());
    }
    // SAFETY: as the caller guarantees.
    for index in 0..unsafe { read(count) }? {
        // SAFETY: within the array.
        unsafe { data.add(index).write_unaligned(CUgraphEdgeData::default()) };
    }
    Ok(())
}

pub unsafe fn cuGraphGetEdges(
    graph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    count: *mut usize,
) -> DriverResult {
    let state = lock();
    let edges = state.graph_data(state.graph(graph)?)?.edges();
    let (starts, ends): (Vec<_>, Vec<_>) = edges.into_iter().unzip();
    valid(from.is_null() == to.is_null())?;
    // SAFETY: as the caller guarantees.
    let mut room = unsafe { read(count) }?;
    // SAFETY: as the caller guarantees; both arrays have the same length.
    unsafe {
        write_nodes(from, &raw mut room, &starts)?;
        write_nodes(to, count, &ends)
    }
}

pub unsafe fn cuGraphGetEdges_v2(
    graph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: *mut usize,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe {
        cuGraphGetEdges(graph, from, to, count)?;
        write_edge_data(data, from, count)
    }
}

pub unsafe fn cuGraphNodeGetDependencies(
    node: CUgraphNode,
    out: *mut CUgraphNode,
    count: *mut usize,
) -> DriverResult {
    let state = lock();
    let found = state.node_data(state.node(node)?)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_nodes(out, count, &found.dependencies) }
}

pub unsafe fn cuGraphNodeGetDependencies_v2(
    node: CUgraphNode,
    out: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: *mut usize,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe {
        cuGraphNodeGetDependencies(node, out, count)?;
        write_edge_data(data, out, count)
    }
}

pub unsafe fn cuGraphNodeGetDependentNodes(
    node: CUgraphNode,
    out: *mut CUgraphNode,
    count: *mut usize,
) -> DriverResult {
    let state = lock();
    let found = state.node_data(state.node(node)?)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_nodes(out, count, &found.dependents) }
}

pub unsafe fn cuGraphNodeGetDependentNodes_v2(
    node: CUgraphNode,
    out: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: *mut usize,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe {
        cuGraphNodeGetDependentNodes(node, out, count)?;
        write_edge_data(data, out, count)
    }
}

pub unsafe fn cuGraphNodeGetType(node: CUgraphNode, out: *mut u32) -> DriverResult {
    let state = lock();
    let params = state.node_params(state.node(node)?)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, params.node_type()) }
}

/// The nodes of an array of handles, all of which must be of one graph. Reads no further than to the
/// first that is not, whatever the caller's count is.
///
/// # Safety
///
/// `nodes` is null or valid for `count` reads.
pub(super) unsafe fn read_nodes(
    state: &DriverState,
    graph: Id,
    nodes: *const CUgraphNode,
    count: usize,
) -> DriverResult<Vec<Id>> {
    valid(count == 0 || !nodes.is_null())?;
    let mut found = Vec::new();
    for index in 0..count {
        // SAFETY: as the caller guarantees.
        let handle = unsafe { nodes.wrapping_add(index).read_unaligned() };
        found.push(state.node_of(graph, handle)?);
    }
    Ok(found)
}

/// Fails unless edges have no data: only kernel nodes have ports.
///
/// # Safety
///
/// `data` is null or valid for `count` reads.
pub(super) unsafe fn check_edge_data(data: *const CUgraphEdgeData, count: usize) -> DriverResult {
    if data.is_null() {
        return Ok(());
    }
    for index in 0..count {
        // SAFETY: as the caller guarantees.
        let edge = unsafe { data.add(index).read_unaligned() };
        valid(edge == CUgraphEdgeData::default())?;
    }
    Ok(())
}

/// The edges of arrays of handles: all nodes must be of the graph.
///
/// # Safety
///
/// `from` and `to` are null or valid for `count` reads.
unsafe fn read_edges(
    state: &DriverState,
    graph: Id,
    (from, to): (*const CUgraphNode, *const CUgraphNode),
    count: usize,
) -> DriverResult<Vec<(Id, Id)>> {
    // SAFETY: as the caller guarantees.
    let (from, to) = unsafe {
        let from = read_nodes(state, graph, from, count)?;
        (from, read_nodes(state, graph, to, count)?)
    };
    Ok(from.into_iter().zip(to).collect())
}

pub unsafe fn cuGraphAddDependencies(
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    count: usize,
) -> DriverResult {
    let mut state = lock();
    let id = state.graph(graph)?;
    // SAFETY: as the caller guarantees.
    let edges = unsafe { read_edges(&state, id, (from, to), count) }?;
    let Some(graph) = state.graphs.graphs.get_mut(&id) else {
        return Err(CUresult::INVALID_VALUE);
    };
    // Like a real driver, adds the edges before one that cannot be added.
    for (from, to) in edges {
        valid(from != to && !graph.has_edge(from, to))?;
        graph.add_edge(from, to);
    }
    Ok(())
}

pub unsafe fn cuGraphAddDependencies_v2(
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe {
        check_edge_data(data, count)?;
        cuGraphAddDependencies(graph, from, to, count)
    }
}

pub unsafe fn cuGraphRemoveDependencies(
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    count: usize,
) -> DriverResult {
    let mut state = lock();
    let id = state.graph(graph)?;
    // SAFETY: as the caller guarantees.
    let edges = unsafe { read_edges(&state, id, (from, to), count) }?;
    let memory = |node: &Id| {
        state
            .graphs
            .params(*node)
            .is_some_and(NodeParams::is_memory)
    };
    let of_memory = edges.iter().any(|(from, to)| memory(from) || memory(to));
    check(!of_memory, CUresult::NOT_SUPPORTED)?;
    let Some(graph) = state.graphs.graphs.get_mut(&id) else {
        return Err(CUresult::INVALID_VALUE);
    };
    valid(edges.iter().all(|(from, to)| graph.has_edge(*from, *to)))?;
    for (from, to) in edges {
        graph.remove_edge(from, to);
    }
    Ok(())
}

pub unsafe fn cuGraphRemoveDependencies_v2(
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe {
        check_edge_data(data, count)?;
        cuGraphRemoveDependencies(graph, from, to, count)
    }
}

pub unsafe fn cuGraphDestroyNode(node: CUgraphNode) -> DriverResult {
    let mut state = lock();
    let id = state.node(node)?;
    let params = state.node_params(id)?;
    // Measured for nodes of the graph itself; what child graphs allocate does not count here.
    let mut nodes = state
        .graphs
        .graph_of(id)
        .into_iter()
        .flat_map(|own| own.nodes.values());
    let has_memory = nodes.any(|node| node.params.is_memory());
    check(!has_memory, CUresult::NOT_SUPPORTED)?;
    if let NodeParams::Child(child) = params {
        check(!state.is_captured(child), CUresult::ILLEGAL_STATE)?;
        state.release_graph_memory(child);
    }
    state.captures.forget_node(id);
    let destroyed = state.graphs.remove_node(id);
    state.destroyed_objects.extend(destroyed);
    Ok(())
}
