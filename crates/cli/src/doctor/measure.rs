//! Measuring in a context of our own, and when to repeat it.
//!
//! Free memory is cheap to read, from NVML or in a context, and is read in every round. To find the largest
//! block, all free memory is allocated for a moment, in which allocations of other processes may fail: it is
//! measured only with `--probe`.

use std::time::{Duration, Instant};

use cuguard::report::ReportSettings;
use cuguard::{Context, Error, TrackingLevel};
use cuguard_nvml::{ComputeMode, Gpu, Memory};

use super::facts::{Measured, Probe};

/// A measurement of this age is repeated.
const OLD: Duration = Duration::from_secs(30);

/// If free memory has changed, the measurement is repeated at this age: not in every round, which would
/// disturb a program that allocates all the time.
const PAUSE: Duration = Duration::from_secs(10);

/// Free memory has changed if it differs by more than this, and by more than 1 % of all memory.
const CHANGE: u64 = 64 << 20;

/// Measures, or reuses a recent measurement. Unless `wanted`, nothing is allocated. Where `gpu` has no memory
/// figures, they are read in a context and filled in. `free` reads free memory from NVML.
pub(super) fn probe(
    gpu: &mut Gpu,
    (ordinal, total): (u32, u64),
    wanted: bool,
    earlier: Option<&Probe>,
    free: impl Fn() -> Option<u64>,
) -> Probe {
    let has_nvml = gpu.memory.is_some();
    let kept = match earlier {
        _ if !wanted => return read_only(gpu, (ordinal, total)),
        Some(Probe::Measured(earlier)) => still_good(earlier),
        // A refusal may be over.
        _ => None,
    };
    if let Some(mut kept) = kept {
        if !has_nvml {
            match free_beside_context(ordinal) {
                Ok(free) => gpu.memory = Some(without_context(total, free, kept.context_cost)),
                Err(error) => return refused(&error),
            }
        }
        kept.outdated = has_changed(&kept, gpu);
        if !kept.outdated || kept.age < PAUSE {
            return Probe::Measured(kept);
        }
    }
    let before = if has_nvml { free() } else { None };
    match measure(ordinal, before, free) {
        Ok(mut measured) => {
            if !has_nvml {
                gpu.memory = Some(without_context(total, measured.free, measured.context_cost));
            }
            measured.free_before = gpu.memory.map_or(0, |memory| memory.free);
            measured.other_pids = pids(gpu);
            Probe::Measured(measured)
        }
        Err(error) => refused(&error),
    }
}

/// Measures nothing. Where NVML does not report free memory, a context reads it; its own cost is unknown
/// and counts as used.
fn read_only(gpu: &mut Gpu, (ordinal, total): (u32, u64)) -> Probe {
    if gpu.memory.is_some() {
        return Probe::Skipped { own_context: false };
    }
    match free_beside_context(ordinal) {
        Ok(free) => {
            gpu.memory = Some(without_context(total, free, None));
            Probe::Skipped { own_context: true }
        }
        Err(error) => refused(&error),
    }
}

/// An earlier measurement with its present age; `None` if it is too old.
fn still_good(earlier: &Measured) -> Option<Measured> {
    let age = earlier.taken.elapsed();
    (age < OLD).then(|| Measured {
        // Zero means the round that measured.
        age: age.max(Duration::from_nanos(1)),
        ..earlier.clone()
    })
}

/// Whether the GPU has changed since the measurement.
fn has_changed(measured: &Measured, gpu: &Gpu) -> bool {
    let memory = gpu.memory.is_some_and(|memory| {
        memory.free.abs_diff(measured.free_before) > CHANGE.max(memory.total / 100)
    });
    // In exclusive mode, access depends on the other processes.
    let processes =
        gpu.compute_mode == Some(ComputeMode::Exclusive) && pids(gpu) != measured.other_pids;
    memory || processes
}

/// The pids of the other processes on a GPU.
fn pids(gpu: &Gpu) -> Vec<u32> {
    let listed = gpu.processes.iter().flatten();
    let mut pids: Vec<u32> = listed.filter(|one| !one.own).map(|one| one.pid).collect();
    pids.sort_unstable();
    pids
}

/// The memory figures without our own context.
fn without_context(total: u64, free: u64, context_cost: Option<u64>) -> Memory {
    Memory {
        total,
        free: free.saturating_add(context_cost.unwrap_or(0)).min(total),
        reserved: None,
    }
}

fn refused(error: &Error) -> Probe {
    Probe::Refused {
        text: error.to_string(),
        code: error.code(),
    }
}

/// Creates a context, reads free memory, and closes it.
fn free_beside_context(ordinal: u32) -> cuguard::Result<u64> {
    let context = quiet_context(ordinal, false)?;
    let free = context.memory()?.free;
    context.close()?;
    Ok(free)
}

/// Creates a context, measures, and closes it. `before` is NVML's free memory before, `free` reads it
/// again.
fn measure(
    ordinal: u32,
    before: Option<u64>,
    free: impl Fn() -> Option<u64>,
) -> cuguard::Result<Measured> {
    let context = quiet_context(ordinal, false)?;
    let after = before.and_then(|_| free());
    let memory = context.memory()?;
    // If others freed memory meanwhile, the cost of a second context is more reliable.
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
        free_before: 0,
        other_pids: Vec::new(),
        taken: Instant::now(),
        age: Duration::ZERO,
        outdated: false,
    })
}

/// A context without records and reports: the measurement allocates many times.
fn quiet_context(ordinal: u32, dedicated: bool) -> cuguard::Result<Context> {
    let builder = Context::builder()
        .device(ordinal)
        .level(TrackingLevel::Counts)
        .report(ReportSettings::default());
    if dedicated {
        builder.dedicated().build()
    } else {
        builder.build()
    }
}

/// The memory that a second context takes, read in the first. On a real GPU both cost the same.
fn cost_of_a_second(context: &Context, free: u64) -> Option<u64> {
    let second = quiet_context(context.device().ordinal(), true).ok()?;
    let left = context.memory().ok()?.free;
    second.close().ok()?;
    free.checked_sub(left)
}

#[cfg(test)]
#[path = "measure_tests.rs"]
mod tests;
