//! Memory that was freed on a stream, and is not available before the stream was waited for: when the recovery
//! steps wait, and when they do not.

use std::time::Duration;

use crate::support::gate::Gate;
use crate::support::room::*;
use crate::support::*;
use cuguard::driver::api;
use cuguard::driver::sys::{CUmemLocation, CUmemPoolProps, CUmemoryPool, virtual_memory};
use cuguard::oom::{Cause, OomPolicy, OutOfMemory, RecoveryStep};
use cuguard::sim;
use cuguard::{Context, DeviceBuffer, DriverPool, Event, Result, Stream};

/// Whether a recovery step was tried.
#[track_caller]
fn tried(why: &OutOfMemory, step: RecoveryStep) -> bool {
    let attempt = why.recovery.iter().find(|attempt| attempt.step == step);
    attempt.expect("it is recorded").tried
}

/// A pool whose memory is kept by every other block, 1.5 GiB of it.
fn hoard(context: &Context) -> Result<(DriverPool, Stream, Vec<DeviceBuffer<u8>>)> {
    let (pool, stream) = (
        DriverPool::new(context)?.with_label("hoard"),
        Stream::new(context)?,
    );
    let mut blocks = Vec::new();
    for _ in 0..3 * GIB / (16 * MIB) {
        // SAFETY: nobody reads it.
        blocks.push(unsafe { DeviceBuffer::uninitialized(&pool.on(&stream), 16 * MIB)? });
    }
    let mut index = 0;
    blocks.retain(|_| {
        index += 1;
        index % 2 == 0
    });
    stream.synchronize()?;
    Ok((pool, stream, blocks))
}

/// The stream is long done, but nobody has waited for it: the memory is fetched, or named.
#[test]
fn frees_that_are_done_and_nobody_waited_for() -> Result<()> {
    let turn = turn();
    for wait in [false, true] {
        // To look for the largest block changes nothing in the report.
        let settings = OomPolicy::new().wait(wait).probe_largest(true);
        let context = Context::builder().oom_policy(settings).build()?;
        let (free, stream) = (context.memory()?.free as usize, Stream::new(&context)?);
        let buffer = take_on(&stream, free / 4 * 3)?;
        stream.synchronize()?;
        drop(buffer);
        while !stream.is_idle()? {
            std::thread::yield_now();
        }
        let second = take(&context, free / 2);
        if wait {
            drop(second?);
        } else {
            let why = why(second);
            assert!(
                matches!(why.causes()[..], [Cause::PendingFrees { streams: 1, .. }]),
                "{why:#}"
            );
            assert!(why.to_text().contains("OomPolicy::wait(true)"), "{why:#}");
            stream.synchronize()?;
            drop(take(&context, free / 2)?);
        }
        drop((stream, context));
    }
    turn.all_came_back();
    Ok(())
}

/// What was waited for already is not waited for again, however busy the stream is now; and a pool that
/// hoards is called that.
#[test]
fn a_stream_is_busy_with_other_things() -> Result<()> {
    let turn = turn();
    if !simulated("a_stream_is_busy_with_other_things") {
        return Ok(());
    }
    type Wait = fn(&Context, &Stream) -> Result<()>;
    let ways: [(&str, Wait); 5] = [
        ("stream", |_, stream| stream.synchronize()),
        ("event", |context, stream| {
            let event = Event::new(context)?;
            event.record(stream)?;
            event.synchronize()
        }),
        ("context", |context, _| context.synchronize()),
        ("another holder of the driver's context", |_, _| {
            context()?.synchronize()
        }),
        ("scope", |context, stream| {
            let mut word = DeviceBuffer::<u32>::zeroed(context, 1)?;
            stream.scope(|scope| {
                let mut word = scope.bind_mut(&mut word)?;
                scope.fill(&mut word, 1)
            })
        }),
    ];
    for (name, wait) in ways {
        let settings = OomPolicy::new().wait_at_most(Duration::from_secs(15));
        let context = Context::builder().oom_policy(settings).build()?;
        let (pool, stream, mut blocks) = hoard(&context)?;
        drop(blocks.pop());
        wait(&context, &stream)?;
        let gate = Gate::on(&context, &stream);
        let why = why(take(&context, 2 * GIB));
        assert!(!gate.is_open());
        assert!(
            matches!(why.causes()[0], Cause::HoardedByPools { .. }),
            "{name}: {why:#}"
        );
        assert!(!tried(&why, RecoveryStep::Wait), "{name}: {why:#}");
        assert!(tried(&why, RecoveryStep::Trim), "{name}: {why:#}");
        gate.open();
        drop((blocks, stream, pool, context));
    }
    turn.all_came_back();
    Ok(())
}

