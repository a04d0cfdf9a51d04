//! Writing: a file that is mapped into memory, chunks of it that threads own, definitions that they share.
//!
//! ```text
//! Writer ──┬── ChunkFile     grows the file and hands out chunks, under a lock
//!          ├── Definer       stacks, names, modules: a chunk under a lock, each written once
//!          ├── Notes         diagnoses, and what a search found: a chunk under a lock
//!          └── Cursor        of each thread: appends events to a chunk of its own, without a lock
//!                └── Pending the newest allocations, from the limit on, by the policy `aggregate`
//! ```
//!
//! It must not know how recordings are read.

mod create;
mod cursor;
mod define;
mod file;
pub(crate) mod forked;
mod mapped;
mod notes;
mod once;
mod pending;
mod ranges;
mod writer;

pub(crate) use cursor::Cursor;
pub(crate) use mapped::on_fork;
pub use ranges::mapped_ranges;
pub(crate) use writer::{Writer, host};
