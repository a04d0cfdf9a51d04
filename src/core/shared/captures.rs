//! The captures of a context that are in progress.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use cuguard_driver::result::{self, graph};
use cuguard_driver::sys::CUstream;

use crate::core::shared::lock::lock;

/// The streams that capture. Each is private to its capture, and captures in the relaxed mode, so that any thread can end
/// it.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    streams: Mutex<Vec<CUstream>>,
    /// Whether a graph was captured that allocates.
    allocates: AtomicBool,
}

impl Captures {
    /// Begins a capture on a stream, and adds it.
    pub(crate) fn begin(
        &self,
        stream: CUstream,
        begin: impl FnOnce() -> result::Result,
    ) -> result::Result {
        let mut streams = lock(&self.streams);
        begin().inspect(|()| streams.push(stream))
    }

    /// Runs `work`, unless a stream captures. None begins meanwhile.
    pub(in crate::core) fn unless_any<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let streams = lock(&self.streams);
        streams.is_empty().then(work)
    }

    /// Takes all streams, for teardown.
    pub(in crate::core) fn take(&self) -> Vec<CUstream> {
        std::mem::take(&mut *lock(&self.streams))
    }

    pub(crate) fn remove(&self, stream: CUstream) {
        lock(&self.streams).retain(|other| *other != stream);
    }

    pub(in crate::core) fn is_empty(&self) -> bool {
        lock(&self.streams).is_empty()
    }

    /// A graph is captured that allocates.
    pub(crate) fn note_allocation(&self) {
        self.allocates.store(true, Ordering::Relaxed);
    }

    /// Releases the memory that the driver keeps for the next launch of a graph, if a graph of this context allocated any.
    /// For teardown: other contexts of the device get it back when they launch.
    pub(in crate::core) fn trim(&self, device: u32) {
        if self.allocates.load(Ordering::Relaxed) {
            // What cannot be released is the driver's, and released with it.
            let _ = graph::trim_memory(device as i32);
        }
    }
}
