//! The report as text.

use std::fmt::Write;

use cuguard::report::ByteSize;
use cuguard_nvml::{ComputeMode, Process};

use super::facts::{Driver, Facts, GpuFacts, Measured, PoolFacts, Probe};
use super::failure::Failure;
use super::finding::Finding;
use super::page::Page;
use super::percent::percent;
use super::verdict::Diagnosis;
use super::verdict_memory::is_in_one_piece;

/// How many processes of a GPU are shown; the largest come first.
const PROCESSES: usize = 10;

const NOT_MEASURED: &str = "not measured (--probe measures it)";

/// The report, with a line break at its end. With a width, no line is longer.
pub(super) fn render(facts: &Facts, diagnosis: &Diagnosis, width: Option<usize>) -> String {
    let mut page = Page::new(width);
    page.lines(&driver(&facts.driver));
    for (gpu, verdict) in facts.gpus.iter().zip(&diagnosis.gpus) {
        let mut title = format!("GPU {}: {}", gpu.ordinal, gpu.name);
        if !gpu.machine.pci_bus_id.is_empty() {
            let _ = write!(title, " at {}", gpu.machine.pci_bus_id);
        }
        page.push("");
        page.lines(&title);
        page.row("memory", &memory(gpu));
        processes(&mut page, facts, gpu);
        page.row("a context", &context(&gpu.probe));
        page.row("largest block", &largest(&gpu.probe));
        page.row("modes", &modes(gpu));
        for one in &verdict.findings {
            finding(&mut page, one);
        }
        page.row("verdict", &verdict.summary);
    }
    page.push("");
    page.lines("machine");
    pools(&mut page, &facts.pools);
    for one in &diagnosis.machine.findings {
        finding(&mut page, one);
    }
    page.row("verdict", &diagnosis.machine.summary);
    page.into_text()
}

/// Why there is nothing to report, with a line break at its end. With a width, no line is longer.
pub(super) fn render_failure(failure: &Failure, width: Option<usize>) -> String {
    let mut page = Page::new(width);
    page.lines(&failure.text());
    for (title, lines) in [
        ("what can be seen without it", failure.seen()),
        ("what to do", failure.advice()),
    ] {
        if !lines.is_empty() {
            page.lines(title);
        }
        for line in lines {
            page.lines(&format!("    {line}"));
        }
    }
    page.into_text()
}

fn finding(page: &mut Page, finding: &Finding) {
    page.row(finding.severity.name(), &finding.text);
    if let Some(advice) = &finding.advice {
        page.row("", &format!("-> {advice}"));
    }
}

fn driver(driver: &Driver) -> String {
    let mut text = String::from(if driver.simulated {
        "simulated GPU"
    } else {
        "NVIDIA driver"
    });
    if let Some(version) = &driver.version {
        let _ = write!(text, " {version}");
    }
    if let Some(cuda) = &driver.cuda {
        let _ = write!(text, ", for CUDA up to {cuda}");
    }
    if let Some(path) = &driver.path {
        let _ = write!(text, ", {path}");
    }
    text
}

fn memory(gpu: &GpuFacts) -> String {
    let Some(memory) = gpu.machine.memory else {
        return format!("{} in all; what is free is not known", ByteSize(gpu.total));
    };
    let mut text = format!(
        "{} in all: {} free, {} used",
        ByteSize(memory.total),
        ByteSize(memory.free),
        ByteSize(memory.used()),
    );
    if gpu.own_context_counts() {
        text.push_str(" with a context of this command");
    }
    match memory.reserved {
        Some(reserved) => {
            let _ = write!(text, ", {} reserved by the driver", ByteSize(reserved));
        }
        None => text.push_str("; what the driver reserves is not known"),
    }
    text
}

fn processes(page: &mut Page, facts: &Facts, gpu: &GpuFacts) {
    let Some(listed) = &gpu.machine.processes else {
        let why = match (&facts.without_nvml, facts.driver.simulated) {
            (Some(why), true) => format!("not known: NVML is not asked, as {why}"),
            (Some(_), false) => "not known: there is no NVML".to_owned(),
            _ => "not known: NVML does not report them".to_owned(),
        };
        return page.row("processes", &why);
    };
    if listed.is_empty() {
        let none = match facts.sees_all_processes {
            Some(false) => "none is listed; in a container others may not be",
            _ => "none",
        };
        return page.row("processes", none);
    }
    for (index, process) in listed.iter().take(PROCESSES).enumerate() {
        let name = if index == 0 { "processes" } else { "" };
        page.row_cut(name, &line(process));
    }
    if let Some(rest @ [_, ..]) = listed.get(PROCESSES..) {
        let bytes = rest.iter().filter_map(|process| process.bytes).sum();
        page.row(
            "",
            &format!("and {} more with {}", rest.len(), ByteSize(bytes)),
        );
    }
}

