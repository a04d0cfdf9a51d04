//! `from_raw` takes ownership of a resource from the program; `into_raw` releases ownership to the program.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use cuguard_registry::{Entry, Key, ResourceKind};
use cuguard_sync::process;

use crate::core::owned::escaped_pools;
use crate::core::owned::ownership::{Home, OwnedResource, Owner, flags};

impl OwnedResource {
    /// Takes ownership of what [`into_raw`](Self::into_raw) released, or of what other code allocated.
    #[track_caller]
    pub(crate) fn from_raw(owner: Owner, key: Key, entry: Entry) -> Self {
        owner.state().budget.add(key.kind, entry.bytes);
        if process::is_forked() {
            // It belongs to the parent, and a thread that does not exist here may hold a lock of the registry.
            return Self::borrowed(owner, key);
        }
        if let Owner::Stream(stream) = &owner
            && let Some(pool) = owner.state().pools_of_cuguard().recapture(key.address)
        {
            // As an allocation, which refuses that stream: the pool records its events on any thread, each of which has
            // another per-thread stream. The default stream is ordered after all of them.
            let home = match stream.is_per_thread() {
                true => Home::find(&pool, &stream.default_of_context()),
                false => Home::find(&pool, stream),
            };
            return Self::from_pool(home, key.address, entry);
        }
        let Some(key) = owner.state().registry.recapture(key) else {
            return Self::new(owner, key, entry);
        };
        let pool = escaped_pools::take(owner.state(), key.address);
        let owner = match (owner, pool) {
            (Owner::Stream(stream), Some(pool)) => Owner::Pool(Box::new((pool, stream))),
            (owner, _) => owner,
        };
        Self {
            owner: ManuallyDrop::new(owner),
            key,
            bytes: entry.bytes,
            flags: AtomicU64::new(flags::OWNED),
        }
    }

    /// The same for a block of a pool, which is freed on the stream of `home`.
    #[track_caller]
    fn from_pool(home: Arc<Home>, address: u64, mut entry: Entry) -> Self {
        entry.stream = home.stream().handle().0 as u64;
        home.pool().set_pinned(address, false);
        let key = Key::new(ResourceKind::Pooled, address);
        let Some(key) = home.state().registry.recapture(key) else {
            return Self::new(Owner::Pooled(home), key, entry);
        };
        Self {
            owner: ManuallyDrop::new(Owner::Pooled(home)),
            key,
            bytes: entry.bytes,
            flags: AtomicU64::new(flags::OWNED),
        }
    }

    /// Releases ownership. The record stays, marked as escaped. 0 where the context is closed: teardown has freed
    /// the resource, or is about to.
    pub(crate) fn into_raw(mut self) -> u64 {
        // In a forked child a thread that does not exist may hold a lock, and there is no teardown.
        if !self.disown() || process::is_forked() {
            return self.key.address;
        }
        let state = self.state();
        // Teardown waits for this, so it sees the mark.
        let Some(inside) = state.gate.enter() else {
            state.count_late_drop(self.key.kind, self.bytes);
            return 0;
        };
        state.registry.escape(self.key, self.bytes);
        state.budget.release(self.key.kind, self.bytes);
        if let Owner::Pool(both) = &*self.owner {
            let old = escaped_pools::keep(state, self.key.address, both.0.clone());
            // Outside the gate and without the lock: a pool may be destroyed here.
            drop(inside);
            drop(old);
        } else if let Owner::Pooled(home) = &*self.owner {
            let pools = state.pools_of_cuguard();
            // Other code may use it without the knowledge of the pool.
            home.pool().set_pinned(self.key.address, true);
            let old = pools.escape(self.key.address, home.pool());
            drop(inside);
            drop(old);
        }
        self.key.address
    }
}
