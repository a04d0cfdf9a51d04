//! Out of memory on a real GPU: causes staged with its own driver, and the numbers of the report
//! against the driver's. It fills most of the card for some seconds. Not run on a simulated GPU,
//! where `tests/oom.rs` stages the same.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cuguard::{Context, DeviceBuffer, DriverPool, Module, Result, Stream, TrackingLevel};
use cuguard_testing::{Requirement, not_run};

use crate::support::room::*;
use crate::support::*;
use cuguard::oom::{Cause, OomPolicy, Processes};

/// Looks whether two figures are within a percent of each other.
#[track_caller]
fn close(what: &str, reported: u64, measured: u64) {
    let apart = reported.abs_diff(measured);
    println!("{what}: reported {reported}, the driver says {measured}");
    assert!(
        apart * 100 <= measured,
        "{what}: {reported} is not {measured}"
    );
}

/// Blocks of 1 MiB, every other one freed, with the rest of the card held.
#[test]
fn half_of_every_page_is_free() -> Result<()> {
    let turn = turn();
    if !real("half_of_every_page_is_free") {
        return Ok(());
    }
    let context = Context::builder().level(TrackingLevel::Sites).build()?;
    let total = context.memory()?.total;
    // 60 GiB of small blocks on a card of 140 GiB, 20 GiB asked for; on others in proportion.
    let (fill, ask) = (total / 140 * 60, total / 140 * 20);
    let before = context.memory()?.free;
    let mut blocks = Vec::new();
    for _ in 0..fill >> 20 {
        blocks.push(take(&context, MIB)?);
    }
    close(
        "pages of small blocks",
        blocks.len() as u64 * MIB as u64,
        before - context.memory()?.free,
    );
    let rest = leave(&context, 64 * MIB)?;
    let mut index = 0;
    blocks.retain(|_| {
        index += 1;
        index % 2 == 0
    });
    let why = why(take(&context, ask as usize));
    println!("{why:#}");
    let causes = why.causes();
    let Cause::Fragmentation { bytes, pages } = causes[0] else {
        panic!("{why:#}")
    };
    // What the small blocks took of the card and do not fill.
    let held = before - context.memory()?.free - rest.len() as u64;
    close("kept by small blocks", pages * PAGE, held);
    close(
        "unused in their pages",
        bytes,
        held - (blocks.len() * MIB) as u64,
    );
    assert_eq!(why.free, Some(context.memory()?.free));
    drop((blocks, rest, context));
    turn.all_came_back();
    Ok(())
}

/// A pool whose memory is held by every other block.
#[test]
fn a_pool_hoards() -> Result<()> {
    let turn = turn();
    if !real("a_pool_hoards") {
        return Ok(());
    }
    let context = Context::builder().level(TrackingLevel::Sites).build()?;
    let stream = Stream::new(&context)?;
    let pool = DriverPool::new(&context)?.with_label("hoard");
    pool.set_release_threshold(u64::MAX)?;
    let before = context.memory()?;
    let fill = before.total / 140 * 60 / (3 * MIB as u64);
    let mut blocks = Vec::new();
    for _ in 0..fill {
        blocks.push(DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 3 * MIB)?);
    }
    stream.synchronize()?;
    let rest = leave(&context, 64 * MIB)?;
    let mut index = 0;
    blocks.retain(|_| {
        index += 1;
        index % 2 == 0
    });
    stream.synchronize()?;
    let why = why(take(&context, (before.total / 140 * 20) as usize));
    println!("{why:#}");
    let causes = why.causes();
    let Cause::HoardedByPools { bytes } = causes[0] else {
        panic!("{why:#}")
    };
    close(
        "hoarded",
        bytes,
        pool.reserved_bytes()? - pool.used_bytes()?,
    );
    let taken = before.free - context.memory()?.free - rest.len() as u64;
    close("reserved", pool.reserved_bytes()?, taken);
    drop((blocks, rest, pool, stream, context));
    turn.all_came_back();
    Ok(())
}

