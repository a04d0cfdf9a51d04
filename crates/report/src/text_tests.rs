//! The text of the report, word for word.

use std::time::Duration;

use crate::prepare::{PreparedSnapshot, View};
use crate::text::{Look, render};
use crate::{Colour, Report, ReportSettings};
use cuguard_registry::{
    Amount, ContextInfo, FailedCall, FailedFreeGroup, Group, ResourceKind, Site, Snapshot,
    SnapshotReason, Totals, TrackingLevel,
};

fn info(reason: SnapshotReason) -> ContextInfo {
    ContextInfo {
        device: 0,
        device_name: "NVIDIA H200".to_owned(),
        context: 1,
        primary: true,
        reason,
        closed_at: None,
    }
}

fn group(kind: ResourceKind, count: u64, bytes: u64, line: u32) -> Group {
    let mut group = Group::new(
        kind,
        if kind.is_memory() { "f32" } else { "" },
        count,
        bytes,
    );
    group.origin.site = Some(Site::new("src/app.rs", line, 9));
    group.threads = vec!["main"];
    group.oldest = Duration::from_millis(1500);
    group.youngest = Duration::from_millis(20);
    group.addresses = vec![0x7f00_0000_1000];
    group
}

fn everything() -> Snapshot {
    let mut totals = Totals::default();
    (
        totals.count,
        totals.bytes,
        totals.peak_bytes,
        totals.allocated,
    ) = (5, 1_577_984, 3 << 20, 14);
    let mut streams = Totals::default();
    (streams.count, streams.allocated) = (1, 3);
    let mut weights = group(ResourceKind::Device, 4, 1 << 20, 10);
    weights.label = Some("model/weights".to_owned());
    weights.threads = vec!["a", "b", "c", "d", "e", "f"];
    weights.streams = vec![1, 0x5502];
    let mut failed = FailedFreeGroup::new(
        group(ResourceKind::Pinned, 1, 4096, 30),
        "cuMemHostUnregister",
        700,
        "CUDA_ERROR_ILLEGAL_ADDRESS",
    );
    failed.freed.site = Some(Site::new("src/app.rs", 31, 9));
    Snapshot {
        info: info(SnapshotReason::NeverClosed),
        level: TrackingLevel::Sites,
        totals: vec![
            (ResourceKind::Device, totals),
            (ResourceKind::Stream, streams),
        ],
        live: vec![weights, group(ResourceKind::Stream, 1, 0, 20)],
        unrecorded: vec![(ResourceKind::Managed, Amount::new(2, 512))],
        escaped: vec![group(ResourceKind::Device, 1, 5120, 40)],
        failed_frees: vec![failed],
        late_drops: vec![(ResourceKind::Event, Amount::new(2, 0))],
        ..Snapshot::default()
    }
}

const EVERYTHING: &str = "\
cuguard: leak report for context 1 (primary) on device 0, NVIDIA H200, never closed
  device memory                5 live  1.50 MiB          14 allocated   peak 3 MiB
  stream                       1 live                     3 allocated
  this context was never closed
  the context itself held device memory until exit: forgotten, or in a static

leaked 1 MiB in 4 allocations of device memory, f32, \"model/weights\"
  threads a, b, c, d and 2 more, streams legacy default and 0x5502, allocated 1.5 s to 20 ms ago
    at src/app.rs:10:9

leaked 1 stream
  thread main, allocated 1.5 s ago
    at src/app.rs:20:9

leaked 512 B in 2 allocations of managed memory, counted without a record
  allocated at level counts; level=sites records the call sites

could not free 4 KiB in 1 allocation of pinned host memory, f32
  cuMemHostUnregister returned CUDA_ERROR_ILLEGAL_ADDRESS (700); 0x7f0000001000
  thread main, allocated 1.5 s ago
    at src/app.rs:30:9
  was to be freed by
    at src/app.rs:31:9

dropped after the context was closed: 2 events

escaped 5 KiB in 1 allocation of device memory, f32
  by into_raw, and not taken again by from_raw: 0x7f0000001000
  thread main, allocated 1.5 s ago
    at src/app.rs:40:9

