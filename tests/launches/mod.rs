//! Launches: configurations, limits, shared memory, cooperative launches and clusters, occupancy. Kernels run on a real GPU;
//! on the simulated one launches are checked and skipped.

mod arguments;
mod config;
mod cost;
mod occupancy;
mod over_streams;
mod running;

use std::alloc::Layout;
use std::cell::Cell;
use std::sync::Once;

use crate::support::*;
use cuguard::sim;
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

/// A turn, with launches that are checked and skipped where the GPU is simulated.
fn skipping() -> Turn {
    heap::observe(count);
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let config = sim::Config::new().skip_kernels(true);
        sim::configure(config).expect("it does not run yet");
    });
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
