//! Runs out of recordings: what fits together, and what does not.

use crate::support::{
    DEVICE, Names, ORDERED, PINNED, STREAM, allocated, at, freed, recording, run,
};
use cuguard_recording::{Diagnosis, End, Found, Frame, Stack, What};
use cuguard_view::{FOREVER, Fate, Frames, Mark, MarkKind, Origin, Run};

/// Begin and end of each allocation.
fn spans(run: &Run) -> Vec<(u64, u64)> {
    let allocations = run.allocations.iter();
    allocations.map(|a| (a.start, a.end)).collect()
}

#[test]
fn allocations_are_paired_with_their_frees() {
    let run = run(vec![
        at(1, allocated(DEVICE, 0x7000, 512, 1)),
        at(2, allocated(STREAM, 0x7000, 0, 2)),
        at(3, freed(DEVICE, 0x7000)),
        at(4, allocated(DEVICE, 0x7000, 256, 3)),
    ]);
    assert_eq!(spans(&run), [(1, 3), (2, FOREVER), (4, FOREVER)]);
    assert_eq!(run.end, 4);
    assert!(!run.exited && run.problems.is_empty());
    let block = &run.allocations[2];
    assert_eq!((block.bytes, block.context, block.thread), (256, 1, 1));
    let site = &run.sites[block.site as usize];
    assert_eq!(site.type_name, "f32");
    let frame = site
        .shown(Frames::Program)
        .next()
        .expect("the line is known");
    assert_eq!((frame.function.as_str(), frame.line), ("src/line.rs:7", 7));
    let site = &run.sites[run.allocations[0].site as usize];
    assert_eq!(
        site.shown(Frames::Program)
            .next()
            .expect("it is resolved")
            .function,
        "app::load"
    );
    assert_eq!(site.frames.len(), 3);
}

#[test]
fn a_free_without_an_allocation_is_left_out_and_listed() {
    let run = run(vec![
        at(1, freed(DEVICE, 0x7000)),
        at(2, freed(DEVICE, 0x8000)),
        at(3, allocated(DEVICE, 0x7000, 512, 1)),
    ]);
    assert_eq!(spans(&run), [(3, FOREVER)]);
    assert_eq!(run.problems.len(), 1);
    assert!(run.problems[0].starts_with("2 frees have no allocation"));
}

#[test]
fn an_address_that_is_reused_ends_what_was_there() {
    let run = run(vec![
        at(1, allocated(DEVICE, 0x7000, 512, 1)),
        at(5, allocated(DEVICE, 0x7000, 128, 2)),
        at(9, freed(DEVICE, 0x7000)),
    ]);
    assert_eq!(spans(&run), [(1, 5), (5, 9)]);
    assert_eq!(
        run.problems,
        ["1 address was allocated again without a free"]
    );
}

#[test]
fn a_context_ends_with_what_it_had_but_for_what_belongs_to_the_device() {
    let mut other = allocated(DEVICE, 0x9000, 1, 1);
    if let What::Allocated { context, .. } = &mut other {
        *context = 2;
    }
    let run = run(vec![
        at(
            0,
            What::ContextCreated {
                context: 1,
                device: 3,
            },
        ),
        at(1, allocated(DEVICE, 0x7000, 512, 1)),
        at(2, allocated(ORDERED, 0x8000, 512, 1)),
        at(3, other),
        at(4, allocated(STREAM, 0x1, 0, 1)),
        at(5, What::ContextEnded { context: 1 }),
        at(6, freed(ORDERED, 0x8000)),
    ]);
    assert_eq!(spans(&run), [(1, 5), (2, 6), (3, FOREVER), (4, 5)]);
    let leaked: Vec<bool> = run.allocations.iter().map(|a| a.leaked).collect();
    assert_eq!(leaked, [true, false, false, true]);
    assert!(run.problems.is_empty(), "{:?}", run.problems);
    let created = MarkKind::ContextCreated {
        context: 1,
        device: 3,
    };
    let ended = MarkKind::ContextEnded { context: 1 };
    assert_eq!(
        run.marks[0],
        Mark {
            time: 0,
            kind: created
        }
    );
    assert_eq!(
        run.marks[1],
        Mark {
            time: 5,
            kind: ended
        }
    );
}

#[test]
fn what_teardown_freed_was_leaked() {
    let reclaimed = What::Reclaimed {
        kind: ORDERED,
        address: 0x7000,
        context: 1,
    };
    let run = run(vec![
        at(1, allocated(ORDERED, 0x7000, 512, 1)),
        at(2, allocated(DEVICE, 0x8000, 512, 1)),
        at(3, freed(DEVICE, 0x8000)),
        at(4, reclaimed),
    ]);
    assert_eq!(spans(&run), [(1, 4), (2, 3)]);
    assert!(run.allocations[0].leaked && !run.allocations[1].leaked);
    assert!(run.problems.is_empty(), "{:?}", run.problems);
}

