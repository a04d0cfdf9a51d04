//! From facts to findings: what is wrong, with the numbers that say so, and what to do about it.

use cuguard::ByteSize;
use cuguard_machine::{ComputeMode, Process, ProcessKind};

use super::facts::{Facts, GpuFacts, Measured, Probe};
use super::failure::codes;
use super::percent::percent;

/// Less free than this, in per cent of all memory, is full.
const FULL: u64 = 5;

/// Free memory of which less than this, in per cent, can be had at once is in pieces.
const IN_ONE_PIECE: u64 = 95;

/// From how much on, in per cent of all memory, what others hold is worth a word.
const MUCH: u64 = 50;

/// Less than this is rounding: of pages, or of what the driver books for itself.
const LITTLE: u64 = 64 << 20;

/// What NVML's figure of a process may be short of what it really takes.
const LITTLE_PER_PROCESS: u64 = 16 << 20;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// Good to know.
    Note,
    /// Takes memory or will surprise somebody; allocations still work.
    Warning,
    /// Makes allocations fail.
    Problem,
}

impl Severity {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    /// A word for programs.
    pub(super) code: &'static str,
    pub(super) text: String,
    /// What to do about it, where there is something to do.
    pub(super) advice: Option<String>,
}

impl Finding {
    fn new(severity: Severity, code: &'static str, text: impl Into<String>) -> Self {
        Self {
            severity,
            code,
            text: text.into(),
            advice: None,
        }
    }

    fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

/// What was found about one GPU, or about the machine: the gravest first, and the sum of it in plain
/// words.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    pub(super) findings: Vec<Finding>,
    pub(super) summary: String,
}

impl Verdict {
    pub(super) fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }

    pub(super) fn is_healthy(&self) -> bool {
        self.worst() < Some(Severity::Problem)
    }
}

/// The verdicts on all GPUs, in the order of the facts, and on the machine.
#[derive(Clone, Debug)]
pub(super) struct Diagnosis {
    pub(super) gpus: Vec<Verdict>,
    pub(super) machine: Verdict,
}

impl Diagnosis {
    pub(super) fn worst(&self) -> Option<Severity> {
        let all = self.gpus.iter().chain([&self.machine]);
        all.filter_map(Verdict::worst).max()
    }
}

/// Judges.
pub(super) fn diagnose(facts: &Facts) -> Diagnosis {
    let gpus: Vec<Verdict> = facts.gpus.iter().map(|gpu| of_gpu(facts, gpu)).collect();
    let machine = of_machine(facts, &gpus);
    Diagnosis { gpus, machine }
}

fn of_gpu(facts: &Facts, gpu: &GpuFacts) -> Verdict {
    let mut findings = Vec::new();
    findings.extend(access(gpu));
    findings.extend(full(gpu));
    findings.extend(in_pieces(gpu));
    findings.extend(held(gpu));
    findings.extend(hidden(facts, gpu));
    findings.extend(odd_processes(facts, gpu));
    findings.extend(modes(gpu));
    findings.extend(not_known(gpu));
    // Those of the same weight stay in this order.
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let summary = summary(gpu, &findings);
    Verdict { findings, summary }
}

/// Whether a program is let in at all.
fn access(gpu: &GpuFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    match gpu.machine.compute_mode {
        Some(ComputeMode::Prohibited) => findings.push(
            Finding::new(
                Severity::Problem,
                "prohibited",
                "its compute mode is prohibited: no program can make a context on it",
            )
            .advise("an administrator can let programs in: nvidia-smi -c DEFAULT"),
        ),
        Some(ComputeMode::Exclusive) => {
            let text = "its compute mode is exclusive: one process at a time can use it";
            // Drawing is no use in this sense.
            let user = others(gpu).find(|other| other.kinds != [ProcessKind::Graphics]);
            findings.push(match user {
                Some(other) => Finding::new(
                    Severity::Problem,
                    "exclusive",
                    format!("{text}, and {} does", who(other)),
                )
                .advise("wait for it, or let several in: nvidia-smi -c DEFAULT"),
                None => Finding::new(Severity::Note, "exclusive", text),
            });
        }
        _ => {}
    }
    if let Probe::Refused { words, code } = &gpu.probe
        && gpu.machine.compute_mode != Some(ComputeMode::Prohibited)
    {
        let finding = Finding::new(
            Severity::Problem,
            "refused",
            format!("nothing could be measured on it: {words}"),
        );
        findings.push(match *code {
            Some(codes::OUT_OF_MEMORY) => {
                finding.advise("a context alone takes some hundred MiB: memory must be freed first")
            }
            Some(codes::DEVICE_UNAVAILABLE) => finding.advise(
                "another process has it for itself, or the GPU needs a reset (nvidia-smi -r)",
            ),
            _ => finding,
        });
    }
    findings
}

