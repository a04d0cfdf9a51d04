//! Graphs as drawings in the DOT language.

use std::collections::HashMap;
use std::ffi::{OsStr, c_char};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

use cuguard_sys::{CUgraph, CUresult, graph_node_type};

use super::module::name;
use crate::graph::{Graph, NodeParams};
use crate::handle::Id;
use crate::result::{DriverResult, valid};
use crate::state::{DriverState, lock};

/// The name of a type of node. Those of empty nodes and host functions are measured.
fn type_name(params: &NodeParams) -> &'static str {
    match params.node_type() {
        graph_node_type::KERNEL => "KERNEL",
        graph_node_type::MEMCPY => "MEMCPY",
        graph_node_type::MEMSET => "MEMSET",
        graph_node_type::HOST => "HOST",
        graph_node_type::GRAPH => "GRAPH",
        graph_node_type::EMPTY => "EMPTY",
        graph_node_type::WAIT_EVENT => "EVENT_WAIT",
        graph_node_type::EVENT_RECORD => "EVENT_RECORD",
        graph_node_type::MEM_ALLOC => "MEM_ALLOC",
        graph_node_type::MEM_FREE => "MEM_FREE",
        _ => "UNKNOWN",
    }
}

/// A graph, and behind it its child graphs.
fn draw(state: &DriverState, id: Id, graph: &Graph, to: &mut String) -> std::fmt::Result {
    let name = format!("graph_{id}");
    let numbers: HashMap<Id, usize> = graph.nodes.keys().copied().zip(0..).collect();
    writeln!(to, "subgraph cluster_{id} {{")?;
    writeln!(to, "label=\"{name}\" graph[style=\"dashed\"];")?;
    for (number, node) in graph.nodes.values().enumerate() {
        let kind = type_name(&node.params);
        writeln!(
            to,
            "\"{name}_node_{number}\"[style=\"solid\" shape=\"rectangle\" label=\"{number}\n{kind}\n\"];\n"
        )?;
    }
    for (number, node) in graph.nodes.values().enumerate() {
        for other in node
            .dependents
            .iter()
            .filter_map(|other| numbers.get(other))
        {
            writeln!(to, "\"{name}_node_{number}\" -> \"{name}_node_{other}\";")?;
        }
    }
    writeln!(to, "}}")?;
    for node in graph.nodes.values() {
        if let NodeParams::Child(child) = node.params
            && let Ok(graph) = state.graph_data(child)
        {
            draw(state, child, graph, to)?;
        }
    }
    Ok(())
}

/// Flags that ask for parameters of the nodes have no effect.
pub unsafe fn cuGraphDebugDotPrint(
    graph: CUgraph,
    path: *const c_char,
    _flags: u32,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let path = unsafe { name(path) }?;
    valid(!path.is_empty())?;
    let mut text = "digraph dot {\n".to_owned();
    {
        let state = lock();
        let id = state.graph(graph)?;
        // A string takes all that is written to it.
        let _ = draw(&state, id, state.graph_data(id)?, &mut text);
    }
    text.push_str("}\n\n");
    let written = std::fs::write(OsStr::from_bytes(path.to_bytes()), text);
    written.map_err(|_| CUresult::OPERATING_SYSTEM)
}
