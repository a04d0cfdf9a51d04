//! Merging of half-empty pages: what it gains, that no byte and no address changes, and when it does not run.

use crate::support::room;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use crate::support::gate::Gate;
use crate::support::pool_blocks::{MIB, at, every_other, take};
use crate::support::*;
use cuguard::driver::DriverKind;
use cuguard::oom::{OomPolicy, RecoveryStep};
use cuguard::sim::{self, Fault};
use cuguard::{Context, DeviceBuffer, Error, Pool, Result, Stream, assert_no_leaks};

/// A byte of a block, by the number of the block and the position.
fn byte(number: usize, position: usize) -> u8 {
    (number.wrapping_mul(31) ^ position.wrapping_mul(7) ^ position >> 8) as u8
}

/// All bytes of a block: repeated after a prime number of them, so that no two pages are alike.
fn all_bytes(number: usize, len: usize) -> Vec<u8> {
    let first: Vec<u8> = (0..len.min(65_521)).map(|at| byte(number, at)).collect();
    let mut all = first.repeat(len.div_ceil(65_521));
    all.truncate(len);
    all
}

/// Writes a pattern at both ends of a block: to write all of a card takes long.
fn mark(buffer: &mut DeviceBuffer<u8>, number: usize) -> Result<()> {
    let len = buffer.len();
    for start in [0, len.saturating_sub(64)] {
        let end = (start + 64).min(len);
        let values: Vec<u8> = (start..end).map(|at| byte(number, at)).collect();
        buffer.slice_mut(start..end)?.copy_from_slice(&values)?;
    }
    Ok(())
}

