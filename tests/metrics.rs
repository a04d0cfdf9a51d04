//! The metrics of a program that serves them itself: `cuguard::report::metrics`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::*;
use cuguard::prelude::*;
use cuguard::{Result, TrackingLevel};

/// The value of a series of this process, without the prefix that all have.
fn value(text: &str, series: &str) -> Option<u64> {
    let (name, labels) = series.split_once('{').expect("labels");
    let start = format!("cuguard_{name}{{pid=\"{}\",{labels} ", std::process::id());
    let line = text.lines().find_map(|line| line.strip_prefix(&start))?;
    Some(line.parse().expect("a number"))
}

fn now(series: &str) -> u64 {
    value(&cuguard::report::metrics(20), series).unwrap_or(0)
}

/// A figure of the first device.
fn of_device(name: &str) -> Option<u64> {
    let series = format!("device_memory_{name}{{device=\"0\"}}");
    value(&cuguard::report::metrics(20), &series)
}

/// A context of its own, without a pool.
fn dedicated() -> Result<Context> {
    Context::builder().dedicated().build()
}

/// Allocates this much, and frees it.
fn reach(context: &Context, bytes: usize) -> Result<()> {
    DeviceBuffer::<u8>::zeroed(context, bytes).map(drop)
}

/// Figures are those of the process: tests take turns.
#[test]
fn figures_of_the_process() -> Result<()> {
    let _turn = turn();
    let mib = 1 << 20;
    let allocated = now("allocations_total{kind=\"device\"}");
    let context = Context::builder()
        .dedicated()
        .level(TrackingLevel::Sites)
        .build()?;
    let device = context.device().ordinal();
    let of_device = |name: &str| format!("{name}{{device=\"{device}\"}}");
    let live = now(&of_device("device_memory_live_bytes"));
    let cached = now(&of_device("device_memory_cached_bytes"));
    let refused = now(&of_device("refused_allocations_total"));
    let refused_bytes = now(&of_device("refused_bytes_total"));

    let large = DeviceBuffer::<u8>::zeroed(&context, 5 * mib)?.with_label("request 4711");
    drop(DeviceBuffer::<u8>::zeroed(&context, 7 * mib)?);
    let text = cuguard::report::metrics(20);
    let of = |series: &str| value(&text, series);
    assert_eq!(
        of(&of_device("device_memory_live_bytes")),
        Some(live + 5 * mib as u64)
    );
    assert!(of(&of_device("device_memory_peak_bytes")) >= Some(12 * mib as u64));
    assert_eq!(
        of("allocations_total{kind=\"device\"}"),
        Some(allocated + 2)
    );
    assert_eq!(of("frees_total{kind=\"device\"}"), Some(allocated + 1));
    let site = text
        .lines()
        .find(|line| line.contains("tests/metrics.rs:"))
        .expect("its line");
    assert!(site.ends_with(" 5242880"), "{site}");
    // A label may be different each time.
    assert!(
        !text.contains("4711") || std::process::id().to_string().contains("4711"),
        "{text}"
    );
    // Without call sites, all of it is the rest.
    let text = cuguard::report::metrics(0);
    assert!(!text.contains("metrics.rs"), "{text}");
    let rest = value(
        &text,
        "call_site_live_bytes{kind=\"device\",site=\"other\"}",
    );
    assert_eq!(rest, Some(now("memory_live_bytes{kind=\"device\"}")));

    // What a pool holds beyond its blocks is cached.
    let pool = Pool::builder()
        .decay(std::time::Duration::MAX)
        .build(&context)?;
    let stream = Stream::new(&context)?;
    drop(DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 3 * mib)?);
    let held = pool.stats().held;
    assert!(held >= 3 * mib as u64);
    assert_eq!(now(&of_device("device_memory_cached_bytes")), cached + held);
    drop((pool, stream));

    // What does not fit is refused, and counted once.
    let result = DeviceBuffer::<u8>::zeroed(&context, 1 << 50);
    assert!(result.is_err());
    assert_eq!(now(&of_device("refused_allocations_total")), refused + 1);
    assert_eq!(
        now(&of_device("refused_bytes_total")),
        refused_bytes + (1 << 50)
    );

    // A counter does not go back when its context ends, and is as high without a context.
    let allocations = now("allocations_total{kind=\"device\"}");
    let peak = now(&of_device("device_memory_peak_bytes"));
    drop(large);
    context.close()?;
    assert_eq!(now("allocations_total{kind=\"device\"}"), allocations);
    assert_eq!(now("frees_total{kind=\"device\"}"), allocations);
    assert!(now(&of_device("device_memory_peak_bytes")) >= peak);
    assert_eq!(now(&of_device("device_memory_live_bytes")), live);
    Ok(())
}

/// The peak is the highest sum of the peaks of open contexts, whether or not it was read while they were open.
#[test]
fn peaks_do_not_go_down() -> Result<()> {
    let _turn = turn();
    let mib = 1 << 20;
    let peak = || of_device("peak_bytes").expect("the device was used");
    for each in [64 * mib, 96 * mib] {
        let (first, second) = (dedicated()?, dedicated()?);
        reach(&first, each)?;
        reach(&second, each)?;
        let both = 2 * each as u64;
        if each == 64 * mib {
            assert!(peak() >= both);
        }
        first.close()?;
        assert!(peak() >= both);
        second.close()?;
        assert!(peak() >= both);
    }
    let (highest, of_kind) = (peak(), now("memory_peak_bytes{kind=\"device\"}"));
    assert!(of_kind >= 192 * mib as u64);
    // Contexts one after another are not added.
    let next = dedicated()?;
    reach(&next, 96 * mib)?;
    assert_eq!(peak(), highest);
    next.close()?;
    assert_eq!(peak(), highest);
    assert_eq!(now("memory_peak_bytes{kind=\"device\"}"), of_kind);
    Ok(())
}

