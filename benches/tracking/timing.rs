//! Several ways to do the same thing, timed in turns.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Keeps the processor busy until it has its highest speed, and estimates that speed in GHz: steps that
/// wait for each other and take four cycles each (a multiplication and an addition).
pub fn warm_up(time: Duration) -> f64 {
    const STEPS: u64 = 1 << 20;
    let (begin, mut best) = (Instant::now(), f64::MAX);
    let mut number = black_box(1_u64);
    while begin.elapsed() < time || best == f64::MAX {
        let start = Instant::now();
        for _ in 0..STEPS {
            number = black_box(number.wrapping_mul(0x9fb2_1c65_1e98_df25)).wrapping_add(1);
        }
        best = best.min(start.elapsed().as_nanos() as f64);
    }
    black_box(number);
    4.0 * STEPS as f64 / best
}

/// Runs all ways in turns, `rounds` times, `count` repetitions each, and returns the median of each
/// in nanoseconds for one repetition.
pub fn medians(
    rounds: usize,
    count: usize,
    ways: &mut [&mut dyn FnMut() -> crate::Outcome],
) -> Result<Vec<f64>, Box<dyn std::error::Error>> {
    let mut times = vec![Vec::with_capacity(rounds); ways.len()];
    // Once before it counts: caches, pools and tables fill.
    for way in ways.iter_mut() {
        (0..count).try_for_each(|_| way())?;
    }
    for _ in 0..rounds {
        for (way, times) in ways.iter_mut().zip(&mut times) {
            let start = Instant::now();
            for _ in 0..count {
                way()?;
            }
            times.push(start.elapsed().as_nanos() as f64 / count as f64);
        }
    }
    Ok(times.into_iter().map(median).collect())
}

pub fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// A size in the unit that a person would use.
pub fn size(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes}B"),
        1024..1_048_576 => format!("{}KiB", bytes >> 10),
        _ => format!("{}MiB", bytes >> 20),
    }
}

/// A small generator of numbers that look random and are the same in each run.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}
