//! Each finding from facts that lead to it, and none where they do not.

use std::time::{Duration, Instant};

use cuguard_nvml::{Gpu, Memory};

use super::*;
use crate::doctor::facts::Measured;

#[path = "verdict_memory_tests.rs"]
mod memory;

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// A GPU of 80 GiB with nothing wrong.
fn healthy() -> GpuFacts {
    let mut machine = Gpu::new("0000:01:00.0");
    machine.memory = Some(Memory {
        total: 80 * GIB,
        free: 79 * GIB,
        reserved: Some(GIB),
    });
    machine.processes = Some(Vec::new());
    machine.compute_mode = Some(ComputeMode::Default);
    machine.ecc = Some(true);
    machine.mig = Some(false);
    machine.display = Some(false);
    machine.persistence = Some(true);
    GpuFacts {
        name: "a GPU".to_owned(),
        total: 80 * GIB,
        machine,
        probe: measured(78 * GIB, 78 * GIB - 4 * MIB),
        ..GpuFacts::default()
    }
}

fn measured(free: u64, largest: u64) -> Probe {
    Probe::Measured(Measured {
        context_cost: Some(500 * MIB),
        free,
        largest,
        free_before: free,
        other_pids: Vec::new(),
        taken: Instant::now(),
        age: Duration::ZERO,
        outdated: false,
    })
}

fn process(pid: u32, bytes: u64) -> Process {
    let mut process = Process::new(pid).with_bytes(bytes);
    process.visible = true;
    process.name = Some("python3".to_owned());
    process
}

/// The same GPU with processes that hold this much.
fn with(processes: Vec<Process>) -> GpuFacts {
    let mut gpu = healthy();
    let held: u64 = processes.iter().filter_map(|process| process.bytes).sum();
    gpu.machine.memory.as_mut().unwrap().free -= held;
    gpu.machine.processes = Some(processes);
    gpu
}

fn judge(gpu: GpuFacts) -> Verdict {
    judge_in(Facts::default(), gpu)
}

fn judge_in(mut facts: Facts, gpu: GpuFacts) -> Verdict {
    facts.gpus = vec![gpu];
    diagnose(&facts).gpus.remove(0)
}

fn found(verdict: &Verdict) -> Vec<(&'static str, Severity)> {
    let findings = verdict.findings.iter();
    findings
        .map(|finding| (finding.code, finding.severity))
        .collect()
}

use Severity::{Note, Problem, Warning};

#[test]
fn a_healthy_gpu_has_no_findings() {
    let verdict = judge(healthy());
    assert_eq!(found(&verdict), []);
    assert!(verdict.is_healthy());
    assert_eq!(
        verdict.summary,
        "healthy: 78.00 GiB can be allocated in one block beside a context"
    );
}

#[test]
fn a_gpu_in_prohibited_mode() {
    let mut gpu = healthy();
    gpu.machine.compute_mode = Some(ComputeMode::Prohibited);
    gpu.probe = Probe::Refused {
        text: "refused".to_owned(),
        code: Some(CUresult::DEVICE_UNAVAILABLE),
    };
    // The refusal is what the mode means, not a second problem.
    assert_eq!(found(&judge(gpu)), [("prohibited", Problem)]);
}

#[test]
fn an_exclusive_gpu_is_a_problem_once_somebody_is_on_it() {
    let exclusive = |mut gpu: GpuFacts, probe| {
        gpu.machine.compute_mode = Some(ComputeMode::Exclusive);
        gpu.probe = probe;
        judge(gpu)
    };
    let refused = || Probe::Refused {
        text: "the device is busy".to_owned(),
        code: Some(CUresult::DEVICE_UNAVAILABLE),
    };
    let verdict = exclusive(healthy(), measured(78 * GIB, 78 * GIB));
    assert_eq!(found(&verdict), [("exclusive", Note)]);

    let used = || with(vec![process(9, GIB)]);
    let verdict = exclusive(used(), refused());
    assert_eq!(
        found(&verdict),
        [("exclusive", Problem), ("refused", Problem)]
    );
    assert!(verdict.findings[0].text.contains("pid 9"));
    let verdict = exclusive(used(), Probe::default());
    assert_eq!(found(&verdict)[0], ("exclusive", Problem));

    let mut drawing = process(10, GIB);
    drawing.kinds = vec![ProcessKind::Graphics];
    let gpu = with(vec![process(std::process::id(), GIB), drawing]);
    let verdict = exclusive(gpu, Probe::default());
    assert_eq!(found(&verdict)[0], ("exclusive", Note));
}

