//! A device memory pool over virtual memory, for `cuguard`: blocks are stitched out of pages in any order, and half-empty
//! pages are merged behind their addresses.
//!
//! The driver is a trait, [`Driver`]: this crate knows no CUDA types and contains no unsafe code.

#![forbid(unsafe_code)]

mod cache;
mod driver;
mod error;
mod settings;

pub use driver::Driver;
pub use error::PoolError;
pub use settings::Settings;

/// A block of a pool: its address and what it occupies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// The device address of its first byte.
    pub address: u64,
    /// What it occupies: the size that was asked for, rounded up.
    pub bytes: u64,
}
