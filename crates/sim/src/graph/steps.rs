//! The steps of a graph and of its child graphs, in the order in which they are submitted.

use std::collections::HashMap;
use std::ops::Range;

use super::exec::{Mapping, Step};
use super::nodes::Graph;
use super::params::NodeParams;
use super::table::GraphTable;
use crate::handle::Id;

impl GraphTable {
    /// Page-locked memory ended: a range of this number at these addresses.
    pub(crate) fn note_end_of_mapping(&mut self, id: u64, memory: &Range<u64>, end: Mapping) {
        let execs = self.execs.values_mut();
        for step in execs.flat_map(|exec| &mut exec.steps) {
            if id <= step.since && step.copies(memory) {
                step.mapping = step.mapping.max(end);
            }
        }
    }

    /// The steps of a graph and its child graphs; `None` if there is a cycle. `since` is the last memory range that exists.
    pub(crate) fn steps(&self, graph: Id, since: u64) -> Option<Vec<Step>> {
        let mut steps = Vec::new();
        self.append(self.graphs.get(&graph)?, &[], since, &mut steps)?;
        Some(steps)
    }

    /// Appends the steps of a graph that executes after the steps `after`. Returns the last ones.
    fn append(
        &self,
        graph: &Graph,
        after: &[usize],
        since: u64,
        steps: &mut Vec<Step>,
    ) -> Option<Vec<usize>> {
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
                before = self.append(child, &before, since, steps)?;
            }
            before.sort_unstable();
            position.insert(id, steps.len());
            if node.dependents.is_empty() {
                last.push(steps.len());
            }
            steps.push(Step {
                node: id,
                params: node.params.clone(),
                since,
                mapping: Mapping::Valid,
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
