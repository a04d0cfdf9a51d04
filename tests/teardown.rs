//! The end of a context: what was forgotten is reported, freed and inert, whatever it is, and
//! whatever else is going on.

use std::mem::{self, ManuallyDrop};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use cuguard::report::Report;

use crate::support::gate::Gate;
use crate::support::*;
use cuguard::driver::api;
use cuguard::driver::sys::CUcontext;
use cuguard::report::ReportSettings;
use cuguard::sim::{self, Counters};
use cuguard::{
    Context, DeviceBuffer, DriverPool, Error, Event, ManagedBuffer, Module, PinnedBuffer,
    RegisteredVec, ResourceKind, Result, Stream,
};

const MIB: usize = 1 << 20;

/// Nothing that these tests wait for takes longer.
const LONG: Duration = Duration::from_secs(20);

/// Long enough for a thread that does not wait to get ahead.
const A_WHILE: Duration = Duration::from_millis(100);

fn closed<T>(result: Result<T>) -> bool {
    matches!(result, Err(Error::ContextClosed { .. }))
}

/// What is alive in the simulated driver, without how often what was called.
fn alive() -> Counters {
    let mut counters = sim::counters();
    counters.calls.clear();
    counters
}

/// A context whose report goes into a file.
struct Reported {
    context: Context,
    file: PathBuf,
}

impl Reported {
    fn new(test: &str) -> Result<Self> {
        let file = format!("cuguard-teardown-{}-{test}.json", std::process::id());
        let file = temporary(&file);
        let settings = ReportSettings::json().file(file.to_str().unwrap()).unwrap();
        let context = Context::builder().report(settings).build()?;
        Ok(Self { context, file })
    }

    /// Closes the context, and answers the report.
    fn close(self) -> Result<String> {
        self.context.close()?;
        let report = std::fs::read_to_string(&self.file).unwrap();
        std::fs::remove_file(&self.file).unwrap();
        json::check(&report).unwrap();
        Ok(report)
    }
}

/// Forgets one thing of each kind that `make` makes, under the name `lost`: it must be known,
/// reported, and freed although somebody else keeps the driver's context alive. Then it is dropped
/// after all, which does nothing.
fn is_reclaimed<T>(
    test: &str,
    kind: ResourceKind,
    make: impl FnOnce(&Context) -> Result<T>,
    is_inert: impl FnOnce(&mut T) -> bool,
) -> Result<()> {
    let turn = turn();
    let others = context()?;
    // A real driver does not tell what is alive, only what is free.
    let simulated = simulated(&format!("the count of what is alive in {test}"));
    let before = (free_bytes(), simulated.then(alive));
    let reported = Reported::new(test)?;
    let mut lost = ManuallyDrop::new(make(&reported.context)?);
    assert_eq!(reported.context.totals(kind).count, 1, "{test}");

    let snapshot = reported.context.snapshot();
    let group = snapshot.live.iter().find(|group| group.kind == kind);
    let group = group.unwrap_or_else(|| panic!("{test}\n{}", snapshot.display()));
    assert_eq!(group.label.as_deref(), Some("lost"), "{test}");
    let site = group.origin.site.unwrap();
    assert!(site.file.ends_with("tests/teardown.rs"), "{test}: {site}");

    let report = reported.close()?;
    let words = format!("\"kind\":\"{}\"", kind.name());
    assert!(report.contains(&words), "{test}\n{report}");
    assert!(report.contains("\"label\":\"lost\""), "{test}\n{report}");
    assert!(report.contains("\"leaked\":true"), "{test}\n{report}");
    assert_eq!((free_bytes(), simulated.then(alive)), before, "{test}");

    assert!(is_inert(&mut lost), "{test}");
    let calls = sim::counters().calls;
    // SAFETY: dropped once, and not used afterwards.
    unsafe { ManuallyDrop::drop(&mut lost) };
    assert_eq!(calls, sim::counters().calls, "{test}");
    others.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn forgotten_managed_memory() -> Result<()> {
    let make = |c: &Context| Ok(ManagedBuffer::<u8>::zeroed(c, 4 * MIB)?.with_label("lost"));
    // The slice asks for a context, and no other one will do.
    let inert = |lost: &mut ManagedBuffer<u8>| {
        let other = context().unwrap();
        matches!(lost.as_slice(&other), Err(Error::WrongContext { .. }))
    };
    is_reclaimed("managed", ResourceKind::Managed, make, inert)
}

#[test]
fn forgotten_registered_memory() -> Result<()> {
    let make = |c: &Context| Ok(RegisteredVec::new(c, vec![7_u8; MIB])?.with_label("lost"));
    // The vector is the program's own, and stays.
    let inert = |lost: &mut RegisteredVec<u8>| {
        lost[0] = 8;
        lost[0] == 8 && lost[MIB - 1] == 7
    };
    is_reclaimed("registered", ResourceKind::Registered, make, inert)
}

#[test]
fn a_forgotten_memory_pool() -> Result<()> {
    let make = |c: &Context| {
        let pool = DriverPool::new(c)?.with_label("lost");
        // It keeps what its buffers gave back.
        pool.set_release_threshold(u64::MAX)?;
        let stream = Stream::new(c)?;
        drop(DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 4 * MIB)?);
        stream.synchronize()?;
        assert!(pool.reserved_bytes()? >= 4 * MIB as u64);
        Ok(pool)
    };
    let inert = |lost: &mut DriverPool| closed(lost.used_bytes()) && closed(lost.trim_to(0));
    is_reclaimed("pool", ResourceKind::MemoryPool, make, inert)
}

