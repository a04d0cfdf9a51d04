//! What it costs to be tracked: cuguard at all its levels against plain `cust`, in one run.
//!
//!     cargo bench --bench tracking
//!     cargo bench --bench tracking -- pair depth
//!     cargo bench --bench tracking | scripts/bench-table.py
//!
//! It runs on the driver that `CUGUARD_DRIVER` chooses. Each line is one figure, as `name=value`;
//! the script makes tables of them. Times are medians of many rounds in which all ways take turns,
//! so that a slow moment of the machine hits all of them. Ratios are more than times. Each section
//! begins with a warm-up and says at what speed the processor ran, about.

mod memory;
mod pairs;
mod shortage;
mod stacks;
mod threads;
mod timing;

use std::process::ExitCode;
use std::time::Duration;

use cuguard::{Context, Stream, TrackingLevel};

use cuguard::report::ReportSettings;

/// Counts what the Rust side of the program has allocated.
#[global_allocator]
static ALLOCATED: memory::Counting = memory::Counting;

const HELP: &str = "\
Measures what tracking costs, against cust in the same run.

    tracking [SECTION ...] [--test]

Sections, all of them by default:
    pair      allocate and free, 4 B to 64 MiB, synchronous and stream-ordered, all levels
    churn     1,000 live blocks of 256 B to 1 MiB, one replaced at a time
    depth     a stream-ordered pair with stacks of 8 to 64 frames
    threads   stream-ordered pairs on 1 to 16 threads
    memory    bytes for each live record, 10^4 to 10^6 of them
    report    time and memory of a report over 10^4 to 10^6 live allocations
    shortage  an allocation that fails, with its report, at 10^3 to 10^5 live allocations

    --test    a short run that only shows that it works
    --help    this text";

/// Measures, shortly or well, and prints.
type Section = fn(bool) -> Outcome;

const SECTIONS: [(&str, Section); 7] = [
    ("pair", pairs::pair),
    ("churn", pairs::churn),
    ("depth", stacks::depth),
    ("threads", threads::threads),
    ("memory", memory::records),
    ("report", memory::report),
    ("shortage", shortage::shortage),
];

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// One way to allocate: by `cust` alone, or by cuguard at a level.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Cust,
    Counts,
    Sites,
    Stacks,
    Sampled,
}

impl Way {
    const ALL: [Self; 5] = [
        Self::Cust,
        Self::Counts,
        Self::Sites,
        Self::Stacks,
        Self::Sampled,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Cust => "cust",
            Self::Counts => "counts",
            Self::Sites => "sites",
            Self::Stacks => "stacks",
            Self::Sampled => "sampled",
        }
    }

    /// A context in which cuguard tracks in this way. (With `cust` it is only there to be current.)
    fn context(self) -> cuguard::Result<Context> {
        let (level, sample) = match self {
            Self::Cust | Self::Counts => (TrackingLevel::Counts, 1),
            Self::Sites => (TrackingLevel::Sites, 1),
            Self::Stacks => (TrackingLevel::Stacks, 1),
            // One in a hundred, with its stack.
            Self::Sampled => (TrackingLevel::Stacks, 100),
        };
        Context::builder()
            .level(level)
            .report(ReportSettings::silent().depth(64).sample(sample))
            .build()
    }
}

/// A context for each way, and a stream in each.
fn contexts_and_streams() -> cuguard::Result<(Vec<Context>, Vec<Stream>)> {
    let contexts: Vec<_> = Way::ALL
        .iter()
        .map(|way| way.context())
        .collect::<Result<_, _>>()?;
    let streams = contexts.iter().map(Stream::new).collect::<Result<_, _>>()?;
    Ok((contexts, streams))
}

fn main() -> ExitCode {
    let mut sections = Vec::new();
    // Without optimisation the figures mean nothing, so they need not be exact.
    let mut short = cfg!(debug_assertions);
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--help" | "-h" => {
                println!("{HELP}");
                return ExitCode::SUCCESS;
            }
            // Cargo adds this one.
            "--bench" => {}
            "--test" => short = true,
            name => match SECTIONS.iter().find(|(known, _)| *known == name) {
                Some(section) => sections.push(section),
                None => {
                    eprintln!("tracking: there is no section {name:?}\n\n{HELP}");
                    return ExitCode::from(2);
                }
            },
        }
    }
    if sections.is_empty() {
        sections = SECTIONS.iter().collect();
    }
    match cuguard::driver::load() {
        Ok(driver) => println!("driver {driver}"),
        Err(error) => {
            eprintln!("tracking: {error}");
            return ExitCode::FAILURE;
        }
    }
    for (name, section) in sections {
        // Figures of different speeds cannot be compared: each section says which it had.
        let warm_up = || timing::warm_up(Duration::from_millis(if short { 1 } else { 500 }));
        let before = warm_up();
        let outcome = section(short);
        let after = warm_up();
        println!("speed of {name}: {before:.2} GHz before, {after:.2} GHz after");
        if let Err(error) = outcome {
            eprintln!("tracking: {name}: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
