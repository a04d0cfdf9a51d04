//! What the program does besides allocations and frees: kernels and graphs that it launches. Growth is measured by it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::registry;

static GRAPHS: AtomicU64 = AtomicU64::new(0);
static KERNELS: OnceLock<fn() -> u64> = OnceLock::new();

/// Counts kernels by a function, which allocating threads call: it takes no lock.
pub(crate) fn count_kernels(kernels: fn() -> u64) {
    let _ = KERNELS.set(kernels);
    registry().count_work(all);
}

/// A graph was launched.
pub(crate) fn graph_launched() {
    if GRAPHS.fetch_add(1, Relaxed) == 0 {
        registry().count_work(all);
    }
}

fn all() -> u64 {
    let kernels = KERNELS.get().map_or(0, |kernels| kernels());
    GRAPHS.load(Relaxed).saturating_add(kernels)
}
