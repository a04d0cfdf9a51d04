//! Programs with a pool: growth, shared pages, reuse by other streams, trimming, merging, recovery, teardown.
//!
//! Contents are compared after an operation that may have failed, too: a wrong byte is a panic, and so a failure of the
//! test. Each program makes some hundred calls of the driver at most, as each of them is refused in turn.

use std::ops::Range;

use cuguard::memory::Source;
use cuguard::report::ReportSettings;
use cuguard::{Context, DeviceBox, DeviceBuffer, Error, Event, Pool, Result, Stream};

use super::scenarios::{Scenario, primary};

pub const POOL_SCENARIOS: [(&str, Scenario); 10] = [
    ("a pool: growth", growth),
    ("a pool: shared pages", shared_pages),
    ("a pool: small blocks", small_blocks),
    ("a pool: two streams", two_streams),
    ("a pool: trimmed", trimmed),
    ("a pool: merged", merged),
    ("a pool: recovery", recovery),
    ("a pool: of a context", of_a_context),
    ("a pool: forgotten blocks", forgotten),
    ("a pool: dropped first", dropped_first),
];

const MIB: usize = 1 << 20;

/// A block, and the number that its contents follow from.
type Block = (DeviceBuffer<u8>, u8);

/// What is written and read: the last bytes of a block, and the first ones of a large block, which has several pages.
fn ends(len: usize) -> Vec<Range<usize>> {
    let first = (len > 2 * MIB).then_some(0..100);
    let last = len.saturating_sub(100)..len;
    first.into_iter().chain([last]).collect()
}

fn expected(number: u8, range: &Range<usize>) -> Vec<u8> {
    let byte = |at: usize| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ number;
    range.clone().map(byte).collect()
}

fn block(source: &impl Source, bytes: usize, number: u8) -> Result<Block> {
    // SAFETY: only what is written here is read.
    let mut buffer = unsafe { DeviceBuffer::<u8>::uninitialized(source, bytes)? };
    for range in ends(bytes) {
        let values = expected(number, &range);
        buffer.slice_mut(range)?.copy_from_slice(&values)?;
    }
    Ok((buffer, number))
}

/// Compares what can be read: a refused copy is an error, and a wrong byte a panic.
fn check<'a>(blocks: impl IntoIterator<Item = &'a Block>) -> Result<()> {
    let mut first = Ok(());
    for (buffer, number) in blocks {
        for range in ends(buffer.len()) {
            let read = buffer.slice(range.clone()).and_then(|view| view.to_vec());
            match read {
                Ok(values) => assert!(
                    values == expected(*number, &range),
                    "block {number}, {range:?} of {} bytes",
                    buffer.len()
                ),
                Err(error) => first = first.and(Err(error)),
            }
        }
    }
    first
}

/// Keeps the blocks with an even number.
fn free_odd(blocks: &mut Vec<Block>) {
    blocks.retain(|(_, number)| number % 2 == 0);
}

fn growth(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let stream = Stream::new(&context)?;
    let pool = Pool::builder().with_label("grows").build(&context)?;
    let mut blocks = Vec::new();
    for (number, bytes) in [(1, 1000), (2, 2 * MIB), (3, 3 * MIB + 1)] {
        blocks.push(block(&pool.on(&stream), bytes, number)?);
    }
    let zeroed = DeviceBuffer::<u8>::zeroed(&pool, 3000)?;
    assert_eq!(zeroed.to_vec()?, [0; 3000]);
    let clone = (blocks[2].0.try_clone()?, 3);
    drop(blocks);
    check([&clone])?;
    clone.0.close()?;
    drop((pool, zeroed));
    stream.close()?;
    context.close()
}

/// A tail at the front of a page and a head at its end, each with its own addresses.
fn shared_pages(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let stream = Stream::new(&context)?;
    let pool = Pool::new(&context)?;
    let mut blocks = Vec::new();
    for number in 0..4 {
        blocks.push(block(&pool.on(&stream), 3 * MIB, number)?);
    }
    free_odd(&mut blocks);
    for number in 4..6 {
        blocks.push(block(&pool.on(&stream), 2 * MIB + 300_000, number)?);
    }
    check(&blocks)?;
    drop(blocks);
    drop((pool, stream));
    context.close()
}

fn small_blocks(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let stream = Stream::new(&context)?;
    let pool = Pool::new(&context)?;
    let mut blocks = Vec::new();
    for number in 0..4 {
        let bytes = if number < 2 { 700 } else { 200 << 10 };
        blocks.push(block(&pool.on(&stream), bytes, number)?);
    }
    free_odd(&mut blocks);
    // Freed on a thread that ends, which has blocks for later use.
    std::thread::scope(|scope| {
        let freed = blocks.pop();
        scope.spawn(|| drop(freed)).join()
    })
    .expect("a drop never panics");
    check(&blocks)?;
    let compacted = pool.compact();
    check(&blocks)?;
    compacted?;
    drop((blocks, pool, stream));
    context.close()
}

