//! Each finding from facts that lead to it, and none where they do not.

use std::time::{Duration, Instant};

use cuguard_machine::{Gpu, Memory};

use super::*;
use crate::doctor::facts::Measured;

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
        found: free,
        beside: Vec::new(),
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
        "healthy: 78.00 GiB can be had in one block beside a context"
    );
}

#[test]
fn a_full_gpu_names_who_filled_it() {
    let verdict = judge(with(vec![process(4711, 75 * GIB), process(4712, 2 * GIB)]));
    assert_eq!(found(&verdict), [("full", Problem)]);
    let finding = &verdict.findings[0];
    assert_eq!(finding.text, "it is full: 2 GiB of 80 GiB are free, 2 %");
    let advice = finding.advice.as_ref().unwrap();
    assert!(
        advice.contains("pid 4711 (python3) with 75 GiB"),
        "{advice}"
    );
    assert!(
        verdict
            .summary
            .starts_with("allocations above 2 GiB will fail: it is full")
    );
}

fn advice(finding: &Finding) -> &str {
    finding.advice.as_deref().unwrap_or_default()
}

#[test]
fn nobody_is_blamed_for_what_he_does_not_hold() {
    // 78 of 79 GiB in use are nobody's.
    let mut gpu = with(vec![process(9, GIB)]);
    gpu.machine.memory.as_mut().unwrap().free = 0;
    let verdict = judge(gpu.clone());
    assert_eq!(found(&verdict), [("full", Problem), ("hidden", Warning)]);
    assert_eq!(
        advice(&verdict.findings[0]),
        "most of it is held by none of the listed processes"
    );
    assert!(verdict.findings[1].text.starts_with("78 GiB are in use"));
    assert!(verdict.summary.starts_with("allocations will fail: "));

    // What nobody says how much it is, may be any of it.
    gpu.machine.processes.as_mut().unwrap()[0].bytes = None;
    let verdict = judge(gpu.clone());
    assert_eq!(
        found(&verdict),
        [("full", Problem), ("bytes_unknown", Note)]
    );
    assert!(
        advice(&verdict.findings[0]).starts_with("who holds most of it is not known"),
        "{verdict:?}"
    );
    // More than half is most of it, whatever others hold.
    let listed = gpu.machine.processes.as_mut().unwrap();
    listed.insert(0, process(8, 50 * GIB));
    let verdict = judge(gpu.clone());
    assert_eq!(
        advice(&verdict.findings[0]),
        "most of it is held by pid 8 (python3) with 50 GiB"
    );
    // Three that share it.
    gpu.machine.processes = Some((1..4).map(|pid| process(pid, 26 * GIB)).collect());
    let verdict = judge(gpu);
    assert_eq!(
        advice(&verdict.findings[0]),
        "of the listed processes, pid 1 (python3) with 26 GiB holds most"
    );
}

#[test]
fn what_can_still_be_had_is_said() {
    let mut gpu = healthy();
    gpu.machine.processes = None;
    gpu.machine.memory = Some(Memory {
        total: 140 * GIB,
        free: 6 * GIB,
        reserved: None,
    });
    gpu.probe = measured(5 * GIB + 512 * MIB, 5 * GIB + 512 * MIB);
    let verdict = judge(gpu.clone());
    assert_eq!(
        verdict.summary,
        "allocations above 5.50 GiB will fail: it is full: 6 GiB of 140 GiB are free, 4 %"
    );
    gpu.probe = Probe::Skipped;
    let verdict = judge(gpu);
    assert!(
        verdict.summary.starts_with("allocations above 6 GiB will"),
        "{verdict:?}"
    );
    let mut gpu = healthy();
    gpu.probe = measured(40 * GIB, 20 * GIB);
    let verdict = judge(gpu);
    assert!(
        verdict.summary.starts_with("allocations above 20 GiB will"),
        "{verdict:?}"
    );
}

#[test]
fn what_was_measured_before_a_change_is_not_judged() {
    let mut gpu = healthy();
    gpu.probe = measured(40 * GIB, 20 * GIB);
    let Probe::Measured(measured) = &mut gpu.probe else {
        unreachable!()
    };
    measured.age = Duration::from_secs(7);
    let verdict = judge(gpu.clone());
    assert_eq!(found(&verdict), [("fragmented", Problem)]);
    assert!(verdict.findings[0].text.ends_with(", as measured 7 s ago"));

    let Probe::Measured(measured) = &mut gpu.probe else {
        unreachable!()
    };
    measured.outdated = true;
    let verdict = judge(gpu);
    assert_eq!(found(&verdict), [("outdated", Note)]);
    assert!(verdict.findings[0].text.contains("7 s ago"));
    assert_eq!(verdict.summary, "healthy: 79 GiB are free");
}

/// NVML lists the processes of all instances, CUDA has the memory of one.
#[test]
fn on_a_card_in_pieces_processes_and_memory_are_not_compared() {
    let mut gpu = with(vec![process(7, 60 * GIB)]);
    gpu.machine.mig = Some(true);
    gpu.machine.memory = Some(Memory {
        total: 16 * GIB,
        free: 15 * GIB,
        reserved: None,
    });
    gpu.probe = measured(15 * GIB, 15 * GIB);
    assert_eq!(found(&judge(gpu.clone())), [("mig", Note)]);
    gpu.machine.memory.as_mut().unwrap().free = 0;
    let verdict = judge(gpu);
    assert_eq!(found(&verdict), [("full", Problem), ("mig", Note)]);
    assert_eq!(verdict.findings[0].advice, None);
}

#[test]
fn figures_that_contradict_each_other_make_no_share() {
    let mut gpu = healthy();
    gpu.machine.processes = Some(vec![process(7, 300 * GIB)]);
    let verdict = judge(gpu);
    assert_eq!(found(&verdict), [("held", Warning)]);
    assert_eq!(verdict.findings[0].text, "another process holds 300 GiB");
}