/// The pools of processes that can be asked.
fn pools(page: &mut Page, pools: &[PoolFacts]) {
    for (index, pool) in pools.iter().take(PROCESSES).enumerate() {
        let name = if index == 0 { "pools" } else { "" };
        page.row_cut(name, &pool_line(pool));
    }
    if let Some(rest @ [_, ..]) = pools.get(PROCESSES..) {
        let idle = rest.iter().map(|pool| pool.idle_bytes);
        let idle = ByteSize(idle.fold(0, u64::saturating_add));
        page.row("", &format!("and {} more with {idle} idle", rest.len()));
    }
}

/// `4711  pool "activations" on its GPU 0: 12 GiB held, 3 GiB in live blocks, 9 GiB idle  python3 train.py`
fn pool_line(pool: &PoolFacts) -> String {
    let name = match &pool.label {
        Some(label) => format!("{label:?}"),
        None => pool.number.to_string(),
    };
    let pinned = match pool.pinned_page_count {
        0 => String::new(),
        pinned => format!(", {} pinned", ByteSize(pinned.saturating_mul(2 << 20))),
    };
    format!(
        "{:>7}  pool {name} on its GPU {}: {} held, {} in live blocks, {} idle{pinned}  {}",
        pool.process,
        pool.device,
        ByteSize(pool.held_bytes),
        ByteSize(pool.used_bytes),
        ByteSize(pool.idle_bytes),
        pool.command,
    )
}

/// `4711  12.50 GiB  compute  ada  python3 train.py`
fn line(process: &Process) -> String {
    let bytes = process.bytes.map(|bytes| ByteSize(bytes).to_string());
    let bytes = bytes.unwrap_or_else(|| "not known".to_owned());
    let kinds: Vec<String> = process.kinds.iter().map(ToString::to_string).collect();
    let mut text = format!("{:>7}  {bytes:>10}  {}", process.pid, kinds.join("+"));
    if let Some(user) = &process.user {
        let _ = write!(text, "  {user}");
    } else if let Some(uid) = process.uid {
        let _ = write!(text, "  uid {uid}");
    }
    let command = process.command.as_ref().or(process.name.as_ref());
    let command = command.map_or("its command line may not be read", |command| command);
    let shown = if process.visible {
        command
    } else {
        "not a process of this system"
    };
    let _ = write!(text, "  {shown}");
    if process.own {
        text.push_str("  (this one)");
    }
    if process.zombie {
        text.push_str("  (zombie)");
    }
    text
}

fn context(probe: &Probe) -> String {
    match probe {
        Probe::Measured(measured) => match measured.context_cost {
            Some(cost) => format!("costs {} here, measured{}", ByteSize(cost), ago(measured)),
            None => "its cost could not be measured".to_owned(),
        },
        Probe::Skipped { .. } => NOT_MEASURED.to_owned(),
        Probe::Refused { .. } => "could not be used".to_owned(),
    }
}

fn largest(probe: &Probe) -> String {
    match probe {
        Probe::Measured(measured) => format!(
            "{}, {} % of the {} that are free beside a context: {}{}",
            ByteSize(measured.largest),
            percent(measured.largest, measured.free),
            ByteSize(measured.free),
            if is_in_one_piece(measured) {
                "in one piece"
            } else {
                "fragmented"
            },
            ago(measured),
        ),
        Probe::Skipped { .. } => NOT_MEASURED.to_owned(),
        Probe::Refused { .. } => "could not be measured".to_owned(),
    }
}

fn ago(measured: &Measured) -> String {
    let seconds = measured.age.as_secs();
    match (measured.age.is_zero(), measured.outdated) {
        (true, _) => String::new(),
        (false, false) => format!(" ({seconds} s ago)"),
        (false, true) => format!(" ({seconds} s ago, and it has changed since)"),
    }
}

