//! Streams as data: queued work, positions on streams, vector clocks, events, and the queue of
//! streams that wait for a worker thread.
//!
//! Must not know memory, contexts (other than their ids), the state's lock or the driver functions.

mod attributes;
mod event_table;
mod stream;
mod vector_clock;
mod worker_pool;

pub(crate) use event_table::{Event, EventTable};
pub(crate) use stream::{OnComplete, Role, Run, Stage, Stream, StreamPosition, Work};
pub(crate) use worker_pool::{WORK_READY, WorkerPool};