/// The driver's pools may keep memory too, and how much is not known.
#[test]
fn cached_bytes_are_those_of_pools_of_the_crate() -> Result<()> {
    let _turn = turn();
    let context = dedicated()?;
    let stream = Stream::new(&context)?;
    let driver_pool = DriverPool::new(&context)?;
    drop(DeviceBuffer::<u8>::zeroed(&stream, 1 << 20)?);
    drop(DeviceBuffer::<u8>::zeroed(
        &driver_pool.on(&stream),
        1 << 20,
    )?);
    assert!(of_device("live_bytes").is_some());
    assert_eq!(of_device("cached_bytes"), None);
    let pool = Pool::builder().decay(Duration::MAX).build(&context)?;
    assert_eq!(of_device("cached_bytes"), Some(0));
    drop(DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 3 << 20)?);
    assert_eq!(of_device("cached_bytes"), Some(pool.stats().held));
    stream.synchronize()?;
    pool.trim()?;
    assert_eq!(of_device("cached_bytes"), Some(0));
    drop((pool, driver_pool, stream));
    assert_eq!(of_device("cached_bytes"), Some(0));
    context.close()
}

/// How many names of call sites there are in the life of the process depends on the most that were asked for at a time, not on
/// how often that changes.
#[test]
fn another_number_of_call_sites_shows_no_more_names() -> Result<()> {
    type Allocate = fn(&Context) -> Result<DeviceBuffer<u8>>;
    const TEST: &str = "another_number_of_call_sites_shows_no_more_names";
    if part().is_none() {
        // The names of a process, without those of other tests.
        let _ = succeeded(&child(TEST, "child", &[]));
        return Ok(());
    }
    let _turn = turn();
    let context = Context::builder()
        .dedicated()
        .level(TrackingLevel::Sites)
        .build()?;
    // More call sites than the ten that one at a time may be in the life of a process.
    let call_sites: [Allocate; 12] = [
        |context| DeviceBuffer::zeroed(context, 1 << 10),
        |context| DeviceBuffer::zeroed(context, 1 << 11),
        |context| DeviceBuffer::zeroed(context, 1 << 12),
        |context| DeviceBuffer::zeroed(context, 1 << 13),
        |context| DeviceBuffer::zeroed(context, 1 << 14),
        |context| DeviceBuffer::zeroed(context, 1 << 15),
        |context| DeviceBuffer::zeroed(context, 1 << 16),
        |context| DeviceBuffer::zeroed(context, 1 << 17),
        |context| DeviceBuffer::zeroed(context, 1 << 18),
        |context| DeviceBuffer::zeroed(context, 1 << 19),
        |context| DeviceBuffer::zeroed(context, 1 << 20),
        |context| DeviceBuffer::zeroed(context, 1 << 21),
    ];
    let mut names = BTreeSet::new();
    for allocate in call_sites {
        let _buffer = allocate(&context)?;
        let text = cuguard::report::metrics(1);
        let sites = text
            .lines()
            .filter(|line| line.contains("tests/metrics.rs:"));
        names
            .extend(sites.filter_map(|line| {
                Some(line.split_once("site=")?.1.split_once('}')?.0.to_owned())
            }));
        let _ = cuguard::report::metrics(0);
    }
    assert_eq!(names.len(), 10, "{names:?}");
    context.close()
}

/// A server that forks its workers: threads of the parent hold locks at some of the forks.
#[test]
fn a_forked_child_has_no_figures_of_its_parent_and_does_not_hang() {
    const TEST: &str = "a_forked_child_has_no_figures_of_its_parent_and_does_not_hang";
    if part().is_none() {
        let output = child_within(Duration::from_secs(120), TEST, "child", &[]);
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{err}");
        return;
    }
    let context = context().unwrap();
    let buffer = DeviceBuffer::<u8>::zeroed(&context, 1 << 20).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let scrapes = std::thread::spawn({
        let stop = stop.clone();
        move || {
            while !stop.load(Ordering::Relaxed) {
                let _ = cuguard::report::metrics(20);
            }
        }
    });
    let mut fine = true;
    for _ in 0..20 {
        // SAFETY: the child only does what is under test, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child, should it hang: it keeps the pipes open that the test reads to their end.
            unsafe { libc::alarm(60) };
            let text = cuguard::report::metrics(20);
            let is_empty = text.contains("\ncuguard_processes 1\n") && !text.contains("bytes{");
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!is_empty)) };
        }
        let mut status = -1;
        // SAFETY: our own child, and the variable can be written to.
        unsafe { libc::waitpid(child, &mut status, 0) };
        fine &= status == 0;
        if !fine {
            break;
        }
    }
    stop.store(true, Ordering::Relaxed);
    scrapes.join().unwrap();
    // The parent has them still.
    fine &= of_device("live_bytes") == Some(1 << 20);
    drop((buffer, context));
    std::process::exit(if fine { 7 } else { 8 });
}
