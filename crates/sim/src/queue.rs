//! Streams: work that runs in order, so that a copy is really in flight until somebody waits for
//! it.
//!
//! A piece of work is known by its stream and its number on it. It may wait for pieces on other
//! streams; that is how events and the legacy default stream order work between streams.
//!
//! ```text
//!            submit          all that it waits for is done       a thread takes it
//!  Resting ────────▶ HeldUp ──────────────────────────────▶ Ready ────────▶ Running ──▶ Resting
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar};

use cuguard_sys::{CUresult, CUstream, flags};

use crate::clock::Clock;
use crate::current;
use crate::handle::{self, Id, Kind};
use crate::machine::{Answer, Machine};

/// What a stream is to its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Created,
    /// Waits for all blocking streams, and they for it.
    Legacy,
    PerThread,
}

/// Where the first piece of work in a stream's queue stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// There is none, or synchronous work comes before it.
    Resting,
    /// Another stream has to do something first, and will come back to this one.
    HeldUp,
    /// The stream waits in line for a thread.
    Ready,
    Running,
}

/// What work does.
pub(crate) type Run = Box<dyn FnOnce() + Send>;
/// What changes in the machine when work is done, under its lock.
pub(crate) type Then = Box<dyn FnOnce(&mut Machine) + Send>;

pub(crate) struct Work {
    pub(crate) number: u64,
    /// (stream, number): what must be done before.
    after: Vec<(Id, u64)>,
    pub(crate) run: Option<Run>,
    pub(crate) then: Option<Then>,
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Work({} after {:?})", self.number, self.after)
    }
}

/// A place on a stream: behind a piece of work and all that comes before that.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) stream: Id,
    pub(crate) number: u64,
    pub(crate) clock: Clock,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) context: Id,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    pub(crate) role: Role,
    pub(crate) submitted: u64,
    pub(crate) completed: u64,
    queue: VecDeque<Work>,
    stage: Stage,
    /// What other streams do before whatever comes next here.
    pub(crate) clock: Clock,
    /// (number, stream): who waits for which piece of work.
    dependants: Vec<(u64, Id)>,
    /// Destroyed by the program; it lives on until its work is done.
    destroyed: bool,
    /// Tells host threads that a piece of work is done.
    pub(crate) done: Arc<Condvar>,
}

impl Stream {
    pub(crate) fn new(context: Id, role: Role, flags: u32, priority: i32) -> Self {
        Self {
            context,
            flags,
            priority,
            role,
            submitted: 0,
            completed: 0,
            queue: VecDeque::new(),
            stage: Stage::Resting,
            clock: Clock::default(),
            dependants: Vec::new(),
            destroyed: false,
            done: Arc::default(),
        }
    }

    pub(crate) fn is_created(&self) -> bool {
        self.role == Role::Created && !self.destroyed
    }

    fn is_blocking(&self) -> bool {
        self.role != Role::Legacy && self.flags & flags::STREAM_NON_BLOCKING == 0
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.completed == self.submitted
    }
}

/// Host code that work in flight runs, with the data it is to be given.
pub(crate) struct HostCall<F: FnOnce()>(pub(crate) F);

// SAFETY: the program handed function and data to the driver to be called on a thread of the
// driver's, which is the contract of `cuLaunchHostFunc` and `cuStreamAddCallback`.
unsafe impl<F: FnOnce()> Send for HostCall<F> {}

impl<F: FnOnce()> HostCall<F> {
    pub(crate) fn run(self) {
        current::as_host_function(self.0);
    }
}

impl Machine {
    /// Adds a stream to a context.
    pub(crate) fn add_stream(&mut self, stream: Stream) -> Id {
        let id = self.numbers.next(Kind::Stream);
        if let Some(context) = self.contexts.get_mut(&stream.context) {
            context.streams.insert(id);
        }
        self.streams.insert(id, stream);
        id
    }

