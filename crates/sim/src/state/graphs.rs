//! Graphs, their nodes and instances by handle.

use cuguard_sys::{CUgraph, CUgraphExec, CUgraphNode, CUresult, CUuserObject};

use super::driver_state::DriverState;
use crate::graph::{Graph, Node, NodeParams, Step};
use crate::handle::{self, Id, Kind};
use crate::result::{DriverResult, valid};

impl DriverState {
    /// A real driver recognizes the handle of a destroyed graph; it is an error and no misuse.
    pub(crate) fn graph(&self, handle: CUgraph) -> DriverResult<Id> {
        let id = handle::decode(Kind::Graph, handle.0);
        let id = id.filter(|id| self.graphs.graphs.contains_key(id));
        id.ok_or(CUresult::INVALID_VALUE)
    }

    pub(crate) fn node(&self, handle: CUgraphNode) -> DriverResult<Id> {
        let is_live = |id| self.graphs.owners.contains_key(&id);
        self.live_id(Kind::GraphNode, handle.0, CUresult::INVALID_VALUE, is_live)
    }

    /// Likewise for an instantiated graph.
    pub(crate) fn exec(&self, handle: CUgraphExec) -> DriverResult<Id> {
        let id = handle::decode(Kind::GraphExec, handle.0);
        let id = id.filter(|id| self.graphs.execs.contains_key(id));
        id.ok_or(CUresult::INVALID_VALUE)
    }

    pub(crate) fn user_object(&self, handle: CUuserObject) -> DriverResult<Id> {
        let is_live = |id| self.graphs.objects.contains_key(&id);
        self.live_id(Kind::UserObject, handle.0, CUresult::INVALID_VALUE, is_live)
    }

    /// A graph that was looked up.
    pub(crate) fn graph_data(&self, id: Id) -> DriverResult<&Graph> {
        self.graphs.graphs.get(&id).ok_or(CUresult::INVALID_VALUE)
    }

    /// The steps of a graph and its child graphs; `None` if there is a cycle.
    pub(crate) fn steps(&self, graph: Id) -> Option<Vec<Step>> {
        self.graphs.steps(graph, self.last_range)
    }

    /// The node of a handle, which must be of one graph.
    pub(crate) fn node_of(&self, graph: Id, handle: CUgraphNode) -> DriverResult<Id> {
        let node = self.node(handle)?;
        valid(self.graphs.owners.get(&node) == Some(&graph))?;
        Ok(node)
    }

    /// A node that was looked up.
    pub(crate) fn node_data(&self, node: Id) -> DriverResult<&Node> {
        self.graphs.node(node).ok_or(CUresult::INVALID_VALUE)
    }

    /// The parameters of a node that was looked up.
    pub(crate) fn node_params(&self, node: Id) -> DriverResult<NodeParams> {
        let params = self.graphs.params(node).cloned();
        params.ok_or(CUresult::INVALID_VALUE)
    }

    /// Adds a node to a graph.
    pub(crate) fn add_node(&mut self, graph: Id, params: NodeParams, after: &[Id]) -> Id {
        self.graphs.add_node(&mut self.ids, graph, params, after)
    }
}
