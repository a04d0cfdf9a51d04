//! A device memory pool over virtual memory, for `cuguard`: blocks are stitched out of pages in any order, and half-empty
//! pages are merged behind their addresses.
//!
//! The driver is a trait, [`Driver`]: this crate knows no CUDA types and contains no unsafe code.

#![forbid(unsafe_code)]

mod addresses;
mod bits;
mod cache;
mod central;
mod driver;
mod engine;
mod error;
mod frames;
mod handles;
mod hash;
mod mask;
mod pool;
mod random;
mod ranges;
mod settings;
mod shelf;
mod size;
mod slab;
mod slots;
mod state;
mod stats;
mod streams;
mod windows;

pub use central::Central;
pub use driver::Driver;
pub use error::PoolError;
pub use pool::Pool;
pub use settings::Settings;
pub use stats::{Compacted, PageUse, Stats};

/// A block of a pool: its address and what it occupies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// The device address of its first byte.
    pub address: u64,
    /// What it occupies: the size that was asked for, rounded up.
    pub bytes: u64,
}
