//! A graph: nodes, and edges from a node to those that execute after it.

use std::collections::{BTreeMap, BTreeSet};

use super::params::NodeParams;
use crate::handle::Id;

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) params: NodeParams,
    /// The node of which this one is a clone.
    pub(crate) origin: Option<Id>,
    /// In the order in which the edges were added.
    pub(crate) dependencies: Vec<Id>,
    pub(crate) dependents: Vec<Id>,
}

#[derive(Debug, Default)]
pub(crate) struct Graph {
    /// By id, which is also the order of creation.
    pub(crate) nodes: BTreeMap<Id, Node>,
    /// The child graph node that owns it.
    pub(crate) parent: Option<Id>,
    /// The references to user objects that it holds.
    pub(crate) objects: BTreeMap<Id, u32>,
    /// Whether memory nodes were instantiated: only one instance may exist at a time.
    pub(crate) instance: Option<Id>,
}

impl Graph {
    /// Adds a node after others of this graph.
    pub(crate) fn add(&mut self, id: Id, params: NodeParams, after: &[Id]) {
        self.insert(id, params, None);
        for from in after {
            self.add_edge(*from, id);
        }
    }

    pub(super) fn insert(&mut self, id: Id, params: NodeParams, origin: Option<Id>) {
        let node = Node {
            params,
            origin,
            dependencies: Vec::new(),
            dependents: Vec::new(),
        };
        self.nodes.insert(id, node);
    }

    pub(crate) fn has_edge(&self, from: Id, to: Id) -> bool {
        let from = self.nodes.get(&from);
        from.is_some_and(|node| node.dependents.contains(&to))
    }

    /// Adds an edge between two nodes, unless there is one, or one of them is not of this graph.
    pub(crate) fn add_edge(&mut self, from: Id, to: Id) {
        let exist = self.nodes.contains_key(&from) && self.nodes.contains_key(&to);
        if !exist || self.has_edge(from, to) {
            return;
        }
        if let Some(node) = self.nodes.get_mut(&from) {
            node.dependents.push(to);
        }
        if let Some(node) = self.nodes.get_mut(&to) {
            node.dependencies.push(from);
        }
    }

    pub(crate) fn remove_edge(&mut self, from: Id, to: Id) {
        if let Some(node) = self.nodes.get_mut(&from) {
            node.dependents.retain(|id| *id != to);
        }
        if let Some(node) = self.nodes.get_mut(&to) {
            node.dependencies.retain(|id| *id != from);
        }
    }

    /// Removes a node with its edges.
    pub(super) fn remove(&mut self, id: Id) -> Option<Node> {
        let node = self.nodes.remove(&id)?;
        for from in &node.dependencies {
            self.remove_edge(*from, id);
        }
        for to in &node.dependents {
            self.remove_edge(id, *to);
        }
        Some(node)
    }

    /// All edges, by the node from which they start.
    pub(crate) fn edges(&self) -> Vec<(Id, Id)> {
        let edges = self.nodes.iter().flat_map(|(from, node)| {
            let dependents = node.dependents.iter();
            dependents.map(|to| (*from, *to))
        });
        edges.collect()
    }

    /// The nodes that depend on no other. Like a real driver, the last one first.
    pub(crate) fn roots(&self) -> Vec<Id> {
        let roots = self.nodes.iter().rev();
        let roots = roots.filter(|(_, node)| node.dependencies.is_empty());
        roots.map(|(id, _)| *id).collect()
    }

    /// The nodes in an order in which they can execute: a node after its dependencies, and otherwise
    /// in the order of creation. `None` if there is a cycle.
    pub(crate) fn topological_order(&self) -> Option<Vec<Id>> {
        let mut missing: BTreeMap<Id, usize> = self
            .nodes
            .iter()
            .map(|(id, node)| (*id, node.dependencies.len()))
            .collect();
        let mut ready: BTreeSet<Id> = self.roots().into_iter().collect();
        let mut order = Vec::with_capacity(self.nodes.len());
        while let Some(id) = ready.pop_first() {
            order.push(id);
            for to in &self.nodes[&id].dependents {
                if let Some(count) = missing.get_mut(to) {
                    *count -= 1;
                    if *count == 0 {
                        ready.insert(*to);
                    }
                }
            }
        }
        (order.len() == self.nodes.len()).then_some(order)
    }

    /// A node of a cycle, if there is one.
    pub(crate) fn node_of_cycle(&self) -> Option<Id> {
        // From node to node against the edges, which ends only at a root: in a cycle it does not.
        for start in self.nodes.keys() {
            let mut visited = BTreeSet::from([*start]);
            let mut next = vec![*start];
            while let Some(id) = next.pop() {
                for from in self
                    .nodes
                    .get(&id)
                    .into_iter()
                    .flat_map(|n| &n.dependencies)
                {
                    if from == start {
                        return Some(*start);
                    }
                    if visited.insert(*from) {
                        next.push(*from);
                    }
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diamond() -> Graph {
        let mut graph = Graph::default();
        graph.add(4, NodeParams::Empty, &[]);
        graph.add(2, NodeParams::Empty, &[4]);
        graph.add(3, NodeParams::Empty, &[4, 4]);
        graph.add(1, NodeParams::Empty, &[3, 2]);
        graph
    }

    #[test]
    fn nodes_execute_after_their_dependencies() {
        let mut graph = diamond();
        assert_eq!(graph.roots(), [4]);
        assert_eq!(graph.edges(), [(2, 1), (3, 1), (4, 2), (4, 3)]);
        assert_eq!(graph.topological_order(), Some(vec![4, 2, 3, 1]));
        graph.add_edge(1, 3);
        assert_eq!(graph.topological_order(), None);
        assert_eq!(graph.node_of_cycle(), Some(1));
        graph.remove_edge(1, 3);
        assert_eq!(graph.node_of_cycle(), None);
        assert!(graph.topological_order().is_some());
    }

    #[test]
    fn a_node_is_removed_with_its_edges() {
        let mut graph = diamond();
        graph.remove(3);
        assert_eq!(graph.edges(), [(2, 1), (4, 2)]);
        assert_eq!(graph.nodes[&1].dependencies, [2]);
        assert_eq!(graph.nodes[&4].dependents, [2]);
    }
}