/// A stream that was waited for, and then went, took nothing with it.
#[test]
fn a_stream_is_gone_that_had_done_its_frees() -> Result<()> {
    let turn = turn();
    if !simulated("a_stream_is_gone_that_had_done_its_frees") {
        return Ok(());
    }
    for waited in [true, false] {
        let context = context()?;
        let (pool, stream, blocks) = hoard(&context)?;
        let passing = Stream::new(&context)?;
        drop(take_on(&passing, MIB)?);
        if waited {
            passing.synchronize()?;
        }
        while !passing.is_idle()? {
            std::thread::yield_now();
        }
        drop(passing);
        let why = why(take(&context, 2 * GIB));
        assert!(!tried(&why, RecoveryStep::Wait), "{why:#}");
        drop((blocks, stream, pool, context));
    }
    turn.all_came_back();
    Ok(())
}

/// Several wait at once: nobody fails because somebody else waits already, whoever that is.
#[test]
fn others_wait_already() -> Result<()> {
    let turn = turn();
    if !simulated("others_wait_already") {
        return Ok(());
    }
    type Wait = fn(&Context, &Stream) -> Result<()>;
    let ways: [(&str, Wait); 5] = [
        ("for memory", |context, _| take(context, 2 * GIB).map(drop)),
        ("for the stream", |_, stream| stream.synchronize()),
        ("for the context", |context, _| context.synchronize()),
        ("for an event", |context, stream| {
            let event = Event::new(context)?;
            event.record(stream)?;
            event.synchronize()
        }),
        ("at the end of a scope", |context, stream| {
            let mut word = DeviceBuffer::<u32>::zeroed(context, 1)?;
            stream.scope(|scope| {
                let mut word = scope.bind_mut(&mut word)?;
                scope.fill(&mut word, 1)
            })
        }),
    ];
    for (name, wait) in ways {
        let context = context()?;
        let stream = Stream::new(&context)?;
        let buffer = take_on(&stream, 3 * GIB)?;
        stream.synchronize()?;
        let gate = Gate::on(&context, &stream);
        drop(buffer);
        std::thread::scope(|scope| -> Result<()> {
            let waits = scope.spawn(|| wait(&context, &stream));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waits.is_finished(), "{name}");
            let asks = scope.spawn(|| take(&context, GIB + 512 * MIB).map(drop));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!asks.is_finished(), "{name}: it did not wait");
            gate.open();
            waits.join().expect("no panic")?;
            asks.join().expect("no panic")
        })?;
        drop((stream, context));
    }
    turn.all_came_back();
    Ok(())
}

/// A little that waits, and a pool that hoards much: both are named, with what each of them is.
#[test]
fn a_little_waits_beside_a_hoard() -> Result<()> {
    let turn = turn();
    if !simulated("a_little_waits_beside_a_hoard") {
        return Ok(());
    }
    let settings = OomPolicy::new().wait(false);
    let context = Context::builder().oom_policy(settings).build()?;
    let (pool, stream, blocks) = hoard(&context)?;
    let other = Stream::new(&context)?;
    let small = take_on(&other, 300 * MIB)?;
    other.synchronize()?;
    let gate = Gate::on(&context, &other);
    drop(small);
    let why = why(take(&context, 2 * GIB));
    let hoarded = pool.reserved_bytes()? - pool.used_bytes()?;
    let causes = why.causes();
    let [
        Cause::HoardedByPools { bytes },
        Cause::PendingFrees {
            bytes: pending,
            streams: 1,
        },
    ] = causes[..]
    else {
        panic!("{why:#}")
    };
    assert_eq!(pending, 300 * MIB as u64, "{why:#}");
    // And what is left of the last chunk.
    assert!(bytes.abs_diff(hoarded) < 32 * MIB as u64, "{why:#}");
    gate.open();
    drop((blocks, stream, other, pool, context));
    turn.all_came_back();
    Ok(())
}

