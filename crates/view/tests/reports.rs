//! Leak reports in JSON, as the crates write them, read as runs.

use std::panic::Location;
use std::time::Duration;

use cuguard_registry::{
    ContextInfo, Entry, FailedFree, Fate, Group, Key, Registry, ResourceKind, Snapshot,
    SnapshotReason, TrackingLevel,
};
use cuguard_report::audit::{Process, render};
use cuguard_report::{Report, ReportSettings};
use cuguard_view::{
    At, FOREVER, Look, NoReport, Overview, Run, moment, read_reports, text_with_findings,
};
use proptest::prelude::*;

fn read(text: &str) -> Vec<Run> {
    read_reports(text.as_bytes(), "leaks.json").unwrap()
}

fn one(text: &str) -> Run {
    let mut runs = read(text);
    assert_eq!(runs.len(), 1, "{runs:?}");
    runs.remove(0)
}

fn problem_of(text: &str) -> String {
    read_reports(text.as_bytes(), "x").unwrap_err().to_string()
}

#[track_caller]
fn insert(registry: &Registry, kind: ResourceKind, address: u64, bytes: u64, stream: u64) {
    let entry = Entry {
        bytes,
        type_name: "f32",
        stream,
    };
    registry.insert_at(Location::caller(), Key::new(kind, address), entry);
}

fn info(context: u64) -> ContextInfo {
    ContextInfo {
        context,
        reason: SnapshotReason::Close,
        ..ContextInfo::default()
    }
}

fn bytes_of(run: &Run, kind: &str) -> u64 {
    let alive = run.allocations.iter();
    alive
        .filter(|one| run.kinds[usize::from(one.kind)].name == kind)
        .map(|one| one.bytes)
        .sum()
}

#[test]
fn a_report_of_the_crate() {
    let registry = Registry::new(TrackingLevel::Stacks, 32);
    for address in 1..=40 {
        insert(&registry, ResourceKind::Device, address * 0x1000, 100, 0);
    }
    insert(&registry, ResourceKind::StreamOrdered, 0x90000, 64, 0x77);
    insert(&registry, ResourceKind::Stream, 0x77, 0, 0);
    insert(&registry, ResourceKind::Pinned, 0xa0000, 8, 0);
    registry.label(Key::new(ResourceKind::Pinned, 0xa0000), "staging");
    registry.escape(Key::new(ResourceKind::Device, 0x1000), 100);
    let failed = registry.remove(Key::new(ResourceKind::Device, 0x2000), 100);
    let key = Key::new(ResourceKind::Device, 0x2000);
    registry.file_failed_free(FailedFree::new(key, 100, failed, "cuMemFree", 1, ""));
    let run = one(&registry.snapshot(info(3)).to_json());

    assert_eq!((run.pid, &*run.source), (std::process::id(), "leaks.json"));
    assert!(run.exited && run.problems.is_empty(), "{:?}", run.problems);
    // What escaped and what could not be freed is alive too.
    assert_eq!(run.allocations.len(), 43);
    assert_eq!(bytes_of(&run, "device"), 4000);
    assert_eq!(bytes_of(&run, "stream_ordered"), 64);
    assert!(run.allocations.iter().all(|one| one.end == FOREVER));
    assert!(run.allocations.iter().all(|one| one.context == 3));
    assert!(run.allocations.is_sorted_by_key(|one| one.start));
    assert!(run.allocations.iter().all(|one| one.start <= run.end));
    let on_stream = run.allocations.iter().find(|one| one.bytes == 64).unwrap();
    assert_eq!((on_stream.stream, on_stream.address), (0x77, 0x90000));
    let labelled = run.allocations.iter().find(|one| one.bytes == 8).unwrap();
    assert_eq!(run.names[labelled.label as usize], "staging");
    let site = &run.sites[labelled.site as usize];
    assert_eq!(site.type_name, "f32");
    let own = site.frames.iter().find(|frame| frame.in_app).unwrap();
    assert!(own.file.ends_with("tests/reports.rs"), "{own:?}");
    assert!(run.names[labelled.thread as usize].contains("a_report_of_the_crate"));
    let device = run.kinds.iter().find(|kind| kind.name == "device").unwrap();
    let stream = run.kinds.iter().find(|kind| kind.name == "stream").unwrap();
    assert!(device.on_device && device.is_memory && !stream.on_device && !stream.is_memory);
}

