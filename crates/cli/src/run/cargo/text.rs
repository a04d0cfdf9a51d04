//! What was found, as text: a line with the sums, and a list by test.

use std::collections::BTreeMap;
use std::fmt::Write;

use cuguard::snapshot::Amount;
use cuguard_report::phrase::{count, list_some, printable};
use cuguard_report::{ByteSize, Paths, amount_of, in_columns, sum};

use super::owner::{Finding, Owner, What};
use super::plan::DOCTEST;
use super::reports::{Frame, Group, LEAKED, NOT_FREED, Report, kind_of};

/// How many names are listed.
const LISTED: usize = 4;

/// The sums of all processes, such as `2 processes used CUDA: lost 3 MiB in 2 allocations; reachable 2 contexts`. `processes` is
/// how many used CUDA, and `silent` how many of them have no report.
pub(super) fn sentence(reports: &[Report], processes: usize, silent: usize) -> String {
    let used = match processes {
        0 => return "no process used CUDA".to_owned(),
        1 => "1 process used CUDA".to_owned(),
        many => format!("{many} processes used CUDA"),
    };
    if reports.is_empty() && silent != 0 {
        return format!("{used}, without a report");
    }
    let of = |is_wanted: &dyn Fn(&Group) -> bool| {
        let groups = reports.iter().flat_map(|report| &report.groups);
        let groups = groups.filter(|group| is_wanted(group));
        sum(groups.filter_map(|group| Some((group.kind()?, Amount::new(group.count, group.bytes)))))
    };
    let destroyed = of(&Group::is_destroyed_memory);
    let lost = of(&|group| ["lost", LEAKED].contains(&&*group.fate));
    let mut parts = Vec::new();
    let alive = of(&|group| group.fate == "unclassified");
    match lost.is_empty() {
        // That would be an all-clear.
        true if !destroyed.is_empty() || !alive.is_empty() => {}
        true => parts.push("nothing is lost".to_owned()),
        false => parts.push(format!("lost {lost}")),
    }
    if !alive.is_empty() {
        let searches = reports.iter().filter_map(|report| report.search.as_ref());
        let mut why: Vec<_> = searches
            .filter_map(|search| search.cut_short.as_deref())
            .map(printable)
            .collect();
        why.sort();
        why.dedup();
        let why = list_some(&why, LISTED, ToString::to_string);
        parts.push(format!(
            "{alive} may be lost, as the search for addresses was cut short: {why}"
        ));
    }
    if !destroyed.is_empty() {
        parts.push(format!(
            "{destroyed} not freed before their context was destroyed"
        ));
    }
    for (word, fate) in [
        ("not freed, because the driver failed:", NOT_FREED),
        ("reachable", "reachable"),
    ] {
        let what = of(&|group| group.fate == fate);
        if !what.is_empty() {
            parts.push(format!("{word} {what}"));
        }
    }
    let suppressed = reports.iter().map(|report| report.suppressed.groups);
    match suppressed.sum::<u64>() {
        0 => {}
        groups => parts.push(format!("suppressed {}", count(groups, "group"))),
    }
    match reports
        .iter()
        .map(|report| report.growth.len() as u64)
        .sum()
    {
        0 => {}
        growing => parts.push(format!("{} growing", count(growing, "call site"))),
    }
    let refused = reports.iter().flat_map(|report| &report.refused);
    match refused.map(|refused| refused.count).sum() {
        0 => {}
        refused => {
            let refused = count(refused, "allocation");
            parts.push(format!("{refused} refused for lack of memory"));
        }
    }
    if silent != 0 {
        parts.push(format!("{silent} without a report"));
    }
    format!("{used}: {}", parts.join("; "))
}

