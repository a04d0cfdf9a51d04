//! Stream capture: work on a capturing stream becomes nodes of a graph.
//!
//! A capture begins on one stream, its origin. Another stream joins it when it waits for an event that
//! was recorded on a capturing stream, and must be joined by the origin, in the same way, before the
//! capture ends.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use cuguard_sys::{CUresult, stream_capture_mode as mode};

use super::driver_state::DriverState;
use crate::graph::{Capture, CapturedPosition, NodeParams};
use crate::handle::Id;
use crate::result::{DriverResult, check};
use crate::streams::{Role, Stream};
use crate::thread_state;

/// How many captures there are, for calls that must not take the lock in vain.
static CAPTURES: AtomicUsize = AtomicUsize::new(0);

/// Whether any stream is capturing.
pub(crate) fn any_capture() -> bool {
    CAPTURES.load(Ordering::Acquire) > 0
}

impl DriverState {
    pub(crate) fn is_capturing(&self, stream: Id) -> bool {
        self.captures.of_stream.contains_key(&stream)
    }

    /// The number of the capture in which a stream takes part, and the capture.
    pub(crate) fn capture_of(&self, stream: Id) -> Option<(u64, &Capture)> {
        let number = *self.captures.of_stream.get(&stream)?;
        Some((number, self.captures.captures.get(&number)?))
    }

    fn capture_mut(&mut self, stream: Id) -> Option<&mut Capture> {
        let number = self.captures.of_stream.get(&stream)?;
        self.captures.captures.get_mut(number)
    }

    /// A capture that is not invalidated.
    fn active_capture(&mut self, stream: Id) -> DriverResult<&mut Capture> {
        let capture = self.capture_mut(stream);
        let capture = capture.ok_or(CUresult::ILLEGAL_STATE)?;
        match capture.invalidated {
            true => Err(CUresult::STREAM_CAPTURE_INVALIDATED),
            false => Ok(capture),
        }
    }

    /// Whether a graph, or a child graph of it, is being captured.
    pub(crate) fn is_captured(&self, graph: Id) -> bool {
        let mut captures = self.captures.captures.values();
        captures.any(|capture| {
            let mut enclosing = self.graphs.enclosing(capture.graph);
            enclosing.any(|id| id == graph)
        })
    }

    /// Whether a graph is the program's only when its capture has ended.
    pub(crate) fn is_new_capture(&self, graph: Id) -> bool {
        let mut captures = self.captures.captures.values();
        captures.any(|capture| capture.graph == graph && !capture.into_existing)
    }

