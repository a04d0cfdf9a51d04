//! Releases resources through the driver: raw frees, deferred frees, the count that keeps a context open, and peer
//! accesses.
//!
//! It must not know who owns a resource.

pub(crate) mod deferred;
pub(crate) mod free;
pub(crate) mod listed_handle;
pub(crate) mod open_context;
pub(crate) mod page_locked;
pub(crate) mod peer_access;
pub(crate) mod peer_table;
pub(crate) mod wait;
