//! Nanoseconds per capture at some depths, by rules and by `backtrace`, from one run.
//!
//! `cargo bench -p cuguard-stack`
//!
//! Every level of the stack is a function of its own, with a frame of its own size, so that the
//! return addresses are as different as those of a real program.

use std::hint::black_box;
use std::time::Instant;

use cuguard_stack::{capture, capture_with_backtrace, method};

/// What runs at the innermost level.
type Work<'a> = &'a mut dyn FnMut();

/// Calls the next of `depth` levels, or the work.
type Level = fn(usize, Work<'_>) -> usize;

#[inline(never)]
fn level<const N: usize>(depth: usize, work: Work<'_>) -> usize {
    // Locals of different sizes, and registers that are worth saving.
    let local = [depth; 8];
    let local = &black_box(local)[..N % 8 + 1];
    let (a, b) = (black_box(N), black_box(depth));
    if depth == 0 {
        work();
    } else {
        black_box(LEVELS[(N + 1) % LEVELS.len()](depth - 1, work));
    }
    local.len() + a + black_box(b)
}

macro_rules! levels {
    ($($n:literal)*) => { [$(level::<$n>),*] };
}

static LEVELS: [Level; 64] = levels![
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34
    35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
];

/// The best of some rounds, in nanoseconds per call.
fn time(rounds: usize, calls: u32, mut call: impl FnMut()) -> f64 {
    (0..rounds)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..calls {
                call();
            }
            start.elapsed().as_nanos() as f64 / f64::from(calls)
        })
        .fold(f64::INFINITY, f64::min)
}

fn main() {
    println!("method: {}", method());
    println!("frames       rules   per frame   backtrace   ratio");
    for wanted in [8, 24, 64] {
        let mut frames = [0; 64];
        // As many levels as there must be for the whole stack to have that many frames. The frames
        // outside of `main` are more than 8 already; then it is the buffer that ends.
        let mut outer = 0;
        LEVELS[0](0, &mut || outer = capture(&mut frames));
        let frames = &mut frames[..wanted];
        let depth = wanted.max(outer) - outer;
        let (mut count, mut rules, mut backtrace) = (0, 0.0, 0.0);
        LEVELS[0](depth, &mut || {
            count = capture(frames);
            rules = time(50, 2_000, || {
                black_box(capture(black_box(&mut *frames)));
            });
            backtrace = time(20, 200, || {
                black_box(capture_with_backtrace(black_box(&mut *frames)));
            });
        });
        println!(
            "{count:6} {rules:8.1} ns {:8.2} ns {backtrace:8.1} ns {:6.1}x",
            rules / count as f64,
            backtrace / rules,
        );
    }
}