/// The stream is gone, and what it has to do takes longer than a moment: it is waited for as long as
/// is allowed, and named where that is not enough.
#[test]
fn a_stream_is_gone_that_has_much_to_do() -> Result<()> {
    let turn = turn();
    if !simulated("a_stream_is_gone_that_has_much_to_do") {
        return Ok(());
    }
    for patience in [Duration::from_millis(100), Duration::from_secs(15)] {
        let settings = OomPolicy::new().wait_at_most(patience);
        let context = Context::builder().oom_policy(settings).build()?;
        let before = sim::live_counters();
        let stream = Stream::new(&context)?;
        let buffer = take_on(&stream, 3 * GIB)?;
        stream.synchronize()?;
        let gate = Gate::on(&context, &stream);
        drop((buffer, stream));
        let short = patience < Duration::from_secs(1);
        let opener = (!short).then(|| {
            let gate = gate.clone();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(700));
                gate.open();
            })
        });
        let answer = take(&context, 2 * GIB);
        if short {
            let why = why(answer);
            let cause = Cause::PendingFrees {
                bytes: 3 * GIB as u64,
                streams: 1,
            };
            assert_eq!(why.causes(), [cause], "{why:#}");
            gate.open();
            context.synchronize()?;
        } else {
            assert!(gate.is_open(), "it did not wait");
            drop(answer?);
        }
        if let Some(opener) = opener {
            opener.join().expect("no panic");
        }
        // The mark that it left goes with the next stream at the latest.
        drop(Stream::new(&context)?);
        assert_eq!(sim::live_counters(), before);
        drop(context);
    }
    turn.all_came_back();
    Ok(())
}

/// Another holder of the same driver's context is closed while its frees are waited for: its marks go
/// with it, and what it frees is had.
#[test]
fn the_other_context_is_closed_meanwhile() -> Result<()> {
    let turn = turn();
    if !simulated("the_other_context_is_closed_meanwhile") {
        return Ok(());
    }
    let events = || sim::live_counters().events;
    let before = events();
    let (one, other) = (context()?, context()?);
    let stream = Stream::new(&other)?;
    let buffer = take_on(&stream, 3 * GIB)?;
    stream.synchronize()?;
    let gate = Gate::on(&other, &stream);
    drop(buffer);
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| take(&one, 2 * GIB).map(drop));
        // Until it has marked the stream.
        while events() == before {
            assert!(!asks.is_finished(), "it did not wait");
            std::thread::yield_now();
        }
        let opener = gate.open_later();
        other.close()?;
        opener.join().expect("no panic");
        asks.join().expect("no panic")
    })?;
    assert_eq!(events(), before, "events in the driver");
    drop((stream, one));
    turn.all_came_back();
    Ok(())
}

/// Pools of other contexts are looked at too, and counted once.
#[test]
fn a_pool_of_another_context_hoards() -> Result<()> {
    let turn = turn();
    if !simulated("a_pool_of_another_context_hoards") {
        return Ok(());
    }
    let (one, other) = (context()?, context()?);
    let (pool, stream, blocks) = hoard(&other)?;
    let why = why(take(&one, 2 * GIB));
    let unused = pool.reserved_bytes()? - pool.used_bytes()?;
    assert!(unused > GIB as u64);
    let causes = why.causes();
    assert!(
        causes.contains(&Cause::HoardedByPools { bytes: unused }),
        "{why:#}"
    );
    let named = why.pools.iter().filter(|pool| {
        pool.name.contains("hoard") && pool.name.contains("context") && pool.unused() == unused
    });
    assert_eq!(named.count(), 1, "{why:#}");
    assert!(tried(&why, RecoveryStep::Trim), "{why:#}");
    let unexplained = causes.iter().find(|cause| cause.name() == "unexplained");
    assert_eq!(unexplained, None, "{why:#}");
    drop((blocks, stream, pool, one, other));
    turn.all_came_back();
    Ok(())
}