#[test]
fn other_processes_use_an_mps_server() {
    let exclusive = |processes, probe| {
        let mut gpu = with(processes);
        gpu.machine.compute_mode = Some(ComputeMode::Exclusive);
        gpu.probe = probe;
        judge(gpu)
    };
    // A context was made, so others are not kept out.
    let verdict = exclusive(vec![process(9, GIB)], measured(70 * GIB, 70 * GIB));
    assert_eq!(found(&verdict), [("exclusive", Note)]);
    assert!(verdict.findings[0].text.contains("MPS"));
    // That was before: now it is another process.
    let mut before = measured(70 * GIB, 70 * GIB);
    let Probe::Measured(measured) = &mut before else {
        unreachable!()
    };
    measured.outdated = true;
    let verdict = exclusive(vec![process(9, GIB)], before);
    assert_eq!(
        found(&verdict),
        [("exclusive", Problem), ("outdated", Note)]
    );
    // Nothing was measured, and there are those that got in.
    let mut client = process(10, GIB);
    client.kinds = vec![ProcessKind::Mps];
    let verdict = exclusive(vec![process(9, GIB), client], Probe::default());
    assert_eq!(found(&verdict), [("exclusive", Note), ("not_probed", Note)]);
}

#[test]
fn a_context_that_is_refused() {
    for (code, word) in [
        (CUresult::OUT_OF_MEMORY, "some hundred MiB"),
        (CUresult::DEVICE_UNAVAILABLE, "nvidia-smi -r"),
    ] {
        let mut gpu = healthy();
        gpu.probe = Probe::Refused {
            text: "the driver's words".to_owned(),
            code: Some(code),
        };
        let verdict = judge(gpu);
        assert_eq!(found(&verdict), [("refused", Problem)]);
        assert!(verdict.findings[0].text.contains("the driver's words"));
        assert!(verdict.findings[0].advice.as_ref().unwrap().contains(word));
    }
}

#[test]
fn processes_that_are_not_here() {
    let mut gone = process(6, 3 * GIB);
    gone.visible = false;
    let gpu = with(vec![gone]);
    let verdict = judge(gpu.clone());
    assert_eq!(found(&verdict), [("not_visible", Note)]);
    assert!(verdict.findings[0].text.contains("3 GiB"));
    let open = Facts {
        sees_all_processes: Some(true),
        ..Facts::default()
    };
    // Where all can be seen, it is nowhere.
    assert_eq!(
        found(&judge_in(open.clone(), gpu.clone())),
        [("not_visible", Warning)]
    );
    // Of how much one does not say, nothing is added up.
    let mut gpu = gpu;
    let listed = gpu.machine.processes.as_mut().unwrap();
    listed.push(Process::new(0));
    let verdict = judge_in(open, gpu);
    let text = &verdict.findings[0].text;
    assert_eq!(
        text,
        "2 processes that hold memory are not among those of this system"
    );
    assert_eq!(verdict.findings[0].severity, Note);
}

#[test]
fn zombies_and_unknown_bytes() {
    let mut zombie = process(6, GIB);
    zombie.zombie = true;
    let mut silent = process(7, 0);
    silent.bytes = None;
    let verdict = judge(with(vec![zombie, silent]));
    assert_eq!(
        found(&verdict),
        [("zombie", Warning), ("bytes_unknown", Note)]
    );
}

#[test]
fn settings_are_notes() {
    let mut gpu = healthy();
    gpu.machine.ecc = Some(false);
    gpu.machine.persistence = Some(false);
    gpu.machine.display = Some(true);
    gpu.probe = Probe::default();
    gpu.not_described = Some("NVML knows no GPU".to_owned());
    let verdict = judge(gpu);
    let codes = [
        "ecc_off",
        "display",
        "persistence_off",
        "not_described",
        "not_probed",
    ];
    assert_eq!(found(&verdict), codes.map(|code| (code, Note)));
    assert_eq!(verdict.summary, "no problem was found: 79 GiB are free");
}

