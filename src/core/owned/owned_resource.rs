//! The one owner of one resource (invariant 1). Every guard has one: it records the resource, erases the record and
//! frees it, on whatever thread it is dropped, and records a failed free.

use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cuguard_driver::result::{self, CallError};
use cuguard_driver::sys::{CUresult, CUstream};

use crate::core::owned::host_memory::DeferredFree;
use crate::core::owned::ownership::{
    Home, NewBlock, OwnedResource, Owner, Released, StreamState, flags,
};
use crate::core::release::deferred;
use crate::core::release::free;
use crate::core::shared::context_state::ContextState;
use crate::core::shared::unregistered::HostMemory;
use crate::error::{Error, Result};
use cuguard_registry::{Entry, Key, Record, ResourceKind};
use cuguard_sync::process;

impl OwnedResource {
    /// The debug output of a guard: its type, the handle and the context.
    pub(crate) fn fmt_guard(&self, guard: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{guard}({:#x} of {:?})", self.key.address, self.state())
    }
}

impl fmt::Debug for OwnedResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {:#x} of {:?}",
            self.key.kind,
            self.key.address,
            self.state()
        )
    }
}

impl OwnedResource {
    /// Owns and records a resource that the driver just allocated (invariant 2).
    #[track_caller]
    pub(crate) fn new(owner: Owner, key: Key, entry: Entry) -> Self {
        Self::new_at(Location::caller(), owner, key, entry)
    }

    /// The same with a given call site.
    #[inline(always)]
    pub(crate) fn new_at(
        site: &'static Location<'static>,
        owner: Owner,
        key: Key,
        entry: Entry,
    ) -> Self {
        let bytes = entry.bytes;
        owner.state().registry.insert_at(site, key, entry);
        Self {
            owner: ManuallyDrop::new(owner),
            key,
            bytes,
            flags: AtomicU64::new(flags::OWNED),
        }
    }

    /// Owns a block that is recorded, of this size. On the thread that allocated it.
    #[inline]
    pub(crate) fn of_block(NewBlock { home, address }: NewBlock, bytes: u64) -> Self {
        Self {
            owner: ManuallyDrop::new(Owner::Pooled(home)),
            key: Key::new(ResourceKind::Pooled, address),
            bytes,
            flags: AtomicU64::new(flags::OWNED),
        }
    }

    /// Owns nothing: for empty buffers and zero-sized types. It keeps the context open, but neither the stream nor the pool of
    /// the buffer: it has no record, and they would seem to leak.
    pub(crate) fn nothing(owner: Owner, kind: ResourceKind) -> Self {
        let owner = match owner.home() {
            Some(home) => home.owned.owner().clone(),
            None => owner,
        };
        Self {
            owner: ManuallyDrop::new(owner),
            key: Key::new(kind, 0),
            bytes: 0,
            flags: AtomicU64::new(flags::DONE),
        }
    }

    /// Stands for a resource of other code: neither recorded nor freed.
    pub(crate) fn borrowed(owner: Owner, key: Key) -> Self {
        let mut owned = Self::nothing(owner, key.kind);
        owned.key = key;
        owned
    }

    /// Owns nothing from now on. Returns whether it did before.
    pub(in crate::core) fn disown(&mut self) -> bool {
        std::mem::replace(self.flags.get_mut(), flags::DONE) != flags::DONE
    }

    /// Records that other code, such as `cust`, has the address of stream-ordered memory and may enqueue work on it on the
    /// default stream. A block of a pool is pinned until it is freed: other code calls the driver outside the gate, where
    /// a compaction does not stop it.
    ///
    /// The caller is inside the gate. So no compaction runs before the block is pinned, also where this returns on one
    /// thread while another is about to pin it.
    pub(crate) fn expose(&self) {
        let (owned, exposed) = (flags::OWNED, flags::EXPOSED);
        let order = Ordering::SeqCst;
        let before = self.flags.compare_exchange(owned, exposed, order, order);
        if let (Ok(_), Owner::Pooled(home)) = (before, &*self.owner) {
            home.pool().set_pinned(self.key.address, true);
        }
    }