cuguard: leaked 1.00 MiB in 6 allocations and 1 stream, in 2 groups; 1 free failed (LEAK_REPORT=1,level=stacks also shows the stacks)";

#[test]
fn the_whole_report() {
    assert_eq!(everything().display().to_string(), EVERYTHING);
}

/// A context without resources needs hundreds of MiB. It is not known whether it is lost or
/// kept in a `static`: it is reported, and no leak.
#[test]
fn a_context_that_was_never_closed_is_reported() {
    let snapshot = Snapshot {
        info: info(SnapshotReason::NeverClosed),
        ..Snapshot::default()
    };
    assert_eq!(
        snapshot.display().to_string(),
        "cuguard: context 1 (primary) on device 0, NVIDIA H200, never closed: no resource leaked\n  \
         the context itself held device memory until exit: forgotten, or in a static"
    );
    assert!(snapshot.is_clean());
}

#[test]
fn an_empty_report_is_one_line() {
    let mut snapshot = Snapshot {
        info: info(SnapshotReason::Close),
        ..Snapshot::default()
    };
    let start = "cuguard: context 1 (primary) on device 0, NVIDIA H200, closed: nothing leaked";
    assert_eq!(snapshot.display().to_string(), start);
    let totals = Totals {
        allocated: 3,
        ..Totals::default()
    };
    snapshot.totals.push((ResourceKind::Event, totals));
    assert_eq!(
        snapshot.display().to_string(),
        format!("{start} (3 resources allocated and freed)")
    );
}

/// The first column is as wide as its longest kind.
#[test]
fn columns_of_the_totals_are_aligned() {
    let mut snapshot = everything();
    for (kind, _) in &mut snapshot.totals {
        if *kind == ResourceKind::Device {
            *kind = ResourceKind::WriteCombined;
        }
    }
    let text = snapshot.display().to_string();
    let lines: Vec<&str> = text.lines().skip(1).take(2).collect();
    assert_eq!(
        lines,
        [
            "  write-combined host memory     5 live  1.50 MiB          14 allocated   peak 3 MiB",
            "  stream                         1 live                     3 allocated",
        ]
    );
}

#[test]
fn the_line_that_closed_the_context_is_reported() {
    let mut snapshot = everything();
    snapshot.info.reason = SnapshotReason::Drop;
    snapshot.info.closed_at = Some(Site::new("src/app.rs", 41, 5));
    let text = snapshot.display().to_string();
    let start = "cuguard: leak report for context 1 (primary) on device 0, NVIDIA H200, dropped at \
                 src/app.rs:41\n";
    assert!(text.starts_with(start), "{text}");
    let json = snapshot.to_json();
    let site = r#""closed_at":{"file":"src/app.rs","line":41,"column":5}"#;
    assert!(json.contains(site), "{json}");
}

#[test]
fn what_is_alive_in_use_is_not_called_a_leak() {
    let mut snapshot = everything();
    snapshot.info.reason = SnapshotReason::Requested;
    let text = snapshot.display().to_string();
    assert!(
        text.starts_with("cuguard: what is live in context 1") && !text.contains("leak"),
        "{text}"
    );
}

#[test]
fn what_was_dropped_in_a_host_function_is_no_leak_report_at_exit() {
    let mut snapshot = Snapshot {
        info: info(SnapshotReason::KeptOpen),
        deferred: vec![
            group(ResourceKind::Device, 2, 5120, 40),
            group(ResourceKind::Stream, 1, 0, 41),
        ],
        ..Snapshot::default()
    };
    let end = "3 were dropped in a host function and not freed before the exit (5 KiB in 2 \
               allocations and 1 stream); call synchronize after the last host function";
    assert_eq!(
        snapshot.display().to_string(),
        format!(
            "cuguard: context 1 (primary) on device 0, NVIDIA H200, kept open until exit: nothing leaked; {end}"
        )
    );
    snapshot.live.push(group(ResourceKind::Event, 1, 0, 42));
    let text = snapshot.display().to_string();
    assert!(text.contains(&format!("\n\n{end}\n\n")), "{text}");
    // Asked for, it is not the end yet.
    snapshot.info.reason = SnapshotReason::Requested;
    let text = snapshot.display().to_string();
    let yet = "\n3 were dropped in a host function and not freed yet: 5 KiB in 2 allocations and 1 stream\n";
    assert!(text.contains(yet), "{text}");
}