#[test]
fn the_gravest_comes_first() {
    let mut gpu = with(vec![process(7, 45 * GIB)]);
    gpu.machine.ecc = Some(false);
    gpu.probe = measured(30 * GIB, 10 * GIB);
    let verdict = judge(gpu);
    assert_eq!(
        found(&verdict),
        [
            ("fragmented", Problem),
            ("held", Warning),
            ("ecc_off", Note)
        ]
    );
}

#[test]
fn what_is_not_known_is_not_judged() {
    let gpu = GpuFacts {
        machine: Gpu::new("0000:01:00.0"),
        ..GpuFacts::default()
    };
    let verdict = judge(gpu);
    assert_eq!(found(&verdict), [("not_probed", Note)]);
    assert_eq!(
        verdict.summary,
        "no problem was found, and what is free is not known"
    );
}

#[test]
fn the_machine() {
    let facts = |gpus| Facts {
        gpus,
        ..Facts::default()
    };
    let broken = || with(vec![process(1, 79 * GIB)]);
    for (gpus, words, worst) in [
        (vec![healthy()], "the GPU can be used", None),
        (vec![broken()], "the GPU needs attention", Some(Problem)),
        (vec![healthy(), healthy()], "all 2 GPUs can be used", None),
        (
            vec![healthy(), broken(), healthy()],
            "2 of 3 GPUs can be used, 1 needs attention",
            Some(Problem),
        ),
    ] {
        let diagnosis = diagnose(&facts(gpus));
        assert_eq!(diagnosis.machine.summary, words);
        assert_eq!(diagnosis.worst(), worst);
    }
}

/// Nobody has tried to use the GPU, so nobody says that it can be used, or that memory is in one piece.
#[test]
fn without_a_probe_nothing_is_promised() {
    let skipped = || GpuFacts {
        probe: Probe::default(),
        ..healthy()
    };
    let broken = || GpuFacts {
        probe: Probe::default(),
        ..with(vec![process(1, 79 * GIB)])
    };
    let verdict = judge(skipped());
    assert_eq!(found(&verdict), [("not_probed", Note)]);
    let advice = verdict.findings[0].advice.as_ref().unwrap();
    assert!(advice.starts_with("--probe measures it"), "{advice}");
    assert_eq!(verdict.summary, "no problem was found: 79 GiB are free");
    let busy = GpuFacts {
        probe: Probe::default(),
        ..with(vec![process(7, 50 * GIB)])
    };
    assert_eq!(
        judge(busy).summary,
        "no problem was found, with a warning: 29 GiB are free"
    );
    for (gpus, words) in [
        (vec![skipped()], "no problem was found"),
        (
            vec![skipped(), skipped()],
            "no problem was found on any of 2 GPUs",
        ),
        (
            vec![skipped(), broken(), skipped()],
            "no problem was found on 2 of 3 GPUs, 1 needs attention",
        ),
        (vec![broken()], "the GPU needs attention"),
    ] {
        let facts = Facts {
            gpus,
            ..Facts::default()
        };
        assert_eq!(diagnose(&facts).machine.summary, words);
    }
}

/// What our own context takes is part of what is used, and explained by no list.
#[test]
fn our_own_context_is_no_hidden_memory() {
    let mut gpu = with(vec![process(7, GIB)]);
    gpu.machine.memory.as_mut().unwrap().free -= 523 * MIB;
    gpu.probe = Probe::Skipped { own_context: false };
    assert_eq!(
        found(&judge(gpu.clone())),
        [("hidden", Warning), ("not_probed", Note)]
    );
    gpu.probe = Probe::Skipped { own_context: true };
    assert_eq!(found(&judge(gpu)), [("not_probed", Note)]);
}

#[test]
fn gpus_that_cuda_hides_and_an_nvml_that_is_missing() {
    let mut facts = Facts {
        gpus: vec![healthy()],
        unseen: vec![Gpu::new("0000:02:00.0")],
        visible_devices: Some("0".to_owned()),
        without_nvml: Some("cannot be loaded".to_owned()),
        ..Facts::default()
    };
    let machine = diagnose(&facts).machine;
    assert_eq!(found(&machine), [("unseen", Note), ("no_nvml", Note)]);
    let advice = machine.findings[0].advice.as_ref().unwrap();
    assert_eq!(advice, "CUDA_VISIBLE_DEVICES is \"0\"");
    // Nobody expects it to describe a simulated one.
    facts.driver.simulated = true;
    facts.unseen.clear();
    assert_eq!(found(&diagnose(&facts).machine), []);
}
