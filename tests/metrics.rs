//! The metrics of a program that serves them itself: `cuguard::report::metrics`.

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

/// One test: figures are those of the process.
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
