//! Constructors that are refused half-way: whichever of its calls the driver refuses, nothing stays
//! behind.
//!
//! Each constructor is run again and again, with the first call of the driver refused, then the
//! second, and so on, until none is.

use std::alloc::Layout;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicIsize, Ordering};

use cuguard::report::Report;

use crate::support::*;
use cuguard::driver::sys::CUresult;
use cuguard::sim::{self, Fault};
use cuguard::{
    Context, DeviceBox, DeviceBuffer, DriverPool, Error, Event, ManagedBuffer, PinnedBuffer,
    RegisteredVec, Result, Stream,
};

/// A size that nothing else in this program asks for.
const ODD: usize = 3_000_017;

/// Blocks of the odd size that the heap has given out.
static BLOCKS: AtomicIsize = AtomicIsize::new(0);

fn count(layout: Layout, change: isize) {
    if layout.size() == ODD {
        BLOCKS.fetch_add(change, Ordering::SeqCst);
    }
}

/// What one constructor came to.
#[derive(Debug, Default)]
struct Outcome {
    /// The functions whose refusal was its error.
    refused: BTreeSet<&'static str>,
    /// How many calls it makes.
    calls: u64,
}

/// Runs a constructor with each of its calls refused in turn. `settle` waits for what is freed in
/// the order of a stream.
fn refuse_each<T>(
    name: &str,
    make: impl Fn() -> Result<T> + Sync,
    settle: impl Fn() + Sync,
) -> Outcome {
    heap::observe(count);
    let mut outcome = Outcome::default();
    settle();
    let (before, blocks) = (sim::live_counters(), BLOCKS.load(Ordering::SeqCst));
    for call in 1..100 {
        // On a thread of its own: no context is current there, and what a refused pop leaves
        // current goes with it.
        let (result, fired) = std::thread::scope(|scope| {
            let attempt = || {
                let fault = Fault::nth_call(call).returning(CUresult::LAUNCH_FAILED);
                let injected = sim::inject(fault).unwrap();
                let result = make();
                sim::clear_faults();
                (result.map(drop), injected.fired())
            };
            scope.spawn(attempt).join().unwrap()
        });
        settle();
        let what = format!("{name}, call {call} refused: {result:?}");
        assert_eq!(sim::live_counters(), before, "{what}");
        assert_eq!(BLOCKS.load(Ordering::SeqCst), blocks, "{what}");
        match result {
            Err(Error::Driver(error)) => {
                assert_eq!(error.code, CUresult::LAUNCH_FAILED, "{what}");
                outcome.refused.insert(error.function);
            }
            Err(error) => panic!("{name}: {error}"),
            Ok(()) if fired == 0 => return outcome,
            Ok(()) => {}
        }
        outcome.calls = call;
    }
    panic!("{name} makes more calls than it should");
}

