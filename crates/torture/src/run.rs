//! Runs a program: each step is done, the model does the same, and the two are compared.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock, OnceLock};

use cuguard::{Context, TrackingLevel};

use crate::mismatch::{Check, ensure_eq};
use crate::mode::Mode;
use crate::outcome::Outcome;
use crate::program::Program;
use crate::spare;
use crate::step::{Make, ResourceType, Step};
use crate::steps::{run_steps, turn};
use crate::thread::on_thread;
use crate::world::{World, level};

/// The context that reads free memory. It is never closed.
static OBSERVER: LazyLock<Context> = LazyLock::new(|| {
    let builder = Context::builder().dedicated().level(TrackingLevel::Counts);
    builder.build().expect("a context that reads free memory")
});

/// Runs a program and checks everything.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard_torture::{Program, run};
///
/// let outcome = run(&Program::from_bytes(&[0, 0, 40, 0, 0, 0, 100, 7]));
/// assert_eq!((outcome.steps, outcome.allocations, outcome.bytes), (1, 2, 100));
/// ```
///
/// # Panics
///
/// Where the crate under test does anything else than the model; the message names the step.
pub fn run(program: &Program) -> Outcome {
    run_with(program, Mode::Thorough)
}

/// Runs a program, and checks it as the mode says. One program runs at a time, as the driver's figures
/// are those of the process.
///
/// # Panics
///
/// As [`run`].
pub fn run_with(program: &Program, mode: Mode) -> Outcome {
    let _turn = turn();
    if mode == Mode::Thorough {
        spare::end();
    }
    let before = before(mode);
    let world =
        begin(program, mode, &before).unwrap_or_else(|stop| panic!("at the beginning: {stop}"));
    let mut world = run_steps(world, &program.steps, do_step, |world| {
        world.outcome.steps += 1;
    });
    let outcome =
        finish(&mut world, program.end).unwrap_or_else(|stop| panic!("at the end: {stop}"));
    // A real driver caches memory and returns it at any time.
    let exact = world.simulated && spare::is_empty();
    drop(world);
    if exact {
        assert_eq!(free_bytes(), before.free, "bytes free on the device");
    }
    outcome
}

/// The driver's figures while no program runs.
#[derive(Clone)]
struct Before {
    free: u64,
    counters: Arc<cuguard::sim::Counters>,
}

/// Reads the figures before each program; for fuzzers once, as a program that passed leaves nothing.
fn before(mode: Mode) -> Before {
    static FIRST: OnceLock<Before> = OnceLock::new();
    let read = || Before {
        free: free_bytes(),
        counters: Arc::new(cuguard::sim::live_counters()),
    };
    if mode == Mode::Thorough {
        read()
    } else {
        FIRST.get_or_init(read).clone()
    }
}

/// Bytes free on the device, by the driver.
///
/// # Panics
///
/// Where the driver fails.
#[must_use]
pub fn free_bytes() -> u64 {
    // Pools release unused memory when a stream or context is synchronized.
    OBSERVER
        .synchronize()
        .expect("the device can be synchronized");
    OBSERVER.memory().expect("free memory can be read").free
}

/// The program's first context, with a stream: most steps need one. Perhaps a second one, with page-locked memory, which
/// random steps create too rarely on a real GPU.
fn begin(program: &Program, mode: Mode, before: &Before) -> Check<Box<World>> {
    let mut world = Box::new(World::new(mode, Arc::clone(&before.counters))?);
    let (own, level) = (program.begin & 1 != 0, level(program.begin >> 1, mode));
    if !world.take_spare(own && level == TrackingLevel::Sites) {
        world.open(own, level, true)?;
    }
    world.make(Make {
        what: ResourceType::Stream,
        place: 0,
        len: 0,
        seed: program.begin >> 4,
        label: 0,
    })?;
    if mode == Mode::Thorough && program.begin & 0x80 != 0 {
        world.open(!own, TrackingLevel::Sites, true)?;
        world.make(Make {
            what: ResourceType::Pinned,
            place: 1,
            len: program.begin,
            seed: program.begin,
            label: 0,
        })?;
    }
    Ok(world)
}

fn do_step(mut world: Box<World>, step: Step) -> (Box<World>, std::thread::Result<Check>) {
    let work = move |world: &mut Box<World>| {
        world.step(step.action)?;
        if world.mode == Mode::Thorough {
            world.check()
        } else if world.outcome.steps % 8 == 7 {
            world.check_figures()
        } else {
            Ok(())
        }
    };
    match step.thread {
        1 | 2 if world.mode == Mode::Thorough => on_thread(step.thread, world, work),
        3 => on_thread(1, world, work),
        _ => {
            let result = catch_unwind(AssertUnwindSafe(|| work(&mut world)));
            (world, result)
        }
    }
}

/// Compares everything once more, ends all contexts, and checks that nothing is left.
fn finish(world: &mut World, end: u8) -> Check<Outcome> {
    let thorough = world.mode == Mode::Thorough;
    world.check_all_contents()?;
    let contexts_first = end & 1 != 0;
    if !contexts_first {
        while let Ok(at) = world.pick(end >> 3, |_| true) {
            world.drop_resource(at, end & 4 != 0)?;
        }
        if thorough {
            world.check()?;
        }
    }
    let mut slots: Vec<_> = (0..world.slots.len()).collect();
    if end & 2 != 0 {
        slots.reverse();
    }
    world.outcome.contexts = slots.len() as u64;
    world.free_lasting_raws()?;
    if !thorough && end & 24 != 0 && world.leave_spare() {
        slots.retain(|slot| *slot != 0);
    }
    for slot in slots {
        world.end(slot, end & 4 == 0)?;
    }
    if thorough {
        world.check()?;
    }
    // The remaining guards are inert, or keep their context open. Host memory is still readable.
    world.check_all_contents()?;
    while let Some(last) = world.resources.len().checked_sub(1) {
        world.drop_resource(last, false)?;
    }
    let left = (world.driver.alive.len(), world.raws.len());
    ensure_eq("what the model has left", left, (0, 0))?;
    // Slow, so fuzzers skip it sometimes: what a program leaves behind is found after a later one.
    if thorough || end & 96 == 0 {
        world.check()?;
    }
    Ok(world.outcome)
}