    /// Removes a pin of a block, unless other code has its address. The caller is inside the gate.
    pub(crate) fn unpin(&self, home: &Home) {
        if self.is_exposed() {
            return;
        }
        home.pool().set_pinned(self.key.address, false);
        // If it was not pinned, that may have removed the pin of `expose` on another thread.
        if self.is_exposed() {
            home.pool().set_pinned(self.key.address, true);
        }
    }

    /// Whether other code ever had the address of stream-ordered memory.
    pub(crate) fn is_exposed(&self) -> bool {
        self.flags.load(Ordering::SeqCst) == flags::EXPOSED
    }

    /// What the resource keeps alive.
    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    pub(crate) fn state(&self) -> &Arc<ContextState> {
        self.owner.state()
    }

    #[inline]
    pub(crate) fn address(&self) -> u64 {
        self.key.address
    }

    /// The address where it is stored, which does not change while the resource is owned.
    #[cfg(feature = "cust")]
    pub(crate) fn address_in_place(&self) -> &u64 {
        &self.key.address
    }

    pub(crate) fn key(&self) -> Key {
        self.key
    }

    /// The home stream of stream-ordered memory; `None` for all other resources.
    pub(crate) fn home(&self) -> Option<&Arc<StreamState>> {
        self.owner.home()
    }

    /// Records that the guard is dropped while others keep the resource.
    #[cold]
    pub(crate) fn keep(&self) {
        // A borrowed stream has no record of its own; another guard may have one of this handle.
        let owned = self.flags.load(Ordering::Relaxed) != flags::DONE;
        if owned && !process::is_exiting() {
            self.state().registry.keep(self.key);
        }
    }

    pub(crate) fn name(&self, label: &str) {
        if self.flags.load(Ordering::Relaxed) != flags::DONE {
            self.state().registry.label(self.key, label);
        }
    }

    /// Frees the resource and returns the driver's error. Where the driver permits no call now, that is the error, and
    /// the free is deferred.
    #[track_caller]
    pub(crate) fn close(mut self, operation: &'static str) -> Result<()> {
        match self.release(operation) {
            Released::Done(result) => result,
            Released::NotPermitted(error) => {
                self.defer(None);
                Err(error)
            }
        }
    }

    /// Defers the free until the driver permits it. The record stays, marked as deferred. `memory` is freed after the
    /// resource.
    #[cold]
    pub(crate) fn defer(&mut self, memory: Option<HostMemory>) {
        let flags = std::mem::replace(self.flags.get_mut(), flags::DONE);
        let state = self.state();
        state.registry.set_deferred(self.key, self.bytes);
        let owned = Self {
            owner: ManuallyDrop::new(self.owner().clone()),
            key: self.key,
            bytes: self.bytes,
            flags: AtomicU64::new(flags | flags::DEFERRED),
        };
        deferred::push_free(Box::new(DeferredFree { owned, memory }));
    }

    /// Frees in the common case: the context is open and current, and the driver accepts the free. Returns false, with
    /// nothing done, in other cases. Short, because it is on the hot path of every free.
    ///
    /// The record is erased before the driver frees (invariant 2): another thread may be handed this address the moment
    /// the free runs.
    #[inline(always)]
    #[track_caller]
    fn try_free_now(&mut self) -> bool {
        let (state, home) = self.owner.parts();
        let inside = match (self.key.kind, home) {
            (ResourceKind::StreamOrdered, Some(home)) if !home.is_default() => state.try_enter(),
            _ => state.try_enter_current(),
        };
        let Some(inside) = inside else {
            return false;
        };
        *self.flags.get_mut() = flags::DONE;
        let record = state.registry.remove(self.key, self.bytes);
        // SAFETY: its context is current, or that of its stream.
        if let Err(error) = unsafe { self.free_on(home) } {
            let done = self.free_failed(error, record);
            drop(inside);
            if !done {
                *self.flags.get_mut() = flags::OWNED;
            }
            return done;
        }
        self.after_free(state, home);
        true
    }

