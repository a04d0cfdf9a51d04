//! What a recording costs: a pair of allocate and free with stack traces alone, and with a recording beside.
//!
//!     cargo bench --bench recording
//!
//! A process records from its first context to its end, so each way is measured in child processes of this program, which
//! take turns: a slow moment of the machine hits both. The blocks are of a [`Pool`], which makes no driver call for them:
//! what the driver takes would hide the difference. Each line is one figure, as `name=value`.

use std::hint::black_box;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Instant;

use cuguard::{Context, DeviceBuffer, Pool, Stream, TrackingLevel};
use cuguard_recording::Recording;

/// Set in a child: how many pairs it makes.
const PAIRS: &str = "CUGUARD_BENCH_PAIRS";

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Ways to allocate a block: the sizes of blocks, and how many are alive at once.
const PATTERNS: [(&str, usize); 2] = [("pairs", 1), ("churn", 1000)];

/// Sizes of a program that allocates all kinds of blocks.
fn size(step: usize) -> usize {
    256 << (step.wrapping_mul(0x9e37) >> 4 & 7) | (step & 3) << 6
}

/// Makes pairs, and prints the nanoseconds of one.
fn measure(pattern: &str, pairs: usize) -> Outcome {
    let alive = PATTERNS.iter().find(|(name, _)| *name == pattern);
    let (_, alive) = alive.ok_or("an unknown pattern")?;
    let context = Context::builder().level(TrackingLevel::Stacks).build()?;
    let (pool, stream) = (Pool::new(&context)?, Stream::new(&context)?);
    let source = pool.on(&stream);
    let _bound = context.make_current()?;
    let mut blocks: Vec<Option<DeviceBuffer<u8>>> = (0..*alive).map(|_| None).collect();
    let mut run = |count: usize| -> Outcome<f64> {
        let begin = Instant::now();
        for step in 0..count {
            let place = step.wrapping_mul(0x9e37_79b9) % blocks.len();
            blocks[place] = None;
            // SAFETY: nothing reads the memory.
            let block = unsafe { DeviceBuffer::uninitialized(&source, size(step)) }?;
            blocks[place] = Some(black_box(block));
        }
        Ok(begin.elapsed().as_nanos() as f64 / count as f64)
    };
    run(pairs / 10)?;
    println!("{}", run(pairs)?);
    Ok(())
}

/// Measures in a child. Returns nanoseconds of a pair.
fn child(pattern: &str, pairs: usize, record: Option<&PathBuf>) -> Outcome<f64> {
    let words = match record {
        Some(file) => format!("record,file={}", file.display()),
        None => "0".to_owned(),
    };
    let output = Command::new(std::env::current_exe()?)
        .arg(pattern)
        .env(PAIRS, pairs.to_string())
        .env("LEAK_REPORT", words)
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn compare(short: bool) -> Outcome {
    let (rounds, pairs) = if short { (1, 1000) } else { (9, 1_000_000) };
    let file = std::env::temp_dir().join(format!("cuguard-bench-{}.cgr", std::process::id()));
    for (pattern, _) in PATTERNS {
        let (mut alone, mut recorded) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            alone.push(child(pattern, pairs, None)?);
            recorded.push(child(pattern, pairs, Some(&file))?);
        }
        let (alone, recorded) = (median(alone), median(recorded));
        // A pair is two events.
        println!(
            "recording pattern={pattern} stacks_ns={alone:.0} recorded_ns={recorded:.0} ratio={:.3} event_ns={:.1}",
            recorded / alone,
            (recorded - alone) / 2.0
        );
        let bytes = std::fs::metadata(&file)?.len();
        let recording = Recording::open(&file)?;
        let events = recording.events.len();
        println!(
            "recording pattern={pattern} events={events} bytes={bytes} bytes_an_event={:.2} problems={}",
            bytes as f64 / events as f64,
            recording.problems.len()
        );
        let begin = Instant::now();
        black_box(Recording::open(&file)?);
        let seconds = begin.elapsed().as_secs_f64();
        println!("recording pattern={pattern} read_s={seconds:.3}");
        std::fs::remove_file(&file)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let pairs = std::env::var(PAIRS)
        .ok()
        .and_then(|pairs| pairs.parse().ok());
    let result = match (pairs, arguments.first()) {
        (Some(pairs), Some(pattern)) => measure(pattern, pairs),
        _ => compare(cfg!(debug_assertions) || arguments.iter().any(|word| word == "--test")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("recording: {error}");
            ExitCode::FAILURE
        }
    }
}
