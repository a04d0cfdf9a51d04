//! The report for programs: one object on one line. `docs/doctor-schema.md` describes it.

use cuguard_nvml::Process;

use super::facts::{Facts, GpuFacts, Probe};
use super::failure::Failure;
use super::json_value::Value;
use super::verdict::{Diagnosis, Finding, Severity, Verdict};
use super::verdict_memory::is_in_one_piece;

/// The version of the schema. It changes when a member goes or changes its meaning.
const VERSION: u32 = 1;

/// The report, with a line break at its end.
pub(super) fn render(facts: &Facts, diagnosis: &Diagnosis) -> String {
    let healthy = diagnosis.worst() < Some(Severity::Problem);
    let driver = Value::Object(vec![
        ("simulated", facts.driver.simulated.into()),
        ("path", facts.driver.path.clone().into()),
        ("version", facts.driver.version.clone().into()),
        ("cuda", cuda(facts.driver.cuda)),
    ]);
    let gpus = facts.gpus.iter().zip(&diagnosis.gpus);
    let unseen = facts.unseen.iter().map(|gpu| {
        Value::Object(vec![
            ("pci_bus_id", gpu.pci_bus_id.as_str().into()),
            ("name", gpu.name.clone().into()),
        ])
    });
    let mut members = head(healthy);
    members.extend([
        ("failure", Value::Null),
        ("driver", driver),
        ("without_nvml", facts.without_nvml.clone().into()),
        ("sees_all_processes", facts.sees_all_processes.into()),
        ("visible_devices", facts.visible_devices.clone().into()),
        (
            "gpus",
            gpus.map(|(gpu, verdict)| one_gpu(gpu, verdict)).collect(),
        ),
        ("unseen", unseen.collect()),
        ("findings", findings(&diagnosis.machine)),
        ("summary", diagnosis.machine.summary.as_str().into()),
    ]);
    format!("{}\n", Value::Object(members))
}

/// Why there is nothing to report, with a line break at its end.
pub(super) fn render_failure(failure: &Failure) -> String {
    let surroundings = &failure.surroundings;
    let members = Value::Object(vec![
        ("code", failure.code().into()),
        ("text", failure.words().into()),
        ("advice", failure.advice().into_iter().collect()),
        ("container", surroundings.container.into()),
        (
            "pci_gpus",
            surroundings.pci_gpus.map(|count| count as u64).into(),
        ),
        ("kernel_driver", surroundings.kernel_driver.clone().into()),
    ]);
    let mut object = head(false);
    object.push(("failure", members));
    format!("{}\n", Value::Object(object))
}

fn head(healthy: bool) -> Vec<(&'static str, Value)> {
    vec![
        ("version", VERSION.into()),
        ("tool", "cuguard doctor".into()),
        ("tool_version", env!("CARGO_PKG_VERSION").into()),
        ("healthy", healthy.into()),
    ]
}

fn cuda(version: Option<(u32, u32)>) -> Value {
    version
        .map(|(major, minor)| format!("{major}.{minor}"))
        .into()
}

fn one_gpu(gpu: &GpuFacts, verdict: &Verdict) -> Value {
    let machine = &gpu.machine;
    Value::Object(vec![
        ("ordinal", gpu.ordinal.into()),
        ("name", gpu.name.as_str().into()),
        ("uuid", machine.uuid.clone().into()),
        ("pci_bus_id", machine.pci_bus_id.as_str().into()),
        ("memory", memory(gpu)),
        (
            "processes",
            match &machine.processes {
                Some(processes) => processes.iter().map(process).collect(),
                None => Value::Null,
            },
        ),
        ("unexplained_bytes", gpu.unexplained().into()),
        ("probe", probe(&gpu.probe)),
        (
            "compute_mode",
            machine.compute_mode.map(|mode| mode.to_string()).into(),
        ),
        ("ecc", machine.ecc.into()),
        ("mig", machine.mig.into()),
        ("persistence", machine.persistence.into()),
        ("display", machine.display.into()),
        ("healthy", verdict.is_healthy().into()),
        ("findings", findings(verdict)),
        ("summary", verdict.summary.as_str().into()),
    ])
}

