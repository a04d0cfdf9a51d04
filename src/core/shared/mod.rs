//! The state that everything in `core` takes by reference: the state of a context with its gate, registry, errors,
//! limits and lists, the list of all contexts, and what those that ended have counted.
//!
//! It must not know resources, who owns them, or how they are freed.

pub(crate) mod budget;
pub(crate) mod callbacks;
pub(crate) mod captures;
pub(crate) mod context_state;
pub(crate) mod ended;
pub(crate) mod free_progress;
pub(crate) mod handle_list;
pub(crate) mod lock;
pub(crate) mod open_contexts;
pub(crate) mod policy;
pub(crate) mod release_callback;
pub(crate) mod request;
pub(crate) mod same_context;
pub(crate) mod unregistered;
