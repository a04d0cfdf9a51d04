//! Many threads that make, share, move and drop things of one context, and take the context away
//! from each other meanwhile. Nothing is lost, nothing is freed twice (which the simulated GPU ends
//! the process for), and the figures are exact.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use crate::support::*;
use cuguard::sim::{self, Counters};
use cuguard::snapshot::LabelScope;
use cuguard::{
    Context, DeviceBox, DeviceBuffer, Error, Event, ManagedBuffer, PinnedBuffer, RegisteredVec,
    Result, Stream, label,
};

/// One guard of whatever kind.
#[allow(dead_code, reason = "they are only kept, moved and dropped")]
enum Thing {
    Device(DeviceBuffer<u32>),
    Single(DeviceBox<u64>),
    Pinned(PinnedBuffer<u32>),
    Managed(ManagedBuffer<u32>),
    Registered(RegisteredVec<u8>),
    Event(Event),
    Stream(Stream),
}

/// Numbers that are as good as random, from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn make(context: &Context, stream: &Stream, numbers: &mut Numbers) -> Result<Thing> {
    let len = 1 + numbers.below(2000) as usize;
    Ok(match numbers.below(8) {
        0 => Thing::Device(DeviceBuffer::zeroed(context, len)?),
        1 => Thing::Device(DeviceBuffer::zeroed(stream, len)?),
        2 => Thing::Single(DeviceBox::new(context, &7)?),
        3 => Thing::Pinned(PinnedBuffer::zeroed(context, len)?),
        4 => Thing::Managed(ManagedBuffer::zeroed(context, len)?),
        5 => Thing::Registered(RegisteredVec::new(context, vec![1; len])?),
        6 => Thing::Event(Event::new(context)?),
        _ => Thing::Stream(Stream::new(context)?),
    })
}

/// Keeps the primary context in the driver, which would otherwise take all that is in it along when
/// the last owner lets go, also what nobody freed.
fn keeper() -> Result<Context> {
    context()
}

/// What is alive in the simulated driver, without how often what was called. On a real GPU this is
/// always the same.
fn alive() -> Counters {
    let mut counters = sim::counters();
    counters.calls.clear();
    counters
}

/// How often a function was called. A real GPU does not tell.
fn calls_of(function: &str) -> u64 {
    sim::counters().calls_of(function)
}