/// One stream has brought enough: nobody waits for another one that brings a little more.
#[test]
fn enough_has_come_back() -> Result<()> {
    let turn = turn();
    if !simulated("enough_has_come_back") {
        return Ok(());
    }
    let settings = OomPolicy::new().wait_at_most(Duration::from_secs(60));
    let context = Context::builder().oom_policy(settings).build()?;
    let (quick, slow) = (Stream::new(&context)?, Stream::new(&context)?);
    let (much, little) = (take_on(&quick, 3 * GIB)?, take_on(&slow, 32 * MIB)?);
    context.synchronize()?;
    let gate = Gate::on(&context, &slow);
    drop((much, little));
    while !quick.is_idle()? {
        std::thread::yield_now();
    }
    let buffer = take(&context, 2 * GIB)?;
    // Who waits for the slow one finds it done: its gate opens by itself before patience ends.
    assert!(!slow.is_idle()?);
    gate.open();
    drop((buffer, quick, slow, context));
    turn.all_came_back();
    Ok(())
}

/// Other code has set another pool for the device. Nobody looks at that one, as it may go at any moment;
/// what was freed on streams is waited for all the same.
#[test]
fn frees_in_a_pool_of_other_code() -> Result<()> {
    let turn = turn();
    if !simulated("frees_in_a_pool_of_other_code") {
        return Ok(());
    }
    let context = context()?;
    let stream = Stream::new(&context)?;
    let pool = ForeignPool::set(&context);
    drop(take_on(&stream, 3 * GIB)?);
    while !stream.is_idle()? {
        std::thread::yield_now();
    }
    drop(take(&context, 2 * GIB)?);
    drop((stream, pool, context));
    turn.all_came_back();
    Ok(())
}

/// A pool that code beside this crate has made, and set for the device until this goes.
struct ForeignPool {
    before: CUmemoryPool,
    own: CUmemoryPool,
}

impl ForeignPool {
    fn set(context: &Context) -> Self {
        let properties = CUmemPoolProps {
            allocType: virtual_memory::ALLOCATION_TYPE_PINNED,
            location: CUmemLocation {
                type_: virtual_memory::LOCATION_TYPE_DEVICE,
                id: context.device().as_raw(),
            },
            ..CUmemPoolProps::default()
        };
        let (mut before, mut own) = (CUmemoryPool::NULL, CUmemoryPool::NULL);
        // SAFETY: the variables can be written to, and the device is there.
        unsafe {
            let codes = [
                api::cuDeviceGetMemPool(&mut before, 0),
                api::cuMemPoolCreate(&mut own, &properties),
                api::cuDeviceSetMemPool(0, own),
            ];
            assert!(codes.iter().all(|code| code.is_success()), "{codes:?}");
        }
        Self { before, own }
    }
}

impl Drop for ForeignPool {
    fn drop(&mut self) {
        // SAFETY: both are alive, and nothing is allocated from the one that goes.
        unsafe {
            assert!(api::cuDeviceSetMemPool(0, self.before).is_success());
            assert!(api::cuMemPoolDestroy(self.own).is_success());
        }
    }
}

/// What a recovery step freed is in the report.
#[test]
fn what_a_step_freed_is_in_the_report() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let free = context.memory()?.free as usize / (2 * MIB) * (2 * MIB);
    let mut cache = Some(take(&context, free / 8)?);
    let data = leave(&context, free / 8)?;
    let size = cache.as_ref().map_or(0, |cache| cache.len());
    let cached = std::sync::Mutex::new(cache.take());
    let callback = context.release_on_oom(move |_| drop(cached.lock().unwrap().take()));
    let why = why(take(&context, free / 2));
    let attempt = why.recovery[0];
    assert_eq!(
        (attempt.step, attempt.tried),
        (RecoveryStep::Callbacks, true)
    );
    assert!(attempt.freed.abs_diff(size as u64) < PAGE, "{why:#}");
    // Nothing is pooled, and nothing waits.
    assert!(
        !tried(&why, RecoveryStep::Wait) && !tried(&why, RecoveryStep::Trim),
        "{why:#}"
    );
    drop((callback, data, context));
    turn.all_came_back();
    Ok(())
}
