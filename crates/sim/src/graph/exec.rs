//! Instantiated graphs: the nodes in the order in which they are submitted.

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::ops::Range;

use cuguard_sys::memory_type;

use super::params::NodeParams;
use crate::handle::Id;
use crate::streams::StreamPosition;

/// A node of an instantiated graph. The nodes of a child graph stand before the node that owns it.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// The node of the graph that was instantiated.
    pub(crate) node: Id,
    pub(crate) params: NodeParams,
    /// The last memory range that existed when the parameters were set.
    pub(super) since: u64,
    /// The state of the page-locked memory that it copies, whose mapping the driver's graph has.
    pub(crate) mapping: Mapping,
    pub(crate) enabled: bool,
    /// The steps after which this one executes.
    pub(crate) after: Vec<usize>,
    /// How many steps before this one are those of its child graph.
    pub(super) inner: usize,
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

/// The state of the page-locked host memory that a step copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mapping {
    /// It is page-locked, or the step copies none.
    Valid,
    /// It was unregistered.
    Unregistered,
    /// Its context was destroyed.
    ContextDestroyed,
}

impl Step {
    /// `since` is the last memory range that exists.
    pub(crate) fn set_params(&mut self, params: NodeParams, since: u64) {
        self.params = params;
        self.since = since;
        self.mapping = Mapping::Valid;
    }

    /// Whether it copies memory at these addresses.
    pub(super) fn copies(&self, memory: &Range<u64>) -> bool {
        let NodeParams::Copy(copy) = &self.params else {
            return false;
        };
        let host = |address: *const c_void| address.addr() as u64;
        let from = match copy.srcMemoryType {
            memory_type::HOST => host(copy.srcHost),
            _ => copy.srcDevice,
        };
        let to = match copy.dstMemoryType {
            memory_type::HOST => host(copy.dstHost),
            _ => copy.dstDevice,
        };
        memory.contains(&from) || memory.contains(&to)
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
            own.set_params(new.params.clone(), new.since);
        }
        Ok(())
    }
}