/// Whether the pattern is there.
fn is_marked(buffer: &DeviceBuffer<u8>, number: usize) -> Result<bool> {
    let len = buffer.len();
    for start in [0, len.saturating_sub(64)] {
        let end = (start + 64).min(len);
        let seen = buffer.slice(start..end)?.to_vec()?;
        let mut at = start..end;
        if !seen
            .iter()
            .all(|value| *value == byte(number, at.next().unwrap()))
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// How much of the device the tests use, and how much of what was freed must be had again, in percent.
///
/// Where in its page a block lies is chosen at random, so pages merge the better the more there are: 95 % of some GiB. The
/// simulation of that takes long. With 512 blocks left, four standard deviations are 18 %; with four blocks to a page, 22 %.
fn budget(context: &Context) -> Result<(usize, usize)> {
    let free = context.memory()?.free as usize;
    let is_simulated = cuguard::driver::load().expect("a driver").kind() == DriverKind::Simulated;
    let (most, percent) = match is_simulated {
        true => (1 << 30, 75),
        false => (16 << 30, 95),
    };
    assert!(is_simulated || free > most, "{free} bytes are free");
    Ok((free.min(most) / (64 * MIB) * (64 * MIB), percent))
}

/// Fills a pool with blocks, frees every other one, and allocates one block of most of what was freed.
fn refill(size: usize) -> Result<()> {
    let turn = turn();
    let context = context()?;
    let (most, percent) = budget(&context)?;
    // The limit makes a part of the card as full as a whole one.
    let pool = Pool::builder().limit(most as u64).build(&context)?;
    let stream = Stream::new(&context)?;
    let mut blocks = Vec::new();
    // A few pages are lost where the sizes do not fit together.
    while blocks.len() < most / size * 97 / 100 {
        let mut block = take(&pool.on(&stream), size)?;
        mark(&mut block, blocks.len())?;
        blocks.push(Some(block));
    }
    let mut freed = 0;
    for block in blocks.iter_mut().step_by(2) {
        drop(block.take());
        freed += size;
    }
    let addresses: Vec<_> = blocks.iter().flatten().map(at).collect();
    let big = take(&pool.on(&stream), freed / 100 * percent)?;
    assert_eq!(big.len(), freed / 100 * percent);
    assert_eq!(
        addresses,
        blocks.iter().flatten().map(at).collect::<Vec<_>>()
    );
    for (number, block) in blocks.iter().enumerate() {
        if let Some(block) = block {
            assert!(is_marked(block, number)?, "block {number} of {size} bytes");
        }
    }
    drop((big, blocks));
    drop((pool, stream));
    assert_no_leaks!(context);
    drop(context);
    turn.all_came_back();
    Ok(())
}

#[test]
fn half_of_all_blocks_of_1_mib() -> Result<()> {
    refill(MIB)
}

#[test]
fn half_of_all_blocks_of_3_mib() -> Result<()> {
    refill(3 * MIB)
}

#[test]
fn half_of_all_blocks_of_9_mib() -> Result<()> {
    refill(9 * MIB)
}

#[test]
fn half_of_all_blocks_of_64_mib() -> Result<()> {
    refill(64 * MIB)
}

#[test]
fn half_of_all_blocks_of_512_kib() -> Result<()> {
    refill(MIB / 2)
}

/// Of a full simulated card, where `cuMemAlloc` itself refuses.
#[test]
fn a_full_card() -> Result<()> {
    if !simulated("a_full_card") {
        return Ok(());
    }
    let turn = turn();
    let context = context()?;
    // One block in the way, as the simulation of a whole card takes long.
    let in_the_way = room::leave(&context, 768 * MIB)?;
    let (pool, stream) = (Pool::new(&context)?, Stream::new(&context)?);
    let mut blocks = Vec::new();
    let error = loop {
        match take(&pool.on(&stream), MIB) {
            Ok(mut block) => {
                mark(&mut block, blocks.len())?;
                blocks.push(Some(block));
            }
            Err(error) => break error,
        }
    };
    let Error::OutOfMemory(why) = &error else {
        panic!("{error}");
    };
    assert_eq!(why.recovery[0].step, RecoveryStep::Compact);
    assert!(context.memory()?.free < 4 << 20, "the card is full");
    blocks
        .iter_mut()
        .step_by(2)
        .for_each(|block| drop(block.take()));
    let freed = blocks.len().div_ceil(2) * MIB;
    // Memory of the driver gains by it, too.
    // SAFETY: not read.
    let big = unsafe { DeviceBuffer::<u8>::uninitialized(&context, freed / 100 * 75)? };
    for (number, block) in blocks.iter().enumerate() {
        assert!(
            block
                .as_ref()
                .is_none_or(|block| is_marked(block, number).unwrap())
        );
    }
    drop((big, blocks, pool, stream, in_the_way));
    drop(context);
    turn.all_came_back();
    Ok(())
}

/// A part of each size survives, in any order; every byte is compared.
#[test]
fn every_byte_of_blocks_of_all_sizes_survives() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let (pool, stream) = (Pool::new(&context)?, Stream::new(&context)?);
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    let mut blocks = Vec::new();
    for number in 0..160 {
        let bytes = match next(4) {
            0 => 1 + next(4096),
            1 => 1 + next(300 << 10),
            2 => 1 + next(2 * MIB),
            _ => 1 + next(6 * MIB),
        };
        let values = all_bytes(number, bytes);
        blocks.push((
            number,
            DeviceBuffer::from_slice(&pool.on(&stream), &values)?,
        ));
    }
    for _ in 0..3 {
        let keep = blocks.len() / 2;
        while blocks.len() > keep {
            let at = next(blocks.len());
            drop(blocks.swap_remove(at));
        }
        let before = pool.stats();
        let compaction = pool.compact()?;
        assert!(
            pool.stats().held < before.held && compaction.merged > 0,
            "{compaction:?}"
        );
        for (number, block) in &blocks {
            let is_right = block.to_vec()? == all_bytes(*number, block.len());
            assert!(is_right, "block {number} of {} bytes", block.len());
        }
    }
    Ok(())
}

/// The free parts of a page that several pages were merged into count once.
#[test]
fn figures_after_merging() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let pool = Pool::new(&context)?;
    let mut blocks = Vec::new();
    for _ in 0..1024 {
        blocks.push(take(&pool, 64 << 10)?);
    }
    let mut number = 0;
    blocks.retain(|_| {
        number += 1;
        number % 8 == 0
    });
    assert!(pool.compact()?.merged > 0);
    let stats = pool.stats();
    assert!(
        stats.used + stats.cached + stats.idle <= stats.held,
        "{stats:?}"
    );
    let snapshot = context.snapshot();
    let of_pool = &snapshot.pools[0];
    assert!(
        of_pool.cached_by_threads + of_pool.cached + of_pool.unmapped <= of_pool.idle(),
        "{of_pool:?}"
    );
    Ok(())
}

