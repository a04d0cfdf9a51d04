//! Addresses in managed memory: it is searched where the program has the address of a block itself.

use std::path::PathBuf;

use crate::support::{
    Folder, assert_success, audited, compile, programs, simulated_driver_folder, text,
};
use serde_json::Value;

/// The program, and the folder that it is in. `None` without a C compiler.
fn program() -> Option<(Folder, PathBuf)> {
    let folder = simulated_driver_folder();
    let source = programs().join("search_managed.c");
    let source = std::fs::read_to_string(source).expect("the program's text is there");
    let arguments = ["-O1", "-l:libcuda.so.1"];
    let program = compile(&folder, "lists", &source, &arguments)?;
    Some((folder, program))
}

/// What becomes of the memory of one shape: kind, bytes, fate and holder, sorted; and what the search left out. Of
/// several reports the first.
#[track_caller]
fn fates(program: &(Folder, PathBuf), shape: &str) -> (Vec<String>, String) {
    let (folder, program) = program;
    let file = folder.join("report.json");
    let output = audited(program, folder)
        .arg(shape)
        .env("LEAK_REPORT", format!("json,file={}", file.display()))
        .output()
        .expect("the program can be started");
    assert_success(&output);
    let report = std::fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("no report: {error}\n{}", text(&output.stderr)));
    let report = report.lines().next().unwrap_or_default();
    let report: Value = serde_json::from_str(report).expect("the report is JSON");
    let groups = report["groups"].as_array().expect("groups are a list");
    let word = |group: &Value, name: &str| group[name].as_str().unwrap_or("nothing").to_owned();
    let mut lines: Vec<_> = groups
        .iter()
        .filter(|group| group["kind"] == "device" || group["kind"] == "managed")
        .map(|group| {
            let (kind, fate, holder) = (
                word(group, "kind"),
                word(group, "fate"),
                word(group, "holder"),
            );
            format!("{kind} {}: {fate}, {holder}", group["bytes"])
        })
        .collect();
    lines.sort_unstable();
    (lines, word(&report["search"], "cut_short"))
}

const LARGE: u64 = (3 << 20) + 24;

/// A line for each block: device memory, the first managed block, and the second.
fn lines(device: &str, first: &str, second: Option<&str>) -> Vec<String> {
    let mut lines = vec![format!("device 4096: {device}")];
    lines.extend(second.map(|second| format!("managed 1048576: {second}")));
    lines.push(format!("managed {LARGE}: {first}"));
    lines
}

const HELD: &str = "reachable, global `held` in lists";
const BY_MANAGED: &str = "reachable, managed memory reachable from global `held` in lists";
const LOST: &str = "lost, nothing";

#[test]
fn what_a_reachable_block_holds_is_reachable() {
    let Some(program) = program() else { return };
    for (shape, expected) in [
        ("held", lines(BY_MANAGED, HELD, None)),
        ("last word", lines(BY_MANAGED, HELD, None)),
        ("on demand", lines(BY_MANAGED, HELD, None)),
        ("chain", lines(BY_MANAGED, HELD, Some(BY_MANAGED))),
    ] {
        let (fates, cut_short) = fates(&program, shape);
        assert_eq!(fates, expected, "{shape}");
        assert_eq!(cut_short, "nothing", "{shape}");
    }
}

/// All nodes have the place of the first, so that they are one group.
#[test]
fn a_list_of_blocks_is_followed() {
    let Some(program) = program() else { return };
    let (fates, cut_short) = fates(&program, "list");
    let mut expected = lines(BY_MANAGED, HELD, None);
    expected.push(format!("managed {}: {BY_MANAGED}", 100 << 19));
    assert_eq!(fates, expected);
    assert_eq!(cut_short, "nothing");
}

#[test]
fn what_only_lost_blocks_hold_is_lost() {
    let Some(program) = program() else { return };
    for (shape, expected) in [
        ("lost", lines(LOST, LOST, None)),
        ("lost cycle", lines(LOST, LOST, Some(LOST))),
        ("two blocks", lines(LOST, HELD, Some(LOST))),
        (
            "destroyed",
            lines(LOST, "destroyed_with_context, nothing", None),
        ),
        // Nothing reads it.
        ("unreadable and lost", lines(LOST, LOST, None)),
    ] {
        let (fates, cut_short) = fates(&program, shape);
        assert_eq!(fates, expected, "{shape}");
        assert_eq!(cut_short, "nothing", "{shape}");
    }
}

#[test]
fn nothing_is_lost_beside_a_reachable_block_that_cannot_be_read() {
    let Some(program) = program() else { return };
    let (fates, cut_short) = fates(&program, "unreadable");
    assert_eq!(fates, lines("unclassified, nothing", HELD, None));
    assert_eq!(cut_short, "1 MiB of managed memory could not be read");
}

/// As a block that another thread frees before the search stops it, while a stale address remains: nothing is there.
#[test]
fn what_is_no_longer_mapped_hides_nothing() {
    let Some(program) = program() else { return };
    let (fates, cut_short) = fates(&program, "unmapped");
    assert_eq!(fates, lines(LOST, HELD, None));
    assert_eq!(cut_short, "nothing");
}

/// Reading moves managed memory to the host, which may have less memory than the devices.
#[test]
fn nothing_is_lost_beside_a_reachable_block_that_is_too_large_to_read() {
    let Some(program) = program() else { return };
    let (fates, cut_short) = fates(&program, "too large");
    assert_eq!(fates[0], "device 4096: unclassified, nothing");
    assert!(fates[1].ends_with(HELD), "{fates:?}");
    let words = "MiB of managed memory not searched: reading moves it to the host, and may use half of the available memory there";
    assert!(cut_short.ends_with(words), "{cut_short}");
}
