//! The cost of the driver loader: a driver function called by its name, through the trampoline, against the
//! same function called through a function pointer that lies in memory, as in a program that has
//! loaded the driver by itself.
//!
//!     cargo bench --bench trampoline
//!     cargo bench --bench trampoline -- --limit 3
//!
//! What to see: nanoseconds per call both ways, best and median of many rounds, and the
//! difference, which is the price of one more jump. First with a function that does
//! nothing, where the processor has no other work to hide the jump behind; then with a function of
//! the driver in use.

#[path = "support/command.rs"]
mod command;

use std::ffi::c_void;
use std::hint::black_box;
use std::mem::transmute;
use std::process::ExitCode;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Instant;

use command::{Command, Options};
use cuguard::driver::sys::CUresult;
use cuguard::driver::{api, load};

const HELP: &str = "\
Measures what a call costs through the driver loader's trampoline over a call through a function pointer:
with a function that does nothing, and with cuDriverGetVersion of the driver in use.

    --limit NS   exit with code 1 if a difference of medians is more than NS nanoseconds
    --test       a short run that only shows that it works
    --help       this text";

type Function = unsafe extern "C" fn(*mut i32) -> CUresult;

fn main() -> ExitCode {
    let command = Command {
        name: "trampoline",
        help: HELP,
        long: (301, 100_000),
        short: (3, 1_000),
        figure: "a difference in nanoseconds of",
    };
    command.run(measure)
}

/// Prints the figures and returns the larger difference of medians in nanoseconds.
fn measure(options: &Options) -> Result<f64, Box<dyn std::error::Error>> {
    println!("{:<40} {:>6} {:>7}", "ns per call", "best", "median");

    // As long as no driver is loaded, most slots lead to this function of the loader.
    extern "C" fn nothing() -> CUresult {
        CUresult::NOT_INITIALIZED
    }
    static NOTHING: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    let address = nothing as extern "C" fn() -> CUresult as *mut c_void;
    NOTHING.store(black_box(address), Ordering::Relaxed);
    let empty = compare(
        "empty function",
        options,
        // SAFETY: no driver is loaded, so this only returns that.
        || unsafe { api::cuProfilerStop() },
        || {
            let function = NOTHING.load(Ordering::Relaxed);
            // SAFETY: this is the address of a function with this signature.
            let function: extern "C" fn() -> CUresult = unsafe { transmute(function) };
            function()
        },
    );

    let driver = load()?;
    // SAFETY: no conditions.
    unsafe { api::cuInit(0) }.ok()?;
    let target = driver
        .symbol("cuDriverGetVersion")
        .ok_or("the driver lacks cuDriverGetVersion")?;
    static VERSION: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    VERSION.store(black_box(target.cast_mut()), Ordering::Relaxed);
    println!("in use: {driver}");
    let real = compare(
        "cuDriverGetVersion",
        options,
        // SAFETY: the number can be written to.
        || unsafe { api::cuDriverGetVersion(black_box(&mut 0)) },
        || {
            let function = VERSION.load(Ordering::Relaxed);
            // SAFETY: this is the signature of `cuDriverGetVersion`.
            let function: Function = unsafe { transmute(function) };
            // SAFETY: the number can be written to.
            unsafe { function(black_box(&mut 0)) }
        },
    );
    Ok(empty.max(real))
}

/// Prints the figures of two ways to call the same thing, and returns the difference of medians.
fn compare(
    what: &str,
    options: &Options,
    mut trampoline: impl FnMut() -> CUresult,
    mut pointer: impl FnMut() -> CUresult,
) -> f64 {
    let (mut direct, mut through) = (Vec::new(), Vec::new());
    // One after the other in each round, so that a slow moment of the machine hits both.
    for _ in 0..options.rounds {
        direct.push(round(options.calls, &mut pointer));
        through.push(round(options.calls, &mut trampoline));
    }
    let direct = line(what, "by pointer", direct);
    let through = line(what, "by trampoline", through);
    let (best, median) = (through.0 - direct.0, through.1 - direct.1);
    println!("{what:<24}{:<16} {best:>6.2} {median:>7.2}", "difference");
    median
}

/// Nanoseconds per call.
fn round(calls: u32, call: &mut impl FnMut() -> CUresult) -> f64 {
    let start = Instant::now();
    for _ in 0..calls {
        let _ = black_box(call());
    }
    start.elapsed().as_nanos() as f64 / f64::from(calls)
}

/// Prints and returns the best and the median.
fn line(what: &str, how: &str, mut times: Vec<f64>) -> (f64, f64) {
    times.sort_by(f64::total_cmp);
    let (best, median) = (times[0], times[times.len() / 2]);
    println!("{what:<24}{how:<16} {best:>6.2} {median:>7.2}");
    (best, median)
}
