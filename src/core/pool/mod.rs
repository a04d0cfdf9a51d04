//! Pools of cuguard: device memory out of virtual memory, from [`cuguard_pool`].
//!
//! ```text
//!     OwnedResource ─► Home ─► VirtualPool ─► cuguard_pool::Pool ─► PoolDriver ─► result::virtual_memory
//!                       └────► StreamState ─► ContextState
//! ```
//!
//! [`Home`] is what a block keeps alive: its pool and its stream, one for each thread, so that threads do not change the
//! same reference count. [`compact`] is alone in the context: it moves blocks behind their addresses. `decay` releases
//! idle memory to the device as time passes.
//!
//! This folder must not know guards, nor why memory runs short. What memory is where is `cuguard_pool`'s alone.

mod compact;
mod decay;
mod driver;
mod home;
mod list;
mod stream_id;
mod virtual_pool;

pub(crate) use compact::compact;
pub(crate) use home::{Home, Homes};
pub(crate) use list::PoolList;
pub(crate) use stream_id::{StreamId, StreamIdGuard};
pub(crate) use virtual_pool::{PoolConfig, VirtualPool, check, failed};
