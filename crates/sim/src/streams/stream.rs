//! A stream: work that executes in order, asynchronously to the host.
//!
//! Work is identified by its stream and its number there. It may depend on work on other streams;
//! events and the legacy default stream order streams that way.
//!
//! ```text
//!          submit           dependencies complete          a worker takes it
//!   Idle ─────────▶ Blocked ─────────────────────▶ Ready ───────────▶ Running ──▶ Idle
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar};

use cuguard_sys::flags;

use super::attributes::StreamAttributes;
use super::vector_clock::VectorClock;
use crate::handle::Id;

/// What a stream is to its context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    #[default]
    Created,
    /// The legacy default stream, which synchronizes with all blocking streams.
    Legacy,
    /// A thread's own default stream.
    PerThread,
    /// Executes what the driver orders after all work of the context. No handle refers to it.
    Internal,
}

/// The state of the first work in a stream's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    /// There is none, or a synchronous call executes before it.
    #[default]
    Idle,
    /// It waits for another stream, which has this one among its dependents.
    Blocked,
    /// It waits for a worker thread.
    Ready,
    Running,
}

/// What work executes.
pub(crate) type Run = Box<dyn FnOnce() + Send>;

/// What changes in the driver's state when work completes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OnComplete {
    /// This event is recorded.
    Record(Id),
    /// The memory range with this context and id is freed.
    Free((Option<Id>, u64)),
    /// References to user objects are released.
    Release(Id),
}

pub(crate) struct Work {
    pub(crate) number: u64,
    /// (stream, number) of the work that must complete before.
    pub(crate) after: Vec<(Id, u64)>,
    pub(crate) run: Option<Run>,
    pub(crate) on_complete: Option<OnComplete>,
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Work({} after {:?})", self.number, self.after)
    }
}

/// The position on a stream after the work `number`.
#[derive(Clone, Debug)]
pub(crate) struct StreamPosition {
    pub(crate) stream: Id,
    pub(crate) number: u64,
    pub(crate) clock: VectorClock,
}

#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) context: Id,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    pub(crate) attributes: StreamAttributes,
    pub(crate) role: Role,
    pub(crate) submitted: u64,
    pub(crate) completed: u64,
    pub(crate) queue: VecDeque<Work>,
    pub(crate) stage: Stage,
    /// The work of other streams that happens before whatever is submitted next.
    pub(crate) clock: VectorClock,
    /// (number, stream): which streams wait for which work.
    pub(crate) dependents: Vec<(u64, Id)>,
    /// Destroyed by the program; removed when its work is complete.
    pub(crate) destroyed: bool,
    /// Notified when work completes.
    pub(crate) done: Arc<Condvar>,
}

impl Stream {
    pub(crate) fn is_created(&self) -> bool {
        self.role == Role::Created && !self.destroyed
    }

    pub(crate) fn is_blocking(&self) -> bool {
        self.role != Role::Legacy && self.flags & flags::STREAM_NON_BLOCKING == 0
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.completed == self.submitted
    }
}
