//! The reports of all processes, which they write as JSON into the run's folder: those of the audit library, and those of the
//! cuguard crate about what its guards leak.
//!
//! `docs/audit-report-schema.md` and `docs/leak-report-schema.md` describe their members.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use cuguard::ResourceKind;
use cuguard_report::ReportSettings;
use serde::Deserialize;

/// How the names of the files begin.
const FILE: &str = "reports-";

/// The pattern of their names.
pub(super) fn pattern(folder: &Path) -> PathBuf {
    let folder = folder.to_string_lossy().replace('%', "%%");
    PathBuf::from(folder).join(format!("{FILE}%p"))
}

/// The words of `LEAK_REPORT` with those that attribution needs, whole stack traces, and without `max=N`: the JSON has all groups.
/// Returns that N, too.
pub(super) fn words(environment: Option<&OsStr>) -> (OsString, usize) {
    let environment = environment.unwrap_or_default().to_string_lossy();
    let (mut words, mut max) = (
        vec![format!("depth={DEPTH}")],
        ReportSettings::text().shown(),
    );
    for word in environment.split(',') {
        let (settings, problems) = ReportSettings::parse(word);
        if word.trim().starts_with("max=") && problems.is_empty() {
            max = settings.shown();
        } else {
            words.push(word.to_owned());
        }
    }
    words.push("frames=all".to_owned());
    (words.join(",").into(), max)
}

/// How many frames of a stack trace are recorded, unless the user asks for another number. The function of the test is the
/// outermost of the program.
const DEPTH: usize = 128;

/// A report of a process, or of a context in it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Report {
    pub(super) tool: String,
    pub(super) process: u32,
    pub(super) command: String,
    /// What the audit library found.
    pub(super) groups: Vec<Group>,
    pub(super) growth: Vec<Growth>,
    pub(super) refused: Vec<Refused>,
    pub(super) suppressed: Suppressed,
    pub(super) search: Option<Search>,
    /// What guards leaked.
    pub(super) leaks: Vec<Group>,
    pub(super) failed_frees: Vec<FailedFree>,
}