    /// The stream behind a handle: 0 and 1 are the current context's legacy default stream, 2 the
    /// calling thread's own.
    pub(crate) fn stream(&mut self, handle: CUstream) -> Result<Id, CUresult> {
        match handle {
            CUstream::NULL | CUstream::LEGACY => {
                let context = self.current()?;
                Ok(self.contexts[&context].legacy)
            }
            CUstream::PER_THREAD => self.per_thread_stream(),
            _ => {
                self.check_current_if_any()?;
                let id = handle::decode(Kind::Stream, handle.0);
                match id.filter(|id| self.streams.get(id).is_some_and(Stream::is_created)) {
                    Some(id) => self.check_stream(id).map(|()| id),
                    None => Err(self.dead_handle(Kind::Stream, handle.0, CUresult::INVALID_HANDLE)),
                }
            }
        }
    }

    /// Whether a stream takes work: its context may have ended since it was found.
    pub(crate) fn check_stream(&self, stream: Id) -> Answer {
        match self.streams.get(&stream) {
            Some(stream) => self.check_alive(stream.context),
            None => Err(CUresult::CONTEXT_IS_DESTROYED),
        }
    }

    /// The last piece of work on a stream so far.
    pub(crate) fn last_work(&self, stream: Id) -> u64 {
        self.streams
            .get(&stream)
            .map_or(0, |stream| stream.submitted)
    }

    /// Whether a piece of work is done. What a stream that is gone had to do is done.
    pub(crate) fn is_done(&self, stream: Id, number: u64) -> bool {
        self.streams
            .get(&stream)
            .is_none_or(|stream| stream.completed >= number)
    }

