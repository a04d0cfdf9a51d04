//! What ended with its context and was not freed: it is not alive at the end, and still a leak.

use crate::support;
use crate::support::{DEVICE, Names, ORDERED, STREAM, allocated, at, freed, recording, run};
use cuguard_recording::{Found, What};
use cuguard_view::{
    At, Look, Overview, Run, diff, growing_sites, json, moment, text, text_with_findings,
};

/// 512 bytes and a stream end with their context, 64 bytes are alive at the end, 256 bytes are freed.
fn leaking() -> Run {
    run(vec![
        at(1, allocated(DEVICE, 0x7000, 512, 1)),
        at(2, allocated(STREAM, 0x9000, 0, 1)),
        at(3, allocated(ORDERED, 0x8000, 64, 2)),
        at(4, allocated(DEVICE, 0xa000, 256, 2)),
        at(5, freed(DEVICE, 0xa000)),
        at(6, What::ContextEnded { context: 1 }),
        at(7, What::ContextEnded { context: 2 }),
    ])
}

#[test]
fn the_moment_exit_has_what_was_not_freed() {
    let run = leaking();
    let at_exit = moment(&run, At::Exit).expect("every run has an end");
    assert_eq!((at_exit.total.count, at_exit.total.bytes), (3, 576));
    assert_eq!(at_exit.device_bytes, 576);
    // The last moment has what was alive.
    let last = moment(&run, At::Percent(100.0)).expect("every run has an end");
    assert_eq!(last.device_bytes, 64);
    let clean = support::run(vec![
        at(1, allocated(DEVICE, 0x7000, 512, 1)),
        at(2, freed(DEVICE, 0x7000)),
        at(3, What::ContextEnded { context: 1 }),
    ]);
    let clean = moment(&clean, At::Exit).expect("every run has an end");
    assert_eq!(clean.total.count, 0);
    let grown = diff(&clean, &at_exit);
    assert_eq!(
        grown.changes.iter().map(|one| one.bytes()).sum::<i128>(),
        576
    );
}

#[test]
fn text_and_json_say_so() {
    let run = leaking();
    let overview = Overview::new(&run, At::Exit).expect("every run has an end");
    assert_eq!((overview.leaked.count, overview.leaked.bytes), (2, 512));
    assert_eq!(overview.device_bytes_at_end, 64);
    let page = text(&overview, Look::default());
    assert!(page.contains(", at the end 64 B\n"), "{page}");
    assert!(
        page.contains("\n  not freed before their context ended: 512 B in 2 resources\n"),
        "{page}"
    );
    assert!(
        page.contains("\nnot freed at the end of the recording, after 7 ns (no exit was recorded): 512 B in 1 allocation of device memory"),
        "{page}"
    );
    let document: serde_json::Value =
        serde_json::from_str(&json(&[overview], Look::default())).expect("it is JSON");
    let run = &document["runs"][0];
    assert_eq!(
        (&run["leaked"]["count"], &run["leaked"]["bytes"]),
        (&2.into(), &512.into())
    );
    assert_eq!(run["end"]["bytes"], 64);
    assert_eq!(run["moment"]["bytes"], 576);
}

/// Before the moment, with their stack traces.
#[test]
fn findings_have_what_ended_with_its_context() {
    let run = leaking();
    let overview = Overview::new(&run, At::Peak).expect("every run has a peak");
    let text = text_with_findings(&overview, Look::default());
    let first = "512 B in 1 allocation and 1 stream not freed before their context ended; 64 B in 1 allocation alive at the end of the recording";
    assert!(
        text.lines()
            .next()
            .is_some_and(|line| line.ends_with(first)),
        "{text}"
    );
    let leak = text.find("\nnot freed 512 B in 1 allocation of device memory and 1 stream\n");
    let moment = text.find("\nalive at the peak, ");
    assert!(leak.is_some() && leak < moment, "{text}");
}

/// Blocks that were allocated in one go may be loaded data. Lost ones are a leak, whenever they were allocated.
#[test]
fn lost_blocks_grow_also_if_they_were_allocated_in_one_go() {
    let mut events: Vec<_> = (1..=8)
        .map(|number| at(number, allocated(DEVICE, number << 20, 100, 1)))
        .collect();
    for round in 0..100 {
        events.push(at(20 + 2 * round, allocated(DEVICE, 0x10, 1, 2)));
        events.push(at(21 + 2 * round, freed(DEVICE, 0x10)));
    }
    for (lost, expected) in [(true, vec![(8, 0, 800)]), (false, vec![])] {
        let mut recording = recording(events.clone());
        recording.found = (1..=8_u64)
            .map(|number| Found {
                kind: DEVICE,
                address: number << 20,
                context: 1,
                lost,
            })
            .collect();
        let run = Run::from_recording(recording, &mut Names);
        let growing = growing_sites(&run).into_iter();
        let growing: Vec<_> = growing
            .map(|site| (site.blocks, site.from, site.to))
            .collect();
        assert_eq!(growing, expected, "lost: {lost}");
    }
}
