//! Random programs over all of `cuguard`, checked against a model.
//!
//! A [`Program`] is a sequence of [`Step`]s over contexts, streams, events, pools and all kinds of
//! memory: copies, scopes, moves to other threads, `mem::forget`, `into_raw` and `from_raw`, panics, drops in
//! any order. [`run`] does each step with the crate and in the model, and compares: the contents of memory,
//! the live resources by kind, the groups of the snapshot, the simulated driver's counters; at the end, that
//! nothing is left, and that the report names exactly what was forgotten.
//!
//! Programs come from `proptest` ([`Program::strategy`]) and from a fuzzer ([`Program::from_bytes`]); both
//! make the same steps. On a difference [`run`] panics with the step.
//!
//! It runs on the simulated GPU and on a real one. There, free memory before and after is compared, and
//! kernels check contents.
//!
//! Programs over the pool of cuguard are their own: [`PoolProgram`], [`run_pool`].
//!
//! What the fuzzer calls is in [`fuzz`].
//!
//! Layers, from the top down: `run` (a program from begin to end), `actions` with `make`, `raw`, `scope`,
//! `kernel`, `host_function` and `spare` (the steps), `world` (the state), `model` and `report` (what must
//! be), then plain data.

mod actions;
pub mod fuzz;
mod guard;
mod host_function;
mod kernel;
mod make;
mod mismatch;
mod mode;
mod model;
mod outcome;
mod pool;
mod program;
mod raw;
mod report;
mod resource;
mod run;
mod scope;
mod spare;
mod step;
mod steps;
mod thread;
mod views;
mod world;

pub use mode::Mode;
pub use outcome::Outcome;
pub use pool::{How, PoolAction, PoolOutcome, PoolProgram, PoolStep, run_pool};
pub use program::Program;
pub use run::{free_bytes, run, run_with};
pub use step::{Action, End, LastByte, Make, ResourceType, Step, Task, Work, size};