#[test]
fn forgotten_stream_ordered_memory() -> Result<()> {
    let make = |c: &Context| {
        let stream = Stream::new(c)?;
        Ok(DeviceBuffer::<u8>::zeroed(&stream, 4 * MIB)?.with_label("lost"))
    };
    let inert = |lost: &mut DeviceBuffer<u8>| {
        closed(lost.to_vec()) && closed(lost.copy_from_slice(&vec![1; 4 * MIB]))
    };
    is_reclaimed("stream-ordered", ResourceKind::StreamOrdered, make, inert)
}

#[test]
fn forgotten_memory_of_a_forgotten_pool() -> Result<()> {
    let make = |c: &Context| {
        let (pool, stream) = (DriverPool::new(c)?, Stream::new(c)?);
        let buffer = DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 4 * MIB)?.with_label("lost");
        mem::forget((pool, stream));
        Ok(buffer)
    };
    let inert = |lost: &mut DeviceBuffer<u8>| closed(lost.to_vec());
    is_reclaimed("pooled", ResourceKind::StreamOrdered, make, inert)
}

#[test]
fn a_forgotten_event() -> Result<()> {
    let make = |c: &Context| Ok(Event::new(c)?.with_label("lost"));
    let inert = |lost: &mut Event| closed(lost.is_complete()) && closed(lost.synchronize());
    is_reclaimed("event", ResourceKind::Event, make, inert)
}

#[test]
fn a_forgotten_stream() -> Result<()> {
    let make = |c: &Context| Ok(Stream::new(c)?.with_label("lost"));
    let inert = |lost: &mut Stream| closed(lost.is_idle()) && closed(lost.synchronize());
    is_reclaimed("stream", ResourceKind::Stream, make, inert)
}

#[test]
fn a_forgotten_module() -> Result<()> {
    let text = include_str!("../kernels/saxpy.ptx");
    let make = |c: &Context| Ok(Module::from_ptx(c, text)?.with_label("lost"));
    let inert = |lost: &mut Module| closed(lost.function("saxpy").map(drop));
    is_reclaimed("module", ResourceKind::Module, make, inert)
}

/// Starts an operation on a thread of its own, which sends its result. Returns when the operation is in this function of
/// the driver.
fn under_way(
    function: &'static str,
    operation: impl FnOnce() -> Result<()> + Send + 'static,
) -> (thread::JoinHandle<()>, Receiver<Result<()>>) {
    let calls = CallsOf::new(function);
    let (tell, told) = channel();
    let thread = thread::spawn(move || tell.send(operation()).unwrap());
    calls.wait();
    thread::sleep(A_WHILE);
    let early = told.try_recv();
    assert!(early.is_err(), "the gate did not hold it up: {early:?}");
    (thread, told)
}

/// What an operation may wait for: all of it is behind the gate.
struct Held {
    stream: Stream,
    event: Event,
    buffer: DeviceBuffer<u32>,
}

/// The context is closed on one thread while another waits in an operation.
fn closed_while(
    function: &'static str,
    operation: impl FnOnce(&Held) -> Result<()> + Send + 'static,
) -> Result<()> {
    let turn = turn();
    let context = context()?;
    let other = Stream::new(&context)?;
    let stream = Stream::new(&context)?;
    let held = Arc::new(Held {
        event: Event::new(&context)?,
        buffer: DeviceBuffer::zeroed(&stream, 100)?,
        stream,
    });
    mem::forget(DeviceBuffer::<u8>::zeroed(&context, 4 * MIB)?);
    held.stream.synchronize()?;
    let gate = Gate::on(&context, &held.stream);
    held.event.record(&held.stream)?;
    let waits = held.clone();
    let (waiting, result) = under_way(function, move || operation(&waits));
    // Calls of a real driver are not counted, and are none.
    let waits = || sim::counters().calls_of("cuCtxSynchronize");
    let before = waits();
    let (tell, gone) = channel();
    let tearing = thread::spawn(move || {
        context.close().unwrap();
        tell.send(()).unwrap();
    });
    // Teardown waits for the operation, and only then for the device.
    let early = gone.recv_timeout(A_WHILE);
    assert_eq!(early, Err(RecvTimeoutError::Timeout));
    assert!(!gate.is_open());
    assert_eq!(waits(), before);
    // Who comes now is let in, or refused, or waits; but is not stuck for ever.
    let (late_tell, late) = channel();
    let latecomer = thread::spawn(move || late_tell.send(other.is_idle()).unwrap());
    thread::sleep(A_WHILE);
    gate.open();
    result.recv_timeout(LONG).expect("the operation ends")?;
    gone.recv_timeout(LONG).expect("teardown ends");
    let late = late.recv_timeout(LONG).expect("the latecomer ends");
    assert!(late.is_ok() || closed(late), "an error of its own");
    for thread in [waiting, tearing, latecomer] {
        thread.join().unwrap();
    }
    assert!(closed(held.stream.synchronize()));
    drop(held);
    turn.all_came_back();
    Ok(())
}

