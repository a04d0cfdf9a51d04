//! Which call sites of a run grow: whatever the length of the run, and of its rounds.

use cuguard_view::{
    Allocation, At, CallSite, FOREVER, Frame, Look, Overview, RecordedKind, Run, growing_sites,
    json, text_with_findings,
};

/// What one round does: allocates a temporary block, or one that stays, or frees the oldest temporary one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Temporary,
    Stays,
    Free,
}

use Step::{Free, Stays, Temporary};

fn site(line: u32) -> CallSite {
    let frame = |function: &str, line| Frame {
        function: function.to_owned(),
        line,
        in_app: true,
        ..Frame::default()
    };
    CallSite {
        frames: vec![frame("handle", line), frame("main", 20)],
        ..CallSite::default()
    }
}

/// So many rounds. What stays is of call site 1, what is freed of call site 2.
fn rounds(rounds: u64, round: &[Step]) -> Run {
    let mut run = Run {
        kinds: vec![RecordedKind {
            name: "device".to_owned(),
            on_device: true,
            is_memory: true,
        }],
        sites: vec![CallSite::default(), site(6), site(5)],
        ..Run::default()
    };
    let mut temporary = std::collections::VecDeque::new();
    for step in (0..rounds).flat_map(|_| round) {
        run.end += 1000;
        match step {
            Free => {
                let index: usize = temporary.pop_front().expect("it was allocated");
                run.allocations[index].end = run.end;
            }
            _ => {
                let is_temporary = *step == Temporary;
                if is_temporary {
                    temporary.push_back(run.allocations.len());
                }
                run.allocations.push(Allocation {
                    start: run.end,
                    end: FOREVER,
                    bytes: 1 << 20,
                    site: if is_temporary { 2 } else { 1 },
                    ..Allocation::default()
                });
            }
        }
    }
    run
}

#[test]
fn growth_does_not_depend_on_the_number_of_rounds() {
    // Two operations for each block that stays is the least that a round is.
    for round in [
        &[Temporary, Stays, Free][..],
        &[Stays, Temporary, Free],
        &[Temporary, Free, Stays, Temporary, Stays, Free],
        &[Temporary, Temporary, Stays, Free, Free],
        &[Temporary, Stays, Free, Temporary, Free],
    ] {
        let kept = round.iter().filter(|step| **step == Stays).count() as u64;
        let grows = |count: &u64| {
            let run = rounds(*count, round);
            let growing: Vec<_> = growing_sites(&run).into_iter().collect();
            let found: Vec<_> = growing.iter().map(|one| (one.site, one.to >> 20)).collect();
            found == [(1, count * kept)]
        };
        let missed: Vec<_> = (5..=200).filter(|count| !grows(count)).collect();
        assert_eq!(missed, [0; 0], "{} steps each", round.len());
    }
}

#[test]
fn what_is_freed_or_allocated_in_one_go_does_not_grow() {
    for count in 5..=200 {
        for round in [&[Temporary, Free][..], &[Stays], &[Stays, Stays]] {
            let found = growing_sites(&rounds(count, round));
            assert_eq!(found, [], "{count} rounds of {}", round.len());
        }
    }
}

#[test]
fn what_is_freed_at_exit_does_not_hide_growth() {
    let mut run = rounds(20, &[Temporary, Stays, Free]);
    let exit = run.end + 1;
    // One by one, and for longer than the program ran.
    let kept = run.allocations.iter_mut().filter(|it| it.end == FOREVER);
    for (number, block) in (1..).zip(kept) {
        block.end = exit + number * run.end;
    }
    run.end = exit * 100;
    assert_eq!(growing_sites(&run), [], "it fell again");
    run.exit_begins = Some(exit);
    let found = growing_sites(&run);
    let sites: Vec<_> = found.iter().map(|one| (one.site, one.blocks)).collect();
    assert_eq!(sites, [(1, 20)]);
}

#[test]
fn launches_are_work() {
    let mut run = rounds(50, &[Stays]);
    assert_eq!(growing_sites(&run), [], "nothing else happens");
    let times = run.allocations.iter().map(|it| it.start);
    run.work = times
        .zip(1..)
        .map(|(time, count)| (time, 10 * count))
        .collect();
    assert_eq!(growing_sites(&run)[0].blocks, 50);
}

/// Two callers of one function, neither of which grows by itself: none of them is named, in text or in JSON.
#[test]
fn call_sites_that_grow_together_have_the_frames_in_common() {
    let mut run = rounds(8, &[Stays, Temporary, Free]);
    let frame = |function: &str| Frame {
        function: function.to_owned(),
        in_app: true,
        ..Frame::default()
    };
    let through = |caller| CallSite {
        frames: vec![
            Frame {
                in_app: false,
                ..frame("cuMemAlloc_v2")
            },
            frame("alloc"),
            frame(caller),
            frame("run"),
        ],
        ..CallSite::default()
    };
    run.sites[1] = through("one");
    run.sites.push(through("other"));
    let kept = run.allocations.iter_mut().filter(|it| it.end == FOREVER);
    for (block, site) in kept.zip([1, 3].into_iter().cycle()) {
        block.site = site;
    }
    let found = growing_sites(&run);
    assert_eq!((found.len(), found[0].blocks), (1, 8));
    let functions = found[0].call_site.frames.iter();
    let functions: Vec<_> = functions.map(|frame| frame.function.as_str()).collect();
    assert_eq!(functions, ["cuMemAlloc_v2", "alloc"]);
    let overview = Overview::new(&run, At::Peak).expect("every run has a peak");
    let text = text_with_findings(&overview, Look::default());
    let (_, growing) = text.split_once("\ngrowing by ").expect("it grows");
    let stack: Vec<_> = growing.lines().skip(1).take(2).collect();
    assert_eq!(stack, ["    alloc", ""], "{text}");
    let document: serde_json::Value =
        serde_json::from_str(&json(&[overview], Look::default())).expect("it is JSON");
    let stack = document["runs"][0]["growing"][0]["stack"].as_array();
    assert_eq!(stack.map(Vec::len), Some(1), "{document}");
    // A call site that grows by itself has its whole stack trace.
    let one = &growing_sites(&rounds(8, &[Temporary, Stays, Free]))[0];
    assert_eq!(one.call_site, site(6));
}
