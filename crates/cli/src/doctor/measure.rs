//! Measuring in a context of our own, and when to do it again.
//!
//! What is free is cheap to know, from NVML or from a context that only asks, and is asked in every
//! round. The largest block is not: to find it, all free memory is allocated for a moment, which may
//! make an allocation of another process fail. So it is measured only with `--probe`.

use std::time::{Duration, Instant};

use cuguard::{Context, Error, Level};

use cuguard::report::ReportSettings;
use cuguard_nvml::{ComputeMode, Gpu, Memory};

use super::facts::{Measured, Probe};

/// When to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measuring {
    /// Nothing is allocated. A context is made only where NVML does not say what is free.
    Never,
    /// Where nothing is known, or what is known is old.
    WhenOld,
}

/// What was measured this long ago is measured again.
const OLD: Duration = Duration::from_secs(30);

/// Where memory has changed since, it is measured again after this long: a program that allocates
/// all the while must not be disturbed in every round.
const PAUSE: Duration = Duration::from_secs(10);

/// How much more or less must be free to call it a change: this, and a hundredth of all memory.
const CHANGE: u64 = 64 << 20;

/// Measures, or takes over what an earlier round measured. Where `gpu` has no memory, only a context
/// can read what is free: it is filled in. `free` asks NVML what is free now.
pub(super) fn probe(
    gpu: &mut Gpu,
    (ordinal, total): (u32, u64),
    measuring: Measuring,
    earlier: Option<&Probe>,
    free: impl Fn() -> Option<u64>,
) -> Probe {
    let told = gpu.memory.is_some();
    let kept = match (measuring, earlier) {
        (Measuring::Never, _) => return only_ask(gpu, (ordinal, total)),
        (Measuring::WhenOld, Some(Probe::Measured(earlier))) => still_good(earlier),
        // That it was refused once says nothing about now.
        _ => None,
    };
    if let Some(mut kept) = kept {
        if !told {
            match look(ordinal) {
                Ok(free) => gpu.memory = Some(without_us(total, free, kept.context_cost)),
                Err(error) => return refused(&error),
            }
        }
        kept.outdated = has_changed(&kept, gpu);
        if !kept.outdated || kept.age < PAUSE {
            return Probe::Measured(kept);
        }
    }
    let before = if told { free() } else { None };
    match measure(ordinal, before, free) {
        Ok(mut measured) => {
            if !told {
                gpu.memory = Some(without_us(total, measured.free, measured.context_cost));
            }
            measured.found = gpu.memory.map_or(0, |memory| memory.free);
            measured.beside = pids(gpu);
            Probe::Measured(measured)
        }
        Err(error) => refused(&error),
    }
}

/// Measures nothing. What is free is read in a context where NVML does not say it; that context's own
/// cost is not known, and stays part of what is used.
fn only_ask(gpu: &mut Gpu, (ordinal, total): (u32, u64)) -> Probe {
    if gpu.memory.is_some() {
        return Probe::Skipped { asked: false };
    }
    match look(ordinal) {
        Ok(free) => {
            gpu.memory = Some(without_us(total, free, None));
            Probe::Skipped { asked: true }
        }
        Err(error) => refused(&error),
    }
}

/// What an earlier round measured, grown older; `None` where that is too long ago.
fn still_good(earlier: &Measured) -> Option<Measured> {
    let age = earlier.taken.elapsed();
    (age < OLD).then(|| Measured {
        // Zero is for the round that measured.
        age: age.max(Duration::from_nanos(1)),
        ..earlier.clone()
    })
}

/// Whether what was measured is not about the GPU as it is now.
fn has_changed(measured: &Measured, gpu: &Gpu) -> bool {
    let memory = gpu.memory.is_some_and(|memory| {
        memory.free.abs_diff(measured.found) > CHANGE.max(memory.total / 100)
    });
    // Who is let in, depends on who is there.
    let company = gpu.compute_mode == Some(ComputeMode::Exclusive) && pids(gpu) != measured.beside;
    memory || company
}

/// The other processes on a GPU.
fn pids(gpu: &Gpu) -> Vec<u32> {
    let listed = gpu.processes.iter().flatten();
    let mut pids: Vec<u32> = listed.filter(|one| !one.own).map(|one| one.pid).collect();
    pids.sort_unstable();
    pids
}

/// The memory as it is without our own context.
fn without_us(total: u64, free: u64, context_cost: Option<u64>) -> Memory {
    Memory {
        total,
        free: free.saturating_add(context_cost.unwrap_or(0)).min(total),
        reserved: None,
    }
}

fn refused(error: &Error) -> Probe {
    Probe::Refused {
        words: error.to_string(),
        code: error.code().map(|code| code.0),
    }
}

/// What is free beside a context: makes one, asks, and closes it.
fn look(ordinal: u32) -> cuguard::Result<u64> {
    let context = quiet_context(ordinal, false)?;
    let free = context.memory()?.free;
    context.close()?;
    Ok(free)
}

/// Makes a context, measures, and closes it. `before` is what NVML called free before, `free` asks
/// it again.
fn measure(
    ordinal: u32,
    before: Option<u64>,
    free: impl Fn() -> Option<u64>,
) -> cuguard::Result<Measured> {
    let context = quiet_context(ordinal, false)?;
    let after = before.and_then(|_| free());
    let memory = context.memory()?;
    // Others may have freed as much as we took, or more; then a second context is more telling.
    let context_cost = before
        .zip(after)
        .and_then(|(before, after)| before.checked_sub(after))
        .filter(|cost| *cost > 0)
        .or_else(|| cost_of_a_second(&context, memory.free));
    let largest = context.largest_block()?;
    context.close()?;
    Ok(Measured {
        context_cost,
        free: memory.free,
        largest,
        found: 0,
        beside: Vec::new(),
        taken: Instant::now(),
        age: Duration::ZERO,
        outdated: false,
    })
}

/// A context that keeps no records and reports nothing, whatever the environment says: its
/// allocations come and go by the dozen.
fn quiet_context(ordinal: u32, own: bool) -> cuguard::Result<Context> {
    let builder = Context::builder()
        .device(ordinal)
        .level(Level::Counts)
        .report(ReportSettings::default());
    if own { builder.dedicated() } else { builder }.build()
}

/// What a second context takes, as the first one sees it. For where NVML does not say what the first
/// one took; on a real GPU both were measured to cost the same.
fn cost_of_a_second(context: &Context, free: u64) -> Option<u64> {
    let second = quiet_context(context.device(), true).ok()?;
    let left = context.memory().ok()?.free;
    second.close().ok()?;
    free.checked_sub(left)
}

#[cfg(test)]
#[path = "measure_tests.rs"]
mod tests;