/// What one stream frees, the other gets: after the work, and in the order of recorded streams.
fn two_streams(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let (one, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let pool = Pool::builder().limit(8 << 20).build(&context)?;
    let kept = block(&pool.on(&one), 2 * MIB, 1)?;
    let mut freed = block(&pool.on(&one), 4 * MIB, 2)?.0;
    freed.fill(7)?;
    drop(freed);
    // As large as the freed one: the limit makes the stream wait for it.
    let taken = block(&pool.on(&other), 4 * MIB, 3)?;
    let event = Event::new(&context)?;
    event.record(&other)?;
    one.wait_for(&event)?;
    taken.0.record_stream(&one)?;
    check([&kept, &taken])?;
    drop(taken);
    // The stream ends before what was freed on it is reused.
    drop(other);
    let last = block(&pool.on(&one), 3 * MIB, 4)?;
    check([&kept, &last])?;
    drop((kept, last, event, pool, one));
    context.close()
}

fn trimmed(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let stream = Stream::new(&context)?;
    let pool = Pool::new(&context)?;
    let kept = block(&pool.on(&stream), 3 * MIB, 1)?;
    drop(block(&pool.on(&stream), 6 * MIB, 2)?);
    drop(block(&pool.on(&stream), 5000, 3)?);
    stream.synchronize()?;
    let held = pool.stats().held;
    let released = pool.trim();
    check([&kept])?;
    assert!(pool.stats().held <= held);
    released?;
    // What a refused release kept is released now, or reused.
    let again = block(&pool.on(&stream), 6 * MIB, 4)?;
    check([&kept, &again])?;
    drop((kept, again));
    stream.synchronize()?;
    let released = pool.trim();
    drop((pool, stream));
    released.map(drop).and(context.close())
}

fn merged(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let pool = Pool::new(&context)?;
    let mut blocks = Vec::new();
    for number in 0..6 {
        blocks.push(block(&pool, MIB, number)?);
    }
    blocks.push(block(&pool, 3 * MIB, 8)?);
    free_odd(&mut blocks);
    let held = pool.stats().held;
    let compacted = pool.compact();
    check(&blocks)?;
    // Refused half-way or not, the pool works.
    let more = block(&pool, MIB, 9)?;
    check(blocks.iter().chain([&more]))?;
    if let Err(error) = compacted {
        let again = pool.compact();
        check(blocks.iter().chain([&more]))?;
        again?;
        return Err(error);
    }
    assert!(pool.stats().held <= held);
    drop((blocks, more, pool));
    context.close()
}

/// The limit is reached: idle memory is released, then pages are merged, and the block fits.
fn recovery(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let stream = Stream::new(&context)?;
    let pool = Pool::builder().limit(8 << 20).build(&context)?;
    let mut blocks = Vec::new();
    for number in 0..8 {
        blocks.push(block(&pool.on(&stream), MIB, number)?);
    }
    free_odd(&mut blocks);
    let large = block(&pool.on(&stream), 4 * MIB, 8);
    check(&blocks)?;
    blocks.push(large?);
    check(&blocks)?;
    match block(&pool.on(&stream), 2 * MIB, 9) {
        Err(Error::OutOfMemory(why)) => assert!(!why.to_text().is_empty()),
        Err(error) => return Err(error),
        Ok(_) => panic!("beyond the limit"),
    }
    check(&blocks)?;
    drop((blocks, pool, stream));
    context.close()
}

fn of_a_context(settings: &ReportSettings) -> Result<()> {
    let builder = Context::builder().report(settings.clone());
    let context = builder.pool(Pool::builder().share_tails(false)).build()?;
    let stream = Stream::new(&context)?;
    let boxed = DeviceBox::new(&context, &7_u64)?;
    let mut buffer = DeviceBuffer::from_slice(&stream, &[1_u8; 1000])?;
    let raw = DeviceBuffer::<u8>::zeroed(&context, 3 * MIB)?.into_raw();
    // SAFETY: released above, with this length.
    let owned = unsafe { DeviceBuffer::<u8>::from_raw_on(&stream, raw, 3 * MIB) };
    let mut seen = vec![1_u8; 1000];
    stream.scope(|s| {
        let mut buffer = s.bind_mut(&mut buffer)?;
        let scratch = s.zeroed(1000)?;
        s.copy(&mut buffer, &scratch)?;
        s.download(&mut s.bind_host_mut(&mut seen), &buffer)
    })?;
    assert_eq!(seen, [0; 1000]);
    assert_eq!(owned.slice(3 * MIB - 1..)?.to_vec()?, [0]);
    assert_eq!(boxed.get()?, 7);
    drop((boxed, buffer, owned, stream));
    context.close()
}

/// Blocks that are never dropped: teardown frees them with the pool.
fn forgotten(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let forget = || -> Result<()> {
        let stream = Stream::new(&context)?;
        let pool = Pool::new(&context)?;
        std::mem::forget(block(&pool.on(&stream), 3 * MIB, 1)?);
        std::mem::forget(block(&pool, 1000, 2)?);
        drop(block(&pool.on(&stream), MIB, 3)?);
        std::mem::forget((pool, stream));
        Ok(())
    };
    let forgotten = forget();
    forgotten.and(context.close())
}

/// The context, then the pool, then the stream, and its blocks last.
fn dropped_first(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let stream = Stream::new(&context)?;
    let pool = Pool::new(&context)?;
    let blocks = [
        block(&pool.on(&stream), 3 * MIB, 1)?,
        block(&pool.on(&stream), 1000, 2)?,
        block(&pool, MIB, 3)?,
    ];
    drop(context);
    drop(pool);
    check(&blocks)?;
    drop(stream);
    check(&blocks)
}
