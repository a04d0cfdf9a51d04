//! What an allocation and a free cost, without a device: `cargo run --release -p cuguard-pool --example cache_cost`.
//!
//! In nanoseconds, the best of some short rounds: other programs disturb the others.

#[path = "../tests/cache/driver.rs"]
mod driver;

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use cuguard_pool::{Block, Pool, Settings};
use driver::FakeDriver;

const MIB: u64 = 1 << 20;
const ROUNDS: u32 = 30;

fn main() {
    let driver = FakeDriver::new(u64::MAX);
    let pool = Pool::new(driver.clone(), Settings::default());
    for bytes in [256, 5000, 64 << 10, MIB] {
        let pairs = || (0..100_000).for_each(|_| pair(&pool, 1, bytes));
        report(&format!("pair of {bytes} B, 1 thread"), 100_000, || {
            time(pairs)
        });
    }
    let two_streams =
        || (0..50_000).for_each(|_| (1..3).for_each(|stream| pair(&pool, stream, MIB)));
    report("pair of 1 MiB, 2 streams in turn", 100_000, || {
        time(two_streams)
    });
    report("pair of 2 MiB, 1 thread (no cache)", 20_000, || {
        time(|| (0..20_000).for_each(|_| pair(&pool, 1, 2 * MIB)))
    });
    for threads in [2, 16] {
        for (name, shared) in [("a stream each", false), ("one stream", true)] {
            report(
                &format!("pair of 1 MiB, {threads} threads, {name}"),
                100_000,
                || time_threads(&pool, threads, shared),
            );
        }
    }
    let (_, before) = driver.usage();
    report(
        "churn, 1,000 live blocks of 256 B to 1 MiB, per operation",
        OPERATIONS,
        || churn(&pool),
    );
    let calls = (driver.usage().1 - before) as f64 / f64::from(ROUNDS * OPERATIONS);
    println!("  calls of the driver that map or unmap, per operation of it {calls:>9.3}");
}

fn pair(pool: &Pool<FakeDriver>, stream: u64, bytes: u64) {
    let block = pool.allocate(&black_box(stream), black_box(bytes));
    pool.free(&stream, black_box(block.expect("there is no limit")));
}

fn report(name: &str, count: u32, mut round: impl FnMut() -> Duration) {
    let best = (0..ROUNDS).map(|_| round()).min().unwrap_or_default();
    println!(
        "{name:<60} {:>8.1} ns",
        best.as_nanos() as f64 / f64::from(count)
    );
}

fn time(work: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    work();
    begin.elapsed()
}

/// The time of the slowest thread.
fn time_threads(pool: &Pool<FakeDriver>, threads: u64, shared: bool) -> Duration {
    let barrier = Barrier::new(threads as usize);
    let run = |stream: u64| {
        pair(pool, stream, MIB);
        barrier.wait();
        time(|| (0..100_000).for_each(|_| pair(pool, stream, MIB)))
    };
    thread::scope(|scope| {
        let run = &run;
        let handles: Vec<_> = (0..threads)
            .map(|number| scope.spawn(move || run(if shared { 1 } else { 100 + number })))
            .collect();
        let times = handles
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        times.max().unwrap_or_default()
    })
}

/// Operations of a round of [`churn`].
const OPERATIONS: u32 = 100_000;

/// Frees a block at random and allocates another, of a random size: two operations.
fn churn(pool: &Pool<FakeDriver>) -> Duration {
    let mut state = 1_u64;
    let mut number = |bound: u64| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) % bound
    };
    let allocate = |bytes| pool.allocate(&1, bytes).expect("there is no limit");
    let sizes: Vec<u64> = (0..OPERATIONS / 2)
        .map(|_| 256 + number(MIB - 256))
        .collect();
    let places: Vec<usize> = (0..OPERATIONS / 2).map(|_| number(1000) as usize).collect();
    let mut blocks: Vec<Block> = sizes[..1000].iter().map(|bytes| allocate(*bytes)).collect();
    let elapsed = time(|| {
        for (bytes, at) in sizes.iter().zip(places) {
            pool.free(&1, blocks[at]);
            blocks[at] = allocate(*bytes);
        }
    });
    blocks.into_iter().for_each(|block| pool.free(&1, block));
    elapsed
}
