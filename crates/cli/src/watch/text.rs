//! One frame as text, for scripts; and the lines that the screen shares with it.

use std::fmt::Write;

use cuguard_report::ByteSize;

use super::history::History;
use super::sample::{Kind, Sample};

/// The frame.
pub(super) fn render(history: &History) -> String {
    let sample = history.last();
    let mut text = format!("{}\n{}\n", process(sample), device(history));
    for one in &sample.kinds {
        let _ = writeln!(text, "  {}", kind(one));
    }
    text.push_str("largest call sites\n");
    for site in &sample.sites {
        let size = ByteSize(site.bytes).to_string();
        let (count, kind, name) = (site.count, &site.kind, site.name());
        let _ = writeln!(text, "  {size:>10}  {count:>8}  {kind:<16}  {name}");
    }
    if sample.sites_not_shown != 0 {
        let _ = writeln!(text, "  and {} more", sample.sites_not_shown);
    }
    text
}

/// `process 4711 (python3 train.py)`.
pub(super) fn process(sample: &Sample) -> String {
    format!("process {} ({})", sample.process, sample.command)
}

/// `device memory: 1.20 GiB in 41 allocations, +12.00 MiB/s, 830 allocations/s`.
pub(super) fn device(history: &History) -> String {
    let sample = history.last();
    let plural = if sample.count == 1 { "" } else { "s" };
    let mut line = format!(
        "device memory: {} in {} allocation{plural}",
        ByteSize(sample.bytes),
        sample.count
    );
    if let Some(rate) = history.rate() {
        let sign = if rate.bytes < 0.0 { '-' } else { '+' };
        let bytes = ByteSize(rate.bytes.abs() as u64);
        let _ = write!(
            line,
            ", {sign}{bytes}/s, {:.0} allocations/s",
            rate.allocations
        );
    }
    line
}

/// `device: 1 GiB in 12, peak 2 GiB`.
pub(super) fn kind(kind: &Kind) -> String {
    let (name, count) = (&kind.kind, kind.live_count);
    match kind.peak_bytes {
        0 => format!("{name}: {count}"),
        peak => format!(
            "{name}: {} in {count}, peak {}",
            ByteSize(kind.live_bytes),
            ByteSize(peak)
        ),
    }
}
