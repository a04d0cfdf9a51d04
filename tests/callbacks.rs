//! Callbacks that free memory, and the end of their context: it waits for one that runs on another thread, up to a
//! time-out.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cuguard::sim;
use cuguard::{Context, DeviceBuffer, Error, Result, Stream};

use cuguard::oom::{OomPolicy, ReleaseCallback};

use crate::support::room::*;
use crate::support::*;
use cuguard::report::ReportSettings;

/// Nothing that these tests wait for takes longer.
const LONG: Duration = Duration::from_secs(20);

/// `Context::close` waits a second for a callback; clocks may differ by a little.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(900);

/// Long enough for a thread that does not wait to get ahead.
const A_WHILE: Duration = Duration::from_millis(100);

/// A context whose report goes into a file.
fn reported(test: &str) -> Result<(Context, PathBuf)> {
    let file = format!("cuguard-callbacks-{}-{test}.json", std::process::id());
    let file = temporary(&file);
    let settings = ReportSettings::json().file(file.to_str().unwrap()).unwrap();
    let context = Context::builder().report(settings).build()?;
    Ok((context, file))
}

/// A report without findings is not written.
#[track_caller]
fn is_clean(file: &PathBuf) {
    let report = std::fs::read_to_string(file).unwrap_or_default();
    let _ = std::fs::remove_file(file);
    assert!(
        report.is_empty() || report.contains(r#""leaks":[]"#),
        "{report}"
    );
}

/// A callback that holds a buffer, and returns when `go` is sent.
struct Blocking {
    callback: ReleaseCallback,
    called: Receiver<()>,
    go: Sender<()>,
}

impl Blocking {
    fn new(context: &Context) -> Result<Self> {
        let buffer = DeviceBuffer::<u8>::zeroed(context, MIB)?.with_label("held by the callback");
        let ((say, called), (go, wait)) = (channel(), channel());
        let (say, wait) = (Mutex::new(say), Mutex::new(wait));
        let callback = context.release_on_oom(move |_| {
            assert_eq!(buffer.len(), MIB);
            say.lock().unwrap().send(()).unwrap();
            // The sender may be dropped.
            let _ = wait.lock().unwrap().recv_timeout(LONG);
        });
        Ok(Self {
            callback,
            called,
            go,
        })
    }
}

/// Allocates more than the device has, on a thread of its own, which returns the error.
fn allocate_too_much(stream: Stream) -> std::thread::JoinHandle<Error> {
    std::thread::spawn(move || take_on(&stream, 1 << 50).expect_err("no device has as much"))
}

/// A callback runs when its context is closed: it ends first, what it holds is freed, and nothing leaks. The
/// thread that called it finds the context closed.
#[test]
fn a_call_that_is_under_way_ends_before_its_context() -> Result<()> {
    let turn = turn();
    let (context, file) = reported("under-way")?;
    let blocking = Blocking::new(&context)?;
    let allocating = allocate_too_much(Stream::new(&context)?);
    blocking.called.recv_timeout(LONG).expect("it is called");
    let begin = Instant::now();
    let go = blocking.go.clone();
    let later = std::thread::spawn(move || {
        std::thread::sleep(A_WHILE);
        go.send(()).expect("it waits");
    });
    context.close()?;
    let waited = begin.elapsed();
    let error = allocating.join().expect("no panic");
    assert!(matches!(error, Error::ContextClosed { .. }), "{error}");
    later.join().expect("no panic");
    // The stream of that thread may be in the report, as that thread has it.
    let report = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(!report.contains("held by the callback"), "{report}");
    let none = r#"{"kind":"device","live_count":0,"#;
    assert!(report.contains(none), "{report}");
    let _ = std::fs::remove_file(&file);
    assert!(waited >= A_WHILE && waited < LONG, "{waited:?}");
    drop(blocking.callback);
    turn.all_came_back();
    Ok(())
}

/// A callback that does not end keeps `close` for the time-out.
#[test]
fn a_call_that_does_not_end_is_not_waited_for_without_end() -> Result<()> {
    let turn = turn();
    let context = Context::builder().report(ReportSettings::off()).build()?;
    let blocking = Blocking::new(&context)?;
    let allocating = allocate_too_much(Stream::new(&context)?);
    blocking.called.recv_timeout(LONG).expect("it is called");
    let begin = Instant::now();
    context.close()?;
    let waited = begin.elapsed();
    assert!(waited >= CLOSE_TIMEOUT && waited < LONG / 2, "{waited:?}");
    blocking.go.send(()).expect("it waits");
    let error = allocating.join().expect("no panic");
    assert!(matches!(error, Error::ContextClosed { .. }), "{error}");
    turn.all_came_back();
    Ok(())
}

/// A callback that closes its own context does not wait for itself; one that panicked has ended.
#[test]
fn nobody_waits_for_itself_or_for_a_call_that_panicked() -> Result<()> {
    let turn = turn();
    // A busy machine makes some attempts longer; one that waits takes the whole time-out in each.
    let attempts: Result<Vec<_>> = (0..3).map(|_| close_in_a_callback()).collect();
    let shortest = attempts?.into_iter().min().expect("three");
    assert!(shortest < CLOSE_TIMEOUT, "it waited: {shortest:?}");
    turn.all_came_back();
    Ok(())
}

/// Returns how long an allocation takes whose callback closes the context, after another callback panicked.
fn close_in_a_callback() -> Result<Duration> {
    let context = Context::builder().report(ReportSettings::off()).build()?;
    let stream = Stream::new(&context)?;
    let panics = context.release_on_oom(|_| panic!("in a callback"));
    let caught = std::thread::scope(|scope| {
        let call = || catch_unwind(AssertUnwindSafe(|| take_on(&stream, 1 << 50).map(drop)));
        scope.spawn(call).join().expect("the panic was caught")
    });
    assert!(caught.is_err());
    drop(panics);
    let slot = Arc::new(Mutex::new(None));
    let closes = context.release_on_oom({
        let slot: Arc<Mutex<Option<(Context, Stream)>>> = slot.clone();
        move |_| {
            let (context, stream) = slot.lock().unwrap().take().expect("called once");
            drop(stream);
            context.close().expect("it closes");
        }
    });
    let other = Stream::new(&context)?;
    *slot.lock().unwrap() = Some((context, stream));
    let begin = Instant::now();
    let error = take_on(&other, 1 << 50).unwrap_err();
    let elapsed = begin.elapsed();
    assert!(matches!(error, Error::ContextClosed { .. }), "{error}");
    drop((closes, other));
    Ok(elapsed)
}

/// While one callback runs, the others can be dropped, and are not called then. Those that are registered meanwhile
/// are called from the next shortage on.
#[test]
fn only_the_callback_that_is_called_is_held() -> Result<()> {
    let turn = turn();
    let (context, file) = reported("held")?;
    let context = Arc::new(context);
    let second = Arc::new(Mutex::new(None));
    let more = Arc::new(Mutex::new(Vec::new()));
    let first = context.release_on_oom({
        let (second, more, context) = (second.clone(), more.clone(), Arc::downgrade(&context));
        move |_| {
            let context = context.upgrade().expect("alive");
            let before = context.live_count();
            drop(second.lock().unwrap().take());
            assert_eq!(
                context.live_count(),
                before - 1,
                "its buffer is freed at once"
            );
            let another = context.release_on_oom(|_| panic!("registered too late"));
            more.lock().unwrap().push(another);
        }
    });
    let buffer = DeviceBuffer::<u8>::zeroed(&context, MIB)?;
    *second.lock().unwrap() = Some(context.release_on_oom(move |_| {
        panic!("it was dropped, with its {} bytes", buffer.len());
    }));
    let why = why(take(&context, 1 << 50));
    assert!(why.recovery[0].tried, "{why:#}");
    assert_eq!(more.lock().unwrap().len(), 1);
    more.lock().unwrap().clear();
    drop(first);
    drop(context);
    is_clean(&file);
    turn.all_came_back();
    Ok(())
}

/// A callback may allocate: an allocation of it that fails does not call it again.
#[test]
fn a_callback_that_allocates_is_not_called_by_itself() -> Result<()> {
    /// Where it is called by itself, it stops here and not at the end of the stack.
    const ENOUGH: usize = 20;
    let _turn = turn();
    for allocations in [1, 2, 3] {
        let context = Arc::new(Context::builder().memory_limit(MIB as u64).build()?);
        let (calls, weak) = (Arc::new(AtomicUsize::new(0)), Arc::downgrade(&context));
        let counted = Arc::clone(&calls);
        let _callback = context.release_on_oom(move |_| {
            if counted.fetch_add(1, Ordering::SeqCst) >= ENOUGH {
                return;
            }
            let context = weak.upgrade().expect("the caller has it");
            for _ in 0..allocations {
                assert!(DeviceBuffer::<u8>::zeroed(&context, 2 * MIB).is_err());
            }
        });
        // The second time shows that the thread tries recovery steps again once the first has ended.
        for shortages in [1, 2] {
            assert!(DeviceBuffer::<u8>::zeroed(&context, 2 * MIB).is_err());
            let calls = calls.load(Ordering::SeqCst);
            assert_eq!(
                calls, shortages,
                "{allocations} allocations in the callback"
            );
        }
    }
    Ok(())
}

/// The same for allocations that a callback has other threads make: each waits for the call, in vain, and fails.
#[test]
fn a_callback_whose_threads_allocate_is_not_called_by_them() -> Result<()> {
    /// Where it is called by them, it stops here and not when there are no more threads.
    const ENOUGH: usize = 20;
    let _turn = turn();
    let policy = OomPolicy::new().wait_at_most(Duration::from_millis(1));
    for threads in [1, 2, 3] {
        let context = Context::builder().memory_limit(MIB as u64);
        let context = Arc::new(context.oom_policy(policy.clone()).build()?);
        let calls = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let _callbacks = calls.clone().map(|calls| {
            let weak = Arc::downgrade(&context);
            context.release_on_oom(move |_| {
                if calls.fetch_add(1, Ordering::SeqCst) >= ENOUGH {
                    return;
                }
                let context = weak.upgrade().expect("the caller has it");
                let allocate = || DeviceBuffer::<u8>::zeroed(&context, 2 * MIB).map(drop);
                std::thread::scope(|scope| {
                    let workers: Vec<_> = (0..threads)
                        .map(|_| scope.spawn(|| [(); 3].map(|()| allocate())))
                        .collect();
                    for worker in workers {
                        let failed = worker.join().expect("no panic");
                        assert!(failed.iter().all(|result| result.is_err()));
                    }
                });
            })
        });
        // The second time shows that the callbacks are called again once all calls have ended.
        for shortages in [1, 2] {
            assert!(DeviceBuffer::<u8>::zeroed(&context, 2 * MIB).is_err());
            let calls = calls.each_ref().map(|calls| calls.load(Ordering::SeqCst));
            assert_eq!(calls, [shortages; 2], "{threads} threads in each callback");
        }
    }
    Ok(())
}

/// Two threads are out of memory: one runs the callback, which frees enough for both. The other waits, and does not fail.
#[test]
fn a_thread_waits_for_the_callback_that_another_runs() -> Result<()> {
    const BYTES: usize = 128 * MIB;
    let turn = turn();
    // However long it takes.
    let policy = OomPolicy::new().wait_at_most(Duration::MAX);
    let context = Context::builder().oom_policy(policy).build()?;
    let cache = leave(&context, BYTES / 2)?;
    let ((say, called), (go, wait)) = (channel(), channel());
    let (active, most) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let state = Mutex::new((say, wait, Some(cache)));
    let callback = context.release_on_oom({
        let most = Arc::clone(&most);
        move |_| {
            let calls = active.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(calls, Ordering::SeqCst);
            let mut state = state.lock().unwrap();
            if let Some(cache) = state.2.take() {
                state.0.send(()).unwrap();
                let _ = state.1.recv_timeout(LONG);
                drop(cache);
            }
            active.fetch_sub(1, Ordering::SeqCst);
        }
    });
    std::thread::scope(|scope| {
        let allocate = || take(&context, BYTES);
        let one = scope.spawn(allocate);
        called.recv_timeout(LONG).expect("it is called");
        let attempts = || sim::counters().calls_of("cuMemAlloc_v2");
        let before = attempts();
        let other = scope.spawn(allocate);
        if simulated("the order of two threads that are out of memory") {
            // Refused, so that it needs the callback next.
            while attempts() == before && !other.is_finished() {
                std::thread::yield_now();
            }
        }
        go.send(()).expect("it waits");
        let (one, other) = (one.join().unwrap(), other.join().unwrap());
        assert!(one.is_ok() && other.is_ok(), "{one:?} {other:?}");
    });
    assert_eq!(most.load(Ordering::SeqCst), 1, "calls at once");
    drop(callback);
    context.close()?;
    turn.all_came_back();
    Ok(())
}

/// A thread waits for a callback of another as long as it may, also if a thread before it has given up and ended.
#[test]
fn each_thread_waits_for_a_callback_of_another() -> Result<()> {
    let turn = turn();
    let policy = OomPolicy::new().wait_at_most(A_WHILE);
    let context = Context::builder().oom_policy(policy).build()?;
    let blocking = Blocking::new(&context)?;
    let allocating = allocate_too_much(Stream::new(&context)?);
    blocking.called.recv_timeout(LONG).expect("it is called");
    for _ in 0..3 {
        let begin = Instant::now();
        let error = allocate_too_much(Stream::new(&context)?).join();
        assert!(matches!(error, Ok(Error::OutOfMemory(_))), "{error:?}");
        assert!(begin.elapsed() >= A_WHILE);
    }
    blocking.go.send(()).expect("it waits");
    allocating.join().expect("no panic");
    drop(blocking);
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn the_diagnosis_counts_the_callbacks_that_are_registered() -> Result<()> {
    let _turn = turn();
    let context = Context::new(0)?;
    let count = || match DeviceBuffer::<u8>::zeroed(&context, 1 << 46) {
        Err(Error::OutOfMemory(why)) => why.settings.callbacks,
        other => panic!("{other:?}"),
    };
    let callbacks = [(); 2].map(|()| context.release_on_oom(|_| {}));
    assert_eq!(count(), 2);
    drop(callbacks);
    assert_eq!(count(), 0);
    Ok(())
}