#[test]
fn pinned_pages_stay() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let pool = Pool::new(&context)?;
    let blocks = every_other(&pool, 32)?;
    for block in &blocks {
        pool.pin(block)?;
    }
    assert_eq!(pool.compact()?.merged, 0);
    for block in &blocks {
        pool.unpin(block)?;
    }
    assert!(pool.compact()?.merged > 0);
    // An empty buffer has no pages.
    let empty = DeviceBuffer::<u8>::zeroed(&pool, 0)?;
    pool.pin(&empty)?;
    pool.unpin(&empty)
}

/// `cust` copies without the knowledge of the gate: what it has seen does not move, and `unpin` does not change that.
#[test]
fn blocks_that_cust_sees_stay() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let pool = Pool::new(&context)?;
    let blocks = every_other(&pool, 32)?;
    for block in &blocks {
        assert_eq!(cust::memory::DeviceSlice::len(block), MIB);
    }
    assert_eq!(pool.compact()?.merged, 0);
    for block in &blocks {
        pool.unpin(block)?;
    }
    assert_eq!(pool.compact()?.merged, 0);
    Ok(())
}

/// Pages that the driver refuses to map again and again are mapped before operations continue: every block can be read.
#[test]
fn refused_mappings_are_repaired_while_operations_are_stopped() -> Result<()> {
    if !simulated("refused_mappings_are_repaired_while_operations_are_stopped") {
        return Ok(());
    }
    let _turn = turn();
    let context = context()?;
    let pool = Pool::new(&context)?;
    let mut blocks = Vec::new();
    for number in 0..32 {
        let mut block = take(&pool, MIB)?;
        mark(&mut block, number)?;
        blocks.push((number, block));
    }
    blocks.retain(|(number, _)| number % 2 == 0);
    let faults: Vec<_> = (1..=20)
        .map(|nth| sim::inject(Fault::nth_call_of("cuMemMap", nth)).unwrap())
        .collect();
    let compacted = pool.compact();
    let fired: u64 = faults.iter().map(|fault| fault.fired()).sum();
    sim::clear_faults();
    assert!(compacted.is_err() && fired == 20, "{compacted:?}, {fired}");
    for (number, block) in &blocks {
        assert!(is_marked(block, *number)?, "block {number}");
    }
    assert!(pool.compact()?.merged > 0);
    Ok(())
}

/// Work in flight is waited for: what it writes is in the block afterwards.
#[test]
fn work_in_flight_is_waited_for() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let (pool, stream) = (Pool::new(&context)?, Stream::new(&context)?);
    let mut blocks = Vec::new();
    for _ in 0..64 {
        blocks.push(DeviceBuffer::<u8>::zeroed(&pool.on(&stream), MIB)?);
    }
    let mut number = 0;
    blocks.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    let gate = Gate::on(&context, &stream);
    for block in &mut blocks {
        block.fill(9)?;
    }
    let opener = gate.open_later();
    let compaction = pool.compact()?;
    assert!(gate.is_open() && compaction.merged > 0);
    opener.join().unwrap();
    for block in &blocks {
        assert!(block.to_vec()? == vec![9; MIB]);
    }
    Ok(())
}

