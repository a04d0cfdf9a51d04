//! Owns and frees: the state of a context, its resources, the gate that teardown closes, teardown itself.
//!
//! ```text
//!     guard ─► OwnedResource ─► ContextState ─► Registry
//!                  │                 │
//!                  └► free           └► Gate, teardown, report
//! ```
//!
//! The only raw frees are in `free.rs`. This folder must not know guards, scopes, the recovery steps that run when an
//! allocation fails, or the exit handler: they are layers above it.

pub(crate) mod allocate;
mod budget;
mod callbacks;
mod context_state;
pub(crate) mod deferred;
pub(crate) mod free;
mod free_progress;
pub(crate) mod handle_list;
pub(crate) mod host_memory;
pub(crate) mod lock;
mod open_context;
pub(crate) mod open_contexts;
mod owned_resource;
mod policy;
mod pool_state;
mod report_state;
pub(crate) mod same_context;
mod stream_state;
mod teardown;
mod unregistered;
pub(crate) mod wait;

pub(crate) use allocate::{Failed, Refused, Request, allocate};
pub(crate) use budget::Budget;
pub use callbacks::ReleaseCallback;
pub(crate) use context_state::{ContextConfig, ContextState, Entered, Source, log_error};
pub(crate) use free_progress::{FreePoint, FreeProgress};
pub(crate) use handle_list::ListedHandle;
pub(crate) use host_memory::HostMemory;
pub(crate) use open_context::OpenContext;
pub(crate) use owned_resource::{OwnedResource, Owner, Released};
pub use policy::OomPolicy;
pub(crate) use pool_state::PoolState;
pub(crate) use stream_state::StreamState;