    /// The drop of a block of a pool. Not inlined into programs: it is compiled once, with all that it calls.
    ///
    /// # Safety
    ///
    /// As [`drop_after`](Self::drop_after).
    #[inline(never)]
    unsafe fn drop_block(&mut self) {
        let flags = *self.flags.get_mut();
        // SAFETY: as the caller ensures.
        unsafe {
            if flags != flags::OWNED || !self.try_free_block() {
                self.drop_after(flags == flags::DONE);
            }
        }
    }

    /// As [`try_free_now`](Self::try_free_now) for a block of a pool, without a driver call.
    ///
    /// # Safety
    ///
    /// If this returns true, the owner is moved out of the resource and must not be used any more, nor be dropped.
    #[inline(always)]
    unsafe fn try_free_block(&mut self) -> bool {
        let Owner::Pooled(home) = &*self.owner else {
            return false;
        };
        let state = home.state();
        let Some(inside) = state.try_enter() else {
            return false;
        };
        *self.flags.get_mut() = flags::DONE;
        let key = self.key.known_to_be(ResourceKind::Pooled);
        state.registry.erase(key, self.bytes);
        home.free(key.address, self.bytes);
        if state.budget.is_limited() {
            state.budget.release(self.key.kind, self.bytes);
        }
        drop(inside);
        // SAFETY: as the caller ensures. The reference is in the owner, which this is moved out of.
        Home::put(unsafe { std::ptr::read(home) });
        true
    }

    /// # Safety
    ///
    /// The resource is erased from the registry and not freed yet. Its context is current, but for memory of the
    /// device, which any context may free.
    unsafe fn free(&self) -> result::Result {
        // SAFETY: as the caller ensures.
        unsafe { self.free_on(self.home()) }
    }

    /// The same where the caller has the home stream already.
    ///
    /// # Safety
    ///
    /// As [`free`](Self::free).
    #[inline(always)]
    unsafe fn free_on(&self, home: Option<&Arc<StreamState>>) -> result::Result {
        if let Owner::Pooled(home) = &*self.owner {
            home.free(self.key.address, self.bytes);
            return Ok(());
        }
        let stream = home.map_or(CUstream::NULL, |home| home.handle());
        // SAFETY: this is the one owner. What guards let happen to the resource on other streams is ordered before
        // its home stream.
        unsafe { free::free(self.key, stream) }
    }

    /// The free of [`try_free_now`](Self::try_free_now) failed. Stream-ordered memory can be freed whatever context is
    /// current, but not while a destroyed context is: that is retried. Returns false if nothing was done because the
    /// driver permits no call now.
    #[cold]
    #[track_caller]
    fn free_failed(&self, error: CallError, record: Option<Record>) -> bool {
        if error.code == CUresult::NOT_PERMITTED && deferred::in_host_function() {
            let registry = &self.state().registry;
            registry.put_back(self.key, record, self.bytes);
            return false;
        }
        let dead = matches!(
            error.code,
            CUresult::CONTEXT_IS_DESTROYED | CUresult::INVALID_CONTEXT
        );
        let mut freed = Err(error);
        if dead
            && self.key.kind == ResourceKind::StreamOrdered
            && let Ok(_entered) = self.state().enter("drop")
        {
            // SAFETY: as in `try_free_now`, where nothing was freed.
            freed = unsafe { self.free() };
        }
        let _ = self.finish_free("drop", freed, record);
        true
    }