/// The line with the sums, which others may follow, and the findings by test, the largest first. At most `max` tests, and call sites of each, are listed.
pub(super) fn render(head: &str, findings: &[Finding], max: usize) -> String {
    let mut text = format!("cargo cuguard: {head}\n");
    let mut by_owner: BTreeMap<&Owner, Vec<&Finding>> = BTreeMap::new();
    for finding in findings {
        by_owner.entry(&finding.owner).or_default().push(finding);
    }
    let mut owners: Vec<_> = by_owner.into_iter().collect();
    let size = |findings: &[&Finding]| {
        let lost = findings.iter().filter(|finding| finding.what == What::Lost);
        let sum = lost.fold(0_u64, |sum, finding| sum.saturating_add(finding.bytes));
        (sum, findings.len())
    };
    // Tests first.
    owners.sort_by_key(|(owner, findings)| {
        let is_test = matches!(owner, Owner::Tests { .. });
        (!is_test, std::cmp::Reverse(size(findings)))
    });
    let paths = Paths::new();
    for (owner, findings) in owners.iter_mut().take(max) {
        findings.sort_by_key(|finding| (finding.what, std::cmp::Reverse(finding.bytes)));
        let _ = writeln!(text, "\n{}:", name(owner));
        for finding in findings.iter().take(max) {
            let _ = writeln!(text, "  {}", of_finding(finding));
            for line in frames(&finding.frames, &paths) {
                let _ = writeln!(text, "    {}", line.trim_end());
            }
        }
        if findings.len() > max {
            let more = count((findings.len() - max) as u64, "more group");
            let _ = writeln!(
                text,
                "  … {more}; LEAK_REPORT=max={} shows all",
                findings.len()
            );
        }
    }
    if owners.len() > max {
        let more = count((owners.len() - max) as u64, "more test");
        let _ = writeln!(
            text,
            "\n… {more}; LEAK_REPORT=max={} shows all",
            owners.len()
        );
    }
    text
}

fn name(owner: &Owner) -> String {
    match owner {
        Owner::Tests { program, names } => {
            let names = list_some(names, LISTED, |name| printable(name).into_owned());
            format!("{names} ({})", printable(program))
        }
        Owner::Program { program, threads } => {
            let noun = if threads.len() == 1 {
                "thread"
            } else {
                "threads"
            };
            let of = match threads.is_empty() {
                true => String::new(),
                false => {
                    let threads = list_some(threads, LISTED, |name| printable(name).into_owned());
                    format!(", {noun} {threads}")
                }
            };
            // rustdoc has not told which.
            let is_doctest = program.starts_with(DOCTEST);
            let what = if is_doctest {
                ""
            } else {
                "not attributed to a test: "
            };
            format!("{what}{}{of}", printable(program))
        }
    }
}

fn of_finding(finding: &Finding) -> String {
    let amount = Amount::new(finding.count, finding.bytes);
    let what = kind_of(&finding.kind).map(|kind| amount_of(kind, amount));
    // Of a newer library.
    let what = what.unwrap_or_else(|| count(finding.count, &finding.kind.replace('_', " ")));
    let allocations = || count(finding.count, "allocation");
    let mut text = match finding.what {
        // Only in host memory that is lost itself.
        What::Lost if finding.holder.is_some() => format!("indirectly lost {what}"),
        What::Lost => format!("lost {what}"),
        What::Alive => format!("alive {what}, which may be lost"),
        What::NotFreed => format!("not freed, because the driver failed: {what}"),
        What::Destroyed => format!("{what} not freed before the context was destroyed"),
        What::Reachable => format!("reachable {what}"),
        What::Growing => {
            let bytes = ByteSize(finding.bytes);
            return format!("growing by {bytes} in {}", allocations());
        }
        What::Refused => {
            let function = printable(finding.label.as_deref().unwrap_or_default());
            let size = match finding.bytes {
                0 => String::new(),
                bytes => format!(", the largest of {}", ByteSize(bytes)),
            };
            return format!("refused {} by {function}{size}", allocations());
        }
    };
    if let Some(label) = &finding.label {
        let _ = write!(text, ", {label:?}");
    }
    if let Some(holder) = &finding.holder {
        let _ = write!(text, ", from {}", printable(holder));
    }
    text
}

