//! Atomics, locks and threads: those of `std`, or of `loom` under `--cfg cuguard_loom`, so that loom runs this crate's own
//! source and not a copy of it.

#[cfg(not(cuguard_loom))]
pub(crate) use std::{
    hint,
    sync::{Condvar, Mutex, atomic},
    thread,
};

#[cfg(cuguard_loom)]
pub(crate) use loom::{
    hint,
    sync::{Condvar, Mutex, atomic},
    thread,
};

/// Lets other threads run: loom must be told that a loop waits for one.
pub(crate) fn pause(turn: u32) {
    match turn {
        _ if cfg!(cuguard_loom) => thread::yield_now(),
        0..50 => hint::spin_loop(),
        50..100 => thread::yield_now(),
        // What is waited for may take long.
        _ => std::thread::sleep(std::time::Duration::from_micros(100)),
    }
}
