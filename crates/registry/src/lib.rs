//! The registry of cuguard: a record for every live resource, with the call site or stack trace that
//! allocated it.
//!
//! A guard inserts a resource after the driver allocated it, and removes it before the driver frees it
//! ([`Registry`]). A [`Snapshot`] groups the records as plain sorted data. `cuguard-report` renders it.
//!
//! ```text
//!     guard ── Key, Entry ──► Registry ── 40 bytes a record ──► Snapshot ──► report
//!                                │
//!                                ├── RecentRecords  the newest records of each thread, without locks
//!                                ├── call sites     interned lines, types and stack traces
//!                                ├── labels         interned, freed when no record has them
//!                                └── names          interned names of threads
//! ```
//!
//! This crate must not know the driver and its types (addresses and handles are numbers, errors a code
//! and a name), function names (a stack trace is addresses, which reports resolve), `LEAK_REPORT`, or how
//! anything is printed.
//!
//! While a recording is on, each insert and each remove adds an event to it ([`start_recording`]).
//!
//! Interned call sites and names of threads belong to the process and are never freed: they are small, and there
//! are as many as the program has call sites that allocate.

#![forbid(unsafe_code)]

mod addressed;
mod by_address;
#[cfg(test)]
mod by_address_tests;
mod by_device;
mod call_site;
mod caller;
mod collect;
#[cfg(test)]
mod collect_tests;
mod counters;
mod destroyed;
mod diff;
mod failed_allocation;
mod failed_free;
mod fates;
mod group;
mod growing;
mod growth;
#[cfg(test)]
mod growth_tests;
mod hash;
mod history;
mod kind;
mod label_scope;
mod label_search;
mod labels;
mod late;
mod live_bytes;
mod marks;
#[cfg(test)]
mod model_tests;
mod names;
mod naming;
mod observe;
mod origin;
mod owner;
mod pages;
mod peak;
mod pool_usage;
mod presence;
mod recent;
#[cfg(test)]
mod recent_tests;
mod record;
mod recorder;
mod refusals;
mod registry;
#[cfg(test)]
mod registry_tests;
mod rounds;
mod sampling;
mod shared;
mod site_table;
mod snapshot;
mod step_length;
mod trace;
mod usage;
mod watches;

pub use call_site::MAX_DEPTH;
pub use caller::{name_thread, note_exit};
pub use counters::{Amount, Totals};
pub use diff::{Change, Diff, Trend};
pub use failed_allocation::FailedAllocation;
pub use failed_free::FailedFree;
pub use group::{Fate, Group, merge_equal};
pub use growing::{CallerSteps, Growing, growing};
pub use growth::{Growth, Rise, SiteSteps, Steps, growth, is_teardown};
pub use history::{History, Peak, SiteHistory};
pub use kind::{ParseTrackingLevelError, ResourceKind, TrackingLevel};
pub use label_scope::{LabelScope, label};
pub use label_search::free_labels;
pub use labels::label_count;
pub use late::Late;
pub use naming::naming_frames;
pub use origin::{Origin, Site};
pub use owner::Owner;
pub use pages::{PAGE, PageUse, SharedPages};
pub use peak::PeakWatch;
pub use pool_usage::PoolUsage;
pub use record::{Entry, Key, Record, Removed};
pub use recorder::{
    end_recording, record_context_created, record_context_ended, record_out_of_memory,
    start_recording,
};
pub use refusals::Refusals;
pub use registry::Registry;
pub use rounds::Rounds;
pub use shared::shared_pages;
pub use snapshot::{ContextInfo, FailedCall, FailedFreeGroup, Snapshot, SnapshotReason};
pub use step_length::StepLength;
pub use trace::Trace;
pub use usage::{MemoryUsage, SiteUsage};