    pub(crate) fn begin_capture(
        &mut self,
        stream: Id,
        mode: u32,
        into: Option<(Id, Vec<Id>)>,
    ) -> DriverResult {
        check(!self.is_capturing(stream), CUresult::ILLEGAL_STATE)?;
        let into_existing = into.is_some();
        if let Some((graph, _)) = &into {
            // A capture that fails destroys its graph, which must not contain that of another.
            let outermost = self.graphs.enclosing(*graph).last();
            let captured = outermost.is_some_and(|outermost| self.is_captured(outermost));
            check(!captured, CUresult::ILLEGAL_STATE)?;
        }
        let (graph, after) = match into {
            Some(into) => into,
            None => (self.graphs.create(&mut self.ids), Vec::new()),
        };
        self.captures.last += 1;
        let number = self.captures.last;
        let capture = Capture {
            graph,
            into_existing,
            origin: stream,
            mode,
            thread: thread_state::thread_number(),
            invalidated: false,
            streams: [(stream, after)].into(),
        };
        self.captures.captures.insert(number, capture);
        self.captures.of_stream.insert(stream, number);
        CAPTURES.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Adds a node to the graph that a stream captures, after what the stream has captured so far.
    pub(crate) fn capture(&mut self, stream: Id, params: NodeParams) -> DriverResult {
        let capture = self.active_capture(stream)?;
        let graph = capture.graph;
        let after = capture.streams.get(&stream).cloned().unwrap_or_default();
        let node = self.add_node(graph, params, &after);
        self.set_capture_dependencies(stream, vec![node]);
        Ok(())
    }

    /// Sets the nodes on which the next work of a capturing stream depends.
    pub(crate) fn set_capture_dependencies(&mut self, stream: Id, nodes: Vec<Id>) {
        if let Some(capture) = self.capture_mut(stream) {
            capture.streams.insert(stream, nodes);
        }
    }

    /// The nodes on which the next work of a capturing stream depends.
    pub(crate) fn capture_dependencies(&self, stream: Id) -> Vec<Id> {
        let capture = self.capture_of(stream);
        let nodes = capture.and_then(|(_, capture)| capture.streams.get(&stream));
        nodes.cloned().unwrap_or_default()
    }

    /// Something was called that a capturing stream does not permit.
    pub(crate) fn invalidate_capture(&mut self, stream: Id) {
        if let Some(capture) = self.capture_mut(stream) {
            capture.invalidated = true;
        }
    }

    /// Fails, and invalidates the capture, if a stream is capturing.
    pub(crate) fn check_not_capturing(&mut self, stream: Id) -> DriverResult {
        self.invalidate_capture(stream);
        check(
            !self.is_capturing(stream),
            CUresult::STREAM_CAPTURE_UNSUPPORTED,
        )
    }

    /// Fails, and invalidates their captures, if streams are capturing with which new work on the
    /// legacy default stream would synchronize.
    pub(crate) fn check_implicit(&mut self, stream: Id) -> DriverResult {
        let implicit = self.implicit_captures(stream);
        for number in &implicit {
            if let Some(capture) = self.captures.captures.get_mut(number) {
                capture.invalidated = true;
            }
        }
        check(implicit.is_empty(), CUresult::STREAM_CAPTURE_IMPLICIT)
    }

    /// The captures with streams with which new work on the legacy default stream would synchronize.
    pub(crate) fn implicit_captures(&self, stream: Id) -> Vec<u64> {
        let legacy = self.streams.get(&stream);
        let legacy = legacy.filter(|own| own.role == Role::Legacy);
        let Some(own) = legacy.filter(|_| !self.captures.captures.is_empty()) else {
            return Vec::new();
        };
        let synchronizes = |id: &Id| {
            let other = self.streams.get(id);
            let other = other.filter(|other| other.context == own.context);
            other.is_some_and(Stream::is_blocking)
        };
        let captures = self.captures.captures.iter();
        let implicit = captures.filter(|(_, other)| other.streams.keys().any(synchronizes));
        implicit.map(|(number, _)| *number).collect()
    }

    /// Fails, and invalidates the captures, if streams of a context are capturing: for calls that
    /// concern all of a context's streams.
    pub(crate) fn check_context_not_capturing(&mut self, context: Id) -> DriverResult {
        let streams = &self.streams;
        let of_context = |id: &Id| streams.get(id).is_some_and(|own| own.context == context);
        let mut found = false;
        for capture in self.captures.captures.values_mut() {
            if capture.streams.keys().any(of_context) {
                capture.invalidated = true;
                found = true;
            }
        }
        check(!found, CUresult::STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Fails, and invalidates captures, if the calling thread must not make calls that are unsafe
    /// during a capture: those that may wait for other streams.
    pub(crate) fn check_unsafe_call(&mut self) -> DriverResult {
        if self.captures.captures.is_empty() {
            return Ok(());
        }
        // Their captures, which no thread can end any more, prohibit nothing.
        self.destroy_streams_of_ended_threads();
        let thread = thread_state::thread_number();
        let prohibits = |capture: &&mut Capture| match thread_state::capture_mode() {
            mode::GLOBAL if capture.mode == mode::GLOBAL => true,
            mode::GLOBAL | mode::THREAD_LOCAL => {
                capture.thread == thread && capture.mode != mode::RELAXED
            }
            _ => false,
        };
        let captures = self.captures.captures.values_mut();
        let mut found = false;
        for capture in captures.filter(prohibits) {
            capture.invalidated = true;
            found = true;
        }
        check(!found, CUresult::STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Records an event on a capturing stream.
    pub(crate) fn capture_record(&mut self, event: Id, stream: Id) -> DriverResult {
        self.active_capture(stream)?;
        let nodes = self.capture_dependencies(stream);
        let Some(capture) = self.captures.of_stream.get(&stream).copied() else {
            return Err(CUresult::ILLEGAL_STATE);
        };
        let position = CapturedPosition { capture, nodes };
        self.captures.events.insert(event, position);
        Ok(())
    }

    /// Makes a stream wait for an event that was recorded on a capturing stream, by which it joins
    /// the capture.
    pub(crate) fn capture_wait(&mut self, stream: Id, position: &CapturedPosition) -> DriverResult {
        let capture = self.captures.captures.get_mut(&position.capture);
        // An event of a capture that has ended, or is invalidated, stands for nothing.
        let Some(capture) = capture.filter(|capture| !capture.invalidated) else {
            self.invalidate_capture(stream);
            return Err(CUresult::INVALID_VALUE);
        };
        let role = self.streams.get(&stream).map(|own| own.role);
        if role == Some(Role::Legacy) {
            capture.invalidated = true;
            return Err(CUresult::STREAM_CAPTURE_IMPLICIT);
        }
        let own = self.captures.of_stream.get(&stream).copied();
        if own.is_some_and(|own| own != position.capture) {
            capture.invalidated = true;
            self.invalidate_capture(stream);
            return Err(CUresult::STREAM_CAPTURE_MERGE);
        }
        self.captures.of_stream.insert(stream, position.capture);
        let nodes = capture.streams.entry(stream).or_default();
        for node in &position.nodes {
            if !nodes.contains(node) {
                nodes.push(*node);
            }
        }
        Ok(())
    }

    /// Ends the capture that began on a stream. Returns its graph, which is destroyed if that fails.
    pub(crate) fn end_capture(&mut self, stream: Id) -> DriverResult<Id> {
        let (number, capture) = self.capture_of(stream).ok_or(CUresult::ILLEGAL_STATE)?;
        if capture.origin != stream {
            self.invalidate_capture(stream);
            return Err(CUresult::STREAM_CAPTURE_UNMATCHED);
        }
        let other_thread = capture.thread != thread_state::thread_number();
        let wrong_thread = other_thread && capture.mode != mode::RELAXED;
        let graph = capture.graph;
        let outcome = check(!capture.invalidated, CUresult::STREAM_CAPTURE_INVALIDATED)
            .and_then(|()| check(!wrong_thread, CUresult::STREAM_CAPTURE_WRONG_THREAD))
            .and_then(|()| self.check_joined(capture));
        match outcome {
            Ok(()) => self.remove_capture(number),
            Err(_) => self.discard_capture(number, graph),
        }
        outcome.map(|()| graph)
    }

    /// Fails if the origin of a capture does not depend on all work of its other streams.
    fn check_joined(&self, capture: &Capture) -> DriverResult {
        let graph = self.graph_data(capture.graph)?;
        let mut joined = BTreeSet::new();
        let mut next = self.capture_dependencies(capture.origin);
        while let Some(id) = next.pop() {
            if joined.insert(id) {
                let node = graph.nodes.get(&id);
                next.extend(node.into_iter().flat_map(|node| &node.dependencies));
            }
        }
        let all = capture.streams.values().flatten();
        let unjoined = all.filter(|node| graph.nodes.contains_key(node));
        let complete = unjoined.copied().all(|node| joined.contains(&node));
        check(complete, CUresult::STREAM_CAPTURE_UNJOINED)
    }

    fn remove_capture(&mut self, number: u64) {
        if self.captures.remove(number).is_some() {
            CAPTURES.fetch_sub(1, Ordering::Release);
        }
    }

    /// Ends a capture without a graph.
    fn discard_capture(&mut self, number: u64, graph: Id) {
        self.remove_capture(number);
        // A child graph belongs to its node.
        let data = self.graphs.graphs.get(&graph);
        if data.is_some_and(|data| data.parent.is_some()) {
            return;
        }
        self.release_graph_memory(graph);
        let destroyed = self.graphs.remove_graph(graph);
        // A graph of the program may hold references to user objects.
        self.destroyed_objects.extend(destroyed);
    }

    /// A stream is destroyed, and a capture that began on it. Another one has to join its work.
    pub(crate) fn destroy_capturing(&mut self, stream: Id) {
        let Some((number, capture)) = self.capture_of(stream) else {
            return;
        };
        match capture.origin == stream {
            true => self.discard_capture(number, capture.graph),
            false => drop(self.captures.of_stream.remove(&stream)),
        }
    }

    /// Sets, or adds to, the nodes on which the next work of a capturing stream depends.
    pub(crate) fn update_capture_dependencies(
        &mut self,
        stream: Id,
        nodes: Vec<Id>,
        replace: bool,
    ) -> DriverResult {
        let capture = self.active_capture(stream)?;
        let own = capture.streams.entry(stream).or_default();
        if replace {
            own.clear();
        }
        for node in nodes {
            if !own.contains(&node) {
                own.push(node);
            }
        }
        Ok(())
    }

    /// The graph of a capture that is not invalidated.
    pub(crate) fn captured_graph(&mut self, stream: Id) -> DriverResult<Id> {
        self.active_capture(stream).map(|capture| capture.graph)
    }

    /// Fails unless a stream can begin a capture.
    pub(crate) fn check_can_capture(&self, stream: Id) -> DriverResult {
        let role = self.streams.get(&stream).map(|own| own.role);
        check(
            role != Some(Role::Legacy),
            CUresult::STREAM_CAPTURE_UNSUPPORTED,
        )
    }
}
