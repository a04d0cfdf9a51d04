//! What is alive: one record for everything that a guard took from the driver.
//!
//! Data flows one way. A guard enters what the driver gave out and takes it out again before the
//! driver gets it back ([`Registry`]); a [`Snapshot`] puts the records that are there into groups,
//! as plain sorted data; the report turns a snapshot into words.
//!
//! ```text
//!     guard ── Key, Entry ──► Registry ── 40 bytes a record ──► Snapshot ──► report
//!                                │
//!                                ├── Recent   the newest records of each thread, which need no lock
//!                                ├── Places   equal sites, types and stacks, stored once
//!                                └── Names    equal labels and thread names, stored once
//! ```
//!
//! What this folder must not know: the driver and its types (addresses and handles are numbers
//! here, codes are a number and a name), the names of functions (a stack is addresses; they are
//! looked up when a report is made), `LEAK_REPORT`, and how anything is printed.
//!
//! Tables of places and names belong to the process and only grow: what they hold is small, shared
//! by all contexts, and as many as the program has places that allocate.

#![forbid(unsafe_code)]

mod call_site;
mod caller;
mod collect;
#[cfg(test)]
mod collect_tests;
mod counters;
mod diff;
mod holdings;
mod kind;
mod late;
#[cfg(test)]
mod model;
mod names;
mod pages;
mod recent;
#[cfg(test)]
mod recent_tests;
mod record;
mod scale;
mod shared;
mod snapshot;
mod table;
#[cfg(test)]
mod table_tests;

pub use call_site::MAX_DEPTH;
pub use caller::note_exit;
pub use caller::{LabelScope, in_label};
pub use counters::{Amount, Totals};
pub use diff::{Change, Diff, Trend};
pub use kind::{Kind, Level, UnknownLevel};
pub use late::Late;
pub use pages::{PAGE, Pages};
pub use record::{Entry, FailedFree, Key, Record};
pub use shared::{Shared, shared};
pub use snapshot::{
    ContextInfo, FailedCall, FailedFreeGroup, Group, LateDrops, Origin, Site, Snapshot,
    SnapshotReason,
};
pub use table::Registry;
