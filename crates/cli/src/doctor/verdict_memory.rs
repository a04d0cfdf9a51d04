//! Findings about memory: full, fragmented, held by other processes, held by unknown processes.

use cuguard::report::ByteSize;
use cuguard_nvml::Process;

use super::facts::{Facts, GpuFacts, Measured};
use super::finding::{Finding, others, problem, warning, who};
use super::percent::percent;

/// A GPU with less free than this, in percent of all memory, is full.
const FULL: u64 = 5;

/// Free memory is fragmented if less than this, in percent, can be allocated in one block.
const IN_ONE_PIECE: u64 = 95;

/// Memory held by others is a finding from this on, in percent of all memory.
const MUCH: u64 = 50;

/// Differences below this are rounding: of pages, or of memory that the driver uses itself.
const LITTLE: u64 = 64 << 20;

/// How much NVML's figure for a process may be too low.
const LITTLE_PER_PROCESS: u64 = 16 << 20;

/// Too little free memory.
pub(super) fn full(gpu: &GpuFacts) -> Option<Finding> {
    let memory = gpu.machine.memory?;
    let left = percent(memory.free, memory.total);
    if memory.total == 0 || left >= FULL {
        return None;
    }
    let text = format!(
        "it is full: {} of {} are free, {left} %",
        ByteSize(memory.free),
        ByteSize(memory.total),
    );
    let mut finding = problem("full", text);
    finding.advice = by_whom(gpu, memory.used());
    Some(finding)
}

/// Who holds most of the used memory, where known.
fn by_whom(gpu: &GpuFacts, used: u64) -> Option<String> {
    gpu.holders()?;
    let most = |bytes: u64| bytes > used / 2;
    // Processes of unknown size are last.
    let first = others(gpu).next()?;
    if first.bytes.is_some_and(most) {
        return Some(format!("most of it is held by {}", who(first)));
    }
    if others(gpu).any(|other| other.bytes.is_none()) {
        return Some(
            "who holds most of it is not known: NVML lists processes without their bytes"
                .to_owned(),
        );
    }
    if gpu.unexplained().is_some_and(most) {
        return Some("most of it is held by none of the listed processes".to_owned());
    }
    Some(format!(
        "of the listed processes, {} holds most",
        who(first)
    ))
}

/// Free memory that cannot be allocated in one block.
pub(super) fn fragmented(gpu: &GpuFacts) -> Option<Finding> {
    let measured = gpu.measured()?;
    if is_in_one_piece(measured) {
        return None;
    }
    let mut text = format!(
        "its free memory is fragmented: {} are free, and the largest block is {}, {} %",
        ByteSize(measured.free),
        ByteSize(measured.largest),
        percent(measured.largest, measured.free),
    );
    if !measured.age.is_zero() {
        text.push_str(&format!(", as measured {} s ago", measured.age.as_secs()));
    }
    Some(problem("fragmented", text).advise(
        "small blocks between freed ones hold pages, or a limit is set for this process; a page \
         returns to the driver when a program has freed all its blocks",
    ))
}

pub(super) fn is_in_one_piece(measured: &Measured) -> bool {
    percent(measured.largest, measured.free) >= IN_ONE_PIECE
        || measured.free.saturating_sub(measured.largest) < LITTLE
}

/// Memory held by listed processes, unless the GPU is full: then that finding names them.
pub(super) fn held(gpu: &GpuFacts) -> Option<Finding> {
    let memory = gpu.machine.memory?;
    gpu.holders()?;
    if full(gpu).is_some() {
        return None;
    }
    let held: Vec<&Process> = others(gpu).filter(|other| other.bytes > Some(0)).collect();
    let bytes = held
        .iter()
        .filter_map(|other| other.bytes)
        .fold(0_u64, u64::saturating_add);
    let share = percent(bytes, memory.total);
    if share < MUCH {
        return None;
    }
    let number = match held.len() {
        1 => "another process holds".to_owned(),
        count => format!("{count} other processes hold"),
    };
    let mut text = format!("{number} {}", ByteSize(bytes));
    // More than 100 % means that the figures contradict each other.
    if share <= 100 {
        text.push_str(&format!(", {share} % of its memory"));
    }
    let first = held[0];
    let advice = if first.bytes > Some(bytes / 2) {
        format!("most of it is held by {}", who(first))
    } else {
        format!("{} holds most", who(first))
    };
    Some(warning("held", text).advise(advice))
}

/// Memory in use that no listed process explains.
pub(super) fn hidden(facts: &Facts, gpu: &GpuFacts) -> Option<Finding> {
    let unexplained = gpu.unexplained()?;
    let listed = gpu.holders().map_or(0, <[Process]>::len) as u64;
    if unexplained < LITTLE + listed * LITTLE_PER_PROCESS {
        return None;
    }
    let none = if listed == 0 {
        "and no process is listed"
    } else {
        "that no listed process explains"
    };
    let text = format!("{} are in use {none}", ByteSize(unexplained));
    let mut causes = Vec::new();
    if facts.sees_all_processes == Some(false) {
        causes
            .push("a process on the host or in another container, which is not shown in this one");
    }
    if gpu.machine.display == Some(true) {
        causes.push("the display server: this GPU drives a display");
    }
    if facts.sees_all_processes != Some(false) {
        causes.push("a process that has ended and whose memory is not freed yet");
        causes.push("a process in a container that NVML does not list");
    }
    if gpu.machine.display.is_none() {
        causes.push("a display server");
    }
    let advice = format!(
        "the usual causes: {}; to find it: nvidia-smi on the host, or fuser -v /dev/nvidia* as root",
        causes.join("; or "),
    );
    Some(warning("hidden", text).advise(advice))
}