/// The same for what is made in a context: nothing stays in its registry either, and all comes back
/// when it goes.
fn in_context<T>(
    name: &str,
    context: &Context,
    functions: &[&'static str],
    make: impl Fn() -> Result<T> + Sync,
) {
    let before = context.live_count();
    let settle = || {
        context.synchronize().unwrap();
        assert_eq!(context.live_count(), before, "{name}");
    };
    let outcome = refuse_each(name, make, settle);
    for function in functions {
        let told = outcome.refused.contains(function);
        assert!(told, "{name}, {function}: {outcome:?}");
    }
    assert!(outcome.calls as usize >= functions.len(), "{outcome:?}");
    let snapshot = context.snapshot();
    assert!(
        snapshot.failed_frees.is_empty(),
        "{name}\n{}",
        snapshot.display()
    );
}

#[test]
fn device_memory() -> Result<()> {
    let turn = turn();
    if !simulated("device_memory") {
        return Ok(());
    }
    let context = context()?;
    let values = [7_u32; 1000];
    let up = ["cuMemAlloc", "cuMemcpyHtoD"];
    in_context("DeviceBuffer::from_slice", &context, &up, || {
        DeviceBuffer::from_slice(&context, &values)
    });
    in_context("DeviceBox::new", &context, &up, || {
        DeviceBox::new(&context, &7)
    });
    let clear = ["cuMemAlloc", "cuMemsetD8", "cuStreamSynchronize"];
    in_context("DeviceBuffer::zeroed", &context, &clear, || {
        DeviceBuffer::<u64>::zeroed(&context, 1000)
    });
    in_context("uninitialized", &context, &["cuMemAlloc"], || {
        // SAFETY: never read.
        unsafe { DeviceBuffer::<u64>::uninitialized(&context, 1000) }
    });
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn stream_ordered_memory() -> Result<()> {
    let turn = turn();
    if !simulated("stream_ordered_memory") {
        return Ok(());
    }
    let context = context()?;
    let stream = Stream::new(&context)?;
    let pool = DriverPool::new(&context)?;
    let on = ["cuMemAllocAsync", "cuMemsetD8Async"];
    in_context("DeviceBuffer::zeroed", &context, &on, || {
        DeviceBuffer::<u64>::zeroed(&stream, 1000)
    });
    let within = ["cuMemAllocFromPoolAsync", "cuMemsetD8Async"];
    in_context("DeviceBuffer::zeroed", &context, &within, || {
        DeviceBuffer::<u64>::zeroed(&pool.on(&stream), 1000)
    });
    assert_eq!(pool.used_bytes()?, 0);
    in_context(
        "DeviceBuffer::uninitialized",
        &context,
        &["cuMemAllocAsync"],
        || {
            // SAFETY: never read.
            unsafe { DeviceBuffer::<u64>::uninitialized(&stream, 1000) }
        },
    );
    in_context("DriverPool::new", &context, &["cuMemPoolCreate"], || {
        DriverPool::new(&context)
    });
    drop((stream, pool));
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn host_and_managed_memory() -> Result<()> {
    let turn = turn();
    if !simulated("host_and_managed_memory") {
        return Ok(());
    }
    let context = context()?;
    let values = vec![7_u8; 1000];
    let register = ["cuMemHostRegister"];
    in_context("PinnedBuffer::zeroed", &context, &register, || {
        PinnedBuffer::<u8>::zeroed(&context, ODD)
    });
    in_context("PinnedBuffer::from_slice", &context, &register, || {
        PinnedBuffer::from_slice(&context, &values)
    });
    in_context("RegisteredVec::new", &context, &register, || {
        RegisteredVec::new(&context, vec![0_u8; ODD])
    });
    let managed = ["cuDeviceGetAttribute", "cuMemAllocManaged"];
    in_context("ManagedBuffer::zeroed", &context, &managed, || {
        ManagedBuffer::<u8>::zeroed(&context, ODD)
    });
    in_context("ManagedBuffer::from_slice", &context, &managed, || {
        ManagedBuffer::from_slice(&context, &values)
    });
    // The counter sees them: none of the above would fail otherwise.
    let blocks = BLOCKS.load(Ordering::SeqCst);
    let pinned = PinnedBuffer::<u8>::zeroed(&context, ODD)?;
    let registered = RegisteredVec::new(&context, vec![0_u8; ODD])?;
    assert_eq!(BLOCKS.load(Ordering::SeqCst), blocks + 2);
    drop((pinned, registered));
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn handles() -> Result<()> {
    let turn = turn();
    if !simulated("handles") {
        return Ok(());
    }
    let context = context()?;
    let stream = ["cuStreamCreateWithPriority"];
    in_context("Stream::new", &context, &stream, || Stream::new(&context));
    in_context("Stream::builder", &context, &stream, || {
        Stream::builder(&context).blocking().priority(-1).build()
    });
    let event = ["cuEventCreate"];
    in_context("Event::new", &context, &event, || Event::new(&context));
    in_context("Event::without_timing", &context, &event, || {
        Event::without_timing(&context)
    });
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn contexts() -> Result<()> {
    let turn = turn();
    if !simulated("contexts") {
        return Ok(());
    }
    let outcome = refuse_each("Context::new", || Context::new(0), || ());
    assert!(outcome.refused.contains("cuDevicePrimaryCtxRetain"));
    let outcome = refuse_each("own", || Context::builder().dedicated().build(), || ());
    assert!(outcome.refused.contains("cuCtxCreate"), "{outcome:?}");
    turn.all_came_back();
    Ok(())
}
