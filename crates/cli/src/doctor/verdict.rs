//! From facts to findings: what is wrong, the figures that show it, and what to do about it.

use cuguard::driver::sys::CUresult;
use cuguard::report::ByteSize;
use cuguard_nvml::{ComputeMode, Process, ProcessKind};

use super::facts::{Facts, GpuFacts, Probe};
use super::finding::{Finding, Severity, note, others, problem, warning, who};
use super::verdict_memory::{fragmented, full, held, hidden};

/// The findings about one GPU or the machine, the most severe first, and their summary.
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

/// Judges the facts.
pub(super) fn diagnose(facts: &Facts) -> Diagnosis {
    let gpus: Vec<Verdict> = facts.gpus.iter().map(|gpu| of_gpu(facts, gpu)).collect();
    let machine = of_machine(facts, &gpus);
    Diagnosis { gpus, machine }
}

fn of_gpu(facts: &Facts, gpu: &GpuFacts) -> Verdict {
    let mut findings = Vec::new();
    findings.extend(access(gpu));
    findings.extend(full(gpu));
    findings.extend(fragmented(gpu));
    findings.extend(held(gpu));
    findings.extend(hidden(facts, gpu));
    findings.extend(odd_processes(facts, gpu));
    findings.extend(modes(gpu));
    findings.extend(unknown(gpu));
    // The sort is stable: findings of one severity stay in this order.
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let summary = summary(gpu, &findings);
    Verdict { findings, summary }
}

/// Whether a program can create a context.
fn access(gpu: &GpuFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mode = gpu.machine.compute_mode;
    match mode {
        Some(ComputeMode::Prohibited) => findings.push(
            problem(
                "prohibited",
                "its compute mode is prohibited: no program can create a context on it",
            )
            .advise("an administrator can allow it: nvidia-smi -c DEFAULT"),
        ),
        Some(ComputeMode::Exclusive) => findings.push(exclusive(gpu)),
        _ => {}
    }
    if let Probe::Refused { text, code } = &gpu.probe
        && mode != Some(ComputeMode::Prohibited)
    {
        let mut finding = problem(
            "refused",
            format!("nothing could be measured on it: {text}"),
        );
        let advice = match *code {
            Some(CUresult::OUT_OF_MEMORY) => {
                Some("a context alone takes some hundred MiB: memory must be freed first")
            }
            Some(CUresult::DEVICE_UNAVAILABLE) => Some(
                "another process uses it exclusively, or the GPU needs a reset (nvidia-smi -r)",
            ),
            _ => None,
        };
        finding.advice = advice.map(str::to_owned);
        findings.push(finding);
    }
    findings
}

/// Whether exclusive mode keeps other processes out now.
fn exclusive(gpu: &GpuFacts) -> Finding {
    let text = "its compute mode is exclusive: one process at a time can use it";
    // Processes that only draw do not count.
    let user = others(gpu).find(|other| other.kinds != [ProcessKind::Graphics]);
    let Some(user) = user else {
        return note("exclusive", text);
    };
    let text = format!("{text}, and {} does", who(user));
    if gpu.measured().is_some() {
        let text = format!("{text}; a context could be created anyway, as with an MPS server");
        return note("exclusive", text);
    }
    // An outdated measurement does not count: processes may have started since.
    let has_mps = others(gpu).any(|other| other.kinds.contains(&ProcessKind::Mps));
    if has_mps && !matches!(gpu.probe, Probe::Refused { .. }) {
        let text = format!("{text}; others can use it through an MPS server");
        return note("exclusive", text);
    }
    problem("exclusive", text)
        .advise("wait for it, or allow several processes: nvidia-smi -c DEFAULT")
}

/// Listed processes that are zombies, not visible, or of unknown size.
fn odd_processes(facts: &Facts, gpu: &GpuFacts) -> Vec<Finding> {
    let listed = gpu.machine.processes.as_deref().unwrap_or_default();
    let zombies = listed.iter().filter(|process| process.zombie);
    let mut findings: Vec<Finding> = zombies
        .map(|zombie| {
            warning(
                "zombie",
                format!("{} has ended and is still listed", who(zombie)),
            )
            .advise("its parent has not waited for it: end the parent")
        })
        .collect();
    let elsewhere: Vec<&Process> = others(gpu).filter(|process| !process.visible).collect();
    if !elsewhere.is_empty() {
        let bytes = elsewhere.iter().map(|process| process.bytes);
        let bytes = bytes
            .reduce(|sum, more| Some(sum?.saturating_add(more?)))
            .flatten();
        let bytes = bytes.map_or("memory".to_owned(), |bytes| ByteSize(bytes).to_string());
        let text = match elsewhere.len() {
            1 => format!("a process that holds {bytes} is not among those of this system"),
            count => {
                format!("{count} processes that hold {bytes} are not among those of this system")
            }
        };
        // Whether a process has ended is known only by its pid.
        let has_ended = facts.sees_all_processes == Some(true)
            && elsewhere.iter().all(|process| process.pid != 0);
        findings.push(if has_ended {
            warning("not_visible", text).advise(
                "it has ended, and the driver has not freed its memory: if that stays so, reset the GPU \
                 (nvidia-smi -r) or restart",
            )
        } else {
            note("not_visible", text)
                .advise("they run on the host or in other containers: look there")
        });
    }
    if listed.iter().any(|process| process.bytes.is_none()) {
        findings.push(note(
            "bytes_unknown",
            "NVML does not report how much memory each process holds",
        ));
    }
    findings
}