    /// What new work on a stream has to wait for on other streams, by the rules of the legacy
    /// default stream.
    pub(crate) fn implied_order(&self, stream: Id) -> Vec<(Id, u64)> {
        let Some(own) = self.streams.get(&stream) else {
            return Vec::new();
        };
        let Some(context) = self.contexts.get(&own.context) else {
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

    /// The same, and the stream's clock takes note of it. Whatever the stream is given next waits
    /// for these, so the order holds whether that is now or later.
    pub(crate) fn join_implied_order(&mut self, stream: Id) -> Vec<(Id, u64)> {
        let implied = self.implied_order(stream);
        for (other, number) in &implied {
            let clock = self.streams.get(other).map(|other| other.clock.clone());
            let mark = Mark {
                stream: *other,
                number: *number,
                clock: clock.unwrap_or_default(),
            };
            self.join(stream, &mark);
        }
        implied
    }

    fn join(&mut self, stream: Id, mark: &Mark) {
        let Some(own) = self.streams.get_mut(&stream) else {
            return;
        };
        let mut clock = std::mem::take(&mut own.clock);
        clock.join(mark.stream, mark.number, &mark.clock, |stream, number| {
            self.is_done(stream, number)
        });
        if let Some(own) = self.streams.get_mut(&stream) {
            own.clock = clock;
        }
    }

    /// The place on a stream behind the work `number`, which is the last or the next.
    pub(crate) fn mark(&mut self, stream: Id, number: u64) -> Mark {
        self.join_implied_order(stream);
        let own = self.streams.get(&stream);
        Mark {
            stream,
            number,
            clock: own.map(|own| own.clock.clone()).unwrap_or_default(),
        }
    }

    /// Whether all that a stream was given so far is done; for the legacy default stream, that
    /// includes the blocking streams.
    pub(crate) fn is_stream_idle(&self, stream: Id) -> bool {
        self.streams.get(&stream).is_none_or(|own| {
            own.is_idle() && (own.role != Role::Legacy || self.implied_order(stream).is_empty())
        })
    }

    /// Gives a stream its next number, and notes that it has something to do.
    pub(crate) fn next_work(&mut self, stream: Id) -> u64 {
        let Some(own) = self.streams.get_mut(&stream) else {
            return 0;
        };
        own.submitted += 1;
        let number = own.submitted;
        if let Some(context) = self.contexts.get_mut(&own.context) {
            context.busy.insert(stream);
        }
        number
    }

    /// Appends work to a stream and returns its number.
    pub(crate) fn submit(
        &mut self,
        stream: Id,
        after: Option<&Mark>,
        run: Option<Run>,
        then: Option<Then>,
    ) -> Result<u64, CUresult> {
        self.check_stream(stream)?;
        let mut waits_for = self.join_implied_order(stream);
        if let Some(mark) = after.filter(|mark| !self.is_done(mark.stream, mark.number)) {
            self.join(stream, mark);
            waits_for.push((mark.stream, mark.number));
        }
        let at_once = waits_for.is_empty() && self.streams[&stream].is_idle();
        if at_once && run.is_none() && self.config.latency.is_zero() {
            // Nothing to do and nothing to wait for: it is done as soon as it is asked for.
            if let Some(own) = self.streams.get_mut(&stream) {
                own.submitted += 1;
                own.completed = own.submitted;
            }
            if let Some(then) = then {
                then(self);
            }
            return Ok(self.last_work(stream));
        }
        if at_once || self.crew.is_empty() {
            self.crew.hire()?;
        }
        let number = self.next_work(stream);
        if let Some(own) = self.streams.get_mut(&stream) {
            own.queue.push_back(Work {
                number,
                after: waits_for,
                run,
                then,
            });
        }
        if self.advance(stream) {
            self.crew.enqueue(stream);
        }
        Ok(number)
    }

    /// Looks at the first piece of work of a stream that rests; says whether it may begin.
    fn advance(&mut self, stream: Id) -> bool {
        let Some(own) = self.streams.get(&stream) else {
            return false;
        };
        let next = own
            .queue
            .front()
            .filter(|work| own.stage == Stage::Resting && work.number == own.completed + 1);
        let Some(work) = next else { return false };
        let pending = |(other, number): &&(Id, u64)| !self.is_done(*other, *number);
        let pending = work.after.iter().find(pending).copied();
        let stage = match pending {
            Some((other, number)) => {
                if let Some(other) = self.streams.get_mut(&other) {
                    other.dependants.push((number, stream));
                }
                Stage::HeldUp
            }
            None => Stage::Ready,
        };
        if let Some(own) = self.streams.get_mut(&stream) {
            own.stage = stage;
        }
        stage == Stage::Ready
    }

    /// Takes the piece of work that a thread is about to do.
    pub(crate) fn begin_work(&mut self, stream: Id) -> Option<Work> {
        let own = self.streams.get_mut(&stream)?;
        // Two threads that do the work of one stream would both write to its memory.
        assert_eq!(own.stage, Stage::Ready, "one thread for each stream");
        own.stage = Stage::Running;
        own.queue.pop_front()
    }

    /// Notes that a piece of work is done, and tells those who wait for it.
    pub(crate) fn complete(&mut self, stream: Id, number: u64) {
        let Some(own) = self.streams.get_mut(&stream) else {
            return;
        };
        own.completed = number;
        own.stage = Stage::Resting;
        own.done.notify_all();
        let mut free = Vec::new();
        own.dependants.retain(|(waits_for, dependant)| {
            if *waits_for <= number {
                free.push(*dependant);
            }
            *waits_for > number
        });
        if own.is_idle() {
            let (context, destroyed) = (own.context, own.destroyed);
            if let Some(context) = self.contexts.get_mut(&context) {
                context.busy.remove(&stream);
            }
            if destroyed {
                self.remove_stream(stream);
            }
        }
        // The thread that did this piece goes on with the next of the same stream by itself.
        if self.advance(stream) {
            self.crew.enqueue_own(stream);
        }
        for dependant in free {
            if let Some(other) = self.streams.get_mut(&dependant) {
                other.stage = Stage::Resting;
            }
            if self.advance(dependant) {
                // Where no thread can be had, one of those there are comes to it in the end.
                let _ = self.crew.hire();
                self.crew.enqueue(dependant);
            }
        }
        self.tell_watchers();
    }

    /// Ends a stream for the program; work that it still has is done.
    pub(crate) fn destroy_stream(&mut self, stream: Id) {
        if let Some(own) = self.streams.get_mut(&stream) {
            own.destroyed = true;
            if own.is_idle() {
                self.remove_stream(stream);
            }
        }
    }

    fn remove_stream(&mut self, stream: Id) {
        if let Some(own) = self.streams.remove(&stream)
            && let Some(context) = self.contexts.get_mut(&own.context)
        {
            context.streams.remove(&stream);
        }
    }

    /// A stream in words.
    pub(crate) fn stream_words(&self, stream: Id) -> String {
        match self.streams.get(&stream).map(|own| own.role) {
            Some(Role::Legacy) => "the default stream".to_owned(),
            Some(Role::PerThread) => "a thread's own default stream".to_owned(),
            _ => format!("the stream {:#x}", handle::encode(Kind::Stream, stream)),
        }
    }
}