/// A free that fails is recorded as a free and an allocation with the same fields.
#[test]
fn what_is_put_back_is_alive_again() {
    let run = run(vec![
        at(1, allocated(DEVICE, 0x7000, 512, 1)),
        at(4, freed(DEVICE, 0x7000)),
        at(4, allocated(DEVICE, 0x7000, 512, 1)),
    ]);
    assert_eq!(spans(&run), [(1, 4), (4, FOREVER)]);
    let moment = cuguard_view::moment(&run, cuguard_view::At::Exit).expect("every run has an end");
    assert_eq!((moment.total.count, moment.device_bytes), (1, 512));
}

#[test]
fn a_free_in_another_context_finds_what_it_frees() {
    let free = What::Freed {
        kind: DEVICE,
        address: 0x7000,
        context: 9,
    };
    let run = run(vec![at(1, allocated(DEVICE, 0x7000, 512, 1)), at(2, free)]);
    assert_eq!(spans(&run), [(1, 2)]);
    assert!(run.problems.is_empty());
}

#[test]
fn events_are_put_in_order_and_the_exit_is_the_end() {
    let mut recording = recording(vec![
        at(7, freed(DEVICE, 0x7000)),
        at(2, allocated(DEVICE, 0x7000, 512, 1)),
    ]);
    recording.end = End::Exit { time: 100 };
    recording.problems.push("chunk 9 is torn".to_owned());
    let run = Run::from_recording(recording, &mut Names);
    assert_eq!(spans(&run), [(2, 7)]);
    assert!(run.exited);
    assert_eq!(run.end, 100);
    assert_eq!(run.problems, ["chunk 9 is torn"]);
}

/// The size limit drops events of each thread for itself: the free may be dropped and the allocation not.
#[test]
fn an_allocation_whose_free_may_be_dropped_is_left_out() {
    let mut recording = recording(vec![
        at(10, allocated(DEVICE, 0x1000, 512, 1)),
        at(11, allocated(DEVICE, 0x2000, 512, 1)),
        at(12, allocated(ORDERED, 0x3000, 512, 1)),
        at(13, allocated(ORDERED, 0x4000, 512, 1)),
        at(20, allocated(DEVICE, 0x5000, 512, 1)),
        at(21, allocated(ORDERED, 0x6000, 512, 1)),
        at(30, freed(DEVICE, 0x1000)),
        at(
            31,
            What::Reclaimed {
                kind: ORDERED,
                address: 0x4000,
                context: 1,
            },
        ),
        at(40, What::ContextEnded { context: 1 }),
    ]);
    recording.complete_from = 20;
    let run = Run::from_recording(recording, &mut Names);
    // Those at 11 and 12 may have been freed; the one at 13 was not.
    assert_eq!(spans(&run), [(10, 30), (13, 31), (20, 40), (21, FOREVER)]);
    assert_eq!(
        run.problems,
        [
            "2 allocations are left out, from before 0.000 s: the free may be among the events that the size limit dropped"
        ]
    );
}

/// The free of the older one is among the events that were dropped: when it was freed is unknown, but not when its address is
/// allocated again.
#[test]
fn an_address_that_is_reused_after_events_were_dropped_ends_nothing() {
    let mut recording = recording(vec![
        at(10, allocated(DEVICE, 0x1000, 512, 1)),
        at(20, allocated(DEVICE, 0x2000, 64, 1)),
        at(40, allocated(DEVICE, 0x1000, 128, 2)),
        at(50, allocated(DEVICE, 0x2000, 32, 2)),
    ]);
    recording.complete_from = 20;
    let run = Run::from_recording(recording, &mut Names);
    assert_eq!(spans(&run), [(20, 50), (40, FOREVER), (50, FOREVER)]);
    let moment = cuguard_view::moment(&run, cuguard_view::At::Time(30)).expect("it is in the run");
    assert_eq!(moment.device_bytes, 64);
    assert_eq!(
        run.problems,
        [
            "1 allocation is left out, from before 0.000 s: the free may be among the events that the size limit dropped",
            "1 address was allocated again without a free",
        ]
    );
}

#[test]
fn references_to_what_is_not_there_are_unknown_and_listed() {
    let mut event = at(1, allocated(200, 0x7000, 512, 99));
    event.thread = 77;
    let run = run(vec![
        event,
        at(
            2,
            What::OutOfMemory {
                bytes: 9,
                stack: 88,
                context: 0,
            },
        ),
    ]);
    let block = &run.allocations[0];
    assert_eq!((block.site, block.thread), (0, 0));
    assert_eq!(run.kinds[usize::from(block.kind)].name, "unknown_200");
    assert!(
        run.problems[0].contains("refer to stacks, names or kinds"),
        "{:?}",
        run.problems
    );
    assert_eq!(
        run.marks[0].kind,
        MarkKind::OutOfMemory {
            bytes: 9,
            site: 0,
            thread: 1,
            diagnosis: String::new(),
        }
    );
}