/// At level `sites` there is a line and no stack trace; at level `counts` there is neither.
#[test]
fn reports_with_less_recorded() {
    let registry = Registry::new(TrackingLevel::Sites, 32);
    insert(&registry, ResourceKind::Device, 1, 100, 0);
    let line = line!() - 1;
    let run = one(&registry.snapshot(info(1)).to_json());
    let frame = &run.sites[run.allocations[0].site as usize].frames[0];
    assert_eq!(frame.line, line);
    assert!(frame.in_app && frame.file.ends_with("tests/reports.rs"));
    let registry = Registry::new(TrackingLevel::Counts, 32);
    insert(&registry, ResourceKind::Device, 1, 100, 0);
    let run = one(&registry.snapshot(info(1)).to_json());
    assert_eq!(
        (run.allocations[0].bytes, run.allocations[0].site),
        (100, 0)
    );
}

/// Contexts of one process are one run; the last report on each counts.
#[test]
fn several_contexts_of_a_process() {
    let report = |context, bytes, reason| {
        let mut snapshot = Snapshot {
            live: vec![Group::new(ResourceKind::Device, "f32", 1, bytes)],
            info: info(context),
            ..Snapshot::default()
        };
        snapshot.info.reason = reason;
        snapshot.to_json() + "\n"
    };
    let text = [
        report(1, 100, SnapshotReason::Requested),
        report(2, 30, SnapshotReason::Close),
        report(1, 200, SnapshotReason::Close),
    ];
    let run = one(&text.concat());
    assert_eq!(bytes_of(&run, "device"), 230);
    let contexts: Vec<u32> = run.allocations.iter().map(|one| one.context).collect();
    assert_eq!(contexts, [1, 2]);
    assert!(!one(&text[0]).exited && run.exited);
}

fn process(pid: u32, command: &str) -> Process {
    let group = |fate, count, bytes| {
        let mut group = Group::new(ResourceKind::Device, "", count, bytes);
        (group.fate, group.threads) = (fate, vec!["main", "worker"]);
        group.oldest = Duration::from_secs(4);
        group.youngest = Duration::from_secs(2);
        group
    };
    Process {
        pid,
        command: command.to_owned(),
        reason: "exit".to_owned(),
        duration: Duration::from_secs(10),
        groups: vec![
            group(Fate::Lost, 3, 100),
            group(Fate::Reachable, 1, 7),
            group(Fate::DestroyedWithContext, 9, 900),
        ],
        ..Process::default()
    }
}

#[test]
fn reports_of_several_processes() {
    let json = |process: &Process| render(process, &ReportSettings::json()).json;
    let text = json(&process(7, "train --rank 0")) + &json(&process(8, "train --rank 1"));
    let runs = read(&text);
    let names: Vec<_> = runs.iter().map(|run| (run.pid, &*run.command)).collect();
    assert_eq!(names, [(7, "train --rank 0"), (8, "train --rank 1")]);
    let run = &runs[0];
    assert_eq!(bytes_of(run, "device"), 1007);
    let of_group: Vec<_> = run
        .allocations
        .iter()
        .map(|one| (one.start, one.bytes))
        .collect();
    let second = 1_000_000_000;
    assert!(of_group.contains(&(6 * second, 34)) && of_group.contains(&(7 * second, 33)));
    // A nanosecond behind all that it lists: for what ended with its context.
    assert_eq!(run.end, 10 * second + 1);
    assert_eq!(
        run.names[run.allocations[0].thread as usize],
        "main, worker"
    );
    // As `jq` prints it, over several lines.
    let value: serde_json::Value = serde_json::from_str(&json(&process(7, "a"))).unwrap();
    assert_eq!(
        one(&serde_json::to_string_pretty(&value).unwrap())
            .allocations
            .len(),
        13
    );
}

