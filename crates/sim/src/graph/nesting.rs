//! Graphs that are nested: a child graph belongs to a node of another graph.

use super::nodes::Graph;
use super::params::NodeParams;
use super::table::GraphTable;
use crate::handle::Id;

/// How deep child graphs can be nested. Functions that call themselves for each child graph must not
/// overflow the stack.
const MAX_DEPTH: usize = 128;

impl GraphTable {
    /// The graphs in which a graph is nested, from itself to the outermost.
    pub(crate) fn enclosing(&self, graph: Id) -> impl Iterator<Item = Id> {
        std::iter::successors(Some(graph), |graph| {
            let parent = self.graphs.get(graph)?.parent?;
            self.owners.get(&parent).copied()
        })
    }

    /// The graphs that are nested in a graph, with the depth of each, from itself at 0.
    pub(crate) fn nested(&self, graph: Id) -> Vec<(usize, &Graph)> {
        let mut found = Vec::new();
        let mut next = vec![(0, graph)];
        while let Some((depth, id)) = next.pop() {
            let Some(graph) = self.graphs.get(&id) else {
                continue;
            };
            let children = graph.nodes.values().filter_map(|node| match node.params {
                NodeParams::Child(child) => Some((depth + 1, child)),
                _ => None,
            });
            next.extend(children);
            found.push((depth, graph));
        }
        found
    }

    /// Whether a graph can become a child of another without being nested too deep.
    pub(crate) fn can_nest(&self, child: Id, graph: Id) -> bool {
        let nested = self.nested(child);
        let height = nested.iter().map(|(depth, _)| depth).max();
        height.is_none_or(|height| self.enclosing(graph).count() + height <= MAX_DEPTH)
    }

    /// Whether a graph, or a child graph of it, allocates or frees memory.
    pub(crate) fn has_memory_nodes(&self, graph: Id) -> bool {
        let nested = self.nested(graph);
        let mut nodes = nested.iter().flat_map(|(_, graph)| graph.nodes.values());
        nodes.any(|node| node.params.is_memory())
    }

    /// The addresses at which a graph and its child graphs allocate.
    pub(crate) fn addresses(&self, graph: Id) -> Vec<u64> {
        let nested = self.nested(graph);
        let nodes = nested.iter().flat_map(|(_, graph)| graph.nodes.values());
        let addresses = nodes.filter_map(|node| node.params.allocates_at());
        addresses.collect()
    }
}
