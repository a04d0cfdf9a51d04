//! Per-thread default streams, one for each context in which a thread uses its own. A stream is
//! removed when its thread has ended and its work is complete.

use std::sync::Mutex;

use super::driver_state::DriverState;
use crate::handle::Id;
use crate::process::lock_unless_forked;
use crate::result::DriverResult;
use crate::streams::{Role, Stream};
use crate::thread_state;

/// The numbers of threads that have ended and may own streams. Not in the driver's state, whose lock
/// the end of a thread must not wait for.
static ENDED: Mutex<Vec<u64>> = Mutex::new(Vec::new());

struct AtThreadEnd(u64);

impl Drop for AtThreadEnd {
    fn drop(&mut self) {
        if let Some(mut ended) = lock_unless_forked(&ENDED) {
            ended.push(self.0);
        }
    }
}

thread_local! {
    static AT_THREAD_END: AtThreadEnd = AtThreadEnd(thread_state::thread_number());
}

impl DriverState {
    /// The calling thread's default stream in its current context.
    pub(crate) fn per_thread_stream(&mut self) -> DriverResult<Id> {
        let context = self.current()?;
        let thread = thread_state::thread_number();
        if let Some(id) = self.contexts[&context].per_thread.get(&thread) {
            return Ok(*id);
        }
        self.destroy_streams_of_ended_threads();
        // Fails while the thread ends: then the stream exists until its context is destroyed.
        let _ = AT_THREAD_END.try_with(|_| ());
        let id = self.add_stream(Stream {
            context,
            role: Role::PerThread,
            ..Stream::default()
        });
        if let Some(context) = self.contexts.get_mut(&context) {
            context.per_thread.insert(thread, id);
        }
        Ok(id)
    }

    pub(super) fn destroy_streams_of_ended_threads(&mut self) {
        let ended = lock_unless_forked(&ENDED).map(|mut ended| std::mem::take(&mut *ended));
        let ended = ended.unwrap_or_default();
        let mut streams = Vec::new();
        for context in self.contexts.values_mut() {
            let own = ended.iter().map(|thread| context.per_thread.remove(thread));
            streams.extend(own.flatten());
        }
        for stream in streams {
            self.destroy_capturing(stream);
            self.destroy_stream(stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use cuguard_sys::CUstream;

    use crate::state::{self, lock, synchronize_stream};
    use crate::thread_state;

    #[test]
    fn a_thread_that_has_ended_leaves_no_stream() {
        state::start().unwrap();
        let primary = lock().device(0).primary;
        lock().open_context(primary, 0, 0).unwrap();
        let streams = move || {
            thread_state::set_current(Some(primary));
            let mut state = lock();
            let stream = state.stream(CUstream::PER_THREAD).unwrap();
            assert_eq!(state.stream(CUstream::PER_THREAD), Ok(stream));
            let work = Box::new(|| {});
            state.submit(stream, None, Some(work), None).unwrap();
            synchronize_stream(state, stream).streams.len()
        };
        for _ in 0..200 {
            // The legacy default stream and the thread's own.
            assert_eq!(std::thread::spawn(streams).join().unwrap(), 2);
        }
        let state = lock();
        assert!(state.contexts[&primary].per_thread.len() <= 1);
    }
}
