//! The pools of cuguard: the driver functions that they call, the release of idle memory, and the pools of each
//! context. (The driver's own pools are in [`driver_pool`](super::owned::driver_pool).)
//!
//! They must not know who owns a block.

pub(crate) mod copies;
pub(crate) mod decay;
pub(crate) mod driver;
pub(crate) mod idle;
pub(crate) mod list;
pub(crate) mod spares;
pub(crate) mod stream_id;
pub(crate) mod virtual_pool;