#[test]
fn stacks_with_equal_names_are_one_call_site_and_foreign_frames_are_named() {
    let mut recording = recording(vec![
        at(1, allocated(DEVICE, 0x1000, 1, 4)),
        at(1, allocated(DEVICE, 0x2000, 1, 5)),
        at(1, allocated(DEVICE, 0x3000, 1, 6)),
    ]);
    // Both are in `main`.
    for address in [0x200, 0x208] {
        recording.stacks.push(Stack {
            frames: vec![Frame::Native(address)],
            ..Stack::default()
        });
    }
    recording.stacks.push(Stack {
        frames: vec![Frame::Foreign {
            function: "forward".into(),
            file: "net.py".into(),
            line: 5,
        }],
        ..Stack::default()
    });
    let run = Run::from_recording(recording, &mut Names);
    assert_eq!(run.allocations[0].site, run.allocations[1].site);
    let python = run.sites[run.allocations[2].site as usize]
        .shown(Frames::Program)
        .next();
    let python = python.expect("it has a frame");
    assert_eq!(
        (python.function.as_str(), python.file.as_str(), python.line),
        ("forward", "net.py", 5)
    );
    assert!(python.in_app);
}

#[test]
fn an_empty_recording_is_a_run() {
    let run = Run::from_recording(Default::default(), &mut Names);
    assert_eq!((run.end, run.sites.len(), run.names.len()), (0, 1, 1));
    let moment = cuguard_view::moment(&run, cuguard_view::At::Peak).expect("every run has a peak");
    assert!(moment.alive.is_empty());
}

#[test]
fn failed_allocations_have_their_diagnosis() {
    let failed = |bytes| What::OutOfMemory {
        bytes,
        stack: 1,
        context: 0,
    };
    let mut recording = recording(vec![at(10, failed(5)), at(20, failed(6))]);
    let diagnosis = |time, thread, text: &str| Diagnosis {
        time,
        thread,
        text: text.to_owned(),
    };
    recording.diagnoses = vec![
        // The size limit dropped its event.
        diagnosis(5, 2, "dropped"),
        diagnosis(20, 1, "why: it is large"),
    ];
    let run = Run::from_recording(recording, &mut Names);
    let marks: Vec<_> = run
        .marks
        .iter()
        .map(|mark| match &mark.kind {
            MarkKind::OutOfMemory {
                bytes,
                thread,
                diagnosis,
                ..
            } => (mark.time, *bytes, *thread, diagnosis.as_str()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        marks,
        [
            (5, 0, 2, "dropped"),
            (10, 5, 1, ""),
            (20, 6, 1, "why: it is large")
        ]
    );
}

#[test]
fn what_a_search_found_is_the_fate_of_what_is_alive() {
    let mut recording = recording(vec![
        at(10, allocated(DEVICE, 0x1000, 512, 1)),
        at(20, freed(DEVICE, 0x1000)),
        at(30, allocated(DEVICE, 0x1000, 64, 1)),
        at(40, allocated(DEVICE, 0x2000, 32, 1)),
        at(50, allocated(PINNED, 0x2000, 16, 1)),
    ]);
    let found = |kind, address, lost| Found {
        kind,
        address,
        context: 1,
        lost,
    };
    recording.found = vec![
        found(DEVICE, 0x1000, true),
        found(PINNED, 0x2000, false),
        found(DEVICE, 0x3000, true),
    ];
    let fates = |recording| {
        let run = Run::from_recording(recording, &mut Names);
        let fates: Vec<_> = run.allocations.iter().map(|one| one.fate).collect();
        (fates, run.problems.len())
    };
    assert_eq!(
        fates(recording.clone()),
        (
            vec![Fate::Unknown, Fate::Lost, Fate::Unknown, Fate::Reachable],
            0
        )
    );
    // Events are missing: what was found at the end was not freed, the third may have been.
    recording.complete_from = 1000;
    assert_eq!(
        fates(recording),
        (vec![Fate::Unknown, Fate::Lost, Fate::Reachable], 1)
    );
}

#[test]
fn a_recording_says_what_its_times_count_from() {
    for (begin, origin) in [(0, Origin::Recording), (7, Origin::Program)] {
        let mut recording = recording(vec![at(10, allocated(DEVICE, 0x1000, 512, 1))]);
        recording.begin = begin;
        let run = Run::from_recording(recording, &mut Names);
        assert_eq!((run.origin, run.begin), (origin, begin));
    }
}
