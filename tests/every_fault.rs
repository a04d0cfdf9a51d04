//! Whole scenarios on a driver that refuses: the first call fails, then the second, and so on until
//! the scenario passes; once, and from then on for good; with several errors.
//!
//! Whatever happens: no panic, no use of what is gone (the simulation looks), an error that names
//! the operation, and nothing lost: what is still in the driver afterwards is in the report.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use cuguard::context::DeviceHeap;
use cuguard::device::PeerAccess;
use cuguard::driver::sys::CUresult;
use cuguard::memory::{ManagedAdvice, MemoryLocation, PitchedBuffer, WriteCombinedBuffer};
use cuguard::report::ReportSettings;
use cuguard::sim::{self, Counters, Fault};
use cuguard::{
    Chunked, Context, DeviceBox, DeviceBuffer, Error, Event, ManagedBuffer, MemoryPool,
    PinnedBuffer, RegisteredVec, Result, Stream,
};
use support::*;

type Scenario = fn(&ReportSettings) -> Result<()>;

const SCENARIOS: [(&str, Scenario); 18] = [
    ("memory", memory),
    ("streams", streams),
    ("pools", pools),
    ("an own context", own_context),
    ("given away", given_away),
    ("forgotten", forgotten),
    ("context first", context_first),
    ("dropped in a host function", dropped_in_a_host_function),
    ("out of memory", out_of_memory),
    ("in pieces", in_pieces),
    ("the device heap", heap),
    ("two devices", two_devices),
    ("a borrowed context", borrowed_context),
    ("views", views),
    ("two contexts", two_contexts),
    ("scratch memory and host functions", scratch_memory),
    ("graphs", graphs),
    ("matrices and the driver's host memory", matrices),
];

fn primary(settings: &ReportSettings) -> Result<Context> {
    Context::builder().report(settings.clone()).build()
}

fn memory(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let mut buffer = DeviceBuffer::from_slice(&context, &[1_u8; 1000])?.named("memory");
    buffer.copy_from_slice(&[2; 1000])?;
    assert_eq!(buffer.to_vec()?, [2; 1000]);
    let boxed = DeviceBox::new(&context, &7_u64)?;
    let mut managed = ManagedBuffer::<u16>::zeroed(&context, 100)?;
    managed.as_mut_slice(&context)?[0] = 1;
    let pinned = PinnedBuffer::<u8>::zeroed(&context, 5000)?;
    let registered = RegisteredVec::new(&context, vec![0_u8; 5000])?;
    context.memory()?;
    boxed.close()?;
    pinned.close()?;
    registered.into_vec()?;
    drop((buffer, managed));
    context.close()
}

