//! Random programs over the pool of cuguard, checked against a model of it.
//!
//! A [`PoolProgram`] allocates and frees blocks of all sizes on several streams and threads, writes, copies and fills them,
//! releases and takes ownership of them, trims and compacts pools, whose limits are small enough that an allocation often
//! needs compaction, and ends pools, streams and the context in any order. After each step the figures of the pools and of
//! the context equal the model's and no two blocks overlap; after each compaction every live block has its bytes; at the end
//! the device has all memory, and the report names no leak.
//!
//! It does not know the other steps of this crate. Layers, from the top down: `run`, `actions` (the steps), `world` (the
//! state), `contents` (what blocks hold), `model` (what must be), `step` (plain data).

mod actions;
mod contents;
mod model;
mod run;
mod step;
mod world;

pub use run::run_pool;
pub use step::{How, PoolAction, PoolProgram, PoolStep};
pub use world::PoolOutcome;
