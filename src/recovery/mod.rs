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
mod free_progress;
mod frees;
mod gather;
mod policy;
mod pools;
mod probe;
mod processes;
mod retry;

pub(crate) use budget::Budget;
pub(crate) use callbacks::Callbacks;
pub use callbacks::ReleaseCallback;
pub(crate) use free_progress::{FreePoint, FreeProgress};
pub(crate) use frees::{List, Listed, file, give_up, note_context_wait, sweep};
pub(crate) use gather::context_refused;
pub use policy::OomPolicy;
pub(crate) use probe::largest_block;
pub(crate) use retry::{Failed, Request, guessing};

use std::sync::Arc;

use crate::context_state::ContextState;
use crate::exit;

const OPERATION: &str = "out of memory";

/// The contexts of a device. Pools are the device's, so what waits in another context matters as well.
fn contexts_on(device: u32) -> Vec<Arc<ContextState>> {
    let mut contexts = exit::open();
    contexts.retain(|state| state.device == device);
    contexts
}
