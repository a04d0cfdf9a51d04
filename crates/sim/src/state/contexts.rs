//! Contexts: creation, destruction, and which one is current.
//!
//! A context is destroyed in three steps: it is marked as closing and accepts nothing new; its work
//! completes; it is removed with all that it owns. A retain of a primary context during the second
//! step cancels a release.

use cuguard_sys::CUresult;

use super::driver_state::DriverState;
use super::lock::StateGuard;
use super::objects::{Closing, Context};
use super::wait::{synchronize_context, wait_until_idle, wait_until_unused};
use crate::graph::Mapping;
use crate::handle::{self, Id, Kind};
use crate::memory::MemoryRange;
use crate::result::DriverResult;
use crate::streams::{Role, Stream};
use crate::{copy_engine, thread_state};

impl DriverState {
    pub(crate) fn check_alive(&self, context: Id) -> DriverResult {
        match self.contexts.get(&context) {
            Some(c) if c.closing.is_none() => Ok(()),
            _ => Err(CUresult::CONTEXT_IS_DESTROYED),
        }
    }

    /// The calling thread's current context, which must be live.
    pub(crate) fn current(&self) -> DriverResult<Id> {
        let context = thread_state::current().ok_or(CUresult::INVALID_CONTEXT)?;
        self.check_alive(context)?;
        Ok(context)
    }

    pub(crate) fn current_context(&mut self) -> DriverResult<&mut Context> {
        let id = self.current()?;
        let context = self.contexts.get_mut(&id);
        context.ok_or(CUresult::INVALID_CONTEXT)
    }

    /// The current context for an allocation, which also fails after a sticky error.
    pub(crate) fn usable_current(&self) -> DriverResult<Id> {
        let context = self.current()?;
        copy_engine::check_sticky_error()?;
        Ok(context)
    }

    /// For calls that work without a current context, but not with a destroyed one.
    pub(crate) fn check_current_if_any(&self) -> DriverResult {
        thread_state::current().map_or(Ok(()), |context| self.check_alive(context))
    }

    /// The device of a context, live or not.
    pub(crate) fn device_of(&self, context: Id) -> u32 {
        handle::device_of_context(context)
    }

    pub(crate) fn is_primary(&self, context: Id) -> bool {
        let device = self.devices.get(self.device_of(context) as usize);
        device.is_some_and(|device| device.primary == context)
    }

    /// Creates a context, or activates a primary one. It uses device memory.
    pub(crate) fn open_context(&mut self, id: Id, device: u32, flags: u32) -> DriverResult {
        self.reserve_pages(device, self.config.context_cost)?;
        let legacy = self.ids.next(Kind::Stream);
        let stream = Stream {
            context: id,
            role: Role::Legacy,
            ..Stream::default()
        };
        self.streams.insert(legacy, stream);
        self.last_context += 1;
        let context = Context {
            flags,
            legacy,
            number: self.last_context,
            ..Context::default()
        };
        self.contexts.insert(id, context);
        Ok(())
    }

    /// Removes a context, whose streams must be idle, with all that it owns. Stream-ordered memory
    /// stays, since it belongs to the device. Returns the host memory, which work of other contexts
    /// may still use.
    fn close_context(&mut self, id: Id) -> Vec<MemoryRange> {
        let arrays = self.arrays.iter().filter(|(_, array)| array.context == id);
        for array in arrays.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.remove_array(array);
        }
        self.forget_modules(id);
        self.release_heap(id);
        let owned = self.map.remove_context(id).into_iter();
        let (host, device): (Vec<_>, Vec<_>) = owned.partition(MemoryRange::on_host);
        for range in &host {
            self.expect_release(range);
        }
        for range in device {
            self.release_range(range);
        }
        let freed = (Some(id), 0)..=(Some(id), u64::MAX);
        while let Some((&key, _)) = self.pending_frees.range(freed.clone()).next()
            && let Some(range) = self.pending_frees.remove(&key)
        {
            self.release_range(range);
        }
        if let Some(context) = self.contexts.remove(&id) {
            // A statistic, not a matter of memory safety.
            debug_assert_eq!(context.packed.bytes(), 0, "packed blocks are freed");
        }
        for other in self.contexts.values_mut() {
            other.peers.remove(&id);
        }
        let own = self.streams.iter().filter(|(_, own)| own.context == id);
        for stream in own.map(|(stream, _)| *stream).collect::<Vec<_>>() {
            self.destroy_capturing(stream);
            self.streams.remove(&stream);
        }
        self.events.orphan_context(id);
        let (device, cost) = (self.device_of(id), self.config.context_cost);
        self.device_mut(device).memory.release(cost);
        host
    }
}

/// Destroys a context that is live or closing, once its work is complete. `false` if a retain
/// cancelled that, or another thread destroyed it first.
pub(crate) fn end_context(mut state: StateGuard, id: Id, closing: Closing) -> (StateGuard, bool) {
    let Some(context) = state.contexts.get_mut(&id) else {
        return (state, false);
    };
    // A destruction under way is not downgraded to a release.
    if context.closing != Some(Closing::Destroyed) {
        context.closing = Some(closing);
    }
    // As measured on a real driver, for the work of other contexts too.
    let device = state.device_of(id);
    let beside = |other: &Id| *other != id && state.device_of(*other) == device;
    let others: Vec<_> = state.contexts.keys().copied().filter(beside).collect();
    for other in others {
        state = synchronize_context(state, other);
    }
    let (mut state, idle) = wait_until_idle(state, id);
    if !idle {
        return (state, false);
    }
    for range in state.close_context(id) {
        state = wait_until_unused(state, &range.block);
        state.note_end_of_mapping(&range, Mapping::ContextDestroyed);
        state.release_range(range);
    }
    (state, true)
}
