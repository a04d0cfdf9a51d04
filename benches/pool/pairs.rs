//! Allocate and free on one thread: one pair after the other, and many live blocks of which one is replaced at a time.

use std::hint::black_box;

use cuguard::TrackingLevel;

use crate::adaptor::{Allocator, Driver, Own, Setup, block};
use crate::figures::figure;
use crate::timing::{Numbers, medians};
use crate::{Options, Outcome};

const BYTES: usize = 1 << 20;
const LIVE: usize = 1000;

/// How deep the stack is where stacks are recorded.
const FRAMES: usize = 24;

/// Something to be timed, and its name in the figures.
type Act<'a> = (&'a str, Box<dyn FnMut() -> Outcome + 'a>);

/// Times all in turns and prints the medians. Turns are long: each begins with what the others left in the processor's caches,
/// and a program that allocates does not share them with four allocators.
fn measure(
    options: &Options,
    (work, case): (&str, &str),
    (rounds, count): (usize, usize),
    acts: &mut [Act<'_>],
) -> Outcome {
    let (rounds, count) = if options.short {
        (3, 20)
    } else {
        (rounds, count)
    };
    let (names, mut acts): (Vec<_>, Vec<&mut dyn FnMut() -> Outcome>) = acts
        .iter_mut()
        .map(|(name, act)| (*name, &mut **act as _))
        .unzip();
    for (name, time) in names.iter().zip(medians(rounds, count, &mut acts)?) {
        figure(work, case, name, "ns", time);
    }
    Ok(())
}

/// One allocation and its free.
fn one_pair<A: Allocator>(setup: &Setup<A>) -> Act<'_> {
    let source = setup.pool.on(&setup.stream);
    let act = move || {
        drop(block(&source, BYTES)?);
        Ok(())
    };
    (&setup.name, Box::new(act))
}

pub fn pair(options: &Options) -> Outcome {
    let own = Setup::<Own>::at_all_levels()?;
    let driver = Setup::<Driver>::new(TrackingLevel::Counts, "")?;
    // As in a program that works in one context: it is current already.
    let _current = own[0].context.make_current()?;
    let mut acts: Vec<_> = own.iter().map(one_pair).collect();
    acts.push(one_pair(&driver));
    for (case, frames) in [("1 MiB", 0), ("1 MiB, 24 frames", FRAMES)] {
        at_depth(frames, &mut || {
            measure(options, ("pair", case), (51, 10_000), &mut acts)
        })?;
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

/// Frees one of many live blocks and allocates another.
fn one_replaced<A: Allocator>(setup: &Setup<A>, powers: bool) -> Outcome<Act<'_>> {
    let source = setup.pool.on(&setup.stream);
    // The same sizes in the same order for all.
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    let mut blocks: Vec<_> = (0..LIVE)
        .map(|_| block(&source, churn_size(&mut numbers, powers)).map(Some))
        .collect::<Result<_, _>>()?;
    let act = move || {
        let index = numbers.next(LIVE as u64) as usize;
        let bytes = churn_size(&mut numbers, powers);
        // Freed before the next is allocated.
        blocks[index] = None;
        blocks[index] = Some(block(&source, bytes)?);
        Ok(())
    };
    Ok((&setup.name, Box::new(act)))
}

pub fn churn(options: &Options) -> Outcome {
    for (case, powers) in [
        ("1000 live, any size", false),
        ("1000 live, powers of two", true),
    ] {
        let own = Setup::<Own>::at_all_levels()?;
        let driver = Setup::<Driver>::new(TrackingLevel::Counts, "")?;
        let _current = own[0].context.make_current()?;
        let mut acts: Vec<_> = own
            .iter()
            .map(|setup| one_replaced(setup, powers))
            .collect::<Result<_, _>>()?;
        acts.push(one_replaced(&driver, powers)?);
        // Caches fill before it counts.
        for (_, act) in &mut acts {
            (0..4 * LIVE).try_for_each(|_| act())?;
        }
        measure(options, ("churn", case), (31, 20_000), &mut acts)?;
    }
    Ok(())
}