/// A thread enqueues work of half a second again and again: whenever it is stopped, some of it is in flight.
#[test]
fn work_that_is_enqueued_without_a_pause_is_waited_for() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let (pool, stream) = (Pool::new(&context)?, Stream::new(&context)?);
    let blocks: Vec<_> = (0..64)
        .map(|_| take(&pool.on(&stream), MIB))
        .collect::<Result<_>>()?;
    let _left: Vec<_> = blocks.into_iter().step_by(2).collect();
    let (busy, done) = (Stream::new(&context)?, AtomicBool::new(false));
    let compaction = std::thread::scope(|scope| {
        let (begun, begins) = channel();
        let (busy, done) = (&busy, &done);
        let worker = scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let begun = begun.clone();
                busy.scope(|s| {
                    s.call(move || {
                        let _ = begun.send(());
                        std::thread::sleep(Duration::from_millis(500));
                    })
                })?;
            }
            Ok::<_, Error>(())
        });
        begins.recv().unwrap();
        let compaction = pool.compact();
        done.store(true, Ordering::Relaxed);
        worker.join().unwrap()?;
        compaction
    })?;
    assert!(compaction.merged > 0);
    Ok(())
}

/// An allocation that runs short does not wait for ever for work that does not end.
#[test]
fn recovery_waits_no_longer_than_the_policy_permits() -> Result<()> {
    let _turn = turn();
    let policy = OomPolicy::new().wait_at_most(Duration::from_millis(20));
    let context = Context::builder().oom_policy(policy).build()?;
    let pool = Pool::builder().limit(8 << 20).build(&context)?;
    let stream = Stream::new(&context)?;
    let _first = take(&pool.on(&stream), 6 * MIB)?;
    let gate = Gate::on(&context, &stream);
    let refused = take(&pool.on(&stream), 4 * MIB);
    assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{refused:?}");
    assert!(!stream.is_idle()?, "it has waited for the stream");
    gate.open();
    Ok(())
}

/// Neither the wait before the pause nor that during it ends a capture, also one of another guard of the same context.
#[test]
fn captures_of_other_threads_survive() -> Result<()> {
    let _turn = turn();
    let (context, other) = (context()?, context()?);
    let (pool, over) = (Pool::new(&context)?, AtomicBool::new(false));
    thread::scope(|scope| {
        let threads = [&context, &other].map(|context| {
            let over = &over;
            scope.spawn(move || -> Result<()> {
                let stream = Stream::new(context)?;
                let mut buffer = DeviceBuffer::<u8>::zeroed(context, 1000)?;
                while !over.load(Ordering::Relaxed) {
                    let graph = stream.capture(|s| s.fill(&mut s.bind_mut(&mut buffer)?, 3))?;
                    drop(graph);
                    // Room for a compaction, which fails during a capture.
                    thread::sleep(Duration::from_micros(500));
                }
                Ok(())
            })
        });
        let mut done = 0;
        for _ in 0..50_000 {
            done += u32::from(pool.compact().is_ok());
            if done == 1000 {
                break;
            }
        }
        over.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().unwrap()?;
        }
        assert!(done > 0, "never compacted");
        Ok(())
    })
}

