//! All graphs, instantiated graphs and user objects.

use std::collections::{BTreeMap, HashMap};

use super::exec::Exec;
use super::nodes::{Graph, Node};
use super::params::{HostFunction, NodeParams};
use super::user_object::UserObject;
use crate::handle::{Id, IdAllocator, Kind};

#[derive(Debug, Default)]
pub(crate) struct GraphTable {
    pub(crate) graphs: HashMap<Id, Graph>,
    /// Node → its graph.
    pub(crate) owners: HashMap<Id, Id>,
    pub(crate) execs: HashMap<Id, Exec>,
    pub(crate) objects: HashMap<Id, UserObject>,
    /// References to user objects that are released when launches complete.
    pub(crate) releases: HashMap<Id, BTreeMap<Id, u32>>,
}

impl GraphTable {
    /// The graph of a node, which must be live.
    pub(crate) fn graph_of(&mut self, node: Id) -> Option<&mut Graph> {
        let graph = self.owners.get(&node)?;
        self.graphs.get_mut(graph)
    }

    pub(crate) fn node(&self, node: Id) -> Option<&Node> {
        let graph = self.owners.get(&node)?;
        self.graphs.get(graph)?.nodes.get(&node)
    }

    pub(crate) fn params(&self, node: Id) -> Option<&NodeParams> {
        self.node(node).map(|node| &node.params)
    }

    pub(crate) fn set_params(&mut self, node: Id, params: NodeParams) {
        let found = self.graph_of(node).and_then(|own| own.nodes.get_mut(&node));
        if let Some(node) = found {
            node.params = params;
        }
    }

    pub(crate) fn create(&mut self, ids: &mut IdAllocator) -> Id {
        let id = ids.next(Kind::Graph);
        self.graphs.insert(id, Graph::default());
        id
    }

    /// Adds a node to a live graph. A child graph becomes the node's.
    pub(crate) fn add_node(
        &mut self,
        ids: &mut IdAllocator,
        graph: Id,
        params: NodeParams,
        after: &[Id],
    ) -> Id {
        let id = ids.next(Kind::GraphNode);
        if let NodeParams::Child(child) = params
            && let Some(child) = self.graphs.get_mut(&child)
        {
            child.parent = Some(id);
        }
        if let Some(graph) = self.graphs.get_mut(&graph) {
            graph.add(id, params, after);
        }
        self.owners.insert(id, graph);
        id
    }

    /// Clones a graph with its child graphs. The clone references the same user objects.
    pub(crate) fn clone_graph(&mut self, ids: &mut IdAllocator, source: Id) -> Id {
        let id = ids.next(Kind::Graph);
        let mut clone = Graph::default();
        let Some(original) = self.graphs.get(&source) else {
            return id;
        };
        let nodes: Vec<_> = original
            .nodes
            .iter()
            .map(|(id, n)| (*id, n.params.clone()))
            .collect();
        let edges: Vec<_> = original
            .nodes
            .iter()
            .flat_map(|(to, node)| node.dependencies.iter().map(|from| (*from, *to)))
            .collect();
        clone.objects.clone_from(&original.objects);
        for (object, count) in &clone.objects {
            if let Some(object) = self.objects.get_mut(object) {
                object.references = object.references.saturating_add(u64::from(*count));
            }
        }
        let mut copies = HashMap::new();
        for (node, params) in nodes {
            let copy = ids.next(Kind::GraphNode);
            copies.insert(node, copy);
            self.owners.insert(copy, id);
            let params = match params {
                NodeParams::Child(child) => {
                    let child = self.clone_graph(ids, child);
                    if let Some(child) = self.graphs.get_mut(&child) {
                        child.parent = Some(copy);
                    }
                    NodeParams::Child(child)
                }
                other => other,
            };
            clone.insert(copy, params, Some(node));
        }
        for (from, to) in edges {
            if let (Some(from), Some(to)) = (copies.get(&from), copies.get(&to)) {
                clone.add_edge(*from, *to);
            }
        }
        self.graphs.insert(id, clone);
        id
    }

    /// Removes a node, with a child graph that it owns. Returns what is to be called because the last
    /// reference to a user object is released.
    pub(crate) fn remove_node(&mut self, node: Id) -> Vec<HostFunction> {
        let removed = self.graph_of(node).and_then(|graph| graph.remove(node));
        self.owners.remove(&node);
        match removed.map(|node| node.params) {
            Some(NodeParams::Child(child)) => self.remove_graph(child),
            _ => Vec::new(),
        }
    }

    /// Removes a graph with its child graphs, as [`remove_node`](Self::remove_node) does.
    pub(crate) fn remove_graph(&mut self, graph: Id) -> Vec<HostFunction> {
        let Some(graph) = self.graphs.remove(&graph) else {
            return Vec::new();
        };
        let mut destroyed = Vec::new();
        for (id, node) in graph.nodes {
            self.owners.remove(&id);
            if let NodeParams::Child(child) = node.params {
                destroyed.extend(self.remove_graph(child));
            }
        }
        for (object, count) in graph.objects {
            destroyed.extend(self.release(object, u64::from(count)));
        }
        destroyed
    }

    pub(crate) fn retain(&mut self, object: Id, count: u64) {
        if let Some(object) = self.objects.get_mut(&object) {
            object.references = object.references.saturating_add(count);
        }
    }

    /// Releases references to a user object. Returns what is to be called if these are the last.
    pub(crate) fn release(&mut self, object: Id, count: u64) -> Option<HostFunction> {
        let found = self.objects.get_mut(&object)?;
        found.references = found.references.saturating_sub(count);
        if found.references > 0 {
            return None;
        }
        self.objects.remove(&object).map(|object| object.destroy)
    }
}