fn memory(gpu: &GpuFacts) -> Value {
    let memory = gpu.machine.memory;
    Value::Object(vec![
        (
            "total_bytes",
            memory.map_or(gpu.total, |memory| memory.total).into(),
        ),
        ("free_bytes", memory.map(|memory| memory.free).into()),
        ("used_bytes", memory.map(|memory| memory.used()).into()),
        (
            "reserved_bytes",
            memory.and_then(|memory| memory.reserved).into(),
        ),
        ("own_context", gpu.own_context_counts().into()),
    ])
}

fn process(process: &Process) -> Value {
    Value::Object(vec![
        ("pid", process.pid.into()),
        ("bytes", process.bytes.into()),
        (
            "kinds",
            process
                .kinds
                .iter()
                .map(|kind| kind.to_string().to_lowercase())
                .collect(),
        ),
        ("name", process.name.clone().into()),
        ("command", process.command.clone().into()),
        ("uid", process.uid.into()),
        ("user", process.user.clone().into()),
        ("own", process.own.into()),
        ("visible", process.visible.into()),
        ("zombie", process.zombie.into()),
    ])
}

fn probe(probe: &Probe) -> Value {
    match probe {
        Probe::Skipped { .. } => Value::Null,
        Probe::Refused { words, code } => Value::Object(vec![
            ("refused", words.as_str().into()),
            ("code", (*code).into()),
        ]),
        Probe::Measured(measured) => Value::Object(vec![
            ("refused", Value::Null),
            ("context_cost_bytes", measured.context_cost.into()),
            ("free_bytes", measured.free.into()),
            ("largest_block_bytes", measured.largest.into()),
            ("in_one_piece", is_in_one_piece(measured).into()),
            ("age_seconds", Value::Seconds(measured.age)),
            ("outdated", measured.outdated.into()),
        ]),
    }
}

fn findings(verdict: &Verdict) -> Value {
    let finding = |finding: &Finding| {
        Value::Object(vec![
            ("severity", finding.severity.name().into()),
            ("code", finding.code.into()),
            ("text", finding.text.as_str().into()),
            ("advice", finding.advice.clone().into()),
        ])
    };
    verdict.findings.iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use cuguard_nvml::{ComputeMode, Gpu, Memory, ProcessKind};
    use serde_json::Value as Read;

    use super::*;
    use crate::doctor::facts::Measured;
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
            found: 1 << 30,
            beside: Vec::new(),
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
            ..Facts::default()
        }
    }

    fn read(text: &str) -> Read {
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
        assert_eq!(gpu["mig"], Read::Null);
        assert_eq!(gpu["findings"][0]["severity"], "problem");
        assert_eq!(read["unseen"][0]["pci_bus_id"], "0000:02:00.0");
    }

    /// Of a card in pieces the processes are those of all, and the memory is that of one.
    #[test]
    fn nothing_is_worked_out_from_figures_of_different_things() {
        let mut facts = facts();
        facts.gpus[0].machine.mig = Some(true);
        let read = read(&render(&facts, &diagnose(&facts)));
        assert_eq!(read["gpus"][0]["unexplained_bytes"], Read::Null);
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
        assert_eq!(read["failure"]["pci_gpus"], Read::Null);
    }

    /// Every member and every code is in the document that describes them.
    #[test]
    fn the_document_names_every_member() {
        fn names(value: &Read, found: &mut Vec<String>) {
            match value {
                Read::Object(members) => members.iter().for_each(|(name, value)| {
                    found.push(name.clone());
                    names(value, found);
                }),
                Read::Array(items) => items.iter().for_each(|item| names(item, found)),
                _ => {}
            }
        }
        let document = include_str!("../../../../docs/doctor-schema.md");
        let mut facts = facts();
        let mut found = Vec::new();
        names(&read(&render(&facts, &diagnose(&facts))), &mut found);
        facts.gpus[0].probe = Probe::Refused {
            words: String::new(),
            code: Some(2),
        };
        names(&read(&render(&facts, &diagnose(&facts))), &mut found);
        names(&read(&render_failure(&failure())), &mut found);
        let verdict = concat!(
            include_str!("verdict.rs"),
            include_str!("verdict_memory.rs")
        );
        let codes = verdict.split("Finding::new(").skip(1).filter_map(|call| {
            // The first text of a call is its code.
            call.split('"').nth(1)
        });
        found.extend(codes.map(str::to_owned));
        for name in found {
            assert!(document.contains(&format!("`{name}`")), "{name}");
        }
    }
}
