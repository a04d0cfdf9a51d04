//! Launches: configurations, limits, shared memory, cooperative launches and clusters, occupancy.

mod arguments;
mod config;
mod cost;
mod occupancy;
mod over_streams;
mod running;

use std::alloc::Layout;
use std::cell::Cell;

use crate::support::*;
use cuguard::{Context, Function, LaunchConfig, Module, Result, Stream};

const LAUNCHES: &str = include_str!("../../kernels/launches.ptx");

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// Counts the allocations of each thread.
fn count(_: Layout, change: isize) {
    if change > 0 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
    }
}

/// A turn, with allocations on the host counted.
fn observed_turn() -> Turn {
    heap::observe(count);
    turn()
}

struct Setup {
    context: Context,
    stream: Stream,
    module: Module,
}

impl Setup {
    fn new() -> Result<Self> {
        let context = context()?;
        let stream = Stream::new(&context)?;
        let module = Module::from_ptx(&context, LAUNCHES)?;
        Ok(Self {
            context,
            stream,
            module,
        })
    }

    /// Launches a kernel of no arguments.
    fn launch(&self, function: &Function<'_>, config: impl Into<LaunchConfig>) -> Result<()> {
        // SAFETY: `nothing` has no parameters and accesses nothing.
        self.stream
            .scope(|s| unsafe { s.launch(function, config, &[]) })
    }
}
