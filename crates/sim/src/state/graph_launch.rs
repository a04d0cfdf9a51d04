//! How the nodes of a launched graph are distributed over streams.
//!
//! A launch starts and ends on the stream on which it is launched. Nodes that do not depend on each
//! other execute on different lanes: the first is the stream itself, the others are internal streams.
//!
//! ```text
//! stream   ──start──A──────C──end──▶
//! lane          └───B───────┴┘
//! ```

use cuguard_sys::{CUresult, flags};

use super::driver_state::DriverState;
use crate::handle::Id;
use crate::result::DriverResult;
use crate::streams::{Role, Stream, StreamPosition};

/// The maximum number of lanes. Nodes beyond share one, which orders them more than the graph does.
const MAX_LANES: usize = 32;

#[derive(Debug)]
struct Lane {
    stream: Id,
    /// The last step on it; none but the start on a new lane.
    last: Option<usize>,
}

/// A launch while its nodes are submitted.
#[derive(Debug)]
pub(crate) struct Launch {
    exec: Id,
    context: Id,
    start: StreamPosition,
    lanes: Vec<Lane>,
    /// The lane of each step that was submitted, and where it ends.
    steps: Vec<(usize, StreamPosition)>,
}

impl Launch {
    /// Begins the launch of an instantiated graph. Launches of the same one execute one after the other.
    pub(crate) fn begin(state: &mut DriverState, exec: Id, stream: Id) -> DriverResult<Self> {
        let found = state.graphs.execs.get(&exec);
        let last = found.ok_or(CUresult::INVALID_VALUE)?.last.clone();
        let number = state.submit(stream, last.as_ref(), None, None)?;
        Ok(Self {
            exec,
            context: state.streams[&stream].context,
            start: state.position(stream, number),
            lanes: vec![Lane { stream, last: None }],
            steps: Vec::new(),
        })
    }

    /// The stream for the next step, on which new work executes after the steps `after`.
    pub(crate) fn lane(&mut self, state: &mut DriverState, after: &[usize]) -> DriverResult<Id> {
        let continues = |lane: &Lane| match lane.last {
            Some(last) => after.contains(&last),
            None => after.is_empty(),
        };
        let found = self.lanes.iter().position(continues);
        let lane = match found {
            Some(lane) => lane,
            None if self.lanes.len() < MAX_LANES => {
                let stream = self.new_lane(state);
                state.submit(stream, Some(&self.start), None, None)?;
                self.lanes.push(Lane { stream, last: None });
                self.lanes.len() - 1
            }
            None => self.steps.len() % MAX_LANES,
        };
        let stream = self.lanes[lane].stream;
        for (other, position) in after.iter().filter_map(|step| self.steps.get(*step)) {
            if *other != lane {
                state.submit(stream, Some(position), None, None)?;
            }
        }
        self.lanes[lane].last = Some(self.steps.len());
        self.steps.push((lane, self.start.clone()));
        Ok(stream)
    }

    /// The step whose lane was requested last is submitted.
    pub(crate) fn submitted(&mut self, state: &DriverState) {
        if let Some((lane, position)) = self.steps.last_mut() {
            let stream = self.lanes[*lane].stream;
            *position = state.position(stream, state.last_work(stream));
        }
    }

    /// Ends the launch: the stream continues when all nodes have executed.
    pub(crate) fn end(self, state: &mut DriverState) -> DriverResult {
        let stream = self.start.stream;
        for lane in &self.lanes[1..] {
            let position = state.position(lane.stream, state.last_work(lane.stream));
            state.submit(stream, Some(&position), None, None)?;
        }
        let last = state.position(stream, state.last_work(stream));
        if let Some(exec) = state.graphs.execs.get_mut(&self.exec) {
            exec.last = Some(last);
        }
        Ok(())
    }

    /// An internal stream of the instantiated graph that this launch does not use yet.
    fn new_lane(&self, state: &mut DriverState) -> Id {
        let used = self.lanes.len() - 1;
        let exec = state.graphs.execs.get(&self.exec);
        let lanes = exec.and_then(|exec| exec.lanes.get(&self.context));
        let existing = lanes.and_then(|lanes| lanes.get(used)).copied();
        // The streams of a context that was destroyed meanwhile do not exist any more.
        if let Some(lane) = existing.filter(|lane| state.streams.contains_key(lane)) {
            return lane;
        }
        let lane = state.add_stream(Stream {
            context: self.context,
            flags: flags::STREAM_NON_BLOCKING,
            role: Role::Internal,
            ..Stream::default()
        });
        if let Some(exec) = state.graphs.execs.get_mut(&self.exec) {
            let lanes = exec.lanes.entry(self.context).or_default();
            lanes.truncate(used);
            lanes.push(lane);
        }
        lane
    }
}
