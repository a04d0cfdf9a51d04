//! What the registry costs. Ignored by default; to see the figures:
//!
//!     cargo test --release --lib registry::cost -- --ignored --nocapture --test-threads=1

use std::hint::black_box;
use std::time::Instant;

use super::{About, Entry, Key, Kind, Level, Registry};
use crate::report::ReportSettings;

fn key(address: u64) -> Key {
    Key::new(Kind::Device, address)
}

fn entry(bytes: u64) -> Entry {
    Entry {
        bytes,
        type_name: "f32",
        stream: 0,
    }
}

/// Calls itself so many times, so that the stack is that much deeper, and then does it.
#[inline(never)]
fn deeper<T>(levels: usize, act: &mut dyn FnMut() -> T) -> T {
    let answer = if levels == 0 {
        act()
    } else {
        deeper(levels - 1, act)
    };
    black_box(());
    answer
}

/// One of 1024 places: the bits of `number` decide the way through 10 calls, each of which is one
/// of two.
#[inline(never)]
fn step<const BIT: usize>(number: usize, levels: usize, registry: &Registry, address: u64) {
    if levels == 0 {
        registry.insert(key(address), entry(256));
    } else if number.is_multiple_of(2) {
        step::<0>(number / 2, levels - 1, registry, address);
    } else {
        step::<1>(number / 2, levels - 1, registry, address);
    }
    // Work after the call, other work in each, so that neither calls are turned into jumps nor the
    // two functions into one.
    black_box(BIT);
}

#[test]
#[ignore = "a measurement: cargo test --release --lib registry::cost -- --ignored --nocapture --test-threads=1"]
fn cost_of_a_pair() {
    for (level, pairs) in [
        (Level::Counts, 500_000),
        (Level::Sites, 200_000),
        (Level::Stacks, 10_000),
    ] {
        let registry = Registry::new(level, 64);
        let round = || {
            let start = Instant::now();
            for i in 0..pairs {
                let key = key(black_box(0x7f00_0000_0000 + (i % 1000) * 512));
                registry.insert(key, entry(512));
                black_box(registry.remove(key, 512));
            }
            start.elapsed().as_nanos() as f64 / pairs as f64
        };
        // The best of some rounds: what other programs on the machine do is not to be measured.
        let best = |best: f64, _| deeper(12, &mut || round()).min(best);
        let nanoseconds = (0..10).fold(f64::INFINITY, best);
        println!("{level:>7}: {nanoseconds:7.1} ns for insert + remove");
    }
}

/// What a pair costs each of many threads that do nothing else, all in one registry.
#[test]
#[ignore = "a measurement: cargo test --release --lib registry::cost -- --ignored --nocapture --test-threads=1"]
fn cost_of_a_pair_with_threads() {
    const PAIRS: u64 = 20_000;
    for level in [Level::Counts, Level::Sites, Level::Stacks] {
        for threads in [1_u64, 2, 4, 8, 16] {
            let registry = Registry::new(level, 64);
            let barrier = std::sync::Barrier::new(threads as usize);
            let one = |number: u64| {
                let mut best = f64::INFINITY;
                for _ in 0..10 {
                    barrier.wait();
                    let start = Instant::now();
                    deeper(12, &mut || {
                        for i in 0..PAIRS {
                            let key = key(black_box((number << 32) + (i % 8) * 512));
                            registry.insert(key, entry(512));
                            black_box(registry.remove(key, 512));
                        }
                    });
                    best = best.min(start.elapsed().as_nanos() as f64 / PAIRS as f64);
                }
                best
            };
            let one = &one;
            let times: Vec<f64> = std::thread::scope(|scope| {
                let handles: Vec<_> = (0..threads).map(|n| scope.spawn(move || one(n))).collect();
                handles.into_iter().map(|t| t.join().unwrap()).collect()
            });
            let mean = times.iter().sum::<f64>() / times.len() as f64;
            println!("{level:>7}, {threads:2} threads: {mean:7.1} ns for insert + remove");
        }
    }
}

fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap_or_default();
    let kib: f64 = line
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(0.0);
    kib / 1024.0
}

#[test]
#[ignore = "a measurement: cargo test --release --lib registry::cost -- --ignored --nocapture --test-threads=1"]
fn cost_of_a_report_over_a_million() {
    const LIVE: u64 = 1_000_000;
    let before = resident();
    let registry = Registry::new(Level::Stacks, 32);
    let start = Instant::now();
    for i in 0..LIVE {
        step::<0>(i as usize % 1024, 10, &registry, 0x7f00_0000_0000 + i * 256);
    }
    println!("{LIVE} inserts: {:.2} s", start.elapsed().as_secs_f64());
    let filled = resident();
    println!(
        "resident: {:.0} bytes a record",
        (filled - before) * 1024.0 * 1024.0 / LIVE as f64
    );
    let start = Instant::now();
    let snapshot = registry.snapshot(About::default());
    println!(
        "snapshot: {:.3} s, {} groups",
        start.elapsed().as_secs_f64(),
        snapshot.leaks.len()
    );
    let start = Instant::now();
    let text = snapshot.to_text(&ReportSettings::text());
    println!(
        "text:     {:.3} s, {} bytes",
        start.elapsed().as_secs_f64(),
        text.len()
    );
    let start = Instant::now();
    let json = snapshot.to_json();
    println!(
        "JSON:     {:.3} s, {} bytes",
        start.elapsed().as_secs_f64(),
        json.len()
    );
    println!(
        "resident: {:.0} MiB more than filled, {:.0} MiB in all",
        resident() - filled,
        resident()
    );
    let start = Instant::now();
    let drained = registry.drain();
    println!(
        "drain:    {:.3} s, {} records",
        start.elapsed().as_secs_f64(),
        drained.len()
    );
}
