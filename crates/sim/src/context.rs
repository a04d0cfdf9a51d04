//! Contexts: what they hold, how they begin, and how they end.
//!
//! A context ends in three steps. It is marked as closing, and from then on takes nothing new; its
//! work is waited for; then it goes with all that it holds. The last release of a primary context
//! can be overtaken by a retain while it waits, and then nothing ends.

use std::collections::{BTreeSet, HashMap, HashSet};

use cuguard_sys::CUresult;

use crate::address_map::Range;
use crate::handle::{self, Id, Kind};
use crate::lock::Guard;
use crate::machine::{Answer, Machine};
use crate::physical::PackedPages;
use crate::queue::{Role, Stream};
use crate::wait::{wait_until_idle, wait_until_unused};

/// Why a context ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// The last release of a primary context: a retain keeps it.
    Released,
    /// For good.
    Ended,
}

/// A context that is alive, or closing.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) flags: u32,
    pub(crate) limits: HashMap<u32, usize>,
    pub(crate) cache_config: u32,
    pub(crate) packed: PackedPages,
    /// The legacy default stream.
    pub(crate) legacy: Id,
    /// Thread number → the thread's own default stream.
    pub(crate) per_thread: HashMap<u64, Id>,
    pub(crate) streams: BTreeSet<Id>,
    /// The streams that have something to do.
    pub(crate) busy: BTreeSet<Id>,
    pub(crate) events: HashSet<Id>,
    pub(crate) arrays: HashSet<Id>,
    /// Device memory that was freed on a stream, perhaps another context's, and is still there
    /// until the stream comes to it. By the ranges' ids: whoever comes first gives it back.
    pub(crate) leaving: HashMap<u64, Range>,
    pub(crate) closing: Option<Closing>,
}

impl Machine {
    pub(crate) fn check_alive(&self, context: Id) -> Answer {
        match self.contexts.get(&context) {
            Some(c) if c.closing.is_none() => Ok(()),
            _ => Err(CUresult::CONTEXT_IS_DESTROYED),
        }
    }

    /// The device of a context, alive or not.
    pub(crate) fn device_of(&self, context: Id) -> u32 {
        handle::device_of_context(context)
    }

    pub(crate) fn is_primary(&self, context: Id) -> bool {
        let device = self.devices.get(self.device_of(context) as usize);
        device.is_some_and(|device| device.primary == context)
    }

    /// Makes a context, or brings a primary one back to life. It costs device memory.
    pub(crate) fn open_context(&mut self, id: Id, device: u32, flags: u32) -> Answer {
        let cost = self.config.context_cost;
        if !self.take_pages(device, cost) {
            return Err(CUresult::OUT_OF_MEMORY);
        }
        let legacy = self.numbers.next(Kind::Stream);
        self.streams
            .insert(legacy, Stream::new(id, Role::Legacy, 0, 0));
        self.contexts.insert(
            id,
            Context {
                flags,
                limits: HashMap::new(),
                cache_config: 0,
                packed: PackedPages::new(),
                legacy,
                per_thread: HashMap::new(),
                streams: BTreeSet::from([legacy]),
                busy: BTreeSet::new(),
                events: HashSet::new(),
                arrays: HashSet::new(),
                leaving: HashMap::new(),
                closing: None,
            },
        );
        Ok(())
    }

    /// Takes a context away with all that it holds; its own cost comes back. Its streams must be
    /// idle. Stream-ordered memory stays, as it belongs to the device. Returns the host memory,
    /// which work of other contexts may still be using.
    fn close_context(&mut self, id: Id) -> Vec<Range> {
        let Some(context) = self.contexts.get_mut(&id) else {
            return Vec::new();
        };
        let leaving = std::mem::take(&mut context.leaving).into_values();
        let arrays = std::mem::take(&mut context.arrays);
        let (host, device): (Vec<Range>, Vec<Range>) = self
            .map
            .remove_context(id)
            .into_iter()
            .partition(Range::on_host);
        for range in &host {
            self.announce_release(range);
        }
        for range in device.into_iter().chain(leaving) {
            self.release_range(range);
        }
        for array in arrays {
            self.remove_array(array);
        }
        if let Some(context) = self.contexts.remove(&id) {
            let packed = context.packed.bytes();
            // A figure, and not for memory safety.
            debug_assert_eq!(packed, 0, "every packed block went with its range");
            for stream in context.streams {
                self.streams.remove(&stream);
            }
            self.events.orphan(context.events);
        }
        let (device, cost) = (self.device_of(id), self.config.context_cost);
        self.on_mut(device).memory.give(cost);
        host
    }
}

/// Ends a context that is alive, or closing, once its work is done. `false`: a retain has overtaken
/// it, or another thread was faster.
pub(crate) fn end_context(mut guard: Guard, id: Id, closing: Closing) -> (Guard, bool) {
    let Some(context) = guard.contexts.get_mut(&id) else {
        return (guard, false);
    };
    // What is to end for good stays so, whoever joins in.
    if context.closing != Some(Closing::Ended) {
        context.closing = Some(closing);
    }
    let (mut guard, idle) = wait_until_idle(guard, id);
    if !idle {
        return (guard, false);
    }
    for range in guard.close_context(id) {
        guard = wait_until_unused(guard, &range.block);
        guard.release_range(range);
    }
    (guard, true)
}
