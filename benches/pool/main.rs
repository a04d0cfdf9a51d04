//! cuguard's pool: what it costs, what it takes, and whether half-free memory can be used. `peers/` has the same works for
//! other allocators, and `peers/run.py` runs all of them in turn and makes a table.
//!
//!     cargo bench --bench pool
//!     cargo bench --bench pool -- pair churn
//!     cargo bench --bench pool -- trace --trace benches/pool/trace.txt.gz
//!     cargo bench --bench pool | benches/pool/peers/run.py --from -
//!
//! It runs on the driver that `CUGUARD_DRIVER` chooses. Each figure is a line of JSON: work, case, allocator, figure, value.
//! A work that needs kernels is not run on the simulated GPU, and says so.

mod adaptor;
mod busy;
mod check;
mod figures;
mod fill;
mod pairs;
mod processor;
mod threads;
#[path = "../tracking/timing.rs"]
#[allow(
    dead_code,
    reason = "shared with the benchmark `tracking`, which uses all of it"
)]
mod timing;
mod trace;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use processor::Pinned;

const HELP: &str = "\
Measures cuguard's pool, and the driver's pool through cuguard, as JSON lines.

    pool [SECTION ...] [OPTION ...]

Sections, all of them by default:
    pair      allocate and free 1 MiB on one thread: counts, sites, stacks
    churn     1,000 live blocks of 256 B to 1 MiB, one replaced at a time
    threads   pairs on 16 threads, each with its own stream, and all with one
    free      a free while a kernel of 1.5 s runs on another stream
    trace     a recorded training run: the most that is held, over the most that is live
    fill      60 GiB of equal blocks, half of them freed: one block of 95 % of that
    check     the same while kernels run on the blocks that stay: every byte checked

    --trace FILE     the recorded trace, plain or .gz (benches/pool/trace.txt.gz)
    --fill-gib N     how much `fill` and `check` fill (60; a short run: 1)
    --seconds N      no case of `fill` or `check` begins after so many seconds
    --memory-pool    `fill` with the driver's pool too
    --test           a short run that only shows that it works
    --help           this text";

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// What the arguments select.
struct Options {
    short: bool,
    trace: PathBuf,
    fill: u64,
    seconds: Duration,
    memory_pool: bool,
}

/// Measures and prints.
type Section = fn(&Options) -> Outcome;

/// Sections whose time is that of one thread outside the driver.
const ONE_THREAD: [&str; 2] = ["pair", "churn"];

const SECTIONS: [(&str, Section); 7] = [
    ("pair", pairs::pair),
    ("churn", pairs::churn),
    ("threads", threads::threads),
    ("free", busy::free),
    ("trace", trace::trace),
    ("fill", fill::fill),
    ("check", check::check),
];

fn main() -> ExitCode {
    let (options, mut sections) = match arguments(std::env::args().skip(1)) {
        Ok(Some(parsed)) => parsed,
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(argument) => {
            eprintln!("pool: cannot use the argument {argument}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    if sections.is_empty() {
        sections = SECTIONS.iter().collect();
    }
    match cuguard::driver::load() {
        Ok(driver) => println!("driver {driver}"),
        Err(error) => {
            eprintln!("pool: {error}");
            return ExitCode::FAILURE;
        }
    }
    let mut code = ExitCode::SUCCESS;
    for (name, section) in sections {
        // Figures of different speeds cannot be compared: each section says which it had.
        let pinned = ONE_THREAD.contains(name).then(Pinned::to_quiet).flatten();
        let warm_up = || {
            let time = Duration::from_millis(if options.short { 1 } else { 300 });
            (timing::warm_up(time), processor::steps())
        };
        let before = warm_up();
        let outcome = section(&options);
        let after = warm_up();
        println!(
            "speed of {name}: {:.2} GHz before, {:.2} GHz after; {:.2} and {:.2} steps/ns{}",
            before.0,
            after.0,
            before.1,
            after.1,
            pinned.map_or(String::new(), |pinned| format!(
                "; on processor {}",
                pinned.processor
            ))
        );
        if let Err(error) = outcome {
            eprintln!("pool: {name}: {error}");
            code = ExitCode::FAILURE;
        }
    }
    code
}

type Parsed = (Options, Vec<&'static (&'static str, Section)>);

/// `None`: asked for help. An error names the argument.
fn arguments(mut all: impl Iterator<Item = String>) -> Result<Option<Parsed>, String> {
    let mut options = Options {
        // Without optimisation the figures mean nothing, so they need not be exact.
        short: cfg!(debug_assertions),
        trace: PathBuf::from("benches/pool/trace.txt.gz"),
        fill: 0,
        seconds: Duration::MAX,
        memory_pool: false,
    };
    let mut sections = Vec::new();
    while let Some(argument) = all.next() {
        let mut value = || {
            all.next()
                .ok_or_else(|| format!("{argument} without a value"))
        };
        let number = |text: String| {
            text.parse::<u64>()
                .map_err(|_| format!("{argument} {text:?}: not a whole number"))
        };
        match argument.as_str() {
            "--help" | "-h" => return Ok(None),
            // Cargo adds this one.
            "--bench" => {}
            "--test" => options.short = true,
            "--memory-pool" => options.memory_pool = true,
            "--trace" => options.trace = value()?.into(),
            "--fill-gib" => options.fill = number(value()?)? << 30,
            "--seconds" => options.seconds = Duration::from_secs(number(value()?)?),
            name => match SECTIONS.iter().find(|(known, _)| *known == name) {
                Some(section) => sections.push(section),
                None => return Err(format!("{name:?}: there is no such section")),
            },
        }
    }
    if options.fill == 0 {
        options.fill = if options.short { 1 << 30 } else { 60 << 30 };
    }
    Ok(Some((options, sections)))
}