fn frames(frames: &[Frame], paths: &Paths) -> Vec<String> {
    let rows: Vec<_> = frames
        .iter()
        .map(|frame| {
            let function = frame.function.as_deref().unwrap_or("?");
            let location = match (&frame.file, frame.line) {
                (Some(file), Some(line)) => format!("{}:{line}", paths.shorten(file)),
                (Some(file), None) => paths.shorten(file).into_owned(),
                (None, _) => match &frame.module {
                    Some(module) => format!("in {}", module.display()),
                    None => String::new(),
                },
            };
            (
                printable(function).into_owned(),
                printable(&location).into_owned(),
            )
        })
        .collect();
    in_columns(&rows, str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::super::reports::{Frame, Group, Refused, Report};
    use super::{Finding, Owner, What, render, sentence};

    fn group(fate: &str, kind: &str, count: u64, bytes: u64) -> Group {
        Group {
            fate: fate.to_owned(),
            kind: kind.to_owned(),
            count,
            bytes,
            ..Group::default()
        }
    }

    #[test]
    fn the_sums_are_those_of_all_processes() {
        assert_eq!(sentence(&[], 0, 0), "no process used CUDA");
        let killed = "1 process used CUDA, without a report";
        assert_eq!(sentence(&[], 1, 1), killed);
        let clean = Report {
            groups: vec![group("reachable", "context", 1, 0)],
            ..Report::default()
        };
        assert_eq!(
            sentence(&[clean], 1, 0),
            "1 process used CUDA: nothing is lost; reachable 1 context"
        );
        let one = Report {
            groups: vec![
                group("lost", "device", 2, 3 << 20),
                group("lost", "event", 1, 0),
                group("destroyed_with_context", "event", 5, 0),
            ],
            ..Report::default()
        };
        let two = Report {
            groups: vec![
                group("leaked", "pinned", 1, 1 << 20),
                group("destroyed_with_context", "device", 1, 1 << 10),
            ],
            refused: vec![Refused {
                count: 2,
                ..Refused::default()
            }],
            ..Report::default()
        };
        assert_eq!(
            sentence(&[one, two], 3, 1),
            "3 processes used CUDA: lost 4 MiB in 3 allocations and 1 event; 1 KiB in 1 allocation not freed before their context was destroyed; 2 allocations refused for lack of memory; 1 without a report"
        );
    }

    fn finding(owner: Owner, bytes: u64) -> Finding {
        let frame = |function: &str, file: &str| Frame {
            function: Some(function.to_owned()),
            file: Some(file.to_owned()),
            line: Some(3),
            ..Frame::default()
        };
        Finding {
            owner,
            what: What::Lost,
            kind: "device".to_owned(),
            count: 1,
            bytes,
            label: None,
            holder: None,
            frames: vec![
                frame("a::help", "/nowhere/a.rs"),
                frame("a::tests::one", ""),
            ],
        }
    }

    #[test]
    fn tests_come_before_what_no_test_is_known_of() {
        let test = |name: &str| Owner::Tests {
            program: "a".to_owned(),
            names: vec![name.to_owned()],
        };
        let program = Owner::Program {
            program: "a".to_owned(),
            threads: vec!["worker".to_owned()],
        };
        let findings = [
            finding(program, 9 << 20),
            finding(test("one"), 1 << 10),
            finding(test("two"), 1 << 20),
        ];
        let text = render("sums", &findings, 2);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "cargo cuguard: sums");
        assert_eq!(lines[2], "two (a):");
        assert_eq!(lines[3], "  lost 1 MiB in 1 allocation of device memory");
        assert!(lines[4].starts_with("    a::help        "), "{text}");
        assert_eq!(lines[7], "one (a):");
        assert!(text.ends_with("\n… 1 more test; LEAK_REPORT=max=3 shows all\n"));
        let text = render("sums", &findings, 20);
        assert!(
            text.contains("\nnot attributed to a test: a, thread worker:\n  lost 9 MiB"),
            "{text}"
        );
        assert_eq!(render("sums", &[], 20), "cargo cuguard: sums\n");
    }
}
