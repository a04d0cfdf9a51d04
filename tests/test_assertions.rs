//! `assert_peak_below!` and `assert_no_growth!`: what they accept, and the messages with which they fail.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use crate::support::*;
use cuguard::test::{assert_no_growth, assert_peak_below};
use cuguard::{
    Context, DeviceBuffer, DriverPool, ManagedBuffer, PinnedBuffer, Result, Stream, TrackingLevel,
};

const MIB: usize = 1 << 20;

#[track_caller]
fn zeroed(context: &Context, bytes: usize) -> DeviceBuffer<u8> {
    DeviceBuffer::zeroed(context, bytes).unwrap()
}

/// The message of the panic.
fn message(body: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(body)).expect_err("it fails");
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => (*panic.downcast::<&str>().expect("a message")).to_owned(),
    }
}

/// A function that fails, for `?` in a block.
fn early(context: &Context) -> Result<u64> {
    assert_peak_below!(context, 1, {
        DeviceBuffer::<u8>::zeroed(context, usize::MAX / 2)?.len() as u64
    });
    Ok(0)
}

#[test]
fn the_value_of_the_block_is_returned_and_errors_leave_it() -> Result<()> {
    let context = context()?;
    let _before = zeroed(&context, MIB);
    let length = assert_peak_below!(context, 3 * MIB as u64 + 1, {
        let first = DeviceBuffer::<u8>::zeroed(&context, 2 * MIB)?;
        drop(first);
        DeviceBuffer::<u8>::zeroed(&context, MIB)?.len()
    });
    assert_eq!(length, MIB);
    assert!(early(&context).is_err());
    let mut runs = 0;
    let last = assert_no_growth!(&context, 3, {
        runs += 1;
        runs
    });
    // Two for warm-up.
    assert_eq!((last, runs), (5, 5));
    let last = assert_no_growth!(context, 1, warm_up = 0, {
        runs += 1;
        runs
    });
    assert_eq!(last, 6);
    Ok(())
}

/// The peak is that of the block, and of all kinds together; it is below, or it is not.
#[test]
fn the_peak_is_exact() -> Result<()> {
    let context = context()?;
    // A higher peak before does not count.
    drop(zeroed(&context, 64 * MIB));
    let stream = Stream::new(&context)?;
    let work = || -> Result<()> {
        let first = DeviceBuffer::<u8>::zeroed(&context, 1000)?;
        let on_stream = DeviceBuffer::<u8>::zeroed(&stream, 200)?;
        drop(on_stream);
        let _managed = ManagedBuffer::from_slice(&context, &[0_u8; 30])?;
        let _again = DeviceBuffer::<u8>::zeroed(&stream, 100)?;
        drop(first);
        // No device memory.
        let _pinned = PinnedBuffer::from_slice(&context, &[0_u8; 50_000])?;
        Ok(())
    };
    assert_peak_below!(context, 1201, work()?);
    let message = message(|| assert_peak_below!(context, 1200, work().unwrap()));
    let start = "assert_peak_below!: device memory reached 1.17 KiB; it must stay below 1.17 KiB. Live then:\n";
    assert!(message.starts_with(start), "{message}");
    Ok(())
}

#[inline(never)]
fn load_weights(context: &Context) -> DeviceBuffer<f32> {
    DeviceBuffer::zeroed(context, 3 * MIB / 4)
        .unwrap()
        .with_label("weights")
}

#[test]
fn the_message_has_the_call_sites_of_the_peak() -> Result<()> {
    let context = Context::builder().level(TrackingLevel::Stacks).build()?;
    let message = message(|| {
        assert_peak_below!(context, 4 << 20, {
            let weights = load_weights(&context);
            let small = zeroed(&context, MIB / 2);
            // The peak; what follows is not in the message.
            drop(zeroed(&context, 2 * MIB));
            drop((weights, small));
            let _later = zeroed(&context, 100);
        });
    });
    println!("{message}");
    assert!(
        message.contains("device memory reached 5.50 MiB; it must stay below 4 MiB"),
        "{message}"
    );
    for part in [
        "\"weights\"",
        "load_weights",
        "tests/test_assertions.rs",
        "3 MiB",
        "2 MiB",
        "512 KiB",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(
        !message.contains("100 B") && !message.contains("leak"),
        "{message}"
    );
    Ok(())
}

#[test]
fn at_level_counts_the_message_says_how_to_get_call_sites() -> Result<()> {
    let context = Context::builder().level(TrackingLevel::Counts).build()?;
    let peak = message(|| {
        assert_peak_below!(context, MIB as u64, {
            let _large = zeroed(&context, MIB);
        });
    });
    let mut kept = Vec::new();
    let growth = message(|| assert_no_growth!(context, 4, kept.push(zeroed(&context, MIB))));
    for message in [peak, growth] {
        assert!(
            message.ends_with("TrackingLevel::Stacks; the level is counts.)"),
            "{message}"
        );
    }
    Ok(())
}

#[test]
fn threads_and_nested_blocks() -> Result<()> {
    let context = context()?;
    let inner = assert_peak_below!(context, 9 * MIB as u64, {
        drop(zeroed(&context, 8 * MIB));
        assert_peak_below!(context, 4 * MIB as u64 + 1, {
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| (0..50).for_each(|_| drop(zeroed(&context, MIB))));
                }
            });
            7
        })
    });
    assert_eq!(inner, 7);
    // The outer one has seen what was allocated while the inner one was open.
    let failed = message(|| {
        assert_peak_below!(context, 2 * MIB as u64, {
            assert_peak_below!(context, 9 * MIB as u64, drop(zeroed(&context, 8 * MIB)));
        });
    });
    assert!(failed.contains("reached 8 MiB"), "{failed}");
    Ok(())
}