/// Frees on a stream that has not got there.
#[test]
fn a_free_is_pending() -> Result<()> {
    let turn = turn();
    if !real("a_free_is_pending") {
        return Ok(());
    }
    let settings = OomPolicy::new().wait(false);
    let context = Context::builder().oom_policy(settings).build()?;
    let stream = Stream::new(&context)?;
    let free = context.memory()?.free as usize;
    let buffer = take_on(&stream, free / 4 * 3)?;
    stream.synchronize()?;
    // A fill that takes a while, then the free.
    let scratch = take(&context, free / 8)?;
    busy(&stream, &scratch, 200);
    drop(buffer);
    let answer = take(&context, free / 2);
    let was_busy = !stream.is_idle()?;
    if was_busy {
        let why = why(answer);
        println!("{why:#}");
        assert!(
            matches!(why.causes()[0], Cause::PendingFrees { streams: 1, .. }),
            "{why:#}"
        );
    } else {
        not_run(
            Requirement::RealGpu,
            "that is busy for longer than the test",
        );
    }
    stream.synchronize()?;
    drop((scratch, stream, context));
    turn.all_came_back();
    Ok(())
}

/// The same, waited for: on the stream, in another context, and where the stream is gone already.
#[test]
fn a_pending_free_is_waited_for() -> Result<()> {
    let turn = turn();
    if !real("a_pending_free_is_waited_for") {
        return Ok(());
    }
    let settings = OomPolicy::new().wait_at_most(Duration::from_secs(30));
    let context = Context::builder().oom_policy(settings).build()?;
    for (case, elsewhere, gone) in [
        ("the stream is there", false, false),
        ("another context's stream", true, false),
        ("the stream is gone", false, true),
    ] {
        let other = Context::builder().dedicated().build()?;
        let at = if elsewhere { &other } else { &context };
        let stream = Stream::new(at)?;
        let free = context.memory()?.free as usize;
        let buffer = take_on(&stream, free / 4 * 3)?;
        let scratch = take(at, free / 8)?;
        stream.synchronize()?;
        // Work of which the length is known, for the case in which nobody can ask the stream.
        let rounds = if gone { 20 } else { 200 };
        busy(&stream, &scratch, rounds);
        drop(buffer);
        let was_busy = !stream.is_idle()?;
        let stream = (!gone).then_some(stream);
        let begin = Instant::now();
        let granted = take(&context, free / 2)?;
        println!("{case}: {:?}, busy before: {was_busy}", begin.elapsed());
        assert!(was_busy, "{case}: the device was faster than the test");
        if let Some(stream) = &stream {
            // The free is the last thing on the stream.
            assert!(stream.is_idle()?, "{case}");
        }
        drop((granted, scratch, stream));
        other.close()?;
    }
    drop(context);
    turn.all_came_back();
    Ok(())
}

/// Gives a stream so many fills of a buffer to do; of some GiB each takes some milliseconds.
fn busy(stream: &Stream, scratch: &DeviceBuffer<u8>, rounds: u8) {
    use cuguard::driver::api;
    let (address, bytes) = (scratch.as_device_ptr().as_raw(), scratch.len());
    for round in 0..rounds {
        // SAFETY: the buffer outlives the work: the test waits for the stream before it goes.
        let code = unsafe { api::cuMemsetD8Async(address, round, bytes, stream.as_raw()) };
        assert!(code.is_success(), "{code}");
    }
}

