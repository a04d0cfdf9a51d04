//! Captures: streams whose work becomes nodes of a graph instead of being executed.

use std::collections::{BTreeMap, HashMap};

use cuguard_sys::{CUgraphEdgeData, CUgraphNode};

use crate::handle::Id;

/// A capture, from its begin to its end.
#[derive(Debug)]
pub(crate) struct Capture {
    pub(crate) graph: Id,
    /// Whether the program created the graph.
    pub(crate) into_existing: bool,
    /// The stream on which it began.
    pub(crate) origin: Id,
    /// `CUstreamCaptureMode`
    pub(crate) mode: u32,
    /// The thread that began it.
    pub(crate) thread: u64,
    pub(crate) invalidated: bool,
    /// Each stream that takes part, with the nodes on which its next work depends.
    pub(crate) streams: BTreeMap<Id, Vec<Id>>,
}

/// What an event that was recorded on a capturing stream stands for.
#[derive(Clone, Debug)]
pub(crate) struct CapturedPosition {
    pub(crate) capture: u64,
    pub(crate) nodes: Vec<Id>,
}

#[derive(Debug, Default)]
pub(crate) struct CaptureTable {
    /// By number, in the order of their begin.
    pub(crate) captures: BTreeMap<u64, Capture>,
    pub(crate) last: u64,
    /// Stream → capture.
    pub(crate) of_stream: HashMap<Id, u64>,
    /// Events whose last record was captured.
    pub(crate) events: HashMap<Id, CapturedPosition>,
    /// The dependencies that a query returned, by stream. The program has a pointer to them.
    lists: HashMap<Id, DependencyList>,
}

/// Nodes, and the data of the edges that start from them.
#[derive(Debug, Default)]
pub(crate) struct DependencyList {
    pub(crate) nodes: Vec<CUgraphNode>,
    pub(crate) edges: Vec<CUgraphEdgeData>,
}

impl CaptureTable {
    /// Keeps the dependencies of a stream, until the next query or the end of the capture.
    pub(crate) fn keep_list(&mut self, stream: Id, nodes: Vec<CUgraphNode>) -> &DependencyList {
        let edges = vec![CUgraphEdgeData::default(); nodes.len()];
        let list = self.lists.entry(stream).or_default();
        *list = DependencyList { nodes, edges };
        list
    }

    /// A node is destroyed: nothing that is captured from now on depends on it.
    pub(crate) fn forget_node(&mut self, node: Id) {
        let captures = self.captures.values_mut();
        let of_streams = captures.flat_map(|capture| capture.streams.values_mut());
        let of_events = self.events.values_mut().map(|position| &mut position.nodes);
        for nodes in of_streams.chain(of_events) {
            nodes.retain(|id| *id != node);
        }
    }

    /// Removes a capture from its streams.
    pub(crate) fn remove(&mut self, number: u64) -> Option<Capture> {
        let capture = self.captures.remove(&number)?;
        for stream in capture.streams.keys() {
            self.of_stream.remove(stream);
            self.lists.remove(stream);
        }
        Some(capture)
    }
}
