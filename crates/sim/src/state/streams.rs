//! Operations on streams: submitting work, ordering it, and completing it.

use cuguard_sys::{CUresult, CUstream};

use super::driver_state::DriverState;
use crate::handle::{self, Id, Kind};
use crate::result::DriverResult;
use crate::streams::{OnComplete, Role, Run, Stage, Stream, StreamPosition, Work};
use crate::thread_state;

impl DriverState {
    /// Adds a stream to its context.
    pub(crate) fn add_stream(&mut self, stream: Stream) -> Id {
        let id = self.ids.next(Kind::Stream);
        self.streams.insert(id, stream);
        id
    }

    /// The stream of a handle: 0 is the default stream of the call, 1 the current context's legacy
    /// default stream, 2 the calling thread's own.
    pub(crate) fn stream(&mut self, handle: CUstream) -> DriverResult<Id> {
        match handle {
            CUstream::NULL if thread_state::has_own_default_stream() => self.per_thread_stream(),
            CUstream::NULL | CUstream::LEGACY => Ok(self.contexts[&self.current()?].legacy),
            CUstream::PER_THREAD => self.per_thread_stream(),
            _ => {
                self.check_current_if_any()?;
                let is_live = |id| self.streams.get(&id).is_some_and(Stream::is_created);
                let id = self.live_id(Kind::Stream, handle.0, CUresult::INVALID_HANDLE, is_live)?;
                self.check_stream(id).map(|()| id)
            }
        }
    }

    /// Fails if a stream's context was destroyed since the stream was looked up.
    pub(crate) fn check_stream(&self, stream: Id) -> DriverResult {
        match self.streams.get(&stream) {
            Some(stream) => self.check_alive(stream.context),
            None => Err(CUresult::CONTEXT_IS_DESTROYED),
        }
    }

    /// The number of the last work that was submitted to a stream.
    pub(crate) fn last_work(&self, stream: Id) -> u64 {
        self.streams.get(&stream).map_or(0, |own| own.submitted)
    }

    /// Whether work is complete. All work of a removed stream is.
    pub(crate) fn is_done(&self, stream: Id, number: u64) -> bool {
        let stream = self.streams.get(&stream);
        stream.is_none_or(|stream| stream.completed >= number)
    }

    /// The work of other streams that new work on a stream implicitly waits for, by the rules of the
    /// legacy default stream.
    pub(crate) fn implicit_dependencies(&self, stream: Id) -> Vec<(Id, u64)> {
        let own = self.streams.get(&stream);
        let context = own.and_then(|own| self.contexts.get(&own.context));
        let (Some(own), Some(context)) = (own, context) else {
            return Vec::new();
        };
        let busy = |id: &Id| match self.streams.get(id) {
            Some(other) if !other.is_idle() => Some((*id, other.submitted)),
            _ => None,
        };
        let is_blocking = |id: &&Id| self.streams.get(id).is_some_and(Stream::is_blocking);
        match own.role {
            Role::Legacy => {
                let blocking = context.busy.iter().filter(is_blocking);
                blocking.filter_map(busy).collect()
            }
            _ if own.is_blocking() => busy(&context.legacy).into_iter().collect(),
            _ => Vec::new(),
        }
    }

    /// The same, and adds them to the stream's vector clock. Whatever is submitted next waits for
    /// them, so the order holds whether that is now or later.
    pub(crate) fn join_implicit_dependencies(&mut self, stream: Id) -> Vec<(Id, u64)> {
        let mut implicit = self.implicit_dependencies(stream);
        for (other, number) in &implicit {
            let position = self.position(*other, *number);
            self.join(stream, &position);
        }
        for position in self.context_waits(stream) {
            self.join(stream, &position);
            implicit.push((position.stream, position.number));
        }
        implicit
    }

    fn join(&mut self, stream: Id, position: &StreamPosition) {
        let Some(own) = self.streams.get_mut(&stream) else {
            return;
        };
        let mut clock = std::mem::take(&mut own.clock);
        clock.join(
            position.stream,
            position.number,
            &position.clock,
            |stream, number| self.is_done(stream, number),
        );
        if let Some(own) = self.streams.get_mut(&stream) {
            own.clock = clock;
        }
    }

    /// The position on a stream after the work `number`.
    pub(crate) fn position(&self, stream: Id, number: u64) -> StreamPosition {
        let own = self.streams.get(&stream);
        StreamPosition {
            stream,
            number,
            clock: own.map(|own| own.clock.clone()).unwrap_or_default(),
        }
    }

    /// Whether all work that was submitted to a stream is complete; for the legacy default stream,
    /// that includes the blocking streams.
    pub(crate) fn is_stream_idle(&self, stream: Id) -> bool {
        self.streams.get(&stream).is_none_or(|own| {
            let legacy = own.role == Role::Legacy;
            own.is_idle() && (!legacy || self.implicit_dependencies(stream).is_empty())
        })
    }

    /// The number of the next work on a stream, which is busy from now on.
    pub(crate) fn next_work(&mut self, stream: Id) -> u64 {
        let Some(own) = self.streams.get_mut(&stream) else {
            return 0;
        };
        own.submitted += 1;
        if let Some(context) = self.contexts.get_mut(&own.context) {
            context.busy.insert(stream);
        }
        own.submitted
    }

