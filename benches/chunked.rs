//! Whether copies and work overlap in `Chunked`: the same data with copies alone, with work alone,
//! and with both.
//!
//!     cargo bench --bench chunked
//!
//! What to see: milliseconds for each, and `overlap`, which is (copies + work) / both: 1 where
//! nothing overlaps, 2 where the shorter of two equal halves is hidden altogether. The work is as
//! many fills of a piece as take about as long as its copies.

use std::process::ExitCode;
use std::time::Instant;

use cuguard::{Chunked, Context, DeviceBuffer, Result, Stream};

const HELP: &str = "\
Measures whether copies and work overlap in Chunked, on the driver that CUGUARD_DRIVER chooses.

    chunked [--test]

    --test    a short run that only shows that it works
    --help    this text";

const PIECE: usize = 16 << 20;

/// So many milliseconds, as the median of some rounds.
fn median(rounds: usize, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        work()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[rounds / 2])
}

/// Streams the values through the device, with so many fills of each piece.
fn stream_through(context: &Context, values: &mut [u8], fills: usize) -> Result<()> {
    let chunked = Chunked::new(context).piece_bytes(PIECE);
    let summary = chunked.update(values, |s, mut piece| {
        for _ in 0..fills {
            s.fill(&mut piece.data, 7)?;
        }
        Ok(())
    })?;
    assert_eq!(summary.halved, 0, "there is room");
    Ok(())
}

/// The same fills and nothing else.
fn work_alone(stream: &Stream, piece: &mut DeviceBuffer<u8>, fills: usize) -> Result<()> {
    stream.scope(|s| {
        let mut piece = s.bind_mut(piece)?;
        for _ in 0..fills {
            s.fill(&mut piece, 7)?;
        }
        Ok(())
    })
}

fn measure(short: bool) -> Result<()> {
    let (bytes, rounds) = if short { (2 * PIECE, 1) } else { (1 << 30, 7) };
    let context = Context::new(0)?;
    let stream = Stream::new(&context)?;
    let mut piece = DeviceBuffer::<u8>::zeroed(&context, PIECE)?;
    let mut values = vec![1_u8; bytes];
    let pieces = bytes / PIECE;
    // Once before, so that everything is loaded.
    stream_through(&context, &mut values, 1)?;
    let copies = median(rounds, || stream_through(&context, &mut values, 0))?;
    let some = if short { 1 } else { 500 };
    let filled = median(rounds, || work_alone(&stream, &mut piece, some))? / some as f64;
    let fills = if short {
        1
    } else {
        ((copies / pieces as f64 / filled) as usize).clamp(1, 10_000)
    };
    let work = median(rounds, || work_alone(&stream, &mut piece, fills * pieces))?;
    let both = median(rounds, || stream_through(&context, &mut values, fills))?;
    assert!(values.iter().all(|value| *value == 7));
    println!(
        "chunked bytes={bytes} piece={PIECE} fills={fills} copies_ms={copies:.1} \
         work_ms={work:.1} both_ms={both:.1} overlap={:.2}",
        (copies + work) / both
    );
    Ok(())
}

fn main() -> ExitCode {
    let mut short = false;
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            // Cargo says this to every benchmark.
            "--bench" => {}
            "--test" => short = true,
            "--help" | "-h" => {
                println!("{HELP}");
                return ExitCode::SUCCESS;
            }
            other => {
                eprintln!("chunked: unknown argument {other:?}; known are --test and --help");
                return ExitCode::from(2);
            }
        }
    }
    match measure(short) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("chunked: {error}");
            ExitCode::FAILURE
        }
    }
}