/// Threads put things into one heap and take others out of it: what one made, another drops. Some
/// are forgotten. In the end there is exactly what should be.
#[test]
fn threads_share_a_context_and_what_is_made_in_it() -> Result<()> {
    const THREADS: u64 = 8;
    const STEPS: usize = 150;
    let turn = turn();
    let keeper = keeper()?;
    let before = alive();
    let context = Arc::new(context()?);
    // One for all, so that no buffer is the last to keep a stream alive that nobody counts.
    let stream = Stream::new(&context)?;
    let (heap, forgotten) = (Mutex::new(Vec::new()), AtomicU64::new(0));
    let work = |seed: u64| -> Result<()> {
        let (context, mut numbers) = (context.clone(), Numbers(seed));
        for _ in 0..STEPS {
            match numbers.below(8) {
                0..5 => {
                    let thing = make(&context, &stream, &mut numbers)?;
                    heap.lock().unwrap().push(thing);
                }
                5..7 => {
                    let mut heap = heap.lock().unwrap();
                    let at = numbers.below(heap.len().max(1) as u64) as usize;
                    let thing = (at < heap.len()).then(|| heap.swap_remove(at));
                    // Dropped while others go on.
                    drop(heap);
                    drop(thing);
                }
                _ => {
                    let lost = DeviceBuffer::<u8>::zeroed(&context, 64)?.with_label("lost");
                    std::mem::forget(lost);
                    forgotten.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let work = &work;
        let threads = (1..=THREADS).map(|seed| scope.spawn(move || work(seed * 0x9e37_79b9)));
        let threads: Vec<_> = threads.collect();
        for thread in threads {
            thread.join().unwrap().unwrap();
        }
    });
    let (heap, forgotten) = (heap.into_inner().unwrap(), forgotten.into_inner());
    assert!(heap.len() > 100 && forgotten > 20);
    let named = |context: &Context| -> u64 {
        let snapshot = context.snapshot();
        let lost = snapshot.live.iter();
        let lost = lost.filter(|group| group.label.as_deref() == Some("lost"));
        lost.map(|group| group.amount.count).sum()
    };
    assert_eq!(context.live_count(), 1 + heap.len() as u64 + forgotten);
    assert_eq!(named(&context), forgotten);
    drop((heap, stream));
    assert_eq!(context.live_count(), forgotten);
    assert_eq!(context.live_bytes(), 64 * forgotten);
    let context = Arc::into_inner(context).expect("the last of them");
    context.close()?;
    assert_eq!(alive(), before);
    keeper.close()?;
    turn.all_came_back();
    Ok(())
}

/// From one thread to the next: one makes, one writes, one reads and drops.
#[test]
fn guards_move_along_a_line_of_threads() -> Result<()> {
    const ROUNDS: u32 = 200;
    let turn = turn();
    let context = context()?;
    thread::scope(|scope| {
        let ((made, to_write), (written, to_read)) = (channel(), channel());
        let context = &context;
        scope.spawn(move || {
            for round in 0..ROUNDS {
                let buffer = DeviceBuffer::from_slice(context, &[round; 100]).unwrap();
                made.send((round, buffer)).unwrap();
            }
        });
        scope.spawn(move || {
            for (round, mut buffer) in to_write {
                assert_eq!(buffer.to_vec().unwrap(), [round; 100]);
                buffer.copy_from_slice(&[!round; 100]).unwrap();
                written.send((round, buffer)).unwrap();
            }
        });
        for (round, buffer) in to_read {
            assert_eq!(buffer.to_vec().unwrap(), [!round; 100]);
        }
    });
    assert_eq!((context.live_count(), context.live_bytes()), (0, 0));
    context.close()?;
    turn.all_came_back();
    Ok(())
}

/// Each thread works until somebody takes the context away. What it was told until then was true.
fn work_until_closed(stream: &Stream, buffer: &mut DeviceBuffer<u32>, begun: &AtomicU64) {
    let closed = |error: Error| assert!(matches!(error, Error::ContextClosed { .. }), "{error}");
    for round in 0_u32.. {
        let result = buffer
            .copy_from_slice(&[round; 50])
            .and_then(|()| buffer.to_vec())
            .and_then(|values| {
                assert_eq!(values, [round; 50]);
                drop(DeviceBuffer::<u8>::zeroed(stream, 500)?);
                stream.synchronize()
            });
        begun.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = result {
            return closed(error);
        }
    }
}

/// Rounds of threads at work, each ended by a teardown that they know nothing of.
fn teardown_under_work(threads: usize, rounds: usize) -> Result<()> {
    let turn = turn();
    let keeper = keeper()?;
    let before = alive();
    for round in 0..rounds {
        let context = context()?;
        let begun = AtomicU64::new(0);
        let mut own = Vec::new();
        for _ in 0..threads {
            own.push((
                Stream::new(&context)?,
                DeviceBuffer::<u32>::zeroed(&context, 50)?,
            ));
        }
        thread::scope(|scope| {
            let workers: Vec<_> = own
                .iter_mut()
                .map(|(stream, buffer)| scope.spawn(|| work_until_closed(stream, buffer, &begun)))
                .collect();
            while begun.load(Ordering::Relaxed) < (round % 20) as u64 {
                thread::yield_now();
            }
            context.close().unwrap();
            for worker in workers {
                worker.join().unwrap();
            }
        });
        // They are inert, and go after their context.
        drop(own);
        assert_eq!(alive(), before, "round {round}");
    }
    keeper.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn a_context_goes_while_threads_use_it() -> Result<()> {
    teardown_under_work(4, 40)
}

/// More threads than have a counter of their own in the gate.
#[test]
fn a_context_goes_while_very_many_threads_use_it() -> Result<()> {
    teardown_under_work(80, 2)
}

/// Guards are dropped on many threads in the moment in which their context goes: each thing is freed
/// once, by its guard or by teardown.
#[test]
fn a_context_goes_while_guards_go() -> Result<()> {
    const EACH: usize = 20;
    let turn = turn();
    let keeper = keeper()?;
    let before = alive();
    for round in 0..40 {
        let context = context()?;
        let stream = Stream::new(&context)?;
        let frees = (calls_of("cuMemFree_v2"), calls_of("cuMemFreeAsync"));
        let barrier = Barrier::new(5);
        let mut heaps = Vec::new();
        for _ in 0..4 {
            let plain = (0..EACH).map(|_| DeviceBuffer::<u8>::zeroed(&context, 100));
            let ordered = (0..EACH).map(|_| DeviceBuffer::<u8>::zeroed(&stream, 100));
            heaps.push(plain.chain(ordered).collect::<Result<Vec<_>>>()?);
        }
        assert_eq!(context.live_count(), 1 + 8 * EACH as u64);
        thread::scope(|scope| {
            for heap in heaps {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    drop(heap);
                });
            }
            barrier.wait();
            for _ in 0..round * 20 {
                std::hint::spin_loop();
            }
            context.close().unwrap();
        });
        drop(stream);
        assert_eq!(alive(), before, "round {round}");
        if simulated("the count of frees in a_context_goes_while_guards_go") {
            let now = (calls_of("cuMemFree_v2"), calls_of("cuMemFreeAsync"));
            let all = 4 * EACH as u64;
            assert_eq!((now.0 - frees.0, now.1 - frees.1), (all, all));
        }
    }
    keeper.close()?;
    turn.all_came_back();
    Ok(())
}

/// Owners on many threads let go at once: the last of them tears down, once.
#[test]
fn the_last_of_many_owners_tears_down() -> Result<()> {
    let turn = turn();
    let keeper = keeper()?;
    let before = alive();
    for round in 0..60 {
        let released = calls_of("cuDevicePrimaryCtxRelease_v2");
        let owner = Arc::new(context()?);
        let barrier = Barrier::new(6);
        thread::scope(|scope| {
            for _ in 0..5 {
                let (owner, barrier) = (owner.clone(), &barrier);
                scope.spawn(move || {
                    let kept = DeviceBuffer::<u8>::zeroed(&owner, 100).unwrap();
                    barrier.wait();
                    drop(owner);
                    drop(kept);
                });
            }
            barrier.wait();
            drop(owner);
        });
        assert_eq!(alive(), before, "round {round}");
        if simulated("the count of releases in the_last_of_many_owners_tears_down") {
            let now = calls_of("cuDevicePrimaryCtxRelease_v2");
            assert_eq!(now - released, 1, "round {round}");
        }
    }
    keeper.close()?;
    turn.all_came_back();
    Ok(())
}

/// Contexts of several threads on one device, primary and own ones, come and go at the same time.
#[test]
fn contexts_of_many_threads_keep_apart() -> Result<()> {
    let turn = turn();
    let keeper = keeper()?;
    let before = alive();
    let work = |n: usize| -> Result<()> {
        for round in 0..8 {
            let builder = Context::builder();
            let context = if n.is_multiple_of(2) {
                builder.build()?
            } else {
                builder.dedicated().build()?
            };
            let count = 1 + (n + round) % 5;
            for _ in 0..count {
                std::mem::forget(DeviceBuffer::<u8>::zeroed(&context, 100 + n)?);
            }
            let kept = Event::new(&context)?;
            assert_eq!(context.live_count(), 1 + count as u64);
            assert_eq!(context.live_bytes(), (count * (100 + n)) as u64);
            context.close()?;
            drop(kept);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..6).map(|n| scope.spawn(move || work(n))).collect();
        for thread in threads {
            thread.join().unwrap().unwrap();
        }
    });
    assert_eq!(alive(), before);
    keeper.close()?;
    turn.all_came_back();
    Ok(())
}

