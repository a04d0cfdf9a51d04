//! Owners that are dropped while other guards keep their resource.
//!
//! A stream-ordered buffer is freed on its stream, so it shares the stream's [`StreamState`]; memory
//! from a pool shares the pool's. Where such a buffer leaks, its stream and its pool are alive at the
//! end as well, although their owners were dropped. The registry notes that, and the leak report lists
//! them under the buffer: whoever mends the one leak has mended all.

use std::sync::Arc;

use crate::core::{PoolState, StreamState};
use crate::guards::{MemoryPool, Stream};

impl Drop for Stream {
    fn drop(&mut self) {
        if Arc::strong_count(self.core()) > 1 {
            self.core().owned.keep();
        }
    }
}

impl Stream {
    /// The stream itself, if nothing else keeps it.
    pub(crate) fn into_last(self) -> Option<StreamState> {
        let core = self.core().clone();
        drop(self);
        Arc::into_inner(core)
    }
}

impl Drop for MemoryPool {
    fn drop(&mut self) {
        if Arc::strong_count(self.core()) > 1 {
            self.owned().keep();
        }
    }
}

impl MemoryPool {
    /// The pool itself, if nothing else keeps it.
    pub(crate) fn into_last(self) -> Option<PoolState> {
        let core = self.core().clone();
        drop(self);
        Arc::into_inner(core)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Context, DeviceBuffer, Kind, MemoryPool, Stream};

    /// How many streams and pools are kept by something else than their owner.
    fn kept(context: &Context) -> [usize; 2] {
        let snapshot = context.snapshot();
        [Kind::Stream, Kind::MemoryPool].map(|kind| {
            let groups = snapshot.live.iter();
            groups
                .filter(|group| group.kind == kind && group.kept)
                .count()
        })
    }

    #[test]
    fn an_owner_that_is_dropped_first_is_noted() -> crate::Result<()> {
        let context = Context::new(0)?;
        let (stream, pool) = (Stream::new(&context)?, MemoryPool::new(&context)?);
        let buffer = DeviceBuffer::<u8>::zeroed_in(&pool, &stream, 10)?;
        assert_eq!(kept(&context), [0, 0]);
        drop(stream);
        assert_eq!(kept(&context), [1, 0]);
        pool.close()?;
        assert_eq!(kept(&context), [1, 1]);
        drop(buffer);
        crate::assert_no_leaks!(context);
        Ok(())
    }
}