#[test]
fn the_border_of_full() {
    let free = |bytes| {
        let mut gpu = healthy();
        gpu.machine.memory.as_mut().unwrap().free = bytes;
        gpu.machine.processes = None;
        found(&judge(gpu))
    };
    assert_eq!(free(4 * GIB), []);
    assert_eq!(free(4 * GIB - 1), [("full", Problem)]);
}

#[test]
fn memory_in_pieces() {
    let pieces = |free, largest| {
        let mut gpu = healthy();
        gpu.probe = measured(free, largest);
        found(&judge(gpu))
    };
    assert_eq!(pieces(40 * GIB, 20 * GIB), [("fragmented", Problem)]);
    assert_eq!(pieces(40 * GIB, 38 * GIB), []);
    assert_eq!(pieces(40 * GIB, 38 * GIB - 1), [("fragmented", Problem)]);
    // So little is no fragmentation, whatever the share.
    assert_eq!(pieces(60 * MIB, 0), []);
}

#[test]
fn a_gpu_that_lets_nobody_in() {
    let mut gpu = healthy();
    gpu.machine.compute_mode = Some(ComputeMode::Prohibited);
    gpu.probe = Probe::Refused {
        words: "refused".to_owned(),
        code: Some(codes::DEVICE_UNAVAILABLE),
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
        words: "the device is busy".to_owned(),
        code: Some(codes::DEVICE_UNAVAILABLE),
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
    let verdict = exclusive(used(), Probe::Skipped);
    assert_eq!(found(&verdict)[0], ("exclusive", Problem));

    let mut drawing = process(10, GIB);
    drawing.kinds = vec![ProcessKind::Graphics];
    let gpu = with(vec![process(std::process::id(), GIB), drawing]);
    let verdict = exclusive(gpu, Probe::Skipped);
    assert_eq!(found(&verdict)[0], ("exclusive", Note));
}

#[test]
fn an_mps_server_lets_others_in() {
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
    let verdict = exclusive(vec![process(9, GIB), client], Probe::Skipped);
    assert_eq!(found(&verdict), [("exclusive", Note), ("not_probed", Note)]);
}

#[test]
fn a_context_that_is_refused() {
    for (code, word) in [
        (codes::OUT_OF_MEMORY, "some hundred MiB"),
        (codes::DEVICE_UNAVAILABLE, "nvidia-smi -r"),
    ] {
        let mut gpu = healthy();
        gpu.probe = Probe::Refused {
            words: "the driver's words".to_owned(),
            code: Some(code),
        };
        let verdict = judge(gpu);
        assert_eq!(found(&verdict), [("refused", Problem)]);
        assert!(verdict.findings[0].text.contains("the driver's words"));
        assert!(verdict.findings[0].advice.as_ref().unwrap().contains(word));
    }
}

#[test]
fn others_that_hold_much_are_named() {
    let verdict = judge(with(vec![process(7, 30 * GIB), process(8, 20 * GIB)]));
    assert_eq!(found(&verdict), [("held", Warning)]);
    let finding = &verdict.findings[0];
    assert_eq!(
        finding.text,
        "2 other processes hold 50 GiB, 62 % of its memory"
    );
    assert!(finding.advice.as_ref().unwrap().contains("pid 7"));
    assert!(verdict.is_healthy());
    assert!(verdict.summary.starts_with("works, with a warning"));
    assert_eq!(found(&judge(with(vec![process(7, 39 * GIB)]))), []);
}

#[test]
fn memory_that_nobody_explains() {
    let mut gpu = healthy();
    gpu.machine.memory.as_mut().unwrap().free -= 10 * GIB;
    let contained = Facts {
        sees_all_processes: Some(false),
        ..Facts::default()
    };
    let verdict = judge_in(contained, gpu.clone());
    assert_eq!(found(&verdict), [("hidden", Warning)]);
    let finding = &verdict.findings[0];
    assert_eq!(finding.text, "10 GiB are in use and no process is listed");
    assert!(
        finding
            .advice
            .as_ref()
            .unwrap()
            .contains("another container")
    );

    gpu.machine.processes = Some(vec![process(5, 4 * GIB)]);
    let open = Facts {
        sees_all_processes: Some(true),
        ..Facts::default()
    };
    let verdict = judge_in(open, gpu.clone());
    let finding = &verdict.findings[0];
    assert_eq!(
        finding.text,
        "6 GiB are in use that no listed process explains"
    );
    let advice = finding.advice.as_ref().unwrap();
    assert!(
        advice.contains("has ended") && !advice.contains("display"),
        "{advice}"
    );

    gpu.machine.display = Some(true);
    let verdict = judge(gpu.clone());
    assert!(
        verdict.findings[0]
            .advice
            .as_ref()
            .unwrap()
            .contains("display server")
    );

    // Of a card in pieces nobody can say.
    gpu.machine.display = Some(false);
    gpu.machine.mig = Some(true);
    assert_eq!(found(&judge(gpu)), [("mig", Note)]);
}

#[test]
fn a_few_mib_explain_themselves() {
    let mut gpu = with(vec![process(1, GIB), process(2, GIB)]);
    gpu.machine.memory.as_mut().unwrap().free -= 95 * MIB;
    assert_eq!(found(&judge(gpu.clone())), []);
    gpu.machine.memory.as_mut().unwrap().free -= MIB;
    assert_eq!(found(&judge(gpu)), [("hidden", Warning)]);
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
    gpu.probe = Probe::Skipped;
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
    assert_eq!(verdict.summary, "healthy: 79 GiB are free");
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
    assert_eq!(verdict.summary, "healthy, as far as is known");
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