/// A kernel needs memory for its threads, which the driver takes for the whole device when it is
/// launched, and keeps until the context goes.
#[test]
fn a_launch_wants_memory() -> Result<()> {
    let turn = turn();
    if !real("a_launch_wants_memory") {
        return Ok(());
    }
    let context = Context::builder().level(TrackingLevel::Sites).build()?;
    let module = Module::from_ptx(&context, include_str!("../kernels/local.ptx"))?;
    let kernel = module.function("use_local")?;
    let stream = Stream::new(&context)?;
    let mut sum = DeviceBuffer::<u32>::zeroed(&context, 1)?;
    let mut launch = || {
        stream.scope(|s| {
            let sum = s.bind_mut(&mut sum)?;
            // SAFETY: use_local(seed, sum) adds to one word.
            unsafe { s.launch(&kernel, (1, 32), &[&7_u32, &sum]) }
        })
    };
    let before = context.memory()?.free;
    // 64 KiB for each thread is 16 GiB on a card of 132 processors.
    let rest = Arc::new(Mutex::new(Some(leave(&context, 128 * MIB)?)));
    let why_not = why(launch());
    println!("{why_not:#}");
    assert_eq!(why_not.request.operation, "Scope::launch");
    assert_eq!(why_not.request.function, Some("cuLaunchKernel"));
    assert!(
        matches!(why_not.causes()[0], Cause::OwnData { .. }),
        "{why_not:#}"
    );
    // A cache gives way: the same launch is done.
    let cache = rest.clone();
    let callback = context.release_on_oom(move |_bytes| {
        cache.lock().expect("no panic").take();
    });
    launch()?;
    drop(callback);
    assert!(rest.lock().expect("no panic").is_none());
    let kept = before - context.memory()?.free;
    println!("the launch took {kept} bytes, and keeps them");
    // They are nobody's guard's, and named as such where NVML tells what the process has.
    let why = why(take(&context, context.memory()?.total as usize - GIB));
    println!("{why:#}");
    if matches!(why.processes, Processes::Known(_)) && kept > why.total.unwrap_or(0) / 20 {
        let outside = why.causes().into_iter().find_map(|cause| match cause {
            Cause::OutsideGuards { bytes } => Some(bytes),
            _ => None,
        });
        let outside = outside.unwrap_or_else(|| panic!("{why:#}"));
        assert!(outside >= kept, "{outside} bytes are less than {kept}");
    }
    drop((sum, stream));
    drop(module);
    drop(context);
    turn.all_came_back();
    Ok(())
}

/// A context takes memory itself; another one of this process has left too little.
#[test]
fn a_context_finds_no_room() -> Result<()> {
    let turn = turn();
    if !real("a_context_finds_no_room") {
        return Ok(());
    }
    let context = Context::new(0)?;
    let rest = leave(&context, 64 * MIB)?;
    let why = why(Context::builder().dedicated().build());
    println!("{why:#}");
    assert_eq!(why.request.operation, "ContextBuilder::build");
    assert_eq!(why.request.function, Some("cuCtxCreate"));
    let Cause::OtherContexts { bytes } = why.causes()[0] else {
        panic!("{why:#}")
    };
    close("held by the other context", bytes, rest.len() as u64);
    drop((rest, context));
    turn.all_came_back();
    Ok(())
}

/// Another process holds most of the card; it is named with its number and its bytes.
#[test]
fn another_process_holds_the_card() -> Result<()> {
    const CHILD: &str = "CUGUARD_TEST_HOLDER";
    if std::env::var_os(CHILD).is_some() {
        let context = Context::new(0)?;
        let bytes = context.memory()?.total as usize / 140 * 100;
        let buffer = take(&context, bytes)?;
        println!("\nholds {bytes}");
        let _ = std::io::stdout().flush();
        let _ = std::io::stdin().read(&mut [0]);
        drop(buffer);
        return context.close();
    }
    let turn = turn();
    if !real("another_process_holds_the_card") {
        return Ok(());
    }
    #[allow(
        clippy::zombie_processes,
        reason = "it is waited for; where the test panics, the end of its input ends it"
    )]
    let mut child = cuguard_testing::test_command("another_process_holds_the_card")
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let held = lines
        .find_map(|line| line.ok()?.strip_prefix("holds ")?.parse::<u64>().ok())
        .expect("it holds memory");
    let context = Context::new(0)?;
    let why = why(take(&context, context.memory()?.total as usize / 2));
    println!("{why:#}");
    match &why.processes {
        Processes::Unknown(reason) => not_run(Requirement::Nvml, reason),
        Processes::Known(_) => {
            let causes = why.causes();
            let Cause::OtherProcesses { bytes, pids } = &causes[0] else {
                panic!("{why:#}")
            };
            assert!(pids.contains(&child.id()), "{pids:?}, not {}", child.id());
            close("held by the other process", *bytes, held);
        }
    }
    drop(context);
    drop(child.stdin.take());
    assert!(child.wait().expect("it ends").success());
    turn.all_came_back();
    Ok(())
}
