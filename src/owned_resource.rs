//! A claim: the one owner of one resource. Every guard holds one, and lets it do what must never
//! go wrong: enter the resource in the registry, take it out and free it, whatever thread it is
//! dropped on, and keep the driver's word when it refuses.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cuguard_driver::sys::{CUresult, CUstream};

use crate::context_state::{ContextState, Entered};
use crate::deferred::{self, Deferred};
use crate::error::{Error, Result};
use crate::exit;
use crate::free;
use crate::memory::{HostMemory, PoolCore};
use crate::open_context::OpenContext;
use crate::stream::StreamCore;
use cuguard_registry::{Entry, FailedFree, Key, Kind, Record};

pub(crate) struct OwnedResource {
    owner: Owner,
    key: Key,
    bytes: u64,
    /// As wide as the rest, so that there is no gap to copy (see `Kind`).
    flags: AtomicU64,
}

/// What a claim has to do when it goes.
mod flags {
    /// To free what it owns.
    pub(super) const OWNED: u64 = 0;
    /// The same, after what `cust` may have given to the default stream.
    pub(super) const LENT: u64 = 1;
    /// Nothing is owned any more (freed, or released), or never was.
    pub(super) const DONE: u64 = 2;
    /// Set beside one of the first two: the guard was dropped, and the free was put off.
    pub(super) const DEFERRED: u64 = 4;
}

/// What a claim keeps alive. One of them and not several: a stream keeps its context open, and each
/// count that many threads share costs them time.
#[derive(Clone)]
pub(crate) enum Owner {
    /// The context, which stays open for as long as the resource lives.
    Context(Arc<OpenContext>),
    /// The flags of the context alone, for a resource whose users keep the context open: a pool
    /// stays for memory that was released to the program, which keeps no context open.
    State(Arc<ContextState>),
    /// The stream that stream-ordered memory is freed on. It lives as long as the memory.
    Stream(Arc<StreamCore>),
    /// The pool that the memory is from, and the stream. They are dropped in this order: the stream
    /// may be the last that keeps the context open.
    Pool(Box<(Arc<PoolCore>, Arc<StreamCore>)>),
}

impl From<&Arc<OpenContext>> for Owner {
    fn from(context: &Arc<OpenContext>) -> Self {
        Self::Context(context.clone())
    }
}

impl From<&Arc<StreamCore>> for Owner {
    fn from(core: &Arc<StreamCore>) -> Self {
        Self::Stream(core.clone())
    }
}

impl Owner {
    fn state(&self) -> &Arc<ContextState> {
        match self {
            Self::Context(context) => context,
            Self::State(state) => state,
            Self::Stream(core) => core.state(),
            Self::Pool(both) => both.1.state(),
        }
    }

    /// The handle of the stream, for the registry; 0 is none.
    pub(crate) fn stream(&self) -> u64 {
        match self {
            Self::Context(_) | Self::State(_) => 0,
            Self::Stream(core) => core.handle().0 as u64,
            Self::Pool(both) => both.1.handle().0 as u64,
        }
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

/// What came of a free.
pub(crate) enum Released {
    /// It was tried: the driver's error, if any, is filed.
    Done(Result<()>),
    /// The driver permits no call now, as inside a host function: nothing was done, and the claim
    /// owns the resource as before.
    NotNow(Error),
}

impl OwnedResource {
    /// Takes a resource that the driver just gave out. (Law 2: into the registry after the driver
    /// allocated.)
    #[track_caller]
    pub(crate) fn new(owner: Owner, key: Key, entry: Entry) -> Self {
        Self::new_at(Location::caller(), owner, key, entry)
    }

    /// The same for a caller that knows the line itself.
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
            owner,
            key,
            bytes,
            flags: AtomicU64::new(flags::OWNED),
        }
    }

    /// A claim on nothing, for what takes no memory.
    pub(crate) fn nothing(owner: Owner, kind: Kind) -> Self {
        Self {
            owner,
            key: Key {
                kind,
                slot: 0,
                address: 0,
            },
            bytes: 0,
            flags: AtomicU64::new(flags::DONE),
        }
    }

    /// Takes back what [`into_raw`](Self::into_raw) gave, or adopts what somebody else made.
    #[track_caller]
    pub(crate) fn from_raw(owner: Owner, key: Key, entry: Entry) -> Self {
        owner.state().budget.add(key.kind, entry.bytes);
        if exit::is_forked() {
            // It belongs to the parent, and locks of the registry may be held for ever.
            let mut owned = Self::nothing(owner, key.kind);
            owned.key = key;
            return owned;
        }
        let Some(key) = owner.state().registry.recapture(key) else {
            return Self::new(owner, key, entry);
        };
        let pool = owner.state().escaped_pools().remove(&key.address);
        let owner = match (owner, pool) {
            (Owner::Stream(core), Some(pool)) => Owner::Pool(Box::new((pool, core))),
            (owner, _) => owner,
        };
        Self {
            owner,
            key,
            bytes: entry.bytes,
            flags: AtomicU64::new(flags::OWNED),
        }
    }