/// Settings that are easily overlooked.
fn modes(gpu: &GpuFacts) -> impl Iterator<Item = Finding> {
    let machine = &gpu.machine;
    let mig = note(
        "mig",
        "it is partitioned (MIG): CUDA has one instance; the processes are those of all",
    );
    let ecc = note("ecc_off", "ECC is off: memory errors are not detected");
    let display = note(
        "display",
        "it drives a display, which takes memory and stops kernels that run for seconds",
    );
    let persistence = note(
        "persistence_off",
        "persistence mode is off: the first program after a pause waits for the GPU to initialize",
    );
    [
        (machine.mig == Some(true), mig),
        (machine.ecc == Some(false), ecc),
        (machine.display == Some(true), display),
        (machine.persistence == Some(false), persistence),
    ]
    .into_iter()
    .filter_map(|(holds, finding)| holds.then_some(finding))
}

/// What is unknown.
fn unknown(gpu: &GpuFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(text) = &gpu.not_described {
        findings.push(note("not_described", text));
    }
    match &gpu.probe {
        Probe::Skipped { .. } => findings.push(
            note(
                "not_probed",
                "the largest block was not measured: free memory may be fragmented",
            )
            .advise(
                "--probe measures it; it allocates all free memory for a moment, in which allocations of \
                 other processes may fail",
            ),
        ),
        Probe::Measured(measured) if measured.outdated => {
            let text = format!(
                "it has changed since it was measured, {} s ago: free memory may be fragmented",
                measured.age.as_secs()
            );
            findings.push(note("outdated", text));
        }
        _ => {}
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
    let known = is_probed(gpu);
    let warned = findings.first().map(|first| first.severity) == Some(Severity::Warning);
    let word = match (known, warned) {
        (true, true) => "works, with a warning",
        (true, false) => "healthy",
        (false, true) => "no problem was found, with a warning",
        (false, false) => "no problem was found",
    };
    match (gpu.measured(), gpu.machine.memory) {
        (Some(measured), _) if measured.age.is_zero() => format!(
            "{word}: {} can be allocated in one block beside a context",
            ByteSize(measured.largest)
        ),
        (_, Some(memory)) => format!("{word}: {} are free", ByteSize(memory.free)),
        _ => format!("{word}, and what is free is not known"),
    }
}

/// The largest allocation that succeeds where memory is full or fragmented.
fn limit(gpu: &GpuFacts, problem: &Finding) -> Option<u64> {
    if !matches!(problem.code, "full" | "fragmented") {
        return None;
    }
    let largest = gpu.measured().map(|measured| measured.largest);
    let free = gpu.machine.memory.map(|memory| memory.free);
    let most = largest.into_iter().chain(free).min()?;
    (most > 0).then_some(most)
}

fn is_probed(gpu: &GpuFacts) -> bool {
    !matches!(gpu.probe, Probe::Skipped { .. })
}

fn of_machine(facts: &Facts, gpus: &[Verdict]) -> Verdict {
    let mut findings = Vec::new();
    for unseen in &facts.unseen {
        let text = format!(
            "{} at {} is in the machine, and CUDA does not list it",
            unseen.name.as_deref().unwrap_or("a GPU"),
            unseen.pci_bus_id,
        );
        let mut finding = note("unseen", text);
        let visible = facts.visible_devices.as_ref();
        finding.advice = visible.map(|value| format!("CUDA_VISIBLE_DEVICES is {value:?}"));
        findings.push(finding);
    }
    if let Some(text) = &facts.without_nvml
        && !facts.driver.simulated
    {
        let advice = "without it, processes and reserved memory are not known";
        findings.push(note("no_nvml", text).advise(advice));
    }
    let healthy = gpus.iter().filter(|verdict| verdict.is_healthy()).count();
    // A GPU can be used if something was allocated on it.
    let known = facts.gpus.iter().all(is_probed);
    let all = gpus.len();
    let bad = match all - healthy {
        1 => "1 needs attention".to_owned(),
        bad => format!("{bad} need attention"),
    };
    let summary = match (healthy, all, known) {
        (1, 1, true) => "the GPU can be used".to_owned(),
        (1, 1, false) => "no problem was found".to_owned(),
        (0, 1, _) => "the GPU needs attention".to_owned(),
        (_, _, true) if healthy == all => format!("all {all} GPUs can be used"),
        (_, _, false) if healthy == all => format!("no problem was found on any of {all} GPUs"),
        (_, _, true) => format!("{healthy} of {all} GPUs can be used, {bad}"),
        (_, _, false) => format!("no problem was found on {healthy} of {all} GPUs, {bad}"),
    };
    Verdict { findings, summary }
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