/// Resources of one kind from one call site.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Group {
    pub(super) fate: String,
    /// Where the address was found.
    pub(super) holder: Option<String>,
    pub(super) kind: String,
    pub(super) count: u64,
    pub(super) bytes: u64,
    pub(super) threads: Vec<String>,
    pub(super) label: Option<String>,
    pub(super) stack: Vec<Frame>,
    /// Leaked because this one did.
    pub(super) indirect: Vec<Group>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Growth {
    pub(super) blocks: u64,
    pub(super) from_bytes: u64,
    pub(super) to_bytes: u64,
    pub(super) stack: Vec<Frame>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Refused {
    pub(super) function: String,
    pub(super) largest_bytes: Option<u64>,
    pub(super) count: u64,
    pub(super) stack: Vec<Frame>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Suppressed {
    pub(super) groups: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Search {
    /// Why the process was not searched to the end.
    pub(super) cut_short: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FailedFree {
    allocated: Group,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Frame {
    pub(super) function: Option<String>,
    pub(super) file: Option<String>,
    pub(super) line: Option<u32>,
    pub(super) module: Option<PathBuf>,
    /// Of the audit library.
    pub(super) class: Option<String>,
    /// Of the crate.
    pub(super) in_app: Option<bool>,
}

impl Frame {
    /// Whether it is the program's.
    pub(super) fn is_users(&self) -> bool {
        match &self.class {
            Some(class) => class == "user",
            None => self.in_app == Some(true),
        }
    }
}

impl Group {
    /// What it has, where this version knows the kind.
    pub(super) fn kind(&self) -> Option<ResourceKind> {
        kind_of(&self.kind)
    }

    /// Whether it is memory that ended with its context. Handles that do are no finding.
    pub(super) fn is_destroyed_memory(&self) -> bool {
        let is_memory = self.kind().is_some_and(ResourceKind::is_memory);
        self.fate == "destroyed_with_context" && is_memory
    }
}

/// A kind of resource by its name in JSON.
pub(super) fn kind_of(name: &str) -> Option<ResourceKind> {
    let mut kinds = ResourceKind::ALL.iter().copied();
    kinds.find(|kind| kind.name() == name)
}

/// Resources that guards leaked.
pub(super) const LEAKED: &str = "leaked";
/// Resources that guards could not free.
pub(super) const NOT_FREED: &str = "not freed";

impl Report {
    fn parse(line: &str) -> Option<Self> {
        let mut report: Self = serde_json::from_str(line).ok()?;
        let leaks = std::mem::take(&mut report.leaks).into_iter();
        let leaks = leaks.flat_map(|mut leak| {
            let indirect = std::mem::take(&mut leak.indirect);
            std::iter::once(leak).chain(indirect)
        });
        let failed = std::mem::take(&mut report.failed_frees).into_iter();
        let failed = failed.map(|failed| failed.allocated);
        let with = |fate: &'static str| {
            move |group| Group {
                fate: fate.to_owned(),
                ..group
            }
        };
        report.groups.extend(leaks.map(with(LEAKED)));
        report.groups.extend(failed.map(with(NOT_FREED)));
        Some(report)
    }

    /// Whether the audit library has made it, for a process.
    pub(super) fn is_of_process(&self) -> bool {
        self.tool == "cuguard-audit"
    }
}

/// Reads the reports, by process and in their order in each.
pub(super) fn read(folder: &Path) -> Vec<Report> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = files.filter(|file| file.file_name().to_string_lossy().starts_with(FILE));
    let mut reports = Vec::new();
    for file in files {
        let text = fs::read(file.path()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let of_file: Vec<_> = text.lines().filter_map(Report::parse).collect();
        reports.extend(last_of_each_program(of_file));
    }
    reports.sort_by_key(|report| report.process);
    reports
}

/// A report that was made before an `exec`, which failed, is replaced by the next one.
fn last_of_each_program(reports: Vec<Report>) -> Vec<Report> {
    let mut kept: Vec<Report> = Vec::new();
    for report in reports {
        let is_again = |last: &Report| last.is_of_process() && last.command == report.command;
        if report.is_of_process() && kept.last().is_some_and(is_again) {
            kept.pop();
        }
        kept.push(report);
    }
    kept
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{LEAKED, NOT_FREED, Report, last_of_each_program, pattern, words};

    #[test]
    fn the_words_of_the_environment_come_after_those_that_are_needed() {
        assert_eq!(words(None), ("depth=128,,frames=all".into(), 20));
        let all = "depth=128,depth=5,frames=program,max=-1,frames=all";
        let given = "depth=5,max=3,frames=program,max=-1";
        assert_eq!(words(Some(given.as_ref())), (all.into(), 3));
        assert_eq!(pattern(Path::new("/a%b")), Path::new("/a%%b/reports-%p"));
    }

    #[test]
    fn what_guards_leak_is_a_group() {
        let line = r#"{"tool": "cuguard", "process": 7, "leaks": [{"kind": "stream", "count": 1, "bytes": 0,
            "indirect": [{"kind": "device", "count": 2, "bytes": 8, "stack": [{"in_app": true, "module": null}]}]}],
            "failed_frees": [{"allocated": {"kind": "event", "count": 1}, "function": "f"}]}"#;
        let report = Report::parse(&line.replace('\n', " ")).expect("a report");
        let groups = report.groups.iter();
        let groups: Vec<_> = groups.map(|g| (&*g.fate, &*g.kind, g.count)).collect();
        let expected = [
            (LEAKED, "stream", 1),
            (LEAKED, "device", 2),
            (NOT_FREED, "event", 1),
        ];
        assert_eq!(groups, expected);
        assert!(report.groups[1].stack[0].is_users() && !report.is_of_process());
        assert!(Report::parse("{\"tool\": \"cuguard").is_none());
    }

    #[test]
    fn of_a_program_that_could_not_execute_another_the_last_report_counts() {
        let report = |command: &str, reason: u32| Report {
            tool: "cuguard-audit".to_owned(),
            process: reason,
            command: command.to_owned(),
            ..Report::default()
        };
        let reports = vec![report("a", 1), report("a", 2), report("b", 3)];
        let kept = last_of_each_program(reports).into_iter();
        assert_eq!(
            kept.map(|report| report.process).collect::<Vec<_>>(),
            [2, 3]
        );
    }
}