/// Whether there is anything left.
fn full(gpu: &GpuFacts) -> Option<Finding> {
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
    let finding = Finding::new(Severity::Problem, "full", text);
    Some(match others(gpu).next() {
        Some(other) => finding.advise(format!("most of it is held by {}", who(other))),
        None => finding,
    })
}

/// Whether what is left can be had in one piece.
fn in_pieces(gpu: &GpuFacts) -> Option<Finding> {
    let Probe::Measured(measured) = &gpu.probe else {
        return None;
    };
    if is_in_one_piece(measured) {
        return None;
    }
    let text = format!(
        "its free memory is in pieces: {} are free, and the largest block to be had is {}, {} %",
        ByteSize(measured.free),
        ByteSize(measured.largest),
        percent(measured.largest, measured.free),
    );
    Some(
        Finding::new(Severity::Problem, "fragmented", text).advise(
            "pages are held by small blocks between freed ones, or a limit is set for this process; \
             programs that hold memory get pages back to the driver when they free all blocks of one",
        ),
    )
}

pub(super) fn is_in_one_piece(measured: &Measured) -> bool {
    percent(measured.largest, measured.free) >= IN_ONE_PIECE
        || measured.free.saturating_sub(measured.largest) < LITTLE
}

/// Much that known processes hold. Where the GPU is full, that has been said.
fn held(gpu: &GpuFacts) -> Option<Finding> {
    let memory = gpu.machine.memory?;
    if full(gpu).is_some() {
        return None;
    }
    let held: Vec<&Process> = others(gpu).filter(|other| other.bytes > Some(0)).collect();
    let bytes = held.iter().filter_map(|other| other.bytes).sum::<u64>();
    let share = percent(bytes, memory.total);
    if share < MUCH {
        return None;
    }
    let number = match held.len() {
        1 => "another process holds".to_owned(),
        count => format!("{count} other processes hold"),
    };
    let text = format!("{number} {}, {share} % of its memory", ByteSize(bytes));
    Some(
        Finding::new(Severity::Warning, "held", text)
            .advise(format!("most of it is held by {}", who(held[0]))),
    )
}

/// Memory in use that no listed process explains.
fn hidden(facts: &Facts, gpu: &GpuFacts) -> Option<Finding> {
    // Of a card in pieces NVML shows the whole, and CUDA a piece.
    if gpu.machine.mig == Some(true) {
        return None;
    }
    let unexplained = gpu.machine.unexplained()?;
    let listed = gpu.machine.processes.as_ref().map_or(0, Vec::len) as u64;
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
        causes.push("the display server: this GPU draws");
    }
    if facts.sees_all_processes != Some(false) {
        causes.push("a process that has ended and whose memory is not back yet");
        causes.push("a process in a container that NVML does not list");
    }
    if gpu.machine.display.is_none() {
        causes.push("a display server");
    }
    let advice = format!(
        "the usual causes: {}; to find it: nvidia-smi on the host, or fuser -v /dev/nvidia* as root",
        causes.join("; or "),
    );
    Some(Finding::new(Severity::Warning, "hidden", text).advise(advice))
}

/// Processes that are listed, and of which something is strange.
fn odd_processes(facts: &Facts, gpu: &GpuFacts) -> Vec<Finding> {
    let listed = gpu.machine.processes.as_deref().unwrap_or_default();
    let mut findings = Vec::new();
    for zombie in listed.iter().filter(|process| process.zombie) {
        findings.push(
            Finding::new(
                Severity::Warning,
                "zombie",
                format!("{} has ended and is still listed", who(zombie)),
            )
            .advise("its parent has not collected it: end the parent"),
        );
    }
    let elsewhere = listed
        .iter()
        .filter(|process| !process.visible && !process.own);
    let (mut count, mut bytes) = (0, Some(0_u64));
    // Without its number nobody can say that a process is gone.
    let mut can_be_found = facts.sees_all_processes == Some(true);
    for process in elsewhere {
        count += 1;
        can_be_found &= process.pid != 0;
        bytes = bytes
            .zip(process.bytes)
            .map(|(sum, more)| sum.saturating_add(more));
    }
    if count > 0 {
        let bytes = bytes.map_or("memory".to_owned(), |bytes| ByteSize(bytes).to_string());
        let text = match count {
            1 => format!("a process that holds {bytes} is not among those of this system"),
            _ => format!("{count} processes that hold {bytes} are not among those of this system"),
        };
        let finding = Finding::new(Severity::Note, "not_visible", text);
        findings.push(if can_be_found {
            Finding {
                severity: Severity::Warning,
                ..finding.advise(
                    "it has ended, and the driver has not got its memory back: where that stays so, reset \
                     the GPU (nvidia-smi -r) or restart",
                )
            }
        } else {
            finding.advise("they run on the host or in other containers: look there")
        });
    }
    if listed.iter().any(|process| process.bytes.is_none()) {
        findings.push(Finding::new(
            Severity::Note,
            "bytes_unknown",
            "NVML does not say how much memory each process holds",
        ));
    }
    findings
}

