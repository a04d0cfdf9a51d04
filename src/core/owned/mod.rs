//! Ownership: [`ownership`] has the types that keep each other alive, and the other files have their functions. Each
//! resource has one owner, which records the resource, erases the record and frees the resource.
//!
//! It must not know how a context is torn down.

pub(crate) mod allocate;
pub(crate) mod driver_pool;
pub(crate) mod escaped_pools;
pub(crate) mod free_event;
pub(crate) mod host_memory;
pub(crate) mod owned_resource;
pub(crate) mod ownership;
pub(crate) mod pool_home;
pub(crate) mod raw_ownership;
pub(crate) mod stream_homes;
pub(crate) mod stream_state;
