//! Random programs over everything that `cuguard` does, against a plain model.
//!
//! A [`Program`] is a sequence of [`Step`]s over contexts, streams, events, pools and all kinds of
//! memory: copies, scopes, moves to other threads, forgetting, giving away and taking back, panics,
//! ends in any order. [`run`] does each step, lets a plain model do the same, and compares: the
//! contents of memory, what is alive by kind, the groups of the snapshot, what the simulated driver
//! says is allocated; at the end, that nothing is left, and that the report names exactly what was
//! forgotten.
//!
//! Programs come from `proptest` ([`Program::strategy`]) and from a fuzzer
//! ([`Program::from_bytes`]); both make the same steps. Where something is wrong, [`run`] panics and
//! names the step.
//!
//! It runs on the simulated GPU and on a real one. On a real one the figures of the driver are
//! those of `cuMemGetInfo`, before and after, and kernels check memory.

mod guard;
mod host_function;
mod kernel;
mod make;
mod model;
mod options;
mod program;
mod raws;
mod report;
mod run;
mod scope;
mod spare;
mod step;
mod text;
mod thread;
mod world;
mod wrong;

pub use options::Options;
pub use program::Program;
pub use run::{Outcome, free_bytes, run, run_with};
pub use step::{Action, End, Make, Step, Task, What, Work, size};
pub use text::{report_json, setting};