    /// Gives the resource away. It stays in the registry, marked as escaped. 0 where its context is
    /// closed: teardown has freed it, or is about to.
    pub(crate) fn into_raw(mut self) -> u64 {
        if !self.finish() {
            return self.key.address;
        }
        let state = self.state();
        // Teardown waits, so it finds the mark or has not begun.
        let Some(inside) = state.gate.pass() else {
            state.count_late_drop(self.key.kind, self.bytes);
            return 0;
        };
        state.registry.escape(self.key, self.bytes);
        state.budget.give_back(self.key.kind, self.bytes);
        if let Owner::Pool(both) = &self.owner {
            let old = state
                .escaped_pools()
                .insert(self.key.address, both.0.clone());
            // Without the lock, as a pool may be destroyed here.
            drop(inside);
            drop(old);
        }
        self.key.address
    }

    /// Owns nothing from now on. Tells whether it did.
    fn finish(&mut self) -> bool {
        std::mem::replace(self.flags.get_mut(), flags::DONE) != flags::DONE
    }

    /// Notes that `cust` gets at stream-ordered memory, and may give work on it to the default
    /// stream that nobody waits for.
    pub(crate) fn lend(&self) {
        let (owned, lent) = (flags::OWNED, flags::LENT);
        let order = Ordering::Relaxed;
        let _ = self.flags.compare_exchange(owned, lent, order, order);
    }

