//! A pool that is dropped before the memory allocated from it, and the next pool. A random program
//! crashed a real driver there: `cuMemAllocFromPoolAsync` on a new pool, after a pool was destroyed with
//! a block still in use and the block freed on the same stream.

use cuguard::{Context, DeviceBuffer, DriverPool, Result, Stream};

/// `settle`: the stream is synchronized after each free.
fn pools_come_and_go(context: &Context, settle: bool) -> Result<()> {
    let stream = Stream::new(context)?;
    for _ in 0..20 {
        let pool = DriverPool::new(context)?;
        let buffer = DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 172)?;
        drop(pool);
        assert_eq!(buffer.to_vec()?, [0; 172]);
        drop(buffer);
        if settle {
            stream.synchronize()?;
        }
        // As in that program: device memory, and memory of the default pool.
        drop(DeviceBuffer::<u8>::zeroed(context, 3298)?);
        drop(DeviceBuffer::<u8>::zeroed(&stream, 3298)?);
    }
    Ok(())
}

#[test]
fn memory_outlives_its_pool() -> Result<()> {
    let context = Context::new(0)?;
    pools_come_and_go(&context, false)?;
    context.close()
}

#[test]
fn memory_outlives_its_pool_and_the_stream_is_waited_for() -> Result<()> {
    let context = Context::new(0)?;
    pools_come_and_go(&context, true)?;
    context.close()
}

#[test]
fn memory_outlives_its_pool_with_the_context_current() -> Result<()> {
    let context = Context::new(0)?;
    let bound = context.make_current()?;
    pools_come_and_go(&context, true)?;
    drop(bound);
    context.close()
}