#[test]
fn a_context_waits_for_a_thread_that_waits_for_a_stream() -> Result<()> {
    closed_while("cuStreamSynchronize", |held| held.stream.synchronize())
}

#[test]
fn a_context_waits_for_a_thread_that_waits_for_an_event() -> Result<()> {
    closed_while("cuEventSynchronize", |held| held.event.synchronize())
}

#[test]
fn a_context_waits_for_a_thread_that_reads_a_buffer() -> Result<()> {
    closed_while("cuMemcpyDtoHAsync_v2", |held| {
        assert_eq!(held.buffer.to_vec()?, [0; 100]);
        Ok(())
    })
}

#[test]
fn what_is_forgotten_on_one_of_several_devices_is_freed_there() {
    const TEST: &str = "what_is_forgotten_on_one_of_several_devices_is_freed_there";
    if part().is_some() {
        let free = |context: &Context| context.memory().unwrap().free;
        let make = |device| {
            let observer = Context::builder()
                .device(device)
                .dedicated()
                .build()
                .unwrap();
            let before = free(&observer);
            (observer, before, Context::new(device).unwrap())
        };
        let (first, first_before, on_first) = make(0);
        let (second, second_before, on_second) = make(1);
        // Somebody else has the second one's primary context too, and there it stays.
        let mut raw = CUcontext::NULL;
        // SAFETY: the variable can be written to; given back below.
        assert!(unsafe { api::cuDevicePrimaryCtxRetain(&mut raw, 1) }.is_success());
        let kept = DeviceBuffer::from_slice(&on_first, &[1; 100]).unwrap();
        mem::forget(DeviceBuffer::<u8>::zeroed(&on_second, 8 * MIB).unwrap());
        mem::forget(Stream::new(&on_second).unwrap());
        let held = free(&second);
        // On a thread that works on the other device.
        thread::scope(|scope| {
            scope.spawn(|| {
                let bound = on_first.make_current().unwrap();
                on_second.close().unwrap();
                let mut current = CUcontext::NULL;
                // SAFETY: the variable can be written to.
                assert!(unsafe { api::cuCtxGetCurrent(&mut current) }.is_success());
                assert_eq!(current, on_first.as_raw());
                drop(bound);
            });
        });
        assert_eq!(free(&second), held + 8 * MIB as u64);
        assert_eq!(sim::counters().streams, 0);
        assert_eq!(kept.to_vec().unwrap(), [1; 100]);
        // SAFETY: gives back what was retained above.
        assert!(unsafe { api::cuDevicePrimaryCtxRelease_v2(1) }.is_success());
        assert_eq!(free(&second), second_before);
        drop(kept);
        on_first.close().unwrap();
        assert_eq!(free(&first), first_before);
        return;
    }
    let variables = [("CUGUARD_DRIVER", "sim"), ("CUGUARD_SIM", "devices=2")];
    succeeded(&child(TEST, "devices", &variables));
}

/// Teardown waits for a host function, which drops memory that teardown has yet to unregister: it
/// leaves that to the teardown.
#[test]
fn pinned_memory_dropped_in_a_callback_does_not_hold_teardown_up() {
    const TEST: &str = "pinned_memory_dropped_in_a_callback_does_not_hold_teardown_up";
    if part().is_some() {
        let context = context().unwrap();
        let stream = Stream::new(&context).unwrap();
        let pinned = PinnedBuffer::<u8>::zeroed(&context, MIB).unwrap();
        let registered = RegisteredVec::new(&context, vec![0_u8; MIB]).unwrap();
        let (begin, begun) = channel();
        let (go_on, wait) = channel::<()>();
        let (tell, told) = channel();
        let bound = context.make_current().unwrap();
        let callback = move || {
            begin.send(()).unwrap();
            wait.recv().unwrap();
            // Until teardown has closed the gate, and waits for this.
            thread::sleep(A_WHILE);
            drop((pinned, registered));
            tell.send(()).unwrap();
        };
        stream.add_callback(Box::new(callback)).unwrap();
        drop(bound);
        begun.recv_timeout(LONG).unwrap();
        go_on.send(()).unwrap();
        context.close().unwrap();
        told.recv_timeout(LONG).unwrap();
        println!("went on");
        return;
    }
    let output = child_within(Duration::from_secs(40), TEST, "callback", &[]);
    let (out, _) = succeeded(&output);
    assert!(out.contains("went on"), "{out}");
}