fn streams(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let (one, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let event = Event::new(&context)?;
    let source = PinnedBuffer::from_slice(&context, &[3_u8; 1000])?;
    let mut target = PinnedBuffer::<u8>::zeroed(&context, 1000)?;
    let (mut a, mut b) = (
        DeviceBuffer::<u8>::zeroed(&context, 1000)?,
        DeviceBuffer::<u8>::zeroed_on(&other, 1000)?,
    );
    one.scope(|s| {
        let (mut a, mut b) = (s.bind_mut(&mut a)?, s.bind_mut(&mut b)?);
        s.upload(&mut a, &s.bind_host(&source))?;
        s.copy(&mut b, &a)?;
        s.record(&event)?;
        s.download(&mut s.bind_host_mut(&mut target), &b)
    })?;
    assert_eq!(*target, [3; 1000]);
    other.wait_for(&event)?;
    b.record_stream(&one)?;
    b.close()?;
    event.close()?;
    drop((one, other, a));
    context.synchronize()?;
    context.close()
}

fn pools(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let stream = Stream::new(&context)?;
    let pool = MemoryPool::new(&context)?;
    pool.set_release_threshold(1 << 20)?;
    let buffers = [
        DeviceBuffer::<u8>::zeroed_in(&pool, &stream, 1000)?,
        DeviceBuffer::<u8>::zeroed_in(&pool, &stream, 3 << 20)?,
    ];
    drop(pool);
    assert_eq!(buffers[0].to_vec()?, [0; 1000]);
    drop(buffers);
    stream.close()?;
    context.close()
}

fn own_context(settings: &ReportSettings) -> Result<()> {
    let context = Context::builder()
        .dedicated()
        .report(settings.clone())
        .build()?;
    let current = context.make_current()?;
    let buffer = DeviceBuffer::<u8>::zeroed(&context, 1000)?;
    drop(current);
    // On another thread, where no context is current.
    std::thread::scope(|scope| scope.spawn(|| drop(buffer)).join()).expect("a drop never panics");
    context.close()
}

fn given_away(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let stream = Stream::new(&context)?;
    let plain = DeviceBuffer::from_slice(&context, &[5_u8; 100])?.into_raw();
    // SAFETY: the address and the length of a buffer of this context, given away above.
    let plain = unsafe { DeviceBuffer::<u8>::from_raw(&context, plain, 100) };
    let ordered = DeviceBuffer::<u8>::zeroed_on(&stream, 100)?.into_raw();
    // SAFETY: the same, on the same stream.
    let ordered = unsafe { DeviceBuffer::<u8>::from_raw_on(&stream, ordered, 100) };
    assert_eq!(plain.to_vec()?, [5; 100]);
    drop((plain, ordered));
    context.close()
}

fn forgotten(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let forget = || -> Result<()> {
        let stream = Stream::new(&context)?;
        std::mem::forget(DeviceBuffer::<u8>::zeroed(&context, 1000)?);
        std::mem::forget(DeviceBuffer::<u8>::zeroed_on(&stream, 1000)?);
        std::mem::forget(PinnedBuffer::<u8>::zeroed(&context, 1000)?);
        std::mem::forget(Event::new(&context)?);
        std::mem::forget(MemoryPool::new(&context)?);
        std::mem::forget(stream);
        Ok(())
    };
    // Dropped, it would stay open for what was forgotten.
    let forgotten = forget();
    forgotten.and(context.close())
}

/// A context that is dropped before its resources, the last of which tears it down.
fn context_first(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let stream = Stream::new(&context)?;
    let resources = (
        DeviceBuffer::<u8>::zeroed(&context, 1000)?,
        DeviceBuffer::<u8>::zeroed_on(&stream, 1000)?,
        PinnedBuffer::<u8>::zeroed(&context, 1000)?,
        Event::new(&context)?,
        MemoryPool::new(&context)?,
    );
    drop(context);
    stream.synchronize()?;
    drop(resources);
    Ok(())
}

/// The same with host functions, in which the driver permits no call.
fn dropped_in_a_host_function(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let stream = Stream::new(&context)?;
    let resources = (
        DeviceBuffer::<u8>::zeroed(&context, 1000)?,
        DeviceBuffer::<u8>::zeroed_on(&stream, 1000)?,
        PinnedBuffer::<u8>::zeroed(&context, 1000)?,
        Event::new(&context)?,
    );
    type Resources = (DeviceBuffer<u8>, DeviceBuffer<u8>, PinnedBuffer<u8>, Event);
    unsafe extern "C" fn drop_them(resources: *mut std::ffi::c_void) {
        // SAFETY: given away by `Box::into_raw` below, once.
        drop(unsafe { Box::from_raw(resources.cast::<Resources>()) });
    }
    let resources: *mut Resources = Box::into_raw(Box::new(resources));
    // SAFETY: the stream is alive, and the function takes what it is given.
    let code = unsafe {
        cuguard::driver::api::cuLaunchHostFunc(stream.as_raw(), Some(drop_them), resources.cast())
    };
    if !code.is_success() {
        // SAFETY: nobody else has it. (`cust` would leak it here.)
        drop(unsafe { Box::from_raw(resources) });
    }
    stream.synchronize()?;
    drop(stream);
    context.close()
}

/// An allocation that cannot succeed, and everything that is tried and asked before it fails.
fn out_of_memory(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let stream = Stream::new(&context)?;
    let pool = MemoryPool::new(&context)?;
    pool.set_release_threshold(u64::MAX)?;
    let kept = DeviceBuffer::<u8>::zeroed_in(&pool, &stream, 1000)?;
    drop(DeviceBuffer::<u8>::zeroed_in(&pool, &stream, 1 << 20)?);
    let callback = context.release_on_oom(|_| {});
    // More than any device has, however it is asked for.
    let refused = [
        DeviceBuffer::<u8>::zeroed(&context, 1 << 50),
        DeviceBuffer::<u8>::zeroed_on(&stream, 1 << 50),
    ];
    for refused in refused {
        match refused {
            Err(Error::OutOfMemory(why)) => assert!(!why.to_text().is_empty()),
            Err(error) => return Err(error),
            Ok(_) => panic!("there is no such device"),
        }
    }
    drop((callback, kept, pool, stream));
    context.close()
}

fn in_pieces(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let mut values = vec![1_u8; 20_000];
    Chunked::new(&context)
        .piece_bytes(5_000)
        .update(&mut values, |s, mut piece| s.fill(&mut piece.data, 2))?;
    assert!(values.iter().all(|value| *value == 2));
    context.close()
}

/// Scratch memory, host functions, and page-locked memory on the device.
fn scratch_memory(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let stream = Stream::new(&context)?;
    let mut pinned = PinnedBuffer::<u8>::zeroed(&context, 1000)?;
    let seen = AtomicU32::new(0);
    stream.scope(|s| {
        let mut pinned = s.bind_mut(&mut pinned)?;
        let mut scratch = s.zeroed(1000)?;
        s.fill(&mut scratch, 3)?;
        // SAFETY: the copy initializes it.
        let mut more = unsafe { s.uninitialized(1000)? };
        s.copy(&mut more, &scratch)?;
        s.call(|| seen.store(1, Ordering::Relaxed))?;
        s.copy(&mut pinned, &more)
    })?;
    assert_eq!((*pinned).to_vec(), [3; 1000]);
    assert_eq!(seen.into_inner(), 1);
    drop((pinned, stream));
    context.close()
}

/// In a context of its own: a capture whose end is refused stays in progress, and prohibits waits for its context.
fn graphs(settings: &ReportSettings) -> Result<()> {
    let builder = Context::builder().dedicated();
    let context = builder.report(settings.clone()).build()?;
    let run = || -> Result<()> {
        let (stream, home) = (Stream::new(&context)?, Stream::new(&context)?);
        let mut buffer = DeviceBuffer::<u8>::zeroed_on(&home, 1000)?;
        let calls = AtomicU32::new(0);
        let (graph, data) = stream.capture(|c| {
            let mut data = c.bind_mut(&mut buffer)?;
            let mut scratch = c.zeroed(1000)?;
            c.fill(&mut scratch, 3)?;
            c.call_each(|| {
                calls.fetch_add(1, Ordering::Relaxed);
            })?;
            c.copy(&mut data, &scratch)?;
            c.export_mut(&data)
        })?;
        let mut exec = graph.instantiate()?;
        exec.view_mut(&data)?.fill(9)?;
        stream.scope(|s| {
            let mut graph = s.bind_graph(&mut exec)?;
            s.launch_graph(&mut graph)?;
            s.launch_graph(&mut graph)
        })?;
        assert_eq!(exec.view(&data.as_ref())?.to_vec()?, [3; 1000]);
        exec.close()?;
        let (graph, data) = stream.capture(|c| {
            let mut data = c.bind_mut(&mut buffer)?;
            c.fill(&mut data, 1)?;
            c.export_mut(&data)
        })?;
        let mut exec = graph.instantiate()?;
        exec.recapture(&stream, |c| c.fill(&mut c.reuse_mut(&data)?, 2))?;
        exec.launch(&home)?;
        drop(exec);
        assert_eq!(buffer.to_vec()?, [2; 1000]);
        assert_eq!(calls.into_inner(), 2);
        Ok(())
    };
    let ran = run();
    ran.and(context.close())
}

fn heap(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let heap = DeviceHeap::limit(&context, 16 << 20)?;
    assert!(DeviceHeap::current(&context)? >= 16 << 20);
    heap.close()?;
    context.close()
}

fn two_devices(settings: &ReportSettings) -> Result<()> {
    let first = primary(settings)?;
    let second = Context::builder()
        .device(1)
        .report(settings.clone())
        .build()?;
    let access = PeerAccess::new(&first, &second)?;
    let again = PeerAccess::new(&first, &second)?;
    let (stream, there) = (Stream::new(&first)?, Stream::new(&second)?);
    let mut a = DeviceBuffer::<u8>::zeroed(&first, 1000)?;
    let b = DeviceBuffer::from_slice_on(&there, &[3_u8; 1000])?;
    let mut c = DeviceBuffer::<u8>::zeroed(&second, 1000)?;
    stream.scope(|s| {
        let (mut a, mut c) = (s.bind_mut(&mut a)?, s.bind_peer_mut(&mut c)?);
        s.copy_from_peer(&mut a, &s.bind_peer(&b)?)?;
        s.copy_to_peer(&mut c, &a)
    })?;
    assert_eq!(c.to_vec()?, [3; 1000]);
    drop(again);
    drop((a, b, c, stream, there));
    // The access ends with the context that is accessed.
    let closed = second.close();
    access.close()?;
    closed.and(first.close())
}

/// A context of other code, which stays, and its default stream.
fn borrowed_context(settings: &ReportSettings) -> Result<()> {
    let owner = Context::builder().report(ReportSettings::off()).build()?;
    let builder = Context::builder().report(settings.clone());
    // SAFETY: `owner` is dropped after it, and so after its resources.
    let context = unsafe { builder.build_borrowed(owner.as_raw())? };
    let stream = Stream::default_stream(&context)?;
    let mut buffer = DeviceBuffer::<u8>::zeroed_on(&stream, 1000)?;
    stream.scope(|s| s.fill(&mut s.bind_mut(&mut buffer)?, 1))?;
    let event = Event::new(&context)?;
    event.record(&stream)?;
    // SAFETY: released in the same line, in the same context.
    let event = unsafe { Event::from_raw(&context, event.into_raw())? };
    event.synchronize()?;
    drop((buffer, event, stream));
    let closed = context.close();
    closed.and(owner.close())
}

fn views(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let (one, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let mut plain = DeviceBuffer::from_slice(&context, &[1_u8; 1000])?;
    let mut ordered = DeviceBuffer::from_slice_on(&one, &[2_u8; 1000])?;
    let mut third = DeviceBuffer::<u8>::zeroed_on(&other, 1000)?;
    plain.slice_mut(..500)?.copy_from(ordered.slice(500..)?)?;
    third.copy_from(&ordered)?;
    let (mut front, back) = third.split_at_mut(300)?;
    front.copy_from(back.slice(..300)?)?;
    ordered.slice_mut(1..)?.fill(3)?;
    ordered.zero()?;
    // Larger than what the driver can fill with.
    plain
        .as_view_mut()
        .cast::<[u8; 5]>()?
        .fill([1, 2, 3, 4, 5])?;
    let clones = [plain.try_clone()?, ordered.try_clone()?];
    drop((plain, ordered));
    assert_eq!(clones[0].slice(999..)?.to_vec()?, [5]);
    assert_eq!(clones[1].slice(..2)?.to_vec()?, [0, 0]);
    let words = third.cast::<u32>()?;
    other.scope(|s| s.bind(words.slice(1..)?).map(drop))?;
    words.close()?;
    drop((clones, one, other));
    context.close()
}

/// Copies between two contexts, whose streams are not ordered with each other.
fn two_contexts(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let own = Context::builder()
        .dedicated()
        .report(settings.clone())
        .build()?;
    // The first context is closed although the second may have failed.
    let copies = || -> Result<()> {
        let stream = Stream::new(&own)?;
        let from = DeviceBuffer::from_slice(&context, &[1_u8; 1000])?;
        let mut to = DeviceBuffer::<u8>::zeroed_on(&stream, 1000)?;
        to.slice_mut(500..)?.copy_from(from.slice(..500)?)?;
        assert_eq!(to.slice(499..501)?.to_vec()?, [0, 1]);
        let mut back = from.try_clone()?;
        back.copy_from(&to)
    };
    let copied = copies();
    copied.and(own.close()).and(context.close())
}

fn matrices(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let stream = Stream::new(&context)?;
    let mut matrix = PitchedBuffer::from_slice(&context, 2, 3, &[1_u8, 2, 3, 4, 5, 6])?;
    let clone = matrix.try_clone()?;
    matrix.zero()?;
    matrix.row_mut(1)?.copy_from(clone.row(0)?)?;
    assert_eq!(matrix.to_vec()?, [0, 0, 0, 1, 2, 3]);
    let mut staging = WriteCombinedBuffer::<u8>::zeroed(&context, 1000)?;
    staging.copy_from_slice(&[7; 1000])?;
    let mut managed = ManagedBuffer::<u8>::zeroed(&context, 1000)?;
    managed.advise(ManagedAdvice::ReadMostly)?;
    managed.prefetch(&stream, MemoryLocation::Device(0))?;
    managed.as_view_mut().slice_mut(1..)?.fill(1)?;
    drop((clone, managed));
    staging.close()?;
    matrix.close()?;
    stream.close()?;
    context.close()
}

/// Whether there is more in the driver than before.
fn left(before: &Counters, after: &Counters) -> bool {
    after.contexts > before.contexts
        || after.streams > before.streams
        || after.events > before.events
        || after.pools > before.pools
        || after.allocations().count > before.allocations().count
        || after.registered.count > before.registered.count
}

/// One attempt, with a fault in it. Answers whether the fault was met.
fn attempt(name: &str, scenario: Scenario, fault: Fault, file: &Path) -> bool {
    let _ = std::fs::remove_file(file);
    let settings = ReportSettings::text()
        .file(file.to_str().expect("text"))
        .expect("a path");
    let before = sim::live_counters();
    let what = format!("{name}: {fault:?}");
    let injected = sim::inject(fault).unwrap();
    // On a thread of its own: what a refused pop leaves current goes with it.
    let result = std::thread::scope(|scope| {
        let run = || catch_unwind(AssertUnwindSafe(|| scenario(&settings)));
        scope.spawn(run).join()
    });
    sim::clear_faults();
    let result = result
        .unwrap()
        .unwrap_or_else(|_| panic!("{what}: a panic"));
    if let Err(error) = &result {
        assert!(error.to_string().contains("::"), "{what}: {error}");
    }
    // Work that was in flight when the fault was cleared ends, and holds memory until then.
    settle(if name == "two devices" { 2 } else { 1 });
    let after = sim::live_counters();
    assert_eq!(
        after.misuses,
        before.misuses,
        "{what}: {:?}",
        sim::misuses()
    );
    if left(&before, &after) {
        let report = std::fs::read_to_string(file).unwrap_or_default();
        assert!(
            report.contains("could not free") || report.contains("not released"),
            "{what}: {before:#?}\n{after:#?}\n{report}\n{result:?}"
        );
    }
    if injected.fired() == 0 {
        result.unwrap_or_else(|error| panic!("{what}: {error:?}"));
        assert!(!left(&before, &after), "{what}: {before:?} {after:?}");
    }
    injected.fired() != 0
}

/// Waits for all that the driver has under way, in whatever context; and again, as host functions may
/// have dropped what is freed at the next call.
fn settle(devices: u32) {
    for device in 0..devices {
        let builder = Context::builder().device(device);
        if let Ok(context) = builder.report(ReportSettings::off()).build() {
            let _ = context.synchronize();
            let _ = context.synchronize();
        }
    }
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("cuguard-{name}-{}.txt", std::process::id()))
}

/// Contexts that the faults leave behind must not fill the device.
/// A device on which contexts are cheap, and which is large: what is refused stays taken. Before
/// anything else, as the simulated machine must not run yet.
fn large_device() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let config = sim::Config::new()
            .devices(2)
            .memory(1 << 40)
            .context_cost(1 << 20);
        sim::configure(config).expect("it does not run yet");
    });
}

