//! Ownership and release: the state of a context, its resources, the gate that teardown closes, and teardown itself.
//!
//! ```text
//!     guard ─► OwnedResource ─► ContextState ─► Registry
//!                  │                 │
//!                  └► free           └► Gate, teardown, report
//! ```
//!
//! From the bottom up: [`shared`] has the state that everything takes by reference, [`release`] frees resources through
//! the driver, [`pools`] has the pools of cuguard, [`owned`] has the owners of resources, and [`teardown`] ends a
//! context.
//!
//! The invariants of the crate, by the numbers that comments and tests use:
//!
//! 1. One owner. Only an [`OwnedResource`] frees a resource of the program, by `release/free.rs`; other raw frees, of
//!    contexts, of pages of pools and of probes, have an `#[expect]` with the reason. `into_raw` leaves the record in the
//!    registry, marked as escaped.
//! 2. A record is inserted after the driver allocated and erased before the driver frees, because the driver reuses
//!    addresses at once.
//! 3. A drop never panics, and loses neither an error nor a resource. A failed free is reported. Inside a host function
//!    the driver permits no free: the free is queued, and the resource counts as live until the queued free is done.
//! 4. A context that is dropped stays open until its last resource is dropped, and is torn down then. `Context::close`
//!    tears it down at once, and guards that outlive it own nothing.
//! 5. Any thread. An operation makes its context current for its own duration and restores what was current before.
//! 6. Safe functions are sound in release builds: no uninitialized memory is read, and nothing is freed or moved while
//!    the device uses it. A scope waits for its work, panic or not.
//! 7. Nothing calls the driver once the process is exiting. The exit report is made from the registry.
//! 8. The registry and snapshots are plain data. Names are resolved and text is written when a report is made.
//! 9. The simulated GPU runs only on request, and says so. A leak is at least one line on stderr or in the log.
//! 10. Only a lost or forgotten resource is a leak; one that is cached, in use or still to be freed is not.
//!
//! This folder must not know guards, scopes, the recovery steps that run when an allocation fails, or the exit handler:
//! they are layers above it.

pub(crate) mod graph_scratch;
pub(crate) mod host_call;
mod owned;
pub(crate) mod pool_compaction;
mod pools;
mod release;
mod shared;
mod teardown;

pub(crate) use owned::allocate::{
    allocate, allocate_cached, allocate_in_pool, allocate_of_driver_size,
};
pub(crate) use owned::ownership::{DriverPoolState, OwnedResource, Owner, Released, StreamState};
pub(crate) use owned::{free_event, host_memory};
pub(crate) use pools::list::PoolList;
pub(crate) use pools::virtual_pool::{PoolConfig, VirtualPool};
pub(crate) use pools::{idle, virtual_pool};
pub(crate) use release::listed_handle::ListedHandle;
pub(crate) use release::open_context::OpenContext;
pub(crate) use release::{deferred, free, listed_handle, page_locked, peer_table, wait};
pub(crate) use shared::budget::{Budget, Refused};
pub(crate) use shared::context_state::{
    ContextConfig, ContextState, Entered, Source, log_error, log_or_print_error,
};
pub(crate) use shared::free_progress::{FreePoint, FreeProgress};
pub use shared::policy::OomPolicy;
pub use shared::release_callback::ReleaseCallback;
pub(crate) use shared::request::{Failed, Request};
pub(crate) use shared::unregistered::HostMemory;
pub(crate) use shared::{ended, lock, open_contexts, same_context};
pub(crate) use teardown::peer_streams::PeerUse;
