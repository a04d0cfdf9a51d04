//! Differences of two runs: call sites of two builds are matched.

use cuguard_view::{
    Allocation, At, CallSite, FOREVER, Frame, Frames, Look, Match, Overview, Ranks, RecordedKind,
    Run, diff, moment,
};

/// A call site: functions with lines, innermost first.
fn site(frames: &[(&str, u32)]) -> CallSite {
    let frame = |(function, line): &(&str, u32)| Frame {
        function: (*function).to_owned(),
        file: format!("/build/{line}/src/main.rs"),
        line: *line,
        library: "app".to_owned(),
        in_app: true,
    };
    CallSite {
        type_name: "f32".to_owned(),
        frames: frames.iter().map(frame).collect(),
    }
}

/// A run with one allocation for each call site, of so many bytes.
fn run(sites: &[(CallSite, u64)]) -> Run {
    let mut run = Run {
        kinds: vec![RecordedKind {
            name: "device".to_owned(),
            on_device: true,
            is_memory: true,
        }],
        sites: vec![CallSite::default()],
        names: vec![String::new()],
        ..Run::default()
    };
    for (site, bytes) in sites {
        run.allocations.push(Allocation {
            end: FOREVER,
            bytes: *bytes,
            site: run.sites.len() as u32,
            ..Allocation::default()
        });
        run.sites.push(site.clone());
    }
    run
}

/// The changes: the innermost line, the bytes before and after, how they were matched.
fn changes(before: &[(CallSite, u64)], after: &[(CallSite, u64)]) -> Vec<(u32, u64, u64, Match)> {
    let (before, after) = (run(before), run(after));
    let before = moment(&before, At::Exit).expect("every run has an end");
    let after = moment(&after, At::Exit).expect("every run has an end");
    let diff = diff(&before, &after);
    let rows = diff.changes.iter().map(|change| {
        let line = change.site.frames[0].line;
        (
            line,
            change.before.bytes,
            change.after.bytes,
            change.matched,
        )
    });
    rows.collect()
}

#[test]
fn equal_lines_are_matched_and_what_grew_most_is_first() {
    let (load, step, old, new) = (
        site(&[("load", 1), ("main", 9)]),
        site(&[("step", 2), ("main", 9)]),
        site(&[("old", 3)]),
        site(&[("new", 4)]),
    );
    let before = [(load.clone(), 10), (step.clone(), 10), (old, 7)];
    let after = [(load, 10), (step, 15), (new, 6)];
    let expected = [
        (4, 0, 6, Match::OnlyAfter),
        (2, 10, 15, Match::Lines),
        (3, 7, 0, Match::OnlyBefore),
    ];
    assert_eq!(changes(&before, &after), expected);
}

/// In the new build every line is two further down, so that one line is that of another call before.
#[test]
fn calls_whose_lines_moved_are_matched_in_their_order() {
    let call = |line| site(&[("load", line), ("main", 90)]);
    let before = [(call(10), 1), (call(12), 100)];
    let after = [(call(12), 2), (call(14), 100)];
    assert_eq!(changes(&before, &after), [(12, 1, 2, Match::Order)]);
}

/// The same build, in which another call was alive each time.
#[test]
fn a_call_with_the_same_line_in_both_is_one_call_site() {
    let call = |line| site(&[("load", line), ("main", 90)]);
    let before = [(call(10), 5), (call(25), 100)];
    let after = [(call(25), 100), (call(30), 7)];
    assert_eq!(changes(&before, &after), [(30, 5, 7, Match::Order)]);
    // Also where the number of calls differs.
    let before = [(call(10), 5), (call(25), 100)];
    let after = [(call(25), 101), (call(30), 7), (call(31), 4)];
    let expected = [(30, 5, 11, Match::Functions), (25, 100, 101, Match::Lines)];
    assert_eq!(changes(&before, &after), expected);
}

