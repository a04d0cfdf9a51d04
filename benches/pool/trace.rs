//! A recorded training run, replayed: what is held at most, over what is live at most. `peers/record_trace.py` records it
//! and describes the file.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use cuguard::{DeviceBuffer, Stream, TrackingLevel};

use crate::adaptor::{Allocator, Driver, Own, block, context};
use crate::figures::{figure, note};
use crate::{Options, Outcome};

const CASE: &str = "PyTorch training";

/// What happens to the block with this number.
enum Event {
    Allocate(usize),
    Free(usize),
}

struct Trace {
    events: Vec<Event>,
    /// Size and stream of each block.
    blocks: Vec<(usize, usize)>,
    streams: usize,
    /// The most bytes that are live at once.
    peak: u64,
}

impl Trace {
    fn read(path: &Path) -> Outcome<Self> {
        let text = if path.extension().is_some_and(|ending| ending == "gz") {
            let output = Command::new("gzip").arg("-dc").arg(path).output()?;
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).into());
            }
            String::from_utf8(output.stdout)?
        } else {
            std::fs::read_to_string(path)?
        };
        Self::parse(&text)
    }

    fn parse(text: &str) -> Outcome<Self> {
        let mut trace = Self {
            events: Vec::new(),
            blocks: Vec::new(),
            streams: 1,
            peak: 0,
        };
        let mut live = 0;
        for (index, line) in text.lines().enumerate() {
            let wrong = || format!("line {} of the trace is wrong: {line:?}", index + 1);
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(back) = line.strip_prefix('-') {
                let back: usize = back.parse().map_err(|_| wrong())?;
                let block = trace.blocks.len().checked_sub(back).ok_or_else(wrong)?;
                live -= trace.blocks.get(block).ok_or_else(wrong)?.0 as u64;
                trace.events.push(Event::Free(block));
            } else {
                let (bytes, stream) = line.split_once(',').unwrap_or((line, "0"));
                let bytes: usize = bytes.parse().map_err(|_| wrong())?;
                let stream: usize = stream.parse().map_err(|_| wrong())?;
                trace.events.push(Event::Allocate(trace.blocks.len()));
                trace.blocks.push((bytes, stream));
                trace.streams = trace.streams.max(stream + 1);
                live += bytes as u64;
                trace.peak = trace.peak.max(live);
            }
        }
        Ok(trace)
    }

    /// Replays it; the most that the pool held, where that is watched.
    fn replay<A: Allocator>(&self, pool: &A, streams: &[Stream], watch: bool) -> Outcome<u64> {
        let mut blocks: Vec<Option<DeviceBuffer<u8>>> = Vec::new();
        blocks.resize_with(self.blocks.len(), || None);
        let (mut live, mut most) = (0, 0);
        for (index, event) in self.events.iter().enumerate() {
            match event {
                Event::Allocate(number) => {
                    let (bytes, stream) = self.blocks[*number];
                    blocks[*number] = Some(block(&pool.on(&streams[stream]), bytes)?);
                    live += bytes as u64;
                }
                Event::Free(number) => {
                    blocks[*number] = None;
                    live -= self.blocks[*number].0 as u64;
                }
            }
            if watch && (index % 64 == 63 || live * 100 > self.peak * 95) {
                most = most.max(pool.held()?);
            }
        }
        Ok(most)
    }
}

pub fn trace(options: &Options) -> Outcome {
    one::<Own>(options)?;
    one::<Driver>(options)
}

fn one<A: Allocator>(options: &Options) -> Outcome {
    if !options.trace.exists() {
        let text = format!("not run: there is no {}", options.trace.display());
        note("trace", CASE, A::NAME, &text);
        return Ok(());
    }
    let trace = Trace::read(&options.trace)?;
    let context = context(TrackingLevel::Counts)?;
    let _current = context.make_current()?;
    let streams: Vec<_> = (0..trace.streams)
        .map(|_| Stream::new(&context))
        .collect::<Result<_, _>>()?;
    let pool = A::new(&context)?;
    let most = trace.replay(&pool, &streams, true)?;
    let begin = Instant::now();
    trace.replay(&pool, &streams, false)?;
    let time = begin.elapsed().as_nanos() as f64 / trace.events.len() as f64;
    let peak = trace.peak as f64;
    figure("trace", CASE, A::NAME, "ns", time);
    figure(
        "trace",
        CASE,
        A::NAME,
        "live GiB",
        peak / (1_u64 << 30) as f64,
    );
    figure("trace", CASE, A::NAME, "held over live", most as f64 / peak);
    Ok(())
}