#[test]
fn a_call_site_that_grows_is_named() -> Result<()> {
    let context = Context::builder().level(TrackingLevel::Stacks).build()?;
    let mut kept = Vec::new();
    let message = message(|| {
        assert_no_growth!(context, 10, {
            kept.push(load_weights(&context));
            drop(zeroed(&context, MIB));
        });
    });
    println!("{message}");
    let start = "assert_no_growth!: 1 call site grows over 10 iterations, after 2 for warm-up; what is live went from 6 MiB in 2 resources to 36 MiB in 12 resources.";
    assert!(message.starts_with(start), "{message}");
    for part in [
        "grew",
        "\"weights\"",
        "from 6 MiB in 2 to 36 MiB in 12",
        "load_weights",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(message.lines().count(), 2, "{message}");
    Ok(())
}

/// Handles without memory grow too.
#[test]
fn streams_that_are_kept_are_growth() -> Result<()> {
    let context = context()?;
    let mut kept = Vec::new();
    let message =
        message(|| assert_no_growth!(context, 4, kept.push(Stream::new(&context).unwrap())));
    assert!(
        message.contains("went from 0 B in 2 resources to 0 B in 6 resources"),
        "{message}"
    );
    Ok(())
}

/// Caches, buffers in turn, memory on streams and what host functions drop are no growth.
#[test]
fn no_false_alarm() -> Result<()> {
    let context = context()?;
    let (mut cache, mut runs) = (Vec::new(), 0);
    assert_no_growth!(context, 20, {
        runs += 1;
        if cache.len() < 8 {
            cache.push(zeroed(&context, 1000));
        }
    });
    let mut current = zeroed(&context, 1000);
    assert_no_growth!(context, 21, {
        runs += 1;
        current = zeroed(&context, 1000 + runs % 2 * 5000);
    });
    let stream = Stream::new(&context)?;
    let pool = DriverPool::new(&context)?;
    assert_no_growth!(context, 20, {
        drop(DeviceBuffer::<u8>::zeroed(&stream, MIB)?);
        drop(DeviceBuffer::<u8>::zeroed(&pool.on(&stream), MIB)?);
    });
    // Not freed until the operation that follows the host function. Of one iteration, nothing may stay.
    for _ in 0..20 {
        assert_no_growth!(context, 1, warm_up = 0, {
            let dropped = DeviceBuffer::<u8>::zeroed(&context, MIB)?;
            stream.add_callback(Box::new(move || drop(dropped)))?;
        });
    }
    drop(current);
    Ok(())
}

/// Also where a leak is rare, begins late, or takes no more than another call site frees meanwhile.
#[test]
fn leaks_are_found_wherever_they_are() -> Result<()> {
    let context = context()?;
    let (mut kept, mut run) = (Vec::new(), 0);
    let rare = message(|| {
        assert_no_growth!(context, 20, {
            run += 1;
            if run % 8 == 0 {
                kept.push(zeroed(&context, 1000));
            }
        });
    });
    assert!(rare.contains("1 call site grows"), "{rare}");
    run = 0;
    let late = message(|| {
        assert_no_growth!(context, 20, warm_up = 0, {
            run += 1;
            let buffer = zeroed(&context, 1000);
            if run >= 12 {
                kept.push(buffer);
            }
        });
    });
    assert!(late.contains("1 call site grows"), "{late}");
    let mut cache: Vec<_> = (0..30).map(|_| zeroed(&context, 2000)).collect();
    let hidden = message(|| {
        assert_no_growth!(context, 20, {
            kept.push(zeroed(&context, 1000));
            cache.pop();
        });
    });
    assert!(hidden.contains("1 call site grows"), "{hidden}");
    // As many as before, and each larger.
    let mut length = 0;
    let mut larger = zeroed(&context, 1);
    let bytes = message(|| {
        assert_no_growth!(context, 10, {
            length += 1000;
            larger = zeroed(&context, length);
        });
    });
    assert!(bytes.contains("1 call site grows"), "{bytes}");
    drop(larger);
    Ok(())
}

/// Full before the test, while it warms up, or in the middle of it.
#[test]
fn a_full_cache_does_not_grow() -> Result<()> {
    let context = context()?;
    for capacity in [1, 2, 5, 12] {
        let mut cache = std::collections::VecDeque::new();
        assert_no_growth!(context, 20, {
            if cache.len() == capacity {
                cache.pop_front();
            }
            cache.push_back(zeroed(&context, 1000));
        });
    }
    Ok(())
}

#[test]
fn iterations_that_do_not_run_are_refused() -> Result<()> {
    let context = context()?;
    let none = message(|| assert_no_growth!(context, 0, {}));
    assert!(none.contains("the number of iterations is 0"), "{none}");
    let ended = message(|| {
        assert_no_growth!(context, 5, {
            if context.live_count() == 0 {
                break;
            }
        });
    });
    assert!(
        ended.contains("ended iteration 1 of 7 with `break`"),
        "{ended}"
    );
    Ok(())
}
