//! The captures of a context that are in progress.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use cuguard_driver::result::{self, graph, stream};
use cuguard_driver::sys::{CUcontext, CUstream};
use cuguard_registry::{Key, Kind};
use cuguard_sync::process;

use super::context_state::ContextState;
use super::free;
use super::lock::lock;
use super::open_contexts;

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
    pub(super) fn unless_any<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let streams = lock(&self.streams);
        streams.is_empty().then(work)
    }

    pub(crate) fn remove(&self, stream: CUstream) {
        lock(&self.streams).retain(|other| *other != stream);
    }

    fn is_empty(&self) -> bool {
        lock(&self.streams).is_empty()
    }

    /// Whether a guard of this context captures, which may be another one: the primary context of a device can have
    /// several. While it does, the context cannot be waited for.
    pub(super) fn any_in(context: CUcontext, device: u32) -> bool {
        let guards = open_contexts::on_device(device);
        let mut guards = guards.iter().filter(|state| state.context == context);
        guards.any(|state| !state.captures.is_empty())
    }

    /// A graph is captured that allocates.
    pub(crate) fn note_allocation(&self) {
        self.allocates.store(true, Ordering::Relaxed);
    }

    /// Releases the memory that the driver keeps for the next launch of a graph, if a graph of this context allocated any.
    /// For teardown: other contexts of the device get it back when they launch.
    pub(super) fn trim(&self, device: u32) {
        if self.allocates.load(Ordering::Relaxed) {
            // What cannot be released is the driver's, and released with it.
            let _ = graph::trim_memory(device as i32);
        }
    }

    /// Ends all captures and destroys their graphs: for teardown, which has closed the gate and made the context current.
    pub(super) fn end_all(&self, state: &ContextState) {
        let streams = std::mem::take(&mut *lock(&self.streams));
        for stream in streams {
            if process::is_exiting() {
                return;
            }
            // SAFETY: on the list, so it is alive: teardown destroys it later.
            if let Ok(graph) = unsafe { stream::end_capture(stream) } {
                let key = Key::new(Kind::Graph, graph.0 as u64);
                // SAFETY: the graph of the capture; no other reference exists.
                if let Err(error) = unsafe { free::free(key, CUstream::NULL) } {
                    state.record_failed_free(key, 0, None, error);
                }
            }
        }
    }
}