/// Every call fails with each of the codes `always`, and with one of the `others` in turn: all of them for each call take
/// many minutes, and run with `CUGUARD_TEST_FAULTS=all`.
fn every_call(
    mode: &str,
    always: &[CUresult],
    others: &[CUresult],
    fault: impl Fn(u64, CUresult) -> Fault,
) {
    let file = scratch(mode);
    let all = std::env::var("CUGUARD_TEST_FAULTS").is_ok_and(|value| value == "all");
    let count = others.len() as u64;
    let always = always.iter().map(|code| (code, None));
    let others = others
        .iter()
        .zip(0..)
        .map(|(code, turn)| (code, Some(turn)));
    let codes: Vec<_> = always.chain(others).collect();
    let mut faults = 0_u64;
    for ((name, scenario), number) in SCENARIOS.into_iter().zip(0..) {
        for (code, turn) in &codes {
            for call in 1.. {
                assert!(call < 500, "{name} never ends");
                if turn.is_some_and(|turn| !all && (call + number) % count != turn) {
                    continue;
                }
                if !attempt(name, scenario, fault(call, **code), &file) {
                    break;
                }
                faults += 1;
            }
        }
    }
    let _ = std::fs::remove_file(file);
    // What the harness keeps to itself when a test passes is wanted here.
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{mode}: {faults} faults injected");
    assert!(faults > 500);
}

