//! The steps of a program one after the other, of whatever kind it is.

use std::fmt::Debug;
use std::panic::resume_unwind;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::mismatch::Check;

/// One program runs at a time, of all kinds: the driver's figures are those of the process.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does all steps. Panics where `do_step` finds a difference from the model, and names the step.
pub(crate) fn run_steps<W, S: Copy + Debug>(
    mut world: Box<W>,
    steps: &[S],
    do_step: impl Fn(Box<W>, S) -> (Box<W>, std::thread::Result<Check>),
    count: impl Fn(&mut W),
) -> Box<W> {
    let trace = std::env::var_os("CUGUARD_TORTURE_TRACE").is_some();
    for (number, step) in steps.iter().enumerate() {
        if trace {
            // For programs that end the process.
            eprintln!("step {number}, {step:?}");
        }
        let result;
        (world, result) = do_step(world, *step);
        match result {
            Ok(Ok(())) => {}
            Ok(Err(stop)) => panic!("step {number}, {step:?}: {stop}"),
            Err(payload) => {
                eprintln!("step {number}, {step:?}: an unexpected panic");
                resume_unwind(payload);
            }
        }
        count(&mut world);
    }
    world
}