/// What ended with its context was not freed, as in a recording of the same program. It was not alive at the end.
#[test]
fn what_ended_with_its_context_was_not_freed() {
    let ended = |fate, kind, bytes| Group {
        fate,
        oldest: Duration::from_secs(4),
        ..Group::new(kind, "", 1, bytes)
    };
    let shown = |groups| {
        let process = Process {
            groups,
            ..process(7, "./d")
        };
        let run = one(&render(&process, &ReportSettings::json()).json);
        let overview = Overview::new(&run, At::Peak).expect("it has an end");
        assert_eq!(overview.at_end.count, 0);
        (
            overview.leaked,
            text_with_findings(&overview, Look::default()),
        )
    };
    let destroyed = Fate::DestroyedWithContext;
    let (leaked, text) = shown(vec![
        ended(destroyed, ResourceKind::Device, 12 << 20),
        ended(destroyed, ResourceKind::Event, 0),
    ]);
    assert_eq!((leaked.count, leaked.bytes), (2, 12 << 20));
    let what = "12 MiB in 1 allocation and 1 event not freed before their context ended\n";
    assert!(
        text.starts_with(&format!("cuguard: process 7 (./d): {what}")),
        "{text}"
    );
    let moment = "\nnot freed in the leak report, after 10.00 s: 12 MiB in 1 allocation of device memory and 1 event\n";
    assert!(text.contains(moment), "{text}");
    // Freed by the program, though late.
    let late = ended(Fate::FreedLate, ResourceKind::Device, 100);
    for groups in [vec![late], vec![]] {
        let (leaked, text) = shown(groups);
        assert_eq!(leaked.count, 0);
        let first = text.lines().next();
        let nothing = "cuguard: process 7 (./d): the leak report lists nothing";
        assert_eq!(first, Some(nothing), "{text}");
    }
}

#[test]
fn what_a_program_prints_beside_its_report_is_skipped() {
    let report = render(&process(7, "a"), &ReportSettings::json()).json;
    let run = one(&format!("loading...\n{report}\nbye\n"));
    assert_eq!(run.allocations.len(), 13);
    assert_eq!(
        run.problems,
        ["line 1 is skipped: it is not a JSON object, and 1 more"]
    );
    let cut_off = &report[..report.len() / 2];
    let run = one(&format!("{report}{cut_off}"));
    assert!(run.problems[0].contains("line 2") && run.problems[0].contains("cut off"));
}

#[test]
fn what_a_report_leaves_out_is_said() {
    let mut snapshot = Snapshot {
        live: vec![Group::new(
            ResourceKind::Device,
            "f32",
            2_000_000,
            8_000_001,
        )],
        info: info(1),
        sample: 100,
        ..Snapshot::default()
    };
    snapshot
        .live
        .push(Group::new(ResourceKind::Pinned, "f32", 1, 1));
    let run = one(&snapshot.to_json());
    assert_eq!(bytes_of(&run, "device"), 8_000_001);
    assert_eq!(run.allocations.len(), 100_001);
    let problems = run.problems.join("\n");
    assert!(
        problems.contains("2000000 resources is shown as 100000"),
        "{problems}"
    );
    let caveats = run.caveats();
    let estimate = "figures are estimates: at least one resource in 100 was recorded";
    assert!(caveats.iter().any(|one| one == estimate), "{caveats:?}");
}

#[test]
fn a_report_does_not_have_out_of_memory_errors() {
    let snapshot = Snapshot {
        info: info(1),
        ..Snapshot::default()
    };
    let run = one(&snapshot.to_json());
    for number in [None, Some(1)] {
        let error = moment(&run, At::Oom(number)).expect_err("there is none");
        assert!(
            error
                .to_string()
                .contains("a leak report does not have out-of-memory errors"),
            "{error}"
        );
    }
}

