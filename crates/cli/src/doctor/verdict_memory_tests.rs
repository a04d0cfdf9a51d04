//! Findings about memory.

use super::*;

fn advice(finding: &Finding) -> &str {
    finding.advice.as_deref().unwrap_or_default()
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
    gpu.probe = Probe::default();
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
    // So little is not fragmentation, whatever the share.
    assert_eq!(pieces(60 * MIB, 0), []);
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

    // With MIG this is unknown.
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
