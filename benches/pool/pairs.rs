//! Allocate and free on one thread: one pair after the other, and many live blocks of which one is replaced at a time.

use std::hint::black_box;

use cuguard::Stream;

use crate::adaptor::{Allocator, Driver, LEVELS, block, context};
use crate::figures::figure;
use crate::timing::{Numbers, medians};
use crate::{Options, Outcome};

const BYTES: usize = 1 << 20;
const LIVE: usize = 1000;

/// How deep the stack is where stacks are recorded.
const FRAMES: usize = 24;

/// Something to be timed.
type Act<'a> = Box<dyn FnMut() -> Outcome + 'a>;

pub fn pair(options: &Options) -> Outcome {
    pairs::<Driver>(options)
}

fn pairs<A: Allocator>(options: &Options) -> Outcome {
    let (rounds, count) = if options.short { (3, 20) } else { (201, 500) };
    let contexts: Vec<_> = LEVELS
        .iter()
        .map(|(level, _)| context(*level))
        .collect::<Result<_, _>>()?;
    let _current = contexts[0].make_current()?;
    let streams: Vec<_> = contexts.iter().map(Stream::new).collect::<Result<_, _>>()?;
    let pools: Vec<_> = contexts.iter().map(A::new).collect::<Result<_, _>>()?;
    let mut acts: Vec<Act> = pools
        .iter()
        .zip(&streams)
        .map(|(pool, stream)| {
            let source = pool.on(stream);
            Box::new(move || {
                drop(block(&source, BYTES)?);
                Ok(())
            }) as Act
        })
        .collect();
    for (case, frames) in [("1 MiB", 0), ("1 MiB, 24 frames", FRAMES)] {
        let mut acts: Vec<&mut dyn FnMut() -> Outcome> =
            acts.iter_mut().map(|act| &mut **act as _).collect();
        let times = at_depth(frames, &mut || medians(rounds, count, &mut acts))?;
        for ((_, level), time) in LEVELS.iter().zip(times) {
            figure("pair", case, &format!("{}{level}", A::NAME), "ns", time);
        }
    }
    Ok(())
}

/// Calls itself so many times, so that the stack is that much deeper, and then runs `act`.
#[inline(never)]
fn deeper<T>(levels: usize, act: &mut dyn FnMut() -> T) -> T {
    let result = match levels {
        0 => act(),
        _ => deeper(levels - 1, act),
    };
    black_box(());
    result
}

/// Runs `act` where the stack has at least so many frames.
fn at_depth<T>(frames: usize, act: &mut dyn FnMut() -> T) -> T {
    let mut here = 0;
    backtrace::trace(|_| {
        here += 1;
        true
    });
    deeper(frames.saturating_sub(here), act)
}

/// 256 B to 1 MiB, each doubling as likely; of all sizes, or powers of two alone.
fn churn_size(numbers: &mut Numbers, powers: bool) -> usize {
    if powers {
        return 256 << numbers.next(13);
    }
    let base = 256 << numbers.next(12);
    base + 1 + numbers.next(base as u64) as usize
}

pub fn churn(options: &Options) -> Outcome {
    churns::<Driver>(options)
}

fn churns<A: Allocator>(options: &Options) -> Outcome {
    let (rounds, count) = if options.short { (3, 20) } else { (51, 1000) };
    for (case, powers) in [
        ("1000 live, any size", false),
        ("1000 live, powers of two", true),
    ] {
        let contexts: Vec<_> = LEVELS
            .iter()
            .map(|(level, _)| context(*level))
            .collect::<Result<_, _>>()?;
        let _current = contexts[0].make_current()?;
        let streams: Vec<_> = contexts.iter().map(Stream::new).collect::<Result<_, _>>()?;
        let pools: Vec<_> = contexts.iter().map(A::new).collect::<Result<_, _>>()?;
        let mut acts: Vec<Act> = Vec::new();
        for (pool, stream) in pools.iter().zip(&streams) {
            let source = pool.on(stream);
            // The same sizes in the same order for all.
            let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
            let mut blocks: Vec<_> = (0..LIVE)
                .map(|_| block(&source, churn_size(&mut numbers, powers)).map(Some))
                .collect::<Result<_, _>>()?;
            acts.push(Box::new(move || {
                let index = numbers.next(LIVE as u64) as usize;
                let bytes = churn_size(&mut numbers, powers);
                // Freed before the next is allocated.
                blocks[index] = None;
                blocks[index] = Some(block(&source, bytes)?);
                Ok(())
            }));
        }
        let mut acts: Vec<&mut dyn FnMut() -> Outcome> =
            acts.iter_mut().map(|act| &mut **act as _).collect();
        // Once before it counts, and longer than a round: caches fill.
        medians(1, count * 3, &mut acts)?;
        let times = medians(rounds, count, &mut acts)?;
        for ((_, level), time) in LEVELS.iter().zip(times) {
            figure("churn", case, &format!("{}{level}", A::NAME), "ns", time);
        }
    }
    Ok(())
}
