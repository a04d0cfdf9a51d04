//! Instantiated graphs: the nodes in the order in which they are submitted.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use cuguard_sys::memory_type;

use super::nodes::Graph;
use super::params::NodeParams;
use super::table::GraphTable;
use crate::handle::Id;
use crate::streams::StreamPosition;

/// A node of an instantiated graph. The nodes of a child graph stand before the node that owns it.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// The node of the graph that was instantiated.
    pub(crate) node: Id,
    pub(crate) params: NodeParams,
    /// Host memory of its copy was unregistered since the parameters were set. The driver has the mapping of that memory.
    pub(crate) unregistered: bool,
    pub(crate) enabled: bool,
    /// The steps after which this one executes.
    pub(crate) after: Vec<usize>,
    /// How many steps before this one are those of its child graph.
    inner: usize,
}

#[derive(Debug)]
pub(crate) struct Exec {
    pub(crate) flags: u64,
    pub(crate) steps: Vec<Step>,
    /// The references to user objects that it holds.
    pub(crate) objects: BTreeMap<Id, u32>,
    /// The graph of which this is an instance.
    pub(crate) graph: Id,
    /// Where the last launch ends: the next one starts after it.
    pub(crate) last: Option<StreamPosition>,
    /// Context → internal streams for nodes that do not depend on each other.
    pub(crate) lanes: HashMap<Id, Vec<Id>>,
}

/// Why an instantiated graph cannot be updated from another graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpdateFailure {
    /// Other nodes or edges.
    Topology,
    /// A node of the other graph has another type than its counterpart.
    Type(Id),
    /// The parameters of a node of the other graph cannot replace those of its counterpart.
    Parameters(Id),
}

impl Step {
    pub(crate) fn set_params(&mut self, params: NodeParams) {
        self.params = params;
        self.unregistered = false;
    }
}

impl Exec {
    pub(crate) fn step(&mut self, node: Id) -> Option<&mut Step> {
        self.steps.iter_mut().find(|step| step.node == node)
    }

    /// Replaces the parameters by those of other steps, if both have the same topology and
    /// `may_replace` permits it for each pair of parameters: of all steps, or of the child graph of a
    /// node.
    pub(crate) fn update(
        &mut self,
        from: &[Step],
        child: Option<Id>,
        may_replace: impl Fn(&NodeParams, &NodeParams) -> bool,
    ) -> Result<(), UpdateFailure> {
        let (start, end) = match child {
            None => (0, self.steps.len()),
            Some(node) => {
                let end = self.steps.iter().position(|step| step.node == node);
                let end = end.ok_or(UpdateFailure::Topology)?;
                (end - self.steps[end].inner, end)
            }
        };
        let own = &mut self.steps[start..end];
        if own.len() != from.len() {
            return Err(UpdateFailure::Topology);
        }
        for (own, new) in own.iter().zip(from) {
            // Steps before a child graph are none of its own.
            let within = own.after.iter().filter_map(|step| step.checked_sub(start));
            if !within.eq(new.after.iter().copied()) {
                return Err(UpdateFailure::Topology);
            }
            if own.params.node_type() != new.params.node_type() {
                return Err(UpdateFailure::Type(new.node));
            }
            if !may_replace(&own.params, &new.params) {
                return Err(UpdateFailure::Parameters(new.node));
            }
        }
        for (own, new) in own.iter_mut().zip(from) {
            own.set_params(new.params.clone());
        }
        Ok(())
    }
}

impl GraphTable {
    /// Host memory was unregistered.
    pub(crate) fn note_unregistered(&mut self, memory: &Range<u64>) {
        let execs = self.execs.values_mut();
        for step in execs.flat_map(|exec| &mut exec.steps) {
            if let NodeParams::Copy(copy) = &step.params {
                let operands = [
                    (
                        copy.srcMemoryType,
                        copy.srcHost.addr() as u64,
                        copy.srcDevice,
                    ),
                    (
                        copy.dstMemoryType,
                        copy.dstHost.addr() as u64,
                        copy.dstDevice,
                    ),
                ];
                step.unregistered |= operands.into_iter().any(|operand| match operand {
                    (memory_type::HOST, host, _) => memory.contains(&host),
                    (_, _, device) => memory.contains(&device),
                });
            }
        }
    }

    /// The steps of a graph and its child graphs; `None` if there is a cycle.
    pub(crate) fn steps(&self, graph: Id) -> Option<Vec<Step>> {
        let mut steps = Vec::new();
        self.append(self.graphs.get(&graph)?, &[], &mut steps)?;
        Some(steps)
    }

    /// Appends the steps of a graph that executes after the steps `after`. Returns the last ones.
    fn append(&self, graph: &Graph, after: &[usize], steps: &mut Vec<Step>) -> Option<Vec<usize>> {
        let mut position = HashMap::new();
        let mut last = Vec::new();
        for id in graph.topological_order()? {
            let node = &graph.nodes[&id];
            let mut before: Vec<usize> = node
                .dependencies
                .iter()
                .filter_map(|from| position.get(from).copied())
                .collect();
            if before.is_empty() {
                before = after.to_vec();
            }
            let start = steps.len();
            if let NodeParams::Child(child) = node.params
                && let Some(child) = self.graphs.get(&child)
            {
                before = self.append(child, &before, steps)?;
            }
            before.sort_unstable();
            position.insert(id, steps.len());
            if node.dependents.is_empty() {
                last.push(steps.len());
            }
            steps.push(Step {
                node: id,
                params: node.params.clone(),
                unregistered: false,
                enabled: true,
                after: before,
                inner: steps.len() - start,
            });
        }
        Some(match last.is_empty() {
            true => after.to_vec(),
            false => last,
        })
    }
}
