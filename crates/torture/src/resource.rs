//! A resource of a program: its guard, and what the model expects of it.

use cuguard::ResourceKind;

use crate::guard::Guard;
use crate::model::Key;

/// A resource that a program holds or has forgotten.
#[derive(Debug)]
pub struct Resource {
    pub id: u64,
    /// The index of its context.
    pub slot: usize,
    /// The registry's key; `None` if it allocates nothing.
    pub key: Option<Key>,
    pub kind: ResourceKind,
    pub contents: Vec<u8>,
    /// The seed of [`word_pattern`](crate::guard::word_pattern) that wrote the contents.
    pub seed: Option<u32>,
    /// The stream that it was allocated on.
    pub stream: Option<u64>,
    /// The pool that it was allocated from.
    pub pool: Option<u64>,
    /// Whether the driver keeps it registered after its context was closed.
    pub kept_by_driver: bool,
    pub forgotten: bool,
    pub guard: Guard,
}

impl Resource {
    /// Whether it keeps a stream or a pool alive.
    pub fn holds(&self, id: u64) -> bool {
        [self.stream, self.pool].contains(&Some(id))
    }
}
