//! Runs a program over pools.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cuguard::driver::{self, DriverKind};
use cuguard::sim;

use super::step::{PoolProgram, PoolStep};
use super::world::{PoolOutcome, PoolWorld};
use crate::mismatch::{Check, ensure_eq};
use crate::run::free_bytes;
use crate::steps::{run_steps, turn};
use crate::thread::on_thread;

/// Runs a program and checks everything. One runs at a time, as the driver's figures are those of the process.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard_torture::{How, PoolAction, PoolProgram, PoolStep, run_pool};
///
/// let action = PoolAction::Allocate(3 << 20, 0, 0, How::Zeroed);
/// let steps = vec![PoolStep { thread: 0, action }];
/// let outcome = run_pool(&PoolProgram { begin: 0x10, steps, end: 0 });
/// assert_eq!((outcome.steps, outcome.allocations), (1, 1));
/// ```
///
/// # Panics
///
/// Where the crate under test does anything else than the model; the message names the step.
pub fn run_pool(program: &PoolProgram) -> PoolOutcome {
    let _turn = turn();
    let simulated = driver::load().expect("a driver").kind() == DriverKind::Simulated;
    let (free, counters) = (free_bytes(), sim::live_counters());
    let world = PoolWorld::new(program.begin, simulated);
    let world = Box::new(world.unwrap_or_else(|stop| panic!("at the beginning: {stop}")));
    let world = run_steps(world, &program.steps, do_step, |world| {
        world.outcome.steps += 1;
    });
    let end = finish(*world, program.end);
    let outcome = end.unwrap_or_else(|stop| panic!("at the end: {stop}"));
    // A real driver caches memory and releases it at any time.
    if simulated {
        assert_eq!(free_bytes(), free, "bytes free on the device");
        assert_eq!(sim::live_counters(), counters, "what the driver has");
    }
    outcome
}

fn do_step(
    mut world: Box<PoolWorld>,
    step: PoolStep,
) -> (Box<PoolWorld>, std::thread::Result<Check>) {
    let work = move |world: &mut Box<PoolWorld>| {
        world.step(step.action)?;
        world.check_figures()
    };
    match step.thread {
        1 | 2 => on_thread(step.thread, world, work),
        _ => {
            let result = catch_unwind(AssertUnwindSafe(|| work(&mut world)));
            (world, result)
        }
    }
}

/// Compares everything once more, drops everything in some order, and checks the report.
fn finish(mut world: PoolWorld, end: u32) -> Check<PoolOutcome> {
    while let Some(last) = world.raws.len().checked_sub(1) {
        world.own(last, end as u8)?;
    }
    world.check_contents()?;
    world.check_figures()?;
    world.outcome.kernels = world.inspector.checks;
    let outcome = world.outcome;
    if end & 1 != 0 {
        let live = world.model.live();
        world.inspector.end();
        let guards = world.pools.iter().filter(|slot| slot.guard.is_some());
        let guards = guards.count() as u64;
        let used = world.used();
        let context = world.context.take().expect("open until here");
        let pools = context.snapshot().pools;
        let in_snapshot = pools.iter().map(|pool| pool.used).sum::<u64>();
        ensure_eq("bytes in use in the snapshot", in_snapshot, used)?;
        context.close()?;
        let pools = world.report.amount_of("pool")?;
        ensure_eq("pools that the report names", pools, (guards, 0))?;
        let report = world.report.amount_of("pooled")?;
        ensure_eq("blocks that the report names", report, live)?;
        // The guards are inert.
        drop(world);
        return Ok(outcome);
    }
    let mut random = u64::from(end) | 1;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as usize % below.max(1)
    };
    // Context, pools, streams and blocks in any order; what is left is compared now and then.
    loop {
        let counts = [
            usize::from(world.context.is_some()),
            world.pools.len(),
            world.streams.len(),
            world.blocks.len(),
        ];
        let left: usize = counts.iter().sum();
        if left == 0 {
            break;
        }
        let at = next(left);
        let (context, pools) = (counts[0], counts[0] + counts[1]);
        let streams = pools + counts[2];
        if at < context {
            world.check_figures()?;
            drop(world.context.take());
        } else if at < pools {
            drop(world.pools.swap_remove(at - context));
        } else if at < streams {
            drop(world.streams.swap_remove(at - pools));
        } else {
            drop(world.take(at - streams));
        }
        if next(16) == 0 {
            world.check_contents()?;
        }
    }
    world.inspector.end();
    ensure_eq("what the model has left", world.model.live(), (0, 0))?;
    ensure_eq(
        "whether the report names a leak",
        world.report.is_clean()?,
        true,
    )?;
    Ok(outcome)
}