    /// Submits work to a stream, to be executed after `after`, and returns its number.
    pub(crate) fn submit(
        &mut self,
        stream: Id,
        after: Option<&StreamPosition>,
        run: Option<Run>,
        on_complete: Option<OnComplete>,
    ) -> DriverResult<u64> {
        self.check_stream(stream)?;
        let mut dependencies = self.join_implicit_dependencies(stream);
        if let Some(position) = after.filter(|after| !self.is_done(after.stream, after.number)) {
            self.join(stream, position);
            dependencies.push((position.stream, position.number));
        }
        let at_once = dependencies.is_empty() && self.streams[&stream].is_idle();
        if at_once && run.is_none() && self.config.latency.is_zero() {
            // Nothing to execute and nothing to wait for: it completes here.
            let number = self.last_work(stream) + 1;
            if let Some(own) = self.streams.get_mut(&stream) {
                (own.submitted, own.completed) = (number, number);
            }
            self.apply(on_complete, stream, number);
            return Ok(number);
        }
        if at_once || self.workers.total == 0 {
            self.workers.ensure_thread(1)?;
        }
        let number = self.next_work(stream);
        if let Some(own) = self.streams.get_mut(&stream) {
            own.queue.push_back(Work {
                number,
                after: dependencies,
                run,
                on_complete,
            });
        }
        if self.advance(stream) {
            self.workers.enqueue(stream);
        }
        Ok(number)
    }

    /// Updates the stage of a stream that executes nothing. Returns whether its next work is ready.
    fn advance(&mut self, stream: Id) -> bool {
        let Some(own) = self.streams.get(&stream) else {
            return false;
        };
        let is_next = |work: &&Work| own.stage == Stage::Idle && work.number == own.completed + 1;
        let Some(work) = own.queue.front().filter(is_next) else {
            return false;
        };
        let pending = |(other, number): &&(Id, u64)| !self.is_done(*other, *number);
        let stage = match work.after.iter().find(pending).copied() {
            Some((other, number)) => {
                if let Some(other) = self.streams.get_mut(&other) {
                    other.dependents.push((number, stream));
                }
                Stage::Blocked
            }
            None => Stage::Ready,
        };
        if let Some(own) = self.streams.get_mut(&stream) {
            own.stage = stage;
        }
        stage == Stage::Ready
    }

    /// Removes the work that the calling worker executes next from the queue.
    pub(crate) fn begin_work(&mut self, stream: Id) -> Option<Work> {
        let own = self.streams.get_mut(&stream)?;
        // Two threads that execute work of one stream would race on its memory.
        assert_eq!(own.stage, Stage::Ready, "one thread per stream");
        own.stage = Stage::Running;
        own.queue.pop_front()
    }

    fn apply(&mut self, then: Option<OnComplete>, stream: Id, number: u64) {
        match then {
            Some(OnComplete::Record(event)) => self.events.complete_record(event, stream, number),
            Some(OnComplete::Free(range)) => self.complete_free(range, stream, number),
            Some(OnComplete::Release(id)) => self.complete_release(id),
            None => {}
        }
    }

    /// Completes work, and continues with what depends on it.
    pub(crate) fn complete(&mut self, stream: Id, number: u64, then: Option<OnComplete>) {
        self.apply(then, stream, number);
        let Some(own) = self.streams.get_mut(&stream) else {
            return;
        };
        own.completed = number;
        own.stage = Stage::Idle;
        own.done.notify_all();
        let unblocked = own.dependents.extract_if(.., |(after, _)| *after <= number);
        let unblocked: Vec<_> = unblocked.map(|(_, dependent)| dependent).collect();
        if own.is_idle() {
            let (context, destroyed) = (own.context, own.destroyed);
            if let Some(context) = self.contexts.get_mut(&context) {
                context.busy.remove(&stream);
            }
            if destroyed {
                self.streams.remove(&stream);
            }
        }
        // The calling worker takes the stream's next work itself: no other is notified.
        if self.advance(stream) {
            self.workers.ready.push_back(stream);
        }
        for dependent in unblocked {
            if let Some(other) = self.streams.get_mut(&dependent) {
                other.stage = Stage::Idle;
            }
            if self.advance(dependent) {
                // If no thread can be spawned, an existing one executes it later.
                let _ = self.workers.ensure_thread(1);
                self.workers.enqueue(dependent);
            }
        }
        self.notify_memory_waiters();
    }

    /// Destroys a stream; work that was submitted to it still executes.
    pub(crate) fn destroy_stream(&mut self, stream: Id) {
        if let Some(own) = self.streams.get_mut(&stream) {
            own.destroyed = true;
            if own.is_idle() {
                self.streams.remove(&stream);
            }
        }
    }

    /// A stream's name in messages.
    pub(crate) fn stream_name(&self, stream: Id) -> String {
        match self.streams.get(&stream).map(|own| own.role) {
            Some(Role::Legacy) => "the default stream".to_owned(),
            Some(Role::PerThread) => "a per-thread default stream".to_owned(),
            _ => format!("the stream {:#x}", handle::encode(Kind::Stream, stream)),
        }
    }
}
