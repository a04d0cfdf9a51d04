//! Measures the text report of a recording: the time of each step, and the most memory that the process had.
//!
//! ```text
//!     cargo run --release -p cuguard-view --example synthetic -- big.cgr 10000000
//!     cargo run --release -p cuguard-view --example measure -- big.cgr
//! ```

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use cuguard_view::{At, By, Look, Memory, Overview, SymbolOptions, open, text, timeline};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: measure FILE")?;
    let begin = Instant::now();
    let step = |what: &str| println!("{:>8.2} s  {what}", begin.elapsed().as_secs_f64());
    let runs = open(Path::new(&path), &SymbolOptions::default())?;
    let run = runs.first().ok_or("there is no run")?;
    step(&format!("read {} allocations", run.allocations.len()));
    let overview = Overview::new(run, At::Peak)?;
    step("figures of the run, and the peak");
    let look = Look {
        top: Some(10),
        ..Look::default()
    };
    let report = text(&overview, look);
    step(&format!("text of {} bytes", report.len()));
    // All that the report needed.
    let status = std::fs::read_to_string("/proc/self/status")?;
    let most = status.lines().find(|line| line.starts_with("VmHWM"));
    println!("{}", most.unwrap_or("VmHWM: unknown"));
    let timeline = timeline(run, 1_000, By::Stack, Memory::Device, 20);
    step(&format!("timeline of {} series", timeline.series.len()));
    Ok(())
}
