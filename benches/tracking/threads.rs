//! Many threads that allocate at once, each on a stream of its own, in one context.
//!
//! The driver has one lock for all of them. A thread that allocates again at once often finds it
//! free, still; one that does anything else in between, finds it taken, and waits its turn. So part
//! of what tracking seems to cost here is that the driver lets others go first. To separate the
//! two there is a way `busy`: plain `cust`, with as much to do in between as tracking had on one
//! thread, and nothing in it that threads share. And where the driver is `driver_time.c`'s, which
//! counts the time spent in it, each line says how much of a pair was not the driver's.

use std::ffi::{CString, c_char, c_int, c_void};
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

use cuguard::{Context, Stream};
use cust::memory::DeviceBuffer as CustBuffer;

use crate::pairs::repeated;
use crate::stacks::at_depth;
use crate::timing::median;
use crate::{Outcome, Way};

const FRAMES: usize = 24;
const BYTES: usize = 1 << 20;

/// What a thread does: a way to allocate, and how many nanoseconds of other work go with each pair.
#[derive(Clone, Copy)]
struct Job {
    name: &'static str,
    way: Way,
    busy: f64,
}

/// Keeps the processor busy for about so long, without memory and without a clock.
fn work(steps: u64) {
    let mut number = 1_u64;
    for _ in 0..steps {
        number = black_box(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 1);
    }
}

/// How many steps of [`work`] take a nanosecond here.
fn steps_a_nanosecond() -> f64 {
    const STEPS: u64 = 1_000_000;
    let once = || {
        let start = Instant::now();
        work(STEPS);
        STEPS as f64 / start.elapsed().as_nanos() as f64
    };
    median((0..9).map(|_| once()).collect())
}

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// The nanoseconds that the calling thread has spent in the driver.
type DriverTime = unsafe extern "C" fn() -> u64;

/// How to ask for that, where the driver counts it.
fn driver_time() -> Option<DriverTime> {
    const RTLD_LAZY: c_int = 1;
    let path = std::env::var("CUGUARD_DRIVER").ok()?;
    if !path.contains('/') {
        return None;
    }
    let path = CString::new(path).ok()?;
    // SAFETY: the driver at this path is loaded already, so nothing runs. The function is the one
    // in `driver_time.c`, or null, which is `None`.
    unsafe {
        let library = dlopen(path.as_ptr(), RTLD_LAZY);
        let function = dlsym(library, c"driver_time".as_ptr());
        std::mem::transmute::<*mut c_void, Option<DriverTime>>(function)
    }
}

/// Nanoseconds for one pair, as a thread sees it: in all, and in the driver where that is known.
#[derive(Clone, Copy)]
struct Time {
    all: f64,
    inside: f64,
}

impl Time {
    fn median(times: &[Self], of: fn(&Self) -> f64) -> f64 {
        median(times.iter().map(of).collect())
    }
}

/// The time of one pair with so many threads at it, on average.
fn round(
    job: Job,
    steps: f64,
    context: &Context,
    streams: &[Stream],
    pairs: usize,
) -> Result<Time, String> {
    let driver_time = driver_time();
    // SAFETY: it takes nothing and reads a number of the thread's own.
    let inside = || driver_time.map_or(0, |asked| unsafe { asked() });
    let barrier = Barrier::new(streams.len());
    // After the allocation and after the free, as with tracking.
    let steps = (job.busy * steps / 2.0) as u64;
    let one = |stream: &Stream| -> Result<Time, String> {
        // `cust` needs it; cuguard finds its context by itself.
        let _bound = context.make_current().map_err(|error| error.to_string())?;
        let cust_stream: &cust::stream::Stream = stream;
        let mut pair = if steps == 0 {
            repeated(job.way, context, Some(stream), BYTES)
        } else {
            Box::new(|| {
                // SAFETY: nothing reads the memory.
                let buffer = unsafe { CustBuffer::<u8>::uninitialized_async(BYTES, cust_stream)? };
                work(steps);
                buffer.drop_async(cust_stream)?;
                work(steps);
                Ok(())
            })
        };
        let mut many = |count: usize| -> Outcome { (0..count).try_for_each(|_| pair()) };
        let warm = at_depth(FRAMES, &mut || many(pairs / 10 + 1));
        barrier.wait();
        let (start, before) = (Instant::now(), inside());
        let done = at_depth(FRAMES, &mut || many(pairs));
        let time = Time {
            all: start.elapsed().as_nanos() as f64 / pairs as f64,
            inside: (inside() - before) as f64 / pairs as f64,
        };
        barrier.wait();
        warm.and(done).map_err(|error| error.to_string())?;
        Ok(time)
    };
    let times: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = streams
            .iter()
            .map(|stream| scope.spawn(|| one(stream)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("the thread does not panic"))
            .collect()
    });
    let times: Vec<Time> = times.into_iter().collect::<Result<_, _>>()?;
    let mean = |of: fn(&Time) -> f64| times.iter().map(of).sum::<f64>() / times.len() as f64;
    Ok(Time {
        all: mean(|time| time.all),
        inside: mean(|time| time.inside),
    })
}

pub fn threads(short: bool) -> Outcome {
    let job = |name, way| Job {
        name,
        way,
        busy: 0.0,
    };
    let mut jobs = [
        job("cust", Way::Cust),
        job("counts", Way::Counts),
        job("sites", Way::Sites),
        job("stacks", Way::Stacks),
        job("busy", Way::Cust),
    ];
    const STACKS: usize = 3;
    const BUSY: usize = 4;
    let steps = steps_a_nanosecond();
    let (rounds, pairs) = if short { (3, 20) } else { (31, 2000) };
    let mut alone = 0.0;
    for threads in [1, 2, 4, 8, 16] {
        let contexts: Vec<_> = jobs
            .iter()
            .map(|job| job.way.context())
            .collect::<Result<_, _>>()?;
        let streams: Vec<Vec<_>> = contexts
            .iter()
            .map(|context| (0..threads).map(|_| Stream::new(context)).collect())
            .collect::<Result<_, _>>()?;
        let mut times = vec![Vec::new(); jobs.len()];
        for _ in 0..rounds {
            for (index, job) in jobs.iter().enumerate() {
                times[index].push(round(
                    *job,
                    steps,
                    &contexts[index],
                    &streams[index],
                    pairs,
                )?);
            }
        }
        let outside: Vec<_> = times
            .iter()
            .map(|times| Time::median(times, |time| time.all - time.inside))
            .collect();
        let times: Vec<_> = times
            .iter()
            .map(|times| Time::median(times, |time| time.all))
            .collect();
        if threads == 1 {
            alone = (times[STACKS] - times[0]).max(1.0);
            jobs[BUSY].busy = alone;
        }
        for ((job, time), outside) in jobs.iter().zip(&times).zip(&outside) {
            // The first round only finds out how busy to be.
            if threads > 1 || job.name != "busy" {
                print!(
                    "threads threads={threads} way={} ns={time:.0} added={:.0} ratio={:.3}",
                    job.name,
                    time - times[0],
                    time / times[0]
                );
                match driver_time() {
                    Some(_) => println!(" outside_ns={outside:.0}"),
                    None => println!(),
                }
            }
        }
        // What tracking itself takes with so many threads: what it adds to a thread that is as
        // busy, and what that one is busy with.
        let own = if threads == 1 {
            alone
        } else {
            times[STACKS] - times[BUSY] + alone
        };
        println!(
            "scaling threads={threads} stacks_own_ns={own:.0} over_one_thread={:.2}",
            own / alone
        );
    }
    Ok(())
}
