//! The queue of streams that wait for a worker thread, and the number of threads.
//!
//! Threads belong to no stream, so a stream uses no thread while it is idle or waits for another
//! stream.

use std::collections::VecDeque;
use std::sync::Condvar;

use cuguard_sys::CUresult;

use crate::handle::Id;
use crate::result::DriverResult;

/// The maximum number of threads, and so of host functions that wait for something at a time.
const MAX_THREADS: usize = 1024;

/// Notified when a stream is queued.
pub(crate) static WORK_READY: Condvar = Condvar::new();

#[derive(Debug, Default)]
pub(crate) struct WorkerPool {
    /// What a thread runs. It is set when the driver starts.
    pub(crate) thread_main: Option<fn()>,
    /// The streams whose next work can execute.
    pub(crate) ready: VecDeque<Id>,
    pub(crate) idle: usize,
    /// Threads that were spawned and do not run yet.
    pub(crate) starting: usize,
    pub(crate) total: usize,
}

impl WorkerPool {
    /// Spawns a thread unless one is available for `more` work beyond what is queued.
    pub(crate) fn ensure_thread(&mut self, more: usize) -> DriverResult {
        let Some(thread_main) = self.thread_main else {
            return Ok(());
        };
        let enough = self.ready.len() + more <= self.idle + self.starting;
        if enough || self.total >= MAX_THREADS {
            return Ok(());
        }
        std::thread::Builder::new()
            .name("cuguard-sim".to_owned())
            .spawn(thread_main)
            .map_err(|_| CUresult::OPERATING_SYSTEM)?;
        self.total += 1;
        self.starting += 1;
        Ok(())
    }

    pub(crate) fn enqueue(&mut self, stream: Id) {
        self.ready.push_back(stream);
        WORK_READY.notify_one();
    }

    /// Makes sure that a thread takes the next stream in the queue.
    pub(crate) fn wake(&mut self) {
        // If no thread can be spawned, an existing one takes it later.
        let _ = self.ensure_thread(0);
        if !self.ready.is_empty() {
            WORK_READY.notify_one();
        }
    }
}