/// What a child ends with that came to its end by itself.
const FINE: i32 = 7;

/// Runs after cuguard's own exit handler. Whoever calls the driver from here on is too late.
extern "C" fn count_late_calls() {
    let calls = || sim::counters().calls.values().sum::<u64>();
    let before = calls();
    thread::sleep(Duration::from_millis(60));
    let late = calls() - before;
    // SAFETY: ends the process at once, which is allowed in an exit handler.
    unsafe { libc::_exit(if late == 0 { FINE } else { 8 }) };
}

/// The process exits while threads allocate, drop and tear down.
#[test]
fn the_process_ends_while_contexts_go() {
    const TEST: &str = "the_process_ends_while_contexts_go";
    if !simulated(TEST) {
        return;
    }
    if let Some(milliseconds) = part() {
        // SAFETY: takes and answers nothing, and does not unwind.
        unsafe { libc::atexit(count_late_calls) };
        let started = Arc::new(Barrier::new(5));
        for n in 0..4_u64 {
            let started = started.clone();
            thread::spawn(move || {
                let mut numbers = Numbers(n + 1);
                let contexts: Vec<_> = (0..50).map(|_| Context::new(0).unwrap()).collect();
                started.wait();
                for context in contexts {
                    // From the moment of the exit on there are none.
                    let Ok(stream) = Stream::new(&context) else {
                        continue;
                    };
                    let things: Vec<_> = (0..20)
                        .map(|_| make(&context, &stream, &mut numbers))
                        .collect();
                    // Some before their context, some after it.
                    if n % 2 == 0 {
                        drop(things);
                    } else {
                        drop(context);
                    }
                }
            });
        }
        started.wait();
        thread::sleep(Duration::from_millis(milliseconds.parse().unwrap()));
        std::process::exit(9);
    }
    for round in 0..12 {
        let report = ["0", "1,level=sites"][round % 2];
        let limit = Duration::from_secs(30);
        let variables = [("LEAK_REPORT", report)];
        let output = child_within(limit, TEST, &(round * 3).to_string(), &variables);
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(FINE), "{}\n{err}", output.status);
        assert!(!err.contains("panicked"), "{err}");
    }
}