fn modes(gpu: &GpuFacts) -> String {
    let machine = &gpu.machine;
    let compute = match machine.compute_mode {
        Some(ComputeMode::Default) => "open to all".to_owned(),
        Some(mode) => mode.to_string(),
        None => "compute mode not known".to_owned(),
    };
    let switch = |name: &str, value: Option<bool>| {
        let value = match value {
            Some(true) => "on",
            Some(false) => "off",
            None => "not known",
        };
        format!("{name} {value}")
    };
    let mut modes = vec![compute, switch("ECC", machine.ecc)];
    // An unknown mode is mostly an unsupported one.
    for (name, value) in [
        ("MIG", machine.mig),
        ("persistence", machine.persistence),
        ("display", machine.display),
    ] {
        if value.is_some() {
            modes.push(switch(name, value));
        }
    }
    modes.join(", ")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use cuguard_nvml::{Gpu, Memory, ProcessKind};

    use super::*;
    use crate::doctor::failure::{Reason, Surroundings};
    use crate::doctor::verdict::diagnose;

    fn facts() -> Facts {
        let mut machine = Gpu::new("0000:01:00.0");
        machine.memory = Some(Memory {
            total: 80 << 30,
            free: 20 << 30,
            reserved: Some(1 << 30),
        });
        let mut process = Process::new(4711).with_bytes(58 << 30);
        process.visible = true;
        process.kinds = vec![ProcessKind::Compute, ProcessKind::Graphics];
        process.command = Some("python3 train.py".to_owned());
        process.user = Some("ada".to_owned());
        let mut elsewhere = Process::new(12);
        elsewhere.uid = Some(0);
        machine.processes = Some(vec![process, elsewhere]);
        machine.compute_mode = Some(ComputeMode::Default);
        machine.mig = Some(false);
        let gpu = GpuFacts {
            ordinal: 3,
            name: "NVIDIA H200".to_owned(),
            total: 80 << 30,
            machine,
            not_described: None,
            probe: Probe::Measured(Measured {
                context_cost: Some(523 << 20),
                free: 19 << 30,
                largest: 10 << 30,
                free_before: 20 << 30,
                other_pids: Vec::new(),
                taken: Instant::now(),
                age: Duration::from_secs(7),
                outdated: false,
            }),
        };
        Facts {
            driver: Driver {
                simulated: false,
                path: Some("/usr/lib/libcuda.so.1".to_owned()),
                cuda: Some("13.0".to_owned()),
                version: Some("580.1".to_owned()),
            },
            gpus: vec![gpu],
            pools: vec![PoolFacts {
                process: 4711,
                command: "train".to_owned(),
                label: Some("activations".to_owned()),
                held_bytes: 12 << 30,
                used_bytes: 3 << 30,
                idle_bytes: 9 << 30,
                pinned_page_count: 1,
                ..PoolFacts::default()
            }],
            ..Facts::default()
        }
    }

    #[test]
    fn all_is_told() {
        let facts = facts();
        let text = render(&facts, &diagnose(&facts), None);
        for part in [
            "NVIDIA driver 580.1, for CUDA up to 13.0, /usr/lib/libcuda.so.1\n",
            "\nGPU 3: NVIDIA H200 at 0000:01:00.0\n",
            "80 GiB in all: 20 GiB free, 59 GiB used, 1 GiB reserved by the driver\n",
            "   4711      58 GiB  compute+graphics  ada  python3 train.py\n",
            "     12   not known    uid 0  not a process of this system\n",
            "costs 523 MiB here, measured (7 s ago)\n",
            "10 GiB, 52 % of the 19 GiB that are free beside a context: fragmented (7 s ago)\n",
            "open to all, ECC not known, MIG off\n",
            "    problem        its free memory is fragmented",
            "                   -> ",
            "    verdict        allocations above 10 GiB will fail",
            "\nmachine\n    pools             4711  pool \"activations\" on its GPU 0: 12 GiB held, 3 GiB in live blocks, 9 GiB idle, 2 MiB pinned  train\n",
            "    verdict        the GPU needs attention\n",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
    }

    #[test]
    fn many_processes_are_cut() {
        let mut facts = facts();
        let many = (0..25).map(|pid| Process::new(1000 + pid).with_bytes(1 << 30));
        facts.gpus[0].machine.processes = Some(many.collect());
        let text = render(&facts, &diagnose(&facts), None);
        assert!(text.contains("and 15 more with 15 GiB"), "{text}");
        assert!(!text.contains("1010"), "{text}");
    }

    #[test]
    fn no_line_is_longer_than_the_terminal() {
        let mut facts = facts();
        let listed = facts.gpus[0].machine.processes.as_mut().unwrap();
        listed[0].command = Some("python3 train.py --batch 64 ".repeat(6));
        facts.driver.path = Some(format!("/opt/{}/libcuda.so.1", "x".repeat(90)));
        let diagnosis = diagnose(&facts);
        assert!(
            render(&facts, &diagnosis, None)
                .lines()
                .any(|l| l.len() > 150)
        );
        let failure = Failure {
            reason: Reason::NoGpu,
            surroundings: Surroundings::default(),
        };
        for width in [60, 80, 100] {
            for text in [
                render(&facts, &diagnosis, Some(width)),
                render_failure(&failure, Some(width)),
            ] {
                for line in text.lines() {
                    assert!(line.chars().count() <= width, "{width}: {line:?}");
                }
            }
        }
        let text = render(&facts, &diagnosis, Some(80));
        let commands: Vec<&str> = text.lines().filter(|line| line.contains("train")).collect();
        assert_eq!(commands.len(), 1, "{text}");
        assert!(commands[0].ends_with('…'), "{text}");
    }

    #[test]
    fn what_is_not_known_says_so() {
        let mut facts = facts();
        facts.gpus[0].machine = Gpu::new("");
        facts.gpus[0].probe = Probe::default();
        let text = render(&facts, &diagnose(&facts), None);
        for part in [
            "80 GiB in all; what is free is not known",
            "processes      not known: NVML does not report them",
            "a context      not measured (--probe measures it)",
            "largest block  not measured (--probe measures it)",
            "GPU 3: NVIDIA H200\n",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
    }

    #[test]
    fn a_failure_tells_what_is_missing_and_what_to_do() {
        let failure = Failure {
            reason: Reason::NoGpu,
            surroundings: Surroundings::default(),
        };
        let text = render_failure(&failure, None);
        for part in [
            "no GPU\n",
            "what can be seen",
            "what to do\n    ",
            "CUGUARD_DRIVER=sim",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
    }
}