#[test]
fn each_call_refused_once() {
    if !simulated("each_call_refused_once") {
        return;
    }
    large_device();
    let _turn = turn();
    let always = [CUresult::UNKNOWN, CUresult::OUT_OF_MEMORY];
    let others = [
        CUresult::INVALID_VALUE,
        CUresult::ILLEGAL_ADDRESS,
        CUresult::NOT_READY,
        // A capture of other code prohibits the call.
        CUresult::STREAM_CAPTURE_UNSUPPORTED,
        CUresult(54_321),
    ];
    every_call("once", &always, &others, |call, code| {
        Fault::nth_call(call).returning(code)
    });
}

/// From one call on nothing works any more, as on a device that is lost.
#[test]
fn each_call_refused_and_all_after_it() {
    if !simulated("each_call_refused_and_all_after_it") {
        return;
    }
    large_device();
    let _turn = turn();
    let others = [CUresult::ILLEGAL_ADDRESS, CUresult::CONTEXT_IS_DESTROYED];
    every_call("for good", &[CUresult::UNKNOWN], &others, |call, code| {
        Fault::nth_call(call).returning(code).sticky()
    });
}

/// Memory runs out at every allocation in turn.
#[test]
fn out_of_memory_at_every_allocation() {
    if !simulated("out_of_memory_at_every_allocation") {
        return;
    }
    large_device();
    let _turn = turn();
    let file = scratch("memory");
    for (name, scenario) in SCENARIOS {
        // One is out of memory however much there is, the other allocates nothing.
        if matches!(name, "out of memory" | "the device heap") {
            continue;
        }
        // In steps that are smaller than any of the blocks.
        let mut bytes = 0;
        while attempt(name, scenario, Fault::after_bytes(bytes).sticky(), &file) {
            bytes += 90;
            if bytes > 20_000 {
                bytes += 100_000;
            }
        }
        assert!(bytes > 0, "{name}");
    }
    let _ = std::fs::remove_file(file);
}

