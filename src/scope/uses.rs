//! Orders work on several streams that uses the same memory.
//!
//! In a scope over several streams, each binding records which streams use it. The scope records an event after each
//! operation. Before an operation that conflicts with earlier ones on other streams, its stream waits for the events of
//! those operations. So the work on each binding has the same effect as on one stream, and work that does not conflict
//! overlaps.

use std::sync::{Arc, Mutex};

use cuguard_sync::process;

use crate::core::StreamState;
use crate::core::free_event::FreeEvent;
use crate::core::lock::lock;
use crate::error::{Error, Result};

/// The streams of a scope over several, as one of them sees it.
#[doc(hidden)]
#[derive(Debug)]
pub struct StreamGroup {
    streams: Arc<[Arc<StreamState>]>,
    index: usize,
}

/// The last read of a binding on one stream, or the last write.
#[derive(Clone, Debug)]
struct Use {
    stream: usize,
    wrote: bool,
    /// After that work. `None` where no event could be recorded, and while the work is being enqueued: what conflicts then
    /// waits for all work of that stream.
    event: Option<Arc<FreeEvent>>,
    /// Streams that wait for it already.
    waiting: Vec<usize>,
    /// How many threads are enqueuing such work.
    pending: usize,
    /// Whether several are, or were: nothing is known of the order of their work and of their events.
    overlaps: bool,
}

impl Use {
    /// Whether both have the same event.
    fn has_event_of(&self, other: &Self) -> bool {
        let both = self.event.as_ref().zip(other.event.as_ref());
        both.is_some_and(|(event, other)| Arc::ptr_eq(event, other))
    }
}

/// Which streams use what is bound, and how. Empty in a scope of one stream.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Uses(Mutex<Vec<Use>>);

impl Clone for Uses {
    fn clone(&self) -> Self {
        // In a forked child a thread that does not exist may hold the lock, and nothing is enqueued.
        match process::is_forked() {
            true => Self::default(),
            false => Self(Mutex::new(lock(&self.0).clone())),
        }
    }
}

// The bindings, which have `unsafe impl`s of both, rely on it.
const _: () = {
    const fn assert<T: Send + Sync>() {}
    assert::<Uses>();
};

/// How an operation uses memory that is bound.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum Used<'a> {
    Read(&'a Uses),
    Written(&'a Uses),
}

impl Used<'_> {
    fn uses(&self) -> &Uses {
        let (Self::Read(uses) | Self::Written(uses)) = self;
        uses
    }

    fn writes(&self) -> bool {
        matches!(self, Self::Written(_))
    }

    /// Whether both are of the same binding.
    fn is(&self, other: Self) -> bool {
        std::ptr::eq(self.uses(), other.uses())
    }
}

impl StreamGroup {
    /// That of each stream.
    pub(super) fn of_each(
        streams: &Arc<[Arc<StreamState>]>,
    ) -> impl ExactSizeIterator<Item = Self> + use<> {
        let streams = streams.clone();
        (0..streams.len()).map(move |index| Self {
            streams: streams.clone(),
            index,
        })
    }

    pub(super) fn streams(&self) -> &[Arc<StreamState>] {
        &self.streams
    }

    /// Enqueues an operation on this stream, after what it conflicts with on the others.
    #[inline(never)]
    pub(super) fn enqueue<R>(
        &self,
        operation: &'static str,
        used: &[Used<'_>],
        enqueue: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        // In a forked child a thread that does not exist may hold a lock.
        if process::is_exiting() {
            return Err(Error::ProcessEnding { operation });
        }
        let mut begun = Begun {
            group: self,
            used: Vec::with_capacity(used.len()),
            count: 0,
            event: None,
        };
        for one in used {
            // A kernel may have it twice.
            match begun.used.iter_mut().find(|known| known.is(*one)) {
                Some(known) if one.writes() => *known = *one,
                Some(_) => {}
                None => begun.used.push(*one),
            }
        }
        for one in &begun.used {
            self.order(operation, one)?;
        }
        for one in &begun.used {
            self.begin(one);
        }
        begun.count = begun.used.len();
        let enqueued = enqueue();
        // Also after an error, which may be of earlier work, with this work begun.
        if !begun.used.is_empty() {
            begun.event = FreeEvent::record_own(&self.streams[self.index]).map(Arc::new);
        }
        drop(begun);
        enqueued
    }

    /// Orders this stream after conflicting uses.
    fn order(&self, operation: &'static str, used: &Used<'_>) -> Result<()> {
        let own = &self.streams[self.index];
        let conflicts = |one: &&Use| {
            let is_waiting = one.event.is_some() && one.waiting.contains(&self.index);
            one.stream != self.index && (one.wrote || used.writes()) && !is_waiting
        };
        let before: Vec<Use> = lock(&used.uses().0)
            .iter()
            .filter(conflicts)
            .cloned()
            .collect();
        // Without the lock: another thread may be inside the gate that this enters, and need it.
        for one in &before {
            match &one.event {
                Some(event) => event.order(operation, own)?,
                None => own.order_after(operation, &self.streams[one.stream])?,
            }
        }
        let mut uses = lock(&used.uses().0);
        for one in uses.iter_mut() {
            if before.iter().any(|known| one.has_event_of(known)) {
                one.waiting.push(self.index);
            }
        }
        Ok(())
    }

    /// The work is about to be enqueued. The use has no event yet.
    fn begin(&self, used: &Used<'_>) {
        let mut uses = lock(&used.uses().0);
        // Who comes after a write comes after all that this waits for. A read leaves the write of the same stream: others need not
        // wait for the read.
        let is_own = |one: &Use| one.stream == self.index && one.wrote == used.writes();
        let is_superseded = |one: &mut Use| is_own(one) || used.writes() && one.pending == 0;
        let superseded: Vec<_> = uses.extract_if(.., is_superseded).collect();
        let own = superseded.iter().find(|one| is_own(one));
        let pending = own.map_or(0, |own| own.pending);
        uses.push(Use {
            stream: self.index,
            wrote: used.writes(),
            event: None,
            waiting: Vec::new(),
            pending: pending + 1,
            overlaps: pending != 0,
        });
        drop(uses);
        // Without the lock: this destroys events.
        drop(superseded);
    }
}

/// An operation that is being enqueued, until dropped.
struct Begun<'a> {
    group: &'a StreamGroup,
    used: Vec<Used<'a>>,
    /// How many of them are begun.
    count: usize,
    /// Recorded after it.
    event: Option<Arc<FreeEvent>>,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        // In a forked child a thread that does not exist may hold a lock.
        if process::is_forked() {
            return;
        }
        for used in &self.used[..self.count] {
            let mut uses = lock(&used.uses().0);
            let mut uses = uses.iter_mut();
            let is_own =
                |one: &&mut Use| one.stream == self.group.index && one.wrote == used.writes();
            if let Some(own) = uses.find(is_own) {
                own.pending -= 1;
                if !own.overlaps {
                    own.event.clone_from(&self.event);
                }
            }
        }
    }
}
