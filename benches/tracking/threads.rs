//! Many threads that allocate at once, each on a stream of its own, in one context.

use std::sync::Barrier;
use std::time::Instant;

use cuguard::{Context, DeviceBuffer, Stream};
use cust::memory::DeviceBuffer as CustBuffer;

use crate::stacks::at_depth;
use crate::timing::median;
use crate::{Outcome, Way};

const FRAMES: usize = 24;
const BYTES: usize = 1 << 20;

/// Nanoseconds for one pair, as a thread sees it, with so many threads at it.
fn round(way: Way, context: &Context, streams: &[Stream], pairs: usize) -> Result<f64, String> {
    let barrier = Barrier::new(streams.len());
    let one = |stream: &Stream| -> Result<f64, String> {
        // `cust` needs it; cuguard finds its context by itself.
        let _bound = context.bind().map_err(|error| error.to_string())?;
        let cust_stream: &cust::stream::Stream = stream;
        let pair = || -> Outcome {
            // SAFETY: nothing reads the memory.
            unsafe {
                if way == Way::Cust {
                    let buffer = CustBuffer::<u8>::uninitialized_async(BYTES, cust_stream)?;
                    buffer.drop_async(cust_stream)?;
                } else {
                    drop(DeviceBuffer::<u8>::uninitialized_on(stream, BYTES)?);
                }
            }
            Ok(())
        };
        let timed = at_depth(FRAMES, &mut || -> Outcome {
            (0..pairs / 10 + 1).try_for_each(|_| pair())
        });
        barrier.wait();
        let start = Instant::now();
        let done = at_depth(FRAMES, &mut || -> Outcome {
            (0..pairs).try_for_each(|_| pair())
        });
        let time = start.elapsed().as_nanos() as f64 / pairs as f64;
        barrier.wait();
        timed.and(done).map_err(|error| error.to_string())?;
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
    let times: Vec<f64> = times.into_iter().collect::<Result<_, _>>()?;
    Ok(times.iter().sum::<f64>() / times.len() as f64)
}

pub fn threads(short: bool) -> Outcome {
    const WAYS: [Way; 4] = [Way::Cust, Way::Counts, Way::Sites, Way::Stacks];
    let (rounds, pairs) = if short { (3, 20) } else { (21, 2000) };
    let mut alone = [0.0; WAYS.len()];
    for threads in [1, 2, 4, 8, 16] {
        let contexts: Vec<_> = WAYS
            .iter()
            .map(|way| way.context())
            .collect::<Result<_, _>>()?;
        let streams: Vec<Vec<_>> = contexts
            .iter()
            .map(|context| (0..threads).map(|_| Stream::new(context)).collect())
            .collect::<Result<_, _>>()?;
        let mut times = vec![Vec::new(); WAYS.len()];
        for _ in 0..rounds {
            for (index, way) in WAYS.iter().enumerate() {
                times[index].push(round(*way, &contexts[index], &streams[index], pairs)?);
            }
        }
        let times: Vec<_> = times.into_iter().map(median).collect();
        for (index, way) in WAYS.iter().enumerate() {
            let added = times[index] - times[0];
            if threads == 1 {
                alone[index] = added;
            }
            let over_one = if index == 0 {
                1.0
            } else {
                added / alone[index]
            };
            println!(
                "threads threads={threads} way={} ns={:.0} added={added:.0} \
                 added_over_one_thread={over_one:.2} ratio={:.3}",
                way.name(),
                times[index],
                times[index] / times[0]
            );
        }
    }
    Ok(())
}