    /// What the home stream is given from now on happens after what `cust` gave to the default
    /// stream, if it ever got at the memory. Its context is current.
    pub(crate) fn order_after_default_stream(&self, entered: &Entered<'_>) -> Result<()> {
        match self.home() {
            Some(home) if self.flags.load(Ordering::Relaxed) == flags::LENT => {
                home.order_after_handle(entered, CUstream::NULL)
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn state(&self) -> &Arc<ContextState> {
        self.owner.state()
    }

    pub(crate) fn address(&self) -> u64 {
        self.key.address
    }

    pub(crate) fn key(&self) -> Key {
        self.key
    }

    pub(crate) fn home(&self) -> Option<&Arc<StreamCore>> {
        match &self.owner {
            Owner::Context(_) | Owner::State(_) => None,
            Owner::Stream(core) => Some(core),
            Owner::Pool(both) => Some(&both.1),
        }
    }

    /// Notes that the owner is dropped while other guards keep the resource.
    #[cold]
    pub(crate) fn keep(&self) {
        if !crate::exit::is_exiting() {
            self.state().registry.keep(self.key);
        }
    }

    pub(crate) fn name(&self, label: &str) {
        if self.flags.load(Ordering::Relaxed) != flags::DONE {
            self.state().registry.label(self.key, label);
        }
    }

    /// Frees the resource and returns the driver's error. Where the driver permits no call now, the
    /// free is deferred, and that is the error.
    #[track_caller]
    pub(crate) fn close(mut self, operation: &'static str) -> Result<()> {
        match self.release(operation) {
            Released::Done(result) => result,
            Released::NotNow(error) => {
                self.defer(None);
                Err(error)
            }
        }
    }

    /// Leaves the resource in the registry, as one that is dropped and still to be freed, and puts
    /// the free off until the driver permits it. `memory` is freed after that.
    #[cold]
    pub(crate) fn defer(&mut self, memory: Option<HostMemory>) {
        let flags = std::mem::replace(self.flags.get_mut(), flags::DONE);
        let state = self.state();
        state.registry.set_deferred(self.key, self.bytes);
        let owned = Self {
            owner: self.owner.clone(),
            key: self.key,
            bytes: self.bytes,
            flags: AtomicU64::new(flags | flags::DEFERRED),
        };
        deferred::push(Deferred::Free(owned, memory));
    }

    /// The usual way for a resource to go: its context is there, and current, and the driver takes
    /// it. False where it is not so simple, with nothing done. Kept short, as it is on the way of
    /// every free.
    ///
    /// Law 2: out of the registry before the driver frees, as the driver hands the address out
    /// again at once. Law 3: what it refuses is kept.
    #[inline]
    #[track_caller]
    fn release_quickly(&mut self) -> bool {
        let state = self.owner.state();
        let inside = match self.key.kind {
            Kind::StreamOrdered => state.pass_in(),
            _ => state.try_enter_current(),
        };
        let Some(inside) = inside else {
            return false;
        };
        *self.flags.get_mut() = flags::DONE;
        let record = state.registry.remove(self.key, self.bytes);
        let stream = self.home().map_or(CUstream::NULL, |home| home.handle());
        // SAFETY: this claim is the one owner and frees once. Its context is current, or that of
        // its stream. What guards let happen to the resource on other streams is ordered before its
        // home stream.
        let code = unsafe { free::free(self.key, stream) };
        if code.is_success() {
            self.freed();
            return true;
        }
        let taken = self.not_taken(code, stream, record);
        drop(inside);
        if !taken {
            *self.flags.get_mut() = flags::OWNED;
        }
        taken
    }

    /// The driver refused to take it as quickly as that. Stream-ordered memory is freed whatever is
    /// current, but not while a context is that somebody has destroyed.
    /// False where nothing was done, as the driver permits no call now.
    #[cold]
    #[track_caller]
    fn not_taken(&self, code: CUresult, stream: CUstream, record: Option<Record>) -> bool {
        let mut code = code;
        if code == CUresult::NOT_PERMITTED && deferred::in_host_function() {
            let registry = &self.state().registry;
            registry.put_back(self.key, record, self.bytes);
            return false;
        }
        let dead = matches!(
            code,
            CUresult::CONTEXT_IS_DESTROYED | CUresult::INVALID_CONTEXT
        );
        if dead
            && self.key.kind == Kind::StreamOrdered
            && let Ok(_entered) = self.state().enter("drop")
        {
            // SAFETY: as in `release_quickly`, where nothing was freed.
            code = unsafe { free::free(self.key, stream) };
        }
        if code.is_success() {
            self.freed();
        } else {
            self.file("drop", free::function(self.key.kind), code, record);
        }
        true
    }

    /// Frees the resource, if it is still owned.
    #[track_caller]
    pub(crate) fn release(&mut self, operation: &'static str) -> Released {
        let before = *self.flags.get_mut();
        let (lent, deferred) = (before & flags::LENT != 0, before & flags::DEFERRED != 0);
        if !self.finish() {
            return Released::Done(Ok(()));
        }
        let state = self.owner.state();
        let (entered, current) = match state.enter_uncurrent(operation) {
            Ok(entered) => entered,
            Err(error @ Error::ContextClosed { .. }) => {
                // Teardown frees it, as far as it can.
                if !state.note_drop_in_time(self.key, self.bytes) && !deferred {
                    state.count_late_drop(self.key.kind, self.bytes);
                }
                return Released::Done(Err(error));
            }
            Err(error) => {
                // It is not freed, and no leak, should the exit report be still to come. In a forked
                // child there is none, and locks may be held for ever.
                if !exit::is_forked() {
                    state.registry.set_deferred(self.key, self.bytes);
                }
                return Released::Done(Err(error));
            }
        };
        if let Err(error) = &current
            && deferred::is_not_permitted(error)
        {
            let error = error.clone();
            drop(entered);
            *self.flags.get_mut() = before;
            return Released::NotNow(error);
        }
        let record = state.registry.remove(self.key, self.bytes);
        // Memory of the device can be freed whatever context is current.
        let needs_context = lent
            || !matches!(
                self.key.kind,
                Kind::Device | Kind::StreamOrdered | Kind::Managed
            );
        if let Err(error) = current
            && needs_context
        {
            // A free that could not even be tried.
            let code = error.code().unwrap_or(CUresult::UNKNOWN);
            self.file(operation, "cuCtxPushCurrent", code, record);
            return Released::Done(Err(error));
        }
        if let Some(home) = self.home().filter(|_| lent)
            && let Err(error) = home.order_after_handle(&entered, CUstream::NULL)
        {
            // Work that `cust` gave to the default stream may still write to it.
            let (function, code) = match &error {
                Error::Driver(error) => (error.function, error.code),
                _ => ("cuStreamWaitEvent", CUresult::UNKNOWN),
            };
            self.file(operation, function, code, record);
            return Released::Done(Err(error));
        }
        let stream = self.home().map_or(CUstream::NULL, |home| home.handle());
        // SAFETY: as in `release_quickly`.
        let code = unsafe { free::free(self.key, stream) };
        let function = free::function(self.key.kind);
        if code.is_success() {
            self.freed();
        } else {
            self.file(operation, function, code, record);
        }
        Released::Done(entered.check_bytes(function, code, self.bytes as usize))
    }

    /// The driver has taken it.
    #[inline]
    fn freed(&self) {
        let budget = &self.state().budget;
        if budget.is_limited() {
            budget.give_back(self.key.kind, self.bytes);
        }
        if let Some(home) = self.home() {
            home.note_free(self.bytes);
        }
    }

    /// Keeps what the driver refused.
    #[cold]
    #[track_caller]
    fn file(
        &self,
        operation: &'static str,
        function: &'static str,
        code: CUresult,
        record: Option<Record>,
    ) {
        let state = self.state();
        // Notes an error that breaks the context; the result is for those who can return it.
        let _ = state.check(operation, function, code, None);
        state.registry.file_failed_free(FailedFree::new(
            self.key,
            self.bytes,
            record,
            function,
            code.0,
            code.name().unwrap_or_default(),
        ));
    }
}

impl Drop for OwnedResource {
    #[inline]
    fn drop(&mut self) {
        let quick = match *self.flags.get_mut() {
            flags::DONE => true,
            flags::OWNED => self.release_quickly(),
            _ => false,
        };
        // What goes wrong is filed.
        if !quick && let Released::NotNow(_) = self.release("drop") {
            self.defer(None);
        }
    }
}