    /// Frees the resource, if it is still owned.
    #[track_caller]
    pub(crate) fn release(&mut self, operation: &'static str) -> Released {
        let before = *self.flags.get_mut();
        let (shared, deferred) = (before & flags::EXPOSED != 0, before & flags::DEFERRED != 0);
        if !self.disown() {
            return Released::Done(Ok(()));
        }
        let state = self.owner.state();
        let (entered, current) = match state.enter_any_context(operation) {
            Ok(entered) => entered,
            Err(error @ Error::ContextClosed { .. }) => {
                // Teardown frees it.
                if !state.mark_dropped_during_teardown(self.key, self.bytes) && !deferred {
                    state.count_late_drop(self.key.kind, self.bytes);
                }
                return Released::Done(Err(error));
            }
            Err(error) => {
                // Not freed and no leak, in case the exit report is still to come. A forked child makes no report, and
                // a thread that does not exist there may hold a lock.
                if !process::is_forked() {
                    state.registry.set_deferred(self.key, self.bytes);
                }
                return Released::Done(Err(error));
            }
        };
        // A block of a pool is freed without a driver call, and so ends the guard of a pool.
        let needs_driver =
            shared || !matches!(self.key.kind, ResourceKind::Pooled | ResourceKind::Pool);
        if let Err(error) = current
            && error.code == CUresult::NOT_PERMITTED
            && needs_driver
        {
            drop(entered);
            *self.flags.get_mut() = before;
            return Released::NotPermitted(state.error(operation, error, None));
        }
        let record = state.registry.remove(self.key, self.bytes);
        // Device memory can be freed whatever context is current, but for a default stream.
        let needs_context = shared
            || self.key.kind != ResourceKind::Pooled
                && self.home().is_some_and(|home| home.is_default())
            || !matches!(
                self.key.kind,
                ResourceKind::Device
                    | ResourceKind::StreamOrdered
                    | ResourceKind::Pooled
                    | ResourceKind::Managed
                    | ResourceKind::Pool
            );
        let ready = match self.home() {
            _ if needs_context && current.is_err() => current,
            // Work that other code enqueued on the default stream may still write to it.
            Some(home) if shared => home.order_after_handle(&entered, CUstream::NULL),
            _ => Ok(()),
        };
        // SAFETY: erased above; the context is current where the kind needs it.
        let freed = ready.and_then(|()| unsafe { self.free() });
        let result = self.finish_free(operation, freed, record);
        drop(entered);
        Released::Done(result)
    }

    /// The end of a drop: frees in other cases than the common one.
    ///
    /// # Safety
    ///
    /// The owner is dropped: the resource must not be used any more.
    #[inline(always)]
    #[track_caller]
    unsafe fn drop_after(&mut self, is_freed: bool) {
        // A failed free is recorded.
        if !is_freed && let Released::NotPermitted(_) = self.release("drop") {
            self.defer(None);
        }
        // SAFETY: once, as the caller ensures.
        unsafe { ManuallyDrop::drop(&mut self.owner) };
    }

    /// Accounts for a free, or records that it failed (invariant 3).
    #[track_caller]
    fn finish_free(
        &self,
        operation: &'static str,
        freed: result::Result,
        record: Option<Record>,
    ) -> Result<()> {
        let state = self.state();
        match freed {
            Ok(()) => self.after_free(state, self.home()),
            Err(error) => state.record_failed_free(self.key, self.bytes, record, error),
        }
        let bytes = (self.bytes != 0).then_some(self.bytes);
        state.check(operation, freed, bytes)
    }

    #[inline]
    fn after_free(&self, state: &ContextState, home: Option<&Arc<StreamState>>) {
        if state.budget.is_limited() {
            state.budget.release(self.key.kind, self.bytes);
        }
        // A pool waits for no frees.
        if let Some(home) = home
            && self.key.kind != ResourceKind::Pooled
        {
            home.progress().add(self.bytes);
        }
    }
}

impl Drop for OwnedResource {
    #[inline]
    fn drop(&mut self) {
        if self.key.kind == ResourceKind::Pooled {
            // SAFETY: nothing of this is used any more.
            return unsafe { self.drop_block() };
        }
        let is_freed = match *self.flags.get_mut() {
            flags::DONE => true,
            flags::OWNED => self.try_free_now(),
            _ => false,
        };
        // SAFETY: nothing of this is used any more.
        unsafe { self.drop_after(is_freed) };
    }
}
