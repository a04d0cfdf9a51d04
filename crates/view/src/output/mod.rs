//! Moments and groups as text, JSON, folded stacks, flame graph and pprof profile; runs as traces.
//!
//! This folder must not know how runs are read, nor where output goes.

mod findings;
mod flamegraph;
mod folded;
mod json;
mod pprof;
mod pprof_messages;
mod stacks;
mod text;
mod trace;

pub use flamegraph::flamegraph;
pub use folded::folded;
pub use json::json;
pub use pprof::pprof;
pub use text::{findings_line, text, text_with_findings};
pub use trace::trace;
