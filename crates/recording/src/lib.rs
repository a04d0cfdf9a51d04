//! Recordings: every allocation, free, context and out-of-memory error of a process, in one file.
//!
//! ```text
//!     registry ──► writer ──► memory-mapped file ──► reader ──► Recording ──► cuguard-view
//! ```
//!
//! The file is a sequence of chunks. Each thread appends to a chunk of its own, in memory that is mapped from the file, so
//! that events need no lock and no system call, and a process that is killed leaves all that it wrote.
//!
//! - [`start`] begins the recording of the process, [`record`] appends an event, [`record_diagnosis`] and [`record_found`] what is known of
//!   events, [`note_exit`] ends it.
//! - [`Recording::open`] reads a file, as much of it as can be read.
//!
//! This crate must not know the driver and its types, how records are stored, or how anything is printed.

#![deny(unsafe_code)]

mod data;
mod definition;
mod event;
mod foreign;
mod format;
mod meta;
mod note;
mod options;
mod process;
mod read;
mod slot;
#[cfg(test)]
mod tests;
mod write;

pub use data::{
    Diagnosis, Embedded, End, Event, Found, Frame, Meta, Module, RecordedKind, Recording, Site,
    Stack, What,
};
pub use foreign::{ResolveForeign, register_foreign};
pub use options::{
    Definitions, Label, Options, ParsePolicyError, Policy, StackDefinition, StartError,
};
pub use process::{
    addresses, embed_symbols, host, is_on, note_exit, note_sampling, path, record,
    record_diagnosis, record_exit_begins, record_found, record_freed, record_label, record_work,
    start,
};
pub use read::{OpenError, ReadError};
pub use write::mapped_ranges;