/// Lines in front of an edit stay; those behind it move by one distance.
#[test]
fn calls_in_front_of_an_edit_keep_their_lines() {
    let call = |line| site(&[("load", line), ("main", 90)]);
    let before = [(call(5), 50), (call(10), 1), (call(12), 100)];
    let after = [(call(5), 50), (call(12), 2), (call(14), 100)];
    assert_eq!(changes(&before, &after), [(12, 1, 2, Match::Order)]);
}

#[test]
fn an_additional_call_in_a_function_with_the_same_lines_is_new() {
    let call = |line| site(&[("load", line), ("main", 90)]);
    let before = [(call(10), 1)];
    let after = [(call(10), 1), (call(12), 5)];
    assert_eq!(changes(&before, &after), [(12, 0, 5, Match::OnlyAfter)]);
}

#[test]
fn other_numbers_of_moved_calls_are_summed_up() {
    let call = |line| site(&[("load", line), ("main", 90)]);
    let before = [(call(10), 1), (call(11), 2)];
    let after = [(call(20), 1), (call(21), 2), (call(22), 4)];
    assert_eq!(changes(&before, &after), [(22, 3, 7, Match::Functions)]);
}

#[test]
fn hashes_and_folders_of_a_build_do_not_count() {
    let before = [(site(&[("app::load::h0123456789abcdef", 5)]), 1)];
    let after = [(site(&[("app::load::hfedcba9876543210", 6)]), 3)];
    assert_eq!(changes(&before, &after), [(6, 1, 3, Match::Order)]);
}

#[test]
fn text_and_json_have_the_largest_differences_in_either_direction() {
    let before = run(&[
        (site(&[("a", 1)]), 0),
        (site(&[("b", 2)]), 100),
        (site(&[("c", 3)]), 7),
    ]);
    let after = run(&[
        (site(&[("a", 1)]), 1),
        (site(&[("b", 2)]), 0),
        (site(&[("c", 3)]), 7),
    ]);
    let before = moment(&before, At::Exit).expect("every run has an end");
    let after = moment(&after, At::Exit).expect("every run has an end");
    let diff = diff(&before, &after);
    assert_eq!((diff.unchanged, diff.unchanged_amount.bytes), (1, 7));
    let look = Look {
        top: Some(1),
        frames: Frames::Program,
        ..Look::default()
    };
    let text = diff.text(look);
    assert!(
        text.contains("\n100 B less: 100 B → 0 B in 1 → 1 resource\n    b  "),
        "{text}"
    );
    assert!(
        text.contains("… 1 of 2 call sites with a difference shown; --top 2 shows all"),
        "{text}"
    );
    let json = diff.json(look);
    assert!(
        json.contains("\"bytes\":-100") && json.contains("\"changes_not_shown\":1"),
        "{json}"
    );
}

/// The table and its reasons are of one memory: pinned memory does not explain a difference of device memory.
#[test]
fn ranks_explain_what_they_compare() {
    let kind = |name: &str, on_device| RecordedKind {
        name: name.to_owned(),
        on_device,
        is_memory: true,
    };
    let block = |site, kind, bytes| Allocation {
        end: FOREVER,
        bytes,
        site,
        kind,
        ..Allocation::default()
    };
    let rank = |rank, device, pinned| Run {
        rank: Some(rank),
        kinds: vec![kind("device", true), kind("pinned", false)],
        sites: vec![
            CallSite::default(),
            site(&[("load", 1)]),
            site(&[("stage", 2)]),
        ],
        allocations: vec![block(1, 0, device), block(2, 1, pinned)],
        ..Run::default()
    };
    let runs = [rank(0, 100, 1), rank(1, 100, 1), rank(2, 150, 5000)];
    let overviews: Vec<_> = runs
        .iter()
        .map(|run| Overview::new(run, At::Exit).expect("every run has an end"))
        .collect();
    let ranks = Ranks::new(&overviews);
    assert_eq!(ranks.rows[0].difference, 50);
    let rows: Vec<_> = ranks
        .differences
        .iter()
        .map(|row| (&*row.site.frames[0].function, row.bytes, row.median))
        .collect();
    assert_eq!(rows, [("load", 150, 100)]);
}
