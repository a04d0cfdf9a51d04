//! Drop of streams and pools that buffers still share.
//!
//! A stream-ordered buffer is freed on its stream, so it shares the stream's state; memory of a pool shares the pool's.
//! If such a buffer leaks, its stream and its pool are still alive at teardown, although their guards were dropped. The
//! registry records that. The leak report lists the stream and the pool under the buffer, and does not count them as
//! leaks of their own.

use std::sync::Arc;

/// Drops a guard. Returns the stream or pool, unless buffers still share it.
pub(super) fn drop_guard<G, S>(shared: Arc<S>, guard: G) -> Option<S> {
    drop(guard);
    Arc::into_inner(shared)
}

#[cfg(test)]
mod tests {
    use crate::{Context, DeviceBuffer, DriverPool, ResourceKind, Stream};

    /// The number of streams and of pools whose guard was dropped while buffers share them.
    fn kept(context: &Context) -> [usize; 2] {
        let snapshot = context.snapshot();
        [ResourceKind::Stream, ResourceKind::MemoryPool].map(|kind| {
            let groups = snapshot.live.iter();
            groups
                .filter(|group| group.kind == kind && group.kept)
                .count()
        })
    }

    #[test]
    fn a_guard_dropped_before_its_buffers_is_recorded() -> crate::Result<()> {
        let context = Context::new(0)?;
        let (stream, pool) = (Stream::new(&context)?, DriverPool::new(&context)?);
        let buffer = DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 10)?;
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