/// A context that is just being made has no gate yet, and the exit waits for it all the same.
#[test]
fn the_process_ends_while_contexts_are_made() {
    const TEST: &str = "the_process_ends_while_contexts_are_made";
    if !simulated(TEST) {
        return;
    }
    if let Some(microseconds) = part() {
        // SAFETY: takes and answers nothing, and does not unwind.
        unsafe { libc::atexit(count_late_calls) };
        drop(context().unwrap());
        for _ in 0..4 {
            thread::spawn(|| while Context::builder().dedicated().build().is_ok() {});
        }
        thread::sleep(Duration::from_micros(microseconds.parse().unwrap()));
        std::process::exit(9);
    }
    for round in 0..20 {
        let (limit, part) = (Duration::from_secs(30), (1000 + 97 * round).to_string());
        let output = child_within(limit, TEST, &part, &[]);
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(FINE), "{}\n{err}", output.status);
    }
}

/// Distinct labels are freed when nothing has them, while threads use them: what is alive keeps its own.
#[test]
fn labels_that_nothing_has_are_freed() -> Result<()> {
    const EACH: usize = 2_500;
    let _turn = turn();
    let context = context()?;
    let kept = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for number in 0..4 {
            let (context, kept) = (&context, &kept);
            scope.spawn(move || {
                for request in 0..EACH {
                    let _request = label(&format!("request {request} of thread {number}"));
                    let buffer = DeviceBuffer::<u8>::zeroed(context, 1).unwrap();
                    let buffer = buffer.with_label(&format!("buffer {request}"));
                    if request % 500 == 0 {
                        kept.lock().unwrap().push(buffer);
                    }
                }
            });
        }
    });
    let expected = (0..4).flat_map(|number| {
        let requests = (0..EACH).step_by(500);
        requests
            .map(move |request| format!("request {request} of thread {number}/buffer {request}"))
    });
    let mut expected: Vec<String> = expected.collect();
    expected.sort_unstable();
    let live = context.snapshot().live;
    let mut labels: Vec<_> = live
        .iter()
        .filter_map(|group| group.label.clone())
        .collect();
    labels.sort_unstable();
    assert_eq!(labels, expected);
    // 22,500 were used: of requests, and of buffers.
    let stored = cuguard_registry::label_count();
    assert!(stored < 4_000, "{stored} labels");
    drop(kept);
    context.close()
}

/// Scopes that are dropped in another order than created, kept, or forgotten.
#[test]
fn label_scopes_end_in_any_order() -> Result<()> {
    struct Job {
        _tenant: LabelScope,
        _step: LabelScope,
    }
    let _turn = turn();
    let context = context()?;
    let label_of_new = || -> Result<Option<String>> {
        let _buffer = DeviceBuffer::<u8>::zeroed(&context, 1)?;
        Ok(context.snapshot().live[0].label.clone())
    };
    // Fields are dropped in the order of their declaration.
    drop(Job {
        _tenant: label("tenant A"),
        _step: label("step"),
    });
    assert_eq!(label_of_new()?, None);
    let [first, second] = ["first", "second"].map(label);
    drop(first);
    assert_eq!(label_of_new()?.as_deref(), Some("second"));
    drop(second);
    assert_eq!(label_of_new()?, None);
    // On a thread of their own, as they never end.
    let before = cuguard_registry::label_count();
    thread::scope(|scope| {
        let forget = || {
            for _ in 0..20_000 {
                std::mem::forget(label("forgotten"));
            }
            label_of_new()
        };
        let label = scope.spawn(forget).join().unwrap();
        let eight = ["forgotten"; 8].join("/");
        assert_eq!(label.unwrap(), Some(format!("{eight}/…/{eight}")));
    });
    assert!(cuguard_registry::label_count() <= before + 17);
    context.close()
}
