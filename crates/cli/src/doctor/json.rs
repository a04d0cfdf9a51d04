//! The report as JSON: one object on one line. `docs/doctor-schema.md` describes it.

use cuguard_nvml::Process;
use serde_json::{Value, json};

use super::facts::{Facts, GpuFacts, Probe};
use super::failure::Failure;
use super::finding::Severity;
use super::verdict::{Diagnosis, Verdict};
use super::verdict_memory::is_in_one_piece;

/// The version of the schema. It changes when a member is removed or changes its meaning.
const VERSION: u32 = 1;

/// The report, with a line break at its end.
pub(super) fn render(facts: &Facts, diagnosis: &Diagnosis) -> String {
    let mut report = header(diagnosis.worst() < Some(Severity::Problem));
    report["failure"] = Value::Null;
    report["driver"] = json!(facts.driver);
    report["without_nvml"] = json!(facts.without_nvml);
    report["sees_all_processes"] = json!(facts.sees_all_processes);
    report["visible_devices"] = json!(facts.visible_devices);
    let gpus = facts.gpus.iter().zip(&diagnosis.gpus);
    report["gpus"] = gpus.map(|(gpu, verdict)| one_gpu(gpu, verdict)).collect();
    let unseen = facts.unseen.iter();
    report["unseen"] = unseen
        .map(|gpu| json!({"pci_bus_id": gpu.pci_bus_id, "name": gpu.name}))
        .collect();
    report["pools"] = json!(facts.pools);
    report["findings"] = json!(diagnosis.machine.findings);
    report["summary"] = json!(diagnosis.machine.summary);
    format!("{report}\n")
}

/// Why there is nothing to report, with a line break at its end.
pub(super) fn render_failure(failure: &Failure) -> String {
    let mut report = header(false);
    report["failure"] = json!({
        "code": failure.code(),
        "text": failure.text(),
        "advice": failure.advice(),
        "container": failure.surroundings.container,
        "pci_gpus": failure.surroundings.pci_gpus,
        "kernel_driver": failure.surroundings.kernel_driver,
    });
    format!("{report}\n")
}

/// The members of every report.
fn header(healthy: bool) -> Value {
    json!({
        "version": VERSION,
        "tool": "cuguard doctor",
        "tool_version": env!("CARGO_PKG_VERSION"),
        "healthy": healthy,
    })
}

fn one_gpu(gpu: &GpuFacts, verdict: &Verdict) -> Value {
    let machine = &gpu.machine;
    let memory = machine.memory;
    let processes = machine.processes.as_ref();
    json!({
        "ordinal": gpu.ordinal,
        "name": gpu.name,
        "uuid": machine.uuid,
        "pci_bus_id": machine.pci_bus_id,
        "memory": {
            "total_bytes": memory.map_or(gpu.total, |memory| memory.total),
            "free_bytes": memory.map(|memory| memory.free),
            "used_bytes": memory.map(|memory| memory.used()),
            "reserved_bytes": memory.and_then(|memory| memory.reserved),
            "own_context": gpu.own_context_counts(),
        },
        "processes": processes.map(|all| all.iter().map(process).collect::<Value>()),
        "unexplained_bytes": gpu.unexplained(),
        "probe": probe(&gpu.probe),
        "compute_mode": machine.compute_mode.map(|mode| mode.to_string()),
        "ecc": machine.ecc,
        "mig": machine.mig,
        "persistence": machine.persistence,
        "display": machine.display,
        "healthy": verdict.is_healthy(),
        "findings": verdict.findings,
        "summary": verdict.summary,
    })
}

fn process(process: &Process) -> Value {
    let kinds = process.kinds.iter();
    json!({
        "pid": process.pid,
        "bytes": process.bytes,
        "kinds": kinds.map(|kind| kind.to_string().to_lowercase()).collect::<Value>(),
        "name": process.name,
        "command": process.command,
        "uid": process.uid,
        "user": process.user,
        "own": process.own,
        "visible": process.visible,
        "zombie": process.zombie,
    })
}

