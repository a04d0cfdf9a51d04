//! Owns and frees: the state of a context, its resources, the gate that teardown closes, teardown itself.
//!
//! ```text
//!     guard ─► OwnedResource ─► ContextState ─► Registry
//!                  │                 │
//!                  └► free           └► Gate, teardown, report
//! ```
//!
//! [`context_state`] is what all others share: it knows none of what refers to it. [`ownership`] has the types that keep each other alive,
//! [`request`] and [`allocate`] begin a resource and [`owned_resource`] ends it, [`teardown`] ends what is left.
//!
//! The invariants of the crate, by the numbers that comments and tests use:
//!
//! 1. One owner. Only an [`OwnedResource`] frees, and every raw free is in `free.rs`. `into_raw` leaves the record in the
//!    registry, marked as escaped.
//! 2. A record is inserted after the driver allocated and erased before the driver frees, because the driver reuses
//!    addresses at once.
//! 3. A drop never panics, and loses neither an error nor a resource. A failed free is reported. A free that the driver
//!    does not permit now, inside a host function, is queued; until it is done the resource counts as live.
//! 4. A context that is dropped stays open until its last resource is dropped, and is torn down then. `Context::close`
//!    tears it down at once, and guards that outlive it own nothing.
//! 5. Any thread. An operation makes its context current for its own duration and restores what was current before.
//! 6. Safe functions are sound in release builds: no uninitialized memory is read, and nothing is freed or moved while
//!    the device uses it. A scope waits for its work, panic or not.
//! 7. Nothing calls the driver once the process is exiting. The exit report is made from the registry.
//! 8. The registry and snapshots are plain data. Names are resolved and text is written when a report is made.
//! 9. The simulated GPU runs only on request, and says so. A leak is at least one line on stderr or in the log.
//! 10. Only what is lost or forgotten is called a leak; what is cached, in use or still to be freed is not.
//!
//! This folder must not know guards, scopes, the recovery steps that run when an
//! allocation fails, or the exit handler: they are layers above it.

pub(crate) mod allocate;
mod budget;
mod callbacks;
mod captures;
mod context_state;
pub(crate) mod deferred;
mod escaped_pools;
pub(crate) mod free;
pub(crate) mod free_event;
mod free_progress;
pub(crate) mod graph_scratch;
mod handle_list;
pub(crate) mod host_call;
pub(crate) mod host_memory;
pub(crate) mod listed_handle;
pub(crate) mod lock;
mod open_context;
pub(crate) mod open_contexts;
mod owned_resource;
mod ownership;
pub(crate) mod page_locked;
mod peer_access;
mod peer_streams;
pub(crate) mod peer_table;
mod policy;
pub(crate) mod pool_compaction;
mod pool_copies;
mod pool_decay;
mod pool_driver;
mod pool_home;
pub(crate) mod pool_idle;
mod pool_list;
mod pool_spares;
mod pool_state;
mod pool_stream;
mod raw_ownership;
mod release_callback;
mod report_state;
mod request;
pub(crate) mod same_context;
mod stream_homes;
mod stream_state;
mod teardown;
mod unregistered;
pub(crate) mod virtual_pool;
pub(crate) mod wait;

pub(crate) use allocate::{allocate, allocate_cached, allocate_in_pool, allocate_of_driver_size};
pub(crate) use budget::{Budget, Refused};
pub(crate) use context_state::{
    ContextConfig, ContextState, Entered, Source, log_error, log_or_print_error,
};
pub(crate) use free_progress::{FreePoint, FreeProgress};
pub(crate) use listed_handle::ListedHandle;
pub(crate) use open_context::OpenContext;
pub(crate) use ownership::{OwnedResource, Owner, PoolState, Released, StreamState};
pub(crate) use peer_streams::PeerUse;
pub use policy::OomPolicy;
pub(crate) use pool_list::PoolList;
pub use release_callback::ReleaseCallback;
pub(crate) use request::{Failed, Request};
pub(crate) use unregistered::HostMemory;
pub(crate) use virtual_pool::{PoolConfig, VirtualPool};
