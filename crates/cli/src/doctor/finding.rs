//! A finding: what it says and how much it matters.

use cuguard::report::ByteSize;
use cuguard_nvml::Process;
use serde::Serialize;

use super::facts::GpuFacts;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// For information.
    Note,
    /// Costs memory, or needs attention; allocations still work.
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

/// A finding, as it is in the JSON report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    pub(super) code: &'static str,
    pub(super) text: String,
    /// What to do about it.
    pub(super) advice: Option<String>,
}

impl Finding {
    pub(super) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

fn finding(severity: Severity, code: &'static str, text: impl Into<String>) -> Finding {
    Finding {
        severity,
        code,
        text: text.into(),
        advice: None,
    }
}

pub(super) fn note(code: &'static str, text: impl Into<String>) -> Finding {
    finding(Severity::Note, code, text)
}

pub(super) fn warning(code: &'static str, text: impl Into<String>) -> Finding {
    finding(Severity::Warning, code, text)
}

pub(super) fn problem(code: &'static str, text: impl Into<String>) -> Finding {
    finding(Severity::Problem, code, text)
}

/// The other processes, the largest first.
pub(super) fn others(gpu: &GpuFacts) -> impl Iterator<Item = &Process> {
    let listed = gpu.machine.processes.as_deref().unwrap_or_default();
    listed.iter().filter(|process| !process.own)
}

/// A process in short: `pid 4711 (python3) with 3 GiB`.
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