/// A report of a process that still runs shows no exit.
#[test]
fn a_dump_of_a_running_process_is_no_exit() {
    let report = |reason: &str| {
        one(&format!(
            r#"{{"version": 1, "tool": "cuguard-audit", "process": 7, "seconds": 1, "reason": "{reason}", "groups": []}}"#
        ))
    };
    assert!(!report(cuguard_report::audit::DUMP).exited);
    assert!(!report("requested").exited);
    assert!(report("exit").exited);
    assert!(report("SIGTERM").exited);
}

/// Some kilobytes of any number of resources are no gigabytes of memory, in one process or in many.
#[test]
fn a_file_has_one_budget_of_resources() {
    let group = r#"{"fate": "lost", "kind": "device", "count": 100000, "bytes": 200000}"#;
    for (lines, groups) in [(1, 60), (60, 1)] {
        let groups = [group].repeat(groups).join(",");
        let reports = (0..lines).map(|process| {
            format!(
                r#"{{"version": 1, "tool": "cuguard-audit", "process": {process}, "seconds": 1, "groups": [{groups}]}}"#
            )
        });
        let runs = read(&reports.collect::<Vec<_>>().join("\n"));
        let allocations = || runs.iter().flat_map(|run| &run.allocations);
        assert!(
            allocations().count() <= 2_000_060,
            "{}",
            allocations().count()
        );
        let bytes: u64 = allocations().map(|allocation| allocation.bytes).sum();
        assert_eq!(bytes, 60 * 200_000, "no bytes are left out");
        let last = runs.last().expect("there is a run");
        assert_eq!(last.problems.len(), 1, "{:?}", last.problems);
        assert!(
            last.problems[0].contains("of 100000 resources"),
            "{:?}",
            last.problems
        );
    }
}

#[test]
fn foreign_files_are_refused_with_a_reason() {
    assert_eq!(read_reports(b" \n", "x"), Err(NoReport::Empty));
    for (text, expected) in [
        ("hello", "line 1 is not a JSON object"),
        ("[1, 2]", "line 1 is not a JSON object"),
        ("\u{0}\u{1}", "line 1 is not a JSON object"),
        ("{\"leaks\": []}", "no member \"tool\""),
        (
            "{\"tool\": \"cuguard doctor\"}",
            "JSON of \"cuguard doctor\"",
        ),
        (
            "{\"tool\": \"cuguard\", \"version\": 2}",
            "a report of version 2; version 1",
        ),
        (
            "{\"tool\": \"cuguard\", \"version\": 1}",
            "no member \"leaks\"",
        ),
        ("{\"tool\": \"cuguard\", \"vers", "cut off or broken JSON"),
    ] {
        let problem = problem_of(text);
        assert!(problem.contains(expected), "{text}: {problem}");
    }
}

proptest! {
    #![proptest_config(cuguard_testing::property_config!())]

    /// Members of any type, and any sums: read or refused, never a panic, and no byte lost.
    #[test]
    fn any_numbers_are_read(count in 1_u64..300, bytes: u64, oldest in -1e20..1e20, youngest in -1e20..1e20, address: String) {
        let text = serde_json::json!({
            "tool": "cuguard-audit", "version": 1, "seconds": 3, "process": -1, "command": [],
            "groups": [
                {"kind": "new_kind", "count": count, "bytes": bytes, "oldest_seconds": oldest, "youngest_seconds": youngest,
                 "addresses": [address, 3, null], "stack": [{"function": 1}, 2], "threads": 7},
                null,
            ],
        });
        let run = one(&text.to_string());
        prop_assert_eq!(run.allocations.iter().map(|one| u128::from(one.bytes)).sum::<u128>(), u128::from(bytes));
        prop_assert_eq!(run.allocations.len() as u64, count);
    }
}
