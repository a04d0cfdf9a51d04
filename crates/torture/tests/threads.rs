//! Threads that allocate and free the same small sizes at the same time, so that the driver reuses an
//! address at once on another thread. No record may be lost: a record is erased before the driver frees.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cuguard::driver::{self, DriverKind};
use cuguard::{Context, DeviceBuffer, ResourceKind, Result};

/// More than there are per-thread counters in the registry: some threads share one.
const THREADS: u64 = 64;
/// Buffers that each thread holds at a time.
const HELD: usize = 4;
const BYTES: usize = 256;

/// Releases ownership of a buffer and takes it again. If its record was lost, `from_raw` inserts a new
/// one, and the count of allocations grows.
fn through_the_registry(context: &Context, buffer: DeviceBuffer<u8>) -> DeviceBuffer<u8> {
    let address = buffer.into_raw();
    // SAFETY: the address and the length of a buffer of this context, released above.
    unsafe { DeviceBuffer::from_raw(context, address, BYTES) }
}

#[test]
fn no_record_is_lost_when_addresses_are_used_again_at_once() -> Result<()> {
    let context = Context::builder().dedicated().build()?;
    let real = driver::load().expect("a driver").kind() == DriverKind::Real;
    let long = std::env::var_os("CUGUARD_TORTURE_STEPS").is_some();
    let span = Duration::from_secs(if long { 30 } else { 2 });
    let round = if real { 20 } else { 200 };
    let (made, begin) = (AtomicU64::new(0), Instant::now());
    let barrier = Barrier::new(THREADS as usize);
    let held = AtomicU64::new(0);
    let wrong = AtomicU64::new(0);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (context, made, barrier) = (&context, &made, &barrier);
            let (held, wrong) = (&held, &wrong);
            scope.spawn(move || {
                // A free has a fast path where the context is current.
                let _bound = (number % 2 == 0).then(|| context.make_current().expect("a context"));
                let mut mine: Vec<DeviceBuffer<u8>> = Vec::new();
                let mut stop = false;
                while !stop {
                    for _ in 0..round {
                        if mine.len() == HELD {
                            let oldest = mine.remove(0);
                            drop(through_the_registry(context, oldest));
                        }
                        // SAFETY: nobody reads it.
                        let buffer = unsafe { DeviceBuffer::uninitialized(context, BYTES) };
                        mine.push(buffer.expect("there is memory"));
                        made.fetch_add(1, Ordering::Relaxed);
                    }
                    held.fetch_add(mine.len() as u64, Ordering::SeqCst);
                    if barrier.wait().is_leader() {
                        // All others wait: the figures are of one moment.
                        let live = held.swap(0, Ordering::SeqCst);
                        let listed = context.snapshot().leaked();
                        let totals = context.totals(ResourceKind::Device);
                        let same = context.live_count() == live
                            && (listed.count, listed.bytes) == (live, live * BYTES as u64)
                            && totals.allocated == made.load(Ordering::Relaxed);
                        // The answer is even while the test goes on: all stop together.
                        let done = u64::from(begin.elapsed() > span);
                        wrong.fetch_or(done | u64::from(!same) << 1, Ordering::SeqCst);
                    }
                    barrier.wait();
                    stop = wrong.load(Ordering::SeqCst) != 0;
                }
                let last = mine.len() as u64;
                assert_eq!(last, HELD as u64, "thread {number}");
            });
        }
    });
    let totals = context.totals(ResourceKind::Device);
    assert_eq!(
        totals.allocated,
        made.into_inner(),
        "made, by the registry and by the threads"
    );
    assert_eq!((totals.count, totals.bytes), (0, 0));
    assert_eq!(wrong.into_inner() & 2, 0, "figures in the middle");
    context.close()
}
