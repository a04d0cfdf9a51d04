//! Primitives for the hot paths of `cuguard`: process flags, an asymmetric barrier, a gate, a biased lock, per-thread
//! values, a clock, the libraries' own threads.
//!
//! The lowest layer: the `unsafe` code that the barrier, the biased lock and the clock need is here, so that the
//! registry and the pool need none. It must not know CUDA, guards, records or reports.

#![cfg_attr(
    cuguard_loom,
    allow(
        dead_code,
        unused_imports,
        reason = "loom has threads of its own, so the slots of real threads are unused"
    )
)]

mod biased;
pub mod clock;
pub mod fence;
mod gate;
mod lock;
pub mod own_thread;
pub mod per_thread;
mod primitive;
pub mod process;
mod program_time;

pub use biased::{Biased, OtherGuard, OwnerGuard};
pub use gate::{Gate, GateGuard, PauseError, Paused};
pub use lock::{lock, read, try_lock, write};
pub use per_thread::{PerThread, Slot};
pub use program_time::since_start;
