//! Leak reports in JSON as runs: those of the crate (`docs/leak-report-schema.md`) and those of `cuguard run`
//! (`docs/audit-report-schema.md`).
//!
//! ```text
//!     bytes ──► values ──► one Run for each process
//!               (lines)     groups ──► allocations that are alive at the end
//! ```
//!
//! A report has no history: all that it lists is alive at the end, and begins at its age before that.
//!
//! This folder must not know recordings, moments, or where the bytes come from.

mod builder;
mod value;

use std::collections::BTreeMap;

use serde_json::Value;

use self::builder::{Builder, MOST_OF_FILE};
use self::value::{number, text};
use crate::run::Run;

/// The version of both schemas.
const VERSION: u64 = 1;

/// Bytes that are no leak report.
///
/// ```
/// let error = cuguard_view::read_reports(b"hello", "notes.txt").unwrap_err();
/// assert_eq!(error.to_string(), "no line is a leak report: line 1 is not a JSON object");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoReport {
    /// There is nothing in it.
    #[error("the file is empty")]
    Empty,
    /// It holds something else.
    #[error("no line is a leak report: line {line} {why}")]
    Foreign {
        /// The first line that is none, from 1.
        line: usize,
        /// What it is.
        why: String,
    },
}

/// Reads leak reports in JSON: one object, or one on each line. Returns a run for each process, in the order of their first
/// reports. `source` is the name of the file.
///
/// Lines that are no reports are skipped, such as what a program prints beside its reports, and listed in
/// [`Run::problems`]. Of several reports on one context the last one counts.
///
/// ```
/// let report = br#"{"version": 1, "tool": "cuguard-audit", "process": 7, "command": "train", "seconds": 3.5,
///     "groups": [{"fate": "lost", "kind": "device", "count": 2, "bytes": 2048, "oldest_seconds": 1.5,
///                 "youngest_seconds": 0.5, "addresses": ["0x7000"], "stack": [{"function": "load", "class": "user"}]}]}"#;
/// let runs = cuguard_view::read_reports(report, "leaks.json")?;
/// assert_eq!((runs[0].pid, &*runs[0].command, runs[0].allocations.len()), (7, "train", 2));
/// assert_eq!(runs[0].sites[1].frames[0].function, "load");
/// # Ok::<(), cuguard_view::NoReport>(())
/// ```
///
/// # Errors
///
/// [`NoReport`] where not one report can be read.
pub fn read_reports(bytes: &[u8], source: &str) -> Result<Vec<Run>, NoReport> {
    let mut reports = Vec::new();
    let mut skipped = Vec::new();
    for (line, value) in values(bytes) {
        match value.and_then(|value| check(&value).map(|()| value)) {
            Ok(value) => reports.push(value),
            Err(why) => skipped.push((line, why)),
        }
    }
    if reports.is_empty() {
        let first = skipped.into_iter().next();
        return Err(
            first.map_or(NoReport::Empty, |(line, why)| NoReport::Foreign {
                line,
                why,
            }),
        );
    }
    let mut order: Vec<u64> = Vec::new();
    let mut processes: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
    for report in &reports {
        let process = number(report, "process");
        let of_process = processes.entry(process).or_default();
        if of_process.is_empty() {
            order.push(process);
        }
        of_process.push(report);
    }
    let mut budget = MOST_OF_FILE;
    let mut runs: Vec<Run> = order
        .iter()
        .map(|process| run(&processes[process], source, &mut budget))
        .collect();
    if let (Some(run), Some((line, why))) = (runs.first_mut(), skipped.first()) {
        let more = match skipped.len() - 1 {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        run.problems
            .push(format!("line {line} is skipped: it {why}{more}"));
    }
    Ok(runs)
}

/// The JSON values with their lines: of a stream of values, or where that fails of each line.
fn values(bytes: &[u8]) -> Vec<(usize, Result<Value, String>)> {
    let stream = serde_json::Deserializer::from_slice(bytes).into_iter::<Value>();
    if let Ok(values) = stream.collect::<Result<Vec<Value>, _>>() {
        let values = values.into_iter().enumerate();
        return values
            .map(|(index, value)| (index + 1, Ok(value)))
            .collect();
    }
    let lines = bytes.split(|byte| *byte == b'\n').enumerate();
    let lines = lines.filter(|(_, line)| !line.trim_ascii().is_empty());
    let read = |line: &[u8]| {
        serde_json::from_slice(line).map_err(|error| match line.trim_ascii().first() {
            Some(b'{') => format!("is cut off or broken JSON ({error})"),
            _ => "is not a JSON object".to_owned(),
        })
    };
    lines.map(|(index, line)| (index + 1, read(line))).collect()
}

/// Whether this is a report that can be read; otherwise what it is.
fn check(value: &Value) -> Result<(), String> {
    if !value.is_object() {
        return Err("is not a JSON object".to_owned());
    }
    let tool = text(value, "tool");
    let list = match tool {
        "cuguard" => "leaks",
        "cuguard-audit" => "groups",
        "" => return Err("is JSON of another program: it has no member \"tool\"".to_owned()),
        tool => return Err(format!("is JSON of {tool:?}, and no leak report")),
    };
    let version = number(value, "version");
    if version != VERSION {
        return Err(format!(
            "is a report of version {version}; version {VERSION} can be read"
        ));
    }
    match value[list].is_array() {
        true => Ok(()),
        false => Err(format!("is not a leak report: it has no member {list:?}")),
    }
}

/// The run of one process.
fn run(reports: &[&Value], source: &str, budget: &mut u64) -> Run {
    let mut builder = Builder::new(source, budget);
    if let Some(report) = reports.iter().rev().find(|one| is_audit(one)) {
        builder.audit(report);
        return builder.finish();
    }
    // A report at exit with late drops alone has nothing that is alive.
    let reports = reports
        .iter()
        .filter(|one| text(one, "reason") != "late_drops");
    let mut contexts: BTreeMap<u64, &Value> = BTreeMap::new();
    for report in reports {
        contexts.insert(number(&report["context"], "id"), report);
    }
    for report in contexts.values() {
        builder.context(report);
    }
    builder.finish()
}

fn is_audit(report: &Value) -> bool {
    text(report, "tool") == "cuguard-audit"
}
