//! Sixteen threads that allocate and free at once: each with its own stream, and all with one.

use std::sync::Barrier;
use std::time::Instant;

use cuguard::{Stream, TrackingLevel};

use crate::adaptor::{Allocator, Driver, Own, Setup, block};
use crate::figures::figure;
use crate::timing::median;
use crate::{Options, Outcome};

const THREADS: usize = 16;
const BYTES: usize = 1 << 20;

pub fn threads(options: &Options) -> Outcome {
    for setup in Setup::<Own>::at_all_levels()? {
        both(options, setup)?;
    }
    both(options, Setup::<Driver>::new(TrackingLevel::Counts, "")?)
}

fn both<A: Allocator>(options: &Options, setup: Setup<A>) -> Outcome {
    let (rounds, pairs) = if options.short { (3, 20) } else { (15, 1000) };
    let Setup { name, context, .. } = &setup;
    for (case, number) in [
        ("16 threads, own streams", THREADS),
        ("16 threads, one stream", 1),
    ] {
        let streams: Vec<_> = (0..number)
            .map(|_| Stream::new(context))
            .collect::<Result<_, _>>()?;
        let pool = A::new(context)?;
        let barrier = Barrier::new(THREADS);
        // Nanoseconds a pair in each round. All threads run all rounds, so that none waits in vain.
        let one = |stream: &Stream| -> (Vec<f64>, Option<String>) {
            let source = pool.on(stream);
            let (mut times, mut error) = (Vec::new(), None);
            let current = context.make_current();
            for _ in 0..rounds + 2 {
                barrier.wait();
                let begin = Instant::now();
                let done = (0..pairs).try_for_each(|_| block(&source, BYTES).map(drop));
                times.push(begin.elapsed().as_nanos() as f64 / pairs as f64);
                error = error.or(done.err().map(|error| error.to_string()));
            }
            drop(current);
            // Two rounds fill the caches.
            (times.split_off(2), error)
        };
        let all: Vec<_> = std::thread::scope(|scope| {
            let running: Vec<_> = (0..THREADS)
                .map(|index| &streams[index % number])
                .map(|stream| scope.spawn(move || one(stream)))
                .collect();
            running.into_iter().map(|thread| thread.join()).collect()
        });
        let mut means = vec![0.0; rounds];
        for thread in all {
            let (times, error) = thread.map_err(|_| "a thread panicked")?;
            if let Some(error) = error {
                return Err(error.into());
            }
            for (mean, time) in means.iter_mut().zip(times) {
                *mean += time / THREADS as f64;
            }
        }
        figure("threads", case, name, "ns", median(means));
    }
    Ok(())
}