fn probe(probe: &Probe) -> Value {
    match probe {
        Probe::Skipped { .. } => Value::Null,
        Probe::Refused { text, code } => json!({"refused": text, "code": code.map(|code| code.0)}),
        Probe::Measured(measured) => json!({
            "refused": null,
            "context_cost_bytes": measured.context_cost,
            "free_bytes": measured.free,
            "largest_block_bytes": measured.largest,
            "in_one_piece": is_in_one_piece(measured),
            "age_seconds": measured.age.as_millis() as f64 / 1000.0,
            "outdated": measured.outdated,
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use cuguard::driver::sys::CUresult;
    use cuguard_nvml::{ComputeMode, Gpu, Memory, ProcessKind};

    use super::*;
    use crate::doctor::facts::{Measured, PoolFacts};
    use crate::doctor::failure::{Reason, Surroundings};
    use crate::doctor::verdict::diagnose;

    /// Facts with every member filled.
    fn facts() -> Facts {
        let mut machine = Gpu::new("0000:01:00.0");
        machine.memory = Some(Memory {
            total: 8 << 30,
            free: 1 << 30,
            reserved: Some(1 << 20),
        });
        let mut process = Process::new(4711).with_bytes(5 << 30);
        process.kinds = vec![ProcessKind::Compute, ProcessKind::Mps];
        process.command = Some("a \"quoted\" name\u{fffd}".to_owned());
        machine.processes = Some(vec![process]);
        machine.compute_mode = Some(ComputeMode::Exclusive);
        machine.ecc = Some(true);
        let probe = Probe::Measured(Measured {
            context_cost: Some(32 << 20),
            free: 1 << 30,
            largest: 1 << 29,
            free_before: 1 << 30,
            other_pids: Vec::new(),
            taken: Instant::now(),
            age: Duration::from_millis(2500),
            outdated: false,
        });
        Facts {
            gpus: vec![GpuFacts {
                machine,
                probe,
                total: 8 << 30,
                ..GpuFacts::default()
            }],
            unseen: vec![Gpu::new("0000:02:00.0")],
            pools: vec![PoolFacts {
                process: 4711,
                idle_bytes: 5 << 20,
                ..PoolFacts::default()
            }],
            ..Facts::default()
        }
    }

    fn read(text: &str) -> Value {
        assert!(text.ends_with('\n') && text.matches('\n').count() == 1);
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_report_reads_back() {
        let facts = facts();
        let read = read(&render(&facts, &diagnose(&facts)));
        assert_eq!(read["version"], 1);
        assert_eq!(read["healthy"], false);
        let gpu = &read["gpus"][0];
        assert_eq!(gpu["memory"]["used_bytes"], (7_u64 << 30) - (1 << 20));
        assert_eq!(gpu["processes"][0]["pid"], 4711);
        assert_eq!(
            gpu["processes"][0]["kinds"],
            serde_json::json!(["compute", "mps"])
        );
        assert_eq!(gpu["processes"][0]["command"], "a \"quoted\" name\u{fffd}");
        assert_eq!(gpu["unexplained_bytes"], (2_u64 << 30) - (1 << 20));
        assert_eq!(gpu["probe"]["largest_block_bytes"], 1_u64 << 29);
        assert_eq!(gpu["probe"]["in_one_piece"], false);
        assert_eq!(gpu["probe"]["age_seconds"], 2.5);
        assert_eq!(gpu["probe"]["outdated"], false);
        assert_eq!(gpu["compute_mode"], "exclusive");
        assert_eq!(gpu["mig"], Value::Null);
        assert_eq!(gpu["findings"][0]["severity"], "problem");
        assert_eq!(read["unseen"][0]["pci_bus_id"], "0000:02:00.0");
        assert_eq!(read["pools"][0]["process"], 4711);
        assert_eq!(read["pools"][0]["idle_bytes"], 5 << 20);
    }

    /// With MIG the processes are those of all instances, and the memory is that of one.
    #[test]
    fn nothing_is_worked_out_from_figures_of_different_things() {
        let mut facts = facts();
        facts.gpus[0].machine.mig = Some(true);
        let read = read(&render(&facts, &diagnose(&facts)));
        assert_eq!(read["gpus"][0]["unexplained_bytes"], Value::Null);
        assert_eq!(read["gpus"][0]["processes"][0]["pid"], 4711);
    }

    fn failure() -> Failure {
        Failure {
            reason: Reason::NoSuchGpu {
                ordinal: 4,
                count: 1,
            },
            surroundings: Surroundings::default(),
        }
    }

    #[test]
    fn a_failure_reads_back() {
        let read = read(&render_failure(&failure()));
        assert_eq!(read["version"], 1);
        assert_eq!(read["healthy"], false);
        assert_eq!(read["failure"]["code"], "no_such_gpu");
        assert_eq!(read["failure"]["pci_gpus"], Value::Null);
    }

    /// Every member and every code is in the document that describes them.
    #[test]
    fn the_document_names_every_member() {
        fn names(value: &Value, found: &mut Vec<String>) {
            match value {
                Value::Object(members) => members.iter().for_each(|(name, value)| {
                    found.push(name.clone());
                    names(value, found);
                }),
                Value::Array(items) => items.iter().for_each(|item| names(item, found)),
                _ => {}
            }
        }
        let document = include_str!("../../../../docs/doctor-schema.md");
        let mut facts = facts();
        let mut found = Vec::new();
        names(&read(&render(&facts, &diagnose(&facts))), &mut found);
        facts.gpus[0].probe = Probe::Refused {
            text: String::new(),
            code: Some(CUresult(2)),
        };
        names(&read(&render(&facts, &diagnose(&facts))), &mut found);
        names(&read(&render_failure(&failure())), &mut found);
        let verdict = concat!(
            include_str!("verdict.rs"),
            include_str!("verdict_memory.rs")
        );
        for constructor in ["note(", "warning(", "problem("] {
            let calls = verdict.split(constructor).skip(1);
            // The first literal of a call is its code.
            let codes = calls.filter_map(|call| call.trim_start().strip_prefix('"'));
            found.extend(codes.filter_map(|call| call.split('"').next().map(str::to_owned)));
        }
        for name in found {
            assert!(document.contains(&format!("`{name}`")), "{name}");
        }
    }
}
