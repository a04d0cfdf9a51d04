//! Recordings: every allocation, free, context and out-of-memory error of a process, in one file.
//!
//! ```text
//!     registry ──► writer ──► memory-mapped file ──► reader ──► Recording ──► cuguard-view
//! ```
//!
//! The file is a sequence of chunks. Each thread appends to a chunk of its own, in memory that is mapped from the file, so
//! that events need no lock and no system call, and a process that is killed leaves all that it wrote.
//!
//! This crate must not know the driver and its types, how records are stored, or how anything is printed.

mod data;

pub use data::{Embedded, End, Event, Frame, Kind, Meta, Module, Recording, Site, Stack, What};
