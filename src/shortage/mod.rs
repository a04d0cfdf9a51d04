//! When memory runs out: what is tried before an allocation fails, and what is found out for the
//! error that tells why. The same for what takes memory without saying how much: a stream, an event, a
//! module, a memory pool, a launch.
//!
//! ```text
//!     an allocation ── refused ──► ladder: callbacks, wait, trim, each with another attempt
//!                                     │ still refused
//!                                     ▼
//!                                  gather ──► OutOfMemory (plain data, in `oom`)
//! ```
//!
//! The ladder is climbed outside the gate of the context: callbacks are the program's, and may drop
//! whatever they like. Nothing here takes device memory. Teardown waits a while for callbacks that are
//! being called before it closes the gate.

mod budget;
mod callbacks;
mod frees;
mod gather;
mod ladder;
mod notes;
mod pools;
mod probe;
mod processes;
mod settings;

pub(crate) use budget::Budget;
pub(crate) use callbacks::Callbacks;
pub use callbacks::ReleaseCallback;
pub(crate) use frees::{List, Listed, file, give_up, note_context_wait, sweep};
pub(crate) use gather::context_refused;
pub(crate) use ladder::{Failed, Request, guessing};
pub(crate) use notes::{Moment, Notes};
pub(crate) use probe::largest_block;
pub use settings::Shortage;

use std::sync::Arc;

use crate::custody::Custody;
use crate::exit;

const OPERATION: &str = "out of memory";

/// The contexts of a device. Pools are the device's, so what waits in another context matters as well.
fn contexts_on(device: u32) -> Vec<Arc<Custody>> {
    let mut contexts = exit::open();
    contexts.retain(|custody| custody.device == device);
    contexts
}
