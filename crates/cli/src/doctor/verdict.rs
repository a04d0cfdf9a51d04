//! From facts to findings: what is wrong, with the numbers that say so, and what to do about it.

use cuguard::report::ByteSize;
use cuguard_nvml::{ComputeMode, Process, ProcessKind};

use super::facts::{Facts, GpuFacts, Probe};
use super::failure::codes;
use super::verdict_memory::{full, held, hidden, in_pieces};

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
    pub(super) fn new(severity: Severity, code: &'static str, text: impl Into<String>) -> Self {
        Self {
            severity,
            code,
            text: text.into(),
            advice: None,
        }
    }

    pub(super) fn advise(mut self, advice: impl Into<String>) -> Self {
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
        Some(ComputeMode::Exclusive) => findings.push(exclusive(gpu)),
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

/// One process at a time: whether that keeps others out now.
fn exclusive(gpu: &GpuFacts) -> Finding {
    let text = "its compute mode is exclusive: one process at a time can use it";
    // Drawing is no use in this sense.
    let user = others(gpu).find(|other| other.kinds != [ProcessKind::Graphics]);
    let Some(user) = user else {
        return Finding::new(Severity::Note, "exclusive", text);
    };
    let text = format!("{text}, and {} does", who(user));
    // The one process may be a server that lets others in through it.
    let shared = others(gpu).any(|other| other.kinds.contains(&ProcessKind::Mps));
    if gpu.measured().is_some() {
        let text = format!("{text}; a context could be made all the same, as with an MPS server");
        return Finding::new(Severity::Note, "exclusive", text);
    }
    // An old measurement says nothing of those who came since.
    if shared && !matches!(gpu.probe, Probe::Refused { .. }) {
        let text = format!("{text}; others get in through an MPS server");
        return Finding::new(Severity::Note, "exclusive", text);
    }
    Finding::new(Severity::Problem, "exclusive", text)
        .advise("wait for it, or let several in: nvidia-smi -c DEFAULT")
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
    if matches!(gpu.probe, Probe::Skipped { .. }) {
        findings.push(
            Finding::new(
                Severity::Note,
                "not_probed",
                "the largest block was not measured: free memory may be in pieces",
            )
            .advise(
                "--probe measures it; it allocates all free memory for a moment, in which allocations of \
                 other processes may fail",
            ),
        );
    }
    if let Probe::Measured(measured) = &gpu.probe
        && measured.outdated
    {
        let text = format!(
            "it has changed since it was measured, {} s ago: free memory may be in pieces",
            measured.age.as_secs()
        );
        findings.push(Finding::new(Severity::Note, "outdated", text));
    }
    findings
}

/// The state of the GPU in a sentence.
fn summary(gpu: &GpuFacts, findings: &[Finding]) -> String {
    if let Some(first) = findings.first()
        && first.severity == Severity::Problem
    {
        let which = match limit(gpu, first) {
            Some(most) => format!("allocations above {} will fail", ByteSize(most)),
            None => "allocations will fail".to_owned(),
        };
        return format!("{which}: {}", first.text);
    }
    let known = !matches!(gpu.probe, Probe::Skipped { .. });
    let warned = findings.first().map(|first| first.severity) == Some(Severity::Warning);
    let word = match (known, warned) {
        (true, true) => "works, with a warning",
        (true, false) => "healthy",
        (false, true) => "no problem was found, with a warning",
        (false, false) => "no problem was found",
    };
    match (gpu.measured(), gpu.machine.memory) {
        (Some(measured), _) if measured.age.is_zero() => format!(
            "{word}: {} can be had in one block beside a context",
            ByteSize(measured.largest)
        ),
        (_, Some(memory)) => format!("{word}: {} are free", ByteSize(memory.free)),
        _ => format!("{word}, and what is free is not known"),
    }
}

/// The largest allocation that succeeds, where memory is what is short: most of it is gone, or in
/// pieces, and some can still be had.
fn limit(gpu: &GpuFacts, problem: &Finding) -> Option<u64> {
    if !matches!(problem.code, "full" | "fragmented") {
        return None;
    }
    let largest = gpu.measured().map(|measured| measured.largest);
    let free = gpu.machine.memory.map(|memory| memory.free);
    let most = largest.into_iter().chain(free).min()?;
    (most > 0).then_some(most)
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
    // That a GPU can be used is known where something was allocated on it.
    let skipped = |gpu: &GpuFacts| matches!(gpu.probe, Probe::Skipped { .. });
    let known = !facts.gpus.iter().any(skipped);
    let summary = match (healthy, gpus.len()) {
        (1, 1) if known => "the GPU can be used".to_owned(),
        (1, 1) => "no problem was found".to_owned(),
        (0, 1) => "the GPU needs attention".to_owned(),
        (healthy, all) if healthy == all && known => format!("all {all} GPUs can be used"),
        (healthy, all) if healthy == all => format!("no problem was found on any of {all} GPUs"),
        (healthy, all) => {
            let bad = match all - healthy {
                1 => "1 needs attention".to_owned(),
                bad => format!("{bad} need attention"),
            };
            if known {
                format!("{healthy} of {all} GPUs can be used, {bad}")
            } else {
                format!("no problem was found on {healthy} of {all} GPUs, {bad}")
            }
        }
    };
    Verdict { findings, summary }
}

/// The processes that are not this one, the largest first.
pub(super) fn others(gpu: &GpuFacts) -> impl Iterator<Item = &Process> {
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
