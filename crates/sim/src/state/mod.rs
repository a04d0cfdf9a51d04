//! The state of the simulated driver behind one lock, and the operations on it: contexts, memory,
//! pools, streams, worker threads, waiting.
//!
//! Must not know the driver functions: arguments arrive checked, pointers as addresses.

mod captures;
mod code_loading;
mod context_events;
mod contexts;
mod counters;
mod driver_state;
mod graph_launch;
mod graph_memory;
mod graph_usage;
mod graphs;
mod kernel_launch;
mod kernel_memory;
mod loaded_code;
mod lock;
mod managed;
mod memory;
mod objects;
mod other_processes;
mod per_thread;
mod pools;
mod start;
mod streams;
mod user_objects;
mod wait;
mod workers;

pub(crate) use captures::any_capture;
pub(crate) use contexts::end_context;
pub use counters::{Counters, Usage, counters, live_counters};
pub(crate) use driver_state::DriverState;
pub(crate) use graph_launch::Launch;
pub(crate) use graph_memory::allocations;
pub(crate) use graph_usage::GraphUsage;
pub(crate) use kernel_launch::KernelLaunch;
pub(crate) use loaded_code::{Library, Linker, Module, OldLaunch, Settings};
pub(crate) use lock::{StateGuard, lock};
pub(crate) use memory::Operand;
pub(crate) use objects::{Array, Closing, Physical};
pub use other_processes::{OtherProcessError, other_processes, set_other_processes};
pub(crate) use start::start;
pub(crate) use wait::{
    remove_when_idle, run_now, synchronize_context, synchronize_stream, wait_for_work,
};