/// The device stops in the middle of its work: guards still drop, nothing that was refused counts
/// as freed, and the report says what happened and that only a new process helps.
#[test]
fn a_device_that_breaks_in_the_middle() {
    const TEST: &str = "a_device_that_breaks_in_the_middle";
    if !simulated(TEST) {
        return;
    }
    if part().is_some() {
        let context = Context::new(0).unwrap();
        let stream = Stream::new(&context).unwrap();
        let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 1000).unwrap();
        let result = stream.scope(|s| {
            s.fill(&mut s.bind_mut(&mut buffer)?, 1)?;
            sim::set_sticky_error(CUresult::ILLEGAL_ADDRESS);
            Ok(())
        });
        let code = result.unwrap_err().code();
        assert_eq!(code, Some(CUresult::ILLEGAL_ADDRESS));
        drop((buffer, stream));
        assert!(context.close().is_err());
        let again = Context::new(0).unwrap_err();
        assert_eq!(again.code(), Some(CUresult::ILLEGAL_ADDRESS));
        return;
    }
    let output = child(TEST, "child", &[("LEAK_REPORT", "1,exitcode=23")]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(23), "{err}");
    for words in [
        "CUDA_ERROR_ILLEGAL_ADDRESS (700), first returned by cuStreamSynchronize in Stream::scope",
        "only a new process helps",
        "could not free 1000 B in 1 allocation of device memory",
        "could not free 1 stream",
        "2 frees failed",
    ] {
        assert!(err.contains(words), "{words}\n{err}");
    }
}
