//! What records cost in memory, and what a report over very many of them costs.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use cuguard::report::Report;

use cuguard::{Context, DeviceBuffer, Stream, TrackingLevel};

use cuguard::report::ReportSettings;

use crate::{Outcome, Way};

/// The system's allocator, with a count of the bytes that are in use and of their peak.
pub struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does the work; counting changes nothing about it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(live, Relaxed);
        // SAFETY: as the caller says.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller says.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// One of 1,024 places: the bits of `number` decide the way through 10 calls, each of which is one
/// of two.
#[inline(never)]
fn step<const BIT: usize>(number: usize, levels: usize, act: &mut dyn FnMut()) {
    if levels == 0 {
        act();
    } else if number.is_multiple_of(2) {
        step::<0>(number / 2, levels - 1, act);
    } else {
        step::<1>(number / 2, levels - 1, act);
    }
    // Work after the call, other work in each, so that neither calls are turned into jumps nor the
    // two functions into one.
    black_box(BIT);
}

/// Calls `act` in each of 1,024 places in turn.
fn in_places(count: usize, act: &mut dyn FnMut()) {
    for i in 0..count {
        step::<0>(i, 10, act);
    }
}

const BYTES: usize = 256;

fn counts(short: bool) -> &'static [usize] {
    if short {
        &[2_000]
    } else {
        &[10_000, 100_000, 1_000_000]
    }
}

/// Allocates so many blocks from 1,024 places and forgets the guards: what is left is records.
fn fill(way: Way, context: &Context, count: usize) -> Outcome {
    let stream = Stream::new(context)?;
    let cust_stream: &cust::stream::Stream = &stream;
    let mut outcome: Outcome = Ok(());
    in_places(count, &mut || {
        if outcome.is_err() {
            return;
        }
        // SAFETY: nothing reads the memory.
        outcome = unsafe {
            match way {
                Way::Cust => cust::memory::cuda_malloc_async::<u8>(cust_stream, BYTES)
                    .map(|address| BYPASSED.lock().unwrap().push(address.as_raw()))
                    .map_err(Into::into),
                _ => DeviceBuffer::<u8>::uninitialized(&stream, BYTES)
                    .map(std::mem::forget)
                    .map_err(Into::into),
            }
        };
    });
    outcome
}

pub fn records(short: bool) -> Outcome {
    println!(
        "memory guard_bytes={} cust_guard_bytes={}",
        size_of::<DeviceBuffer<u8>>(),
        size_of::<cust::memory::DeviceBuffer<u8>>()
    );
    for count in counts(short) {
        // What the simulated driver keeps for itself is counted too, and taken off.
        let mut used = Vec::new();
        for way in [
            Way::Cust,
            Way::Counts,
            Way::Sites,
            Way::Stacks,
            Way::Sampled,
        ] {
            let context = match way {
                Way::Cust => Context::builder()
                    .dedicated()
                    .level(TrackingLevel::Counts)
                    .build()?,
                _ => way.context()?,
            };
            let bound = context.make_current()?;
            BYPASSED.lock().unwrap().reserve(*count);
            let before = LIVE.load(Relaxed);
            fill(way, &context, *count)?;
            used.push(LIVE.load(Relaxed).saturating_sub(before));
            let per_record = (used[used.len() - 1] as f64 - used[0] as f64) / *count as f64;
            println!(
                "memory live={count} way={} bytes_a_record={per_record:.1}",
                way.name()
            );
            free_bypassed()?;
            drop(bound);
            context.close()?;
        }
    }
    Ok(())
}

/// What `cust` allocated: it outlives its context, as it comes from the device's pool.
static BYPASSED: Mutex<Vec<u64>> = Mutex::new(Vec::new());

fn free_bypassed() -> Outcome {
    let stream = cust::stream::Stream::new(cust::stream::StreamFlags::DEFAULT, None)?;
    for address in BYPASSED.lock().unwrap().drain(..) {
        let pointer = cust::memory::DevicePointer::<u8>::from_raw(address);
        // SAFETY: allocated in `fill`, and freed once.
        unsafe { cust::memory::cuda_free_async(&stream, pointer)? };
    }
    stream.synchronize()?;
    Ok(())
}

pub fn report(short: bool) -> Outcome {
    for count in counts(short) {
        let context = Way::Stacks.context()?;
        fill(Way::Stacks, &context, *count)?;
        let measured = |what: &str, act: &mut dyn FnMut() -> usize| {
            let before = LIVE.load(Relaxed);
            PEAK.store(before, Relaxed);
            let start = Instant::now();
            let length = act();
            let time = start.elapsed();
            let peak = PEAK.load(Relaxed).saturating_sub(before);
            println!(
                "report live={count} what={what} ms={:.1} peak_mib={:.1} kib={:.1}",
                time.as_secs_f64() * 1e3,
                peak as f64 / f64::from(1 << 20),
                length as f64 / 1024.0
            );
        };
        // From the registry to the last word, as at the end of a context. The first one also reads
        // the program's debug information.
        let settings = ReportSettings::text();
        measured("text, first", &mut || {
            context.snapshot().to_text(&settings).len()
        });
        measured("text", &mut || context.snapshot().to_text(&settings).len());
        measured("json", &mut || context.snapshot().to_json().len());
        measured("snapshot", &mut || context.snapshot().live.len());
        context.close()?;
    }
    Ok(())
}