#[test]
fn rows_can_be_limited() {
    let text = format!("{:.1}", everything().display());
    assert!(
        text.contains("src/app.rs:10") && !text.contains("src/app.rs:20"),
        "{text}"
    );
    assert!(
        text.contains("\n… 1 of 2 groups shown; max=2 shows all\n"),
        "{text}"
    );
    let text = everything().to_text(&ReportSettings::text().max(0));
    assert!(
        !text.contains("src/app.rs") && text.contains("… 0 of 2 groups shown; max=2 shows all"),
        "{text}"
    );
    assert!(text.ends_with("(LEAK_REPORT=1,level=stacks also shows the stacks)\n"));
}

#[test]
fn suppressed_leaks_are_one_line() {
    let mut snapshot = everything();
    (snapshot.unrecorded, snapshot.failed_frees) = (Vec::new(), Vec::new());
    let text = snapshot.to_text(&ReportSettings::text().suppress("*/app.rs"));
    assert!(
        text.ends_with("\ncuguard: suppressed 1 MiB in 4 allocations and 1 stream, in 2 groups\n"),
        "{text}"
    );
    assert!(!text.contains("nothing leaked"), "{text}");
}

#[test]
fn colours_change_nothing_but_colours() {
    let snapshot = everything();
    let prepared = PreparedSnapshot::new(&snapshot, View::PLAIN);
    let coloured = render(
        &prepared,
        Look {
            max: None,
            coloured: true,
        },
    );
    assert!(coloured.contains("\x1b[1;31mleaked\x1b[0m"));
    let mut plain = String::new();
    for (index, piece) in coloured.split('\x1b').enumerate() {
        plain.push_str(if index == 0 {
            piece
        } else {
            piece.split_once('m').unwrap().1
        });
    }
    assert_eq!(plain.trim_end(), EVERYTHING);
    let always = ReportSettings::text().colour(Colour::Always);
    assert_eq!(snapshot.to_text(&always), coloured);
}

#[test]
fn labels_cannot_reach_the_terminal() {
    let mut snapshot = everything();
    snapshot.live[0].label = Some("\x1b[2J\n".to_owned());
    assert!(
        snapshot
            .display()
            .to_string()
            .contains(r#", "\u{1b}[2J\n""#)
    );
}

#[test]
fn estimates_are_marked() {
    let mut snapshot = everything();
    snapshot.sample = 100;
    let text = snapshot.display().to_string();
    for words in [
        "\n  one resource in 100 was recorded: figures below are estimates, these are exact\n",
        "\nleaked about 1 MiB in ",
        "no sample picked them; sample=1 records all call sites",
        "\ncuguard: leaked ",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    assert!(snapshot.to_json().contains("\"sample\":100,"));
}

#[test]
fn the_error_that_broke_the_context_is_reported() {
    let mut snapshot = Snapshot::default();
    snapshot.info.reason = SnapshotReason::Close;
    assert!(snapshot.to_json().contains("\"broken\":null"));
    let name = "CUDA_ERROR_ILLEGAL_ADDRESS";
    snapshot.broken = Some(FailedCall {
        operation: "Stream::scope",
        function: "cuStreamSynchronize",
        code: 700,
        code_name: name,
    });
    let text = snapshot.display().to_string();
    let told = "CUDA_ERROR_ILLEGAL_ADDRESS (700), first returned by cuStreamSynchronize in \
                Stream::scope\n";
    assert!(text.contains(told), "{text}");
    assert!(text.contains("only a new process helps"), "{text}");
    assert!(text.ends_with("\ncuguard: nothing leaked"), "{text}");
    let json =
        r#""broken":{"operation":"Stream::scope","function":"cuStreamSynchronize","code":700,"#;
    assert!(snapshot.to_json().contains(json), "{}", snapshot.to_json());
}