/// Threads allocate, write and read all the time while pages are merged.
#[test]
fn other_threads_wait_and_lose_nothing() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let (pool, over) = (Pool::new(&context)?, AtomicBool::new(false));
    thread::scope(|scope| {
        let threads: Vec<_> = (0..3_usize)
            .map(|thread| {
                let (pool, context, over) = (&pool, &context, &over);
                scope.spawn(move || -> Result<usize> {
                    let stream = Stream::new(context)?;
                    let mut rounds = 0;
                    let mut kept = Vec::new();
                    while !over.load(Ordering::Relaxed) || rounds < 50 {
                        let number = thread * 1_000_000 + rounds;
                        let mut block = take(&pool.on(&stream), (rounds * 7919) % (3 * MIB) + 64)?;
                        mark(&mut block, number)?;
                        kept.push((number, block));
                        if kept.len() > 24 {
                            let (number, block) = kept.swap_remove(rounds % 24);
                            assert!(is_marked(&block, number)?, "block {number}");
                        }
                        rounds += 1;
                    }
                    for (number, block) in kept {
                        assert!(is_marked(&block, number)?, "block {number}");
                    }
                    Ok(rounds)
                })
            })
            .collect();
        let mut done = 0;
        for _ in 0..40 {
            done += u32::from(pool.compact().is_ok());
        }
        over.store(true, Ordering::Relaxed);
        for thread in threads {
            assert!(thread.join().unwrap()? >= 50);
        }
        assert!(done > 0, "never compacted");
        Ok(())
    })
}

/// A host function waits for an operation that is stopped: compaction gives up, and neither hangs.
#[test]
fn a_host_function_that_uses_the_pool() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let (pool, stream) = (Pool::new(&context)?, Stream::new(&context)?);
    let mut blocks: Vec<_> = (0..8)
        .map(|_| take(&pool.on(&stream), MIB))
        .collect::<Result<_>>()?;
    let dropped = blocks.split_off(4);
    let (go, wait) = channel::<()>();
    let bound = context.make_current()?;
    stream
        .add_callback(Box::new(move || {
            // Drops blocks again and again while the context may be stopped.
            for block in dropped {
                drop(block);
                let _ = wait.recv_timeout(std::time::Duration::from_millis(20));
            }
        }))
        .unwrap();
    drop(bound);
    pool.compact()?;
    drop(go);
    stream.synchronize()?;
    // The blocks that are left, the stream and the pool.
    assert_eq!(context.live_count(), 6);
    Ok(())
}

/// The device waits for a host function, so that a compaction there could wait for ever.
#[test]
fn it_is_refused_in_a_host_function() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let (pool, stream) = (Pool::new(&context)?, Stream::new(&context)?);
    let mut refused = None;
    stream.scope(|scope| scope.call(|| refused = Some(pool.compact())))?;
    let error = refused.unwrap().unwrap_err();
    assert!(error.to_string().contains("host function"), "{error}");
    Ok(())
}

#[test]
fn it_is_refused_while_a_stream_is_captured_and_where_it_is_off() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let (pool, stream) = (Pool::new(&context)?, Stream::new(&context)?);
    let mut buffer = DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 1000)?;
    let mut refused = None;
    let graph = stream.capture(|s| {
        refused = Some(pool.compact());
        s.fill(&mut s.bind_mut(&mut buffer)?, 3)
    })?;
    drop(graph);
    let error = refused.unwrap().unwrap_err();
    assert!(error.to_string().contains("captured"), "{error}");
    let off = Pool::builder().merge(false).build(&context)?;
    let error = off.compact().unwrap_err();
    assert_eq!(
        error.to_string(),
        "Pool::compact: merging is turned off for this pool"
    );
    Ok(())
}

/// Without the step, the allocation fails; a pool without merging gains only what is idle.
#[test]
fn the_step_can_be_turned_off() -> Result<()> {
    let _turn = turn();
    for (policy, merge) in [(false, true), (true, false), (true, true)] {
        let policy = OomPolicy::new().compact(policy);
        let context = Context::builder().oom_policy(policy.clone()).build()?;
        let pool = Pool::builder()
            .limit(256 << 20)
            .merge(merge)
            .build(&context)?;
        let mut blocks: Vec<_> = (0..256).map(|_| take(&pool, MIB)).collect::<Result<_>>()?;
        let mut number = 0;
        blocks.retain(|_| {
            number += 1;
            number % 2 == 0
        });
        let big = take(&pool, 80 * MIB);
        let expected = policy == OomPolicy::new() && merge;
        assert_eq!(big.is_ok(), expected, "{policy:?}, merge {merge}: {big:?}");
    }
    Ok(())
}