/// Settings that people stumble over.
fn modes(gpu: &GpuFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    if gpu.machine.mig == Some(true) {
        findings.push(Finding::new(
            Severity::Note,
            "mig",
            "it is cut into instances (MIG): CUDA has one of them; the processes are those of all",
        ));
    }
    if gpu.machine.ecc == Some(false) {
        findings.push(Finding::new(
            Severity::Note,
            "ecc_off",
            "ECC is off: errors of its memory go unnoticed",
        ));
    }
    if gpu.machine.display == Some(true) {
        findings.push(Finding::new(
            Severity::Note,
            "display",
            "it draws a display, which takes memory of it and ends kernels that run for seconds",
        ));
    }
    if gpu.machine.persistence == Some(false) {
        findings.push(Finding::new(
            Severity::Note,
            "persistence_off",
            "persistence mode is off: the first program after a pause waits until the GPU is up",
        ));
    }
    findings
}

/// What could not be found out.
fn not_known(gpu: &GpuFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(words) = &gpu.not_described {
        findings.push(Finding::new(Severity::Note, "not_described", words));
    }
    if matches!(gpu.probe, Probe::Skipped) {
        findings.push(Finding::new(
            Severity::Note,
            "not_probed",
            "nothing was measured, as was asked: free memory may be in pieces",
        ));
    }
    findings
}

/// The state of the GPU in a sentence.
fn summary(gpu: &GpuFacts, findings: &[Finding]) -> String {
    if let Some(first) = findings.first()
        && first.severity == Severity::Problem
    {
        return format!("allocations will fail: {}", first.text);
    }
    let word = match findings.first() {
        Some(first) if first.severity == Severity::Warning => "works, with a warning",
        _ => "healthy",
    };
    match (&gpu.probe, gpu.machine.memory) {
        (Probe::Measured(measured), _) if measured.age.is_zero() => format!(
            "{word}: {} can be had in one block beside a context",
            ByteSize(measured.largest)
        ),
        (_, Some(memory)) => format!("{word}: {} are free", ByteSize(memory.free)),
        _ => format!("{word}, as far as is known"),
    }
}

fn of_machine(facts: &Facts, gpus: &[Verdict]) -> Verdict {
    let mut findings = Vec::new();
    for unseen in &facts.unseen {
        let text = format!(
            "{} at {} is in the machine, and CUDA does not show it",
            unseen.name.as_deref().unwrap_or("a GPU"),
            unseen.pci_bus_id,
        );
        let finding = Finding::new(Severity::Note, "unseen", text);
        findings.push(match &facts.visible_devices {
            Some(value) => finding.advise(format!("CUDA_VISIBLE_DEVICES is {value:?}")),
            None => finding,
        });
    }
    if let Some(words) = facts
        .without_nvml
        .as_ref()
        .filter(|_| !facts.driver.simulated)
    {
        findings.push(
            Finding::new(Severity::Note, "no_nvml", words)
                .advise("without it, processes and reserved memory are not known"),
        );
    }
    let healthy = gpus.iter().filter(|verdict| verdict.is_healthy()).count();
    let summary = match (healthy, gpus.len()) {
        (1, 1) => "the GPU can be used".to_owned(),
        (0, 1) => "the GPU needs attention".to_owned(),
        (healthy, all) if healthy == all => format!("all {all} GPUs can be used"),
        (healthy, all) => match all - healthy {
            1 => format!("{healthy} of {all} GPUs can be used, 1 needs attention"),
            bad => format!("{healthy} of {all} GPUs can be used, {bad} need attention"),
        },
    };
    Verdict { findings, summary }
}

/// The processes that are not this one, the largest first.
fn others(gpu: &GpuFacts) -> impl Iterator<Item = &Process> {
    let listed = gpu.machine.processes.as_deref().unwrap_or_default();
    listed.iter().filter(|process| !process.own)
}

/// A process in a few words: `pid 4711 (python3) with 3 GiB`.
pub(super) fn who(process: &Process) -> String {
    let mut text = format!("pid {}", process.pid);
    if let Some(name) = &process.name {
        text.push_str(&format!(" ({name})"));
    }
    if let Some(bytes) = process.bytes {
        text.push_str(&format!(" with {}", ByteSize(bytes)));
    }
    text
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
