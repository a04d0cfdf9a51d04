//! What the hot paths of `cuguard` share: process flags, an asymmetric barrier, per-thread values, a clock.
//!
//! The lowest layer: the `unsafe` code that the barrier and the clock need is here, so that the registry needs
//! none. It must not know CUDA, guards, records or reports.

pub mod clock;
pub mod fence;
pub mod per_thread;
pub mod process;

pub use per_thread::{PerThread, Slot};
