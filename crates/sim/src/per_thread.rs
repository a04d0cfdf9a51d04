//! Each thread's own default stream, one for each context that the thread uses it with. It goes
//! when the thread has ended and its work is done.

use std::sync::Mutex;

use cuguard_sys::CUresult;

use crate::current;
use crate::handle::Id;
use crate::machine::{Machine, is_forked};
use crate::queue::{Role, Stream};

/// The numbers of threads that have ended and may have streams left. Noted here and not in the
/// machine: the end of a thread is no time to wait for a lock.
static ENDED: Mutex<Vec<u64>> = Mutex::new(Vec::new());

struct AtThreadEnd(u64);

impl Drop for AtThreadEnd {
    fn drop(&mut self) {
        if !is_forked() {
            ENDED.lock().unwrap_or_else(|e| e.into_inner()).push(self.0);
        }
    }
}

thread_local! {
    static AT_THREAD_END: AtThreadEnd = AtThreadEnd(current::thread_number());
}

impl Machine {
    /// The calling thread's own default stream in its current context.
    pub(crate) fn per_thread_stream(&mut self) -> Result<Id, CUresult> {
        let context = self.current()?;
        let thread = current::thread_number();
        if let Some(id) = self.contexts[&context].per_thread.get(&thread) {
            return Ok(*id);
        }
        self.end_streams_of_ended_threads();
        // Fails where the thread is just ending: then the stream stays until its context ends.
        let _ = AT_THREAD_END.try_with(|_| ());
        let id = self.add_stream(Stream::new(context, Role::PerThread, 0, 0));
        if let Some(context) = self.contexts.get_mut(&context) {
            context.per_thread.insert(thread, id);
        }
        Ok(id)
    }

    fn end_streams_of_ended_threads(&mut self) {
        let ended = std::mem::take(&mut *ENDED.lock().unwrap_or_else(|e| e.into_inner()));
        let mut streams = Vec::new();
        for context in self.contexts.values_mut() {
            let own = ended.iter().map(|thread| context.per_thread.remove(thread));
            streams.extend(own.flatten());
        }
        for stream in streams {
            self.destroy_stream(stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use cuguard_sys::CUstream;

    use crate::lock::lock;
    use crate::wait::synchronize_stream;
    use crate::{current, machine};

    #[test]
    fn a_thread_that_has_ended_leaves_no_stream() {
        machine::start().unwrap();
        let primary = lock().on(0).primary;
        lock().open_context(primary, 0, 0).unwrap();
        let streams = move || {
            current::replace(Some(primary));
            let mut machine = lock();
            let stream = machine.stream(CUstream::PER_THREAD).unwrap();
            assert_eq!(machine.stream(CUstream::PER_THREAD), Ok(stream));
            let work = Box::new(|| {});
            machine.submit(stream, None, Some(work), None).unwrap();
            synchronize_stream(machine, stream).streams.len()
        };
        for _ in 0..200 {
            // The default stream, and this thread's.
            assert_eq!(std::thread::spawn(streams).join().unwrap(), 2);
        }
        let machine = lock();
        assert!(machine.contexts[&primary].per_thread.len() <= 1);
    }
}
