//! Verdicts from numbers alone: cases that are hard to stage.

use super::*;
use crate::registry::{Group, Kind, Level};
use crate::report::json_reader::{member_names, read};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// An H200, of which so much is free, and of which somebody asked for so much.
fn card(free: u64, asked: u64) -> OutOfMemory {
    let mut why = OutOfMemory {
        total: Some(140 * GIB),
        free: Some(free),
        processes: Processes::Known(Vec::new()),
        ..OutOfMemory::default()
    };
    why.asked.bytes = Some(asked);
    why.asked.kind = Some(Kind::Device);
    why.settings.level = Level::Sites;
    why
}

fn own(why: &mut OutOfMemory, bytes: u64) {
    why.held.push(Held::new(Kind::Device, 1, bytes));
    why.pages = Some(PageUse::new((bytes, bytes / (2 * MIB)), (0, 0)));
}

fn names(why: &OutOfMemory) -> Vec<&'static str> {
    why.causes().iter().map(Cause::name).collect()
}

#[test]
fn a_small_process_is_not_blamed_for_a_full_card() {
    let mut why = card(0, GIB);
    own(&mut why, 138 * GIB);
    why.processes = Processes::Known(vec![ProcessUse::new(7, GIB)]);
    assert_eq!(names(&why), ["own_data", "other_processes"]);
}

#[test]
fn a_leak_is_named_beside_what_rounding_costs() {
    let mut why = card(0, 64 * MIB);
    why.held.push(Held::new(Kind::Device, 30_000, 100 * GIB));
    why.pages = Some(PageUse::new((100 * GIB, 70_000), (0, 0)));
    let mut holder = Holder::new(Group::new(Kind::Device, "u8", 30_000, 100 * GIB));
    holder.quarters = [25 * GIB; 4];
    why.holders.push(holder);
    assert_eq!(names(&why), ["own_data", "rounding"]);
    assert!(matches!(
        why.causes()[0],
        Cause::OwnData { grows: true, .. }
    ));
}

/// Small places that grow, and host memory that grows, are not why the card is full.
#[test]
fn little_that_grows_is_not_the_cause() {
    let mut why = card(0, GIB);
    own(&mut why, 130 * GIB);
    for kind in [Kind::Device, Kind::Pinned] {
        let mut holder = Holder::new(Group::new(kind, "u8", 16, 4096));
        holder.quarters = [1024; 4];
        assert!(holder.grows());
        why.holders.push(holder);
    }
    assert!(matches!(
        why.causes()[..],
        [Cause::OwnData { grows: false, .. }]
    ));
}

/// A checkpoint at every step leaves little growth since the last.
#[test]
fn growth_is_seen_with_a_checkpoint_a_moment_ago() {
    let mut holder = Holder::new(Group::new(Kind::Device, "u8", 60, 60));
    (holder.quarters, holder.growth) = ([15; 4], Some(1));
    assert!(holder.grows());
    holder.growth = Some(0);
    assert!(!holder.grows());
}

/// In a container the own process may be listed under another number, and on a part of a card
/// processes of other parts are listed: nobody holds more than there is.
#[test]
fn others_hold_no_more_than_there_is() {
    let mut why = card(5 * GIB, 10 * GIB);
    own(&mut why, 130 * GIB);
    why.processes = Processes::Known(vec![ProcessUse::new(48_211, 131 * GIB)]);
    assert_eq!(names(&why), ["own_data", "other_processes"]);
    assert_eq!(why.causes()[1].bytes(), 5 * GIB);

    let mut slice = card(GIB, 2 * GIB);
    slice.total = Some(16 * GIB);
    own(&mut slice, 15 * GIB);
    slice.processes = Processes::Known(vec![ProcessUse::new(9, 60 * GIB)]);
    assert_eq!(names(&slice), ["own_data"]);
}

#[test]
fn what_does_not_fit_beside_a_context_is_not_larger_than_the_device() {
    let mut why = card(140 * GIB - 523 * MIB, 140 * GIB - MIB);
    assert_eq!(names(&why), ["unexplained"]);
    why.free = Some(133 * GIB);
    assert_eq!(why.causes(), [Cause::Unexplained { bytes: 7 * GIB }]);
}

#[test]
fn a_process_that_does_not_tell_is_named() {
    let mut why = card(5 * GIB, 10 * GIB);
    let mut silent = ProcessUse::new(7, 0);
    silent.bytes = None;
    why.processes = Processes::Known(vec![silent]);
    assert_eq!(names(&why), ["unexplained"]);
    assert!(
        why.to_text().contains("what pid 7 holds is not told"),
        "{why:#}"
    );
}

#[test]
fn managed_memory_is_somebodys() {
    let mut why = card(GIB, 10 * GIB);
    why.held.push(Held::new(Kind::Managed, 1, 138 * GIB));
    assert_eq!(why.unexplained(), GIB);
    why.asked.kind = Some(Kind::Managed);
    why.asked.bytes = Some(200 * GIB);
    assert!(!names(&why).contains(&"larger_than_device"));
}

/// Managed memory that lies on the host hides nobody, and a few own bytes explain nothing.
#[test]
fn what_is_elsewhere_or_tiny_hides_nobody() {
    let mut why = card(10 * GIB, 50 * GIB);
    why.held.push(Held::new(Kind::Managed, 1, 200 * GIB));
    why.processes = Processes::Known(vec![ProcessUse::new(3, 120 * GIB)]);
    assert_eq!(names(&why), ["other_processes"]);

    let mut why = card(140 * GIB - 523 * MIB, 140 * GIB - MIB);
    own(&mut why, 2 * MIB);
    assert_eq!(names(&why), ["unexplained"]);
}

/// A context on a card that others have filled, and one on a card that they have not.
#[test]
fn a_context_is_refused_by_somebody_large() {
    let mut why = card(0, 0);
    why.asked.bytes = None;
    why.processes = Processes::Known(vec![ProcessUse::new(1, 139 * GIB), ProcessUse::new(2, MIB)]);
    assert_eq!(names(&why), ["other_processes"]);
    why.processes = Processes::Known(vec![ProcessUse::new(2, 5 * MIB)]);
    assert_eq!(names(&why), ["unexplained"]);
}

/// A single small block keeps its page, but nothing would be free without it lying where it does.
#[test]
fn pages_that_are_needed_are_not_wasted() {
    let pages = PageUse::new((0, 0), (4, 1));
    assert_eq!(pages.pinned(), 0);
    assert_eq!(PageUse::new((0, 0), (4 * MIB, 7)).pinned(), 10 * MIB);
}

/// Whatever the numbers are, nothing panics, and the JSON can be read.
#[test]
fn extreme_numbers() {
    let most = u64::MAX;
    let mut why = card(0, most);
    for total in [None, Some(0), Some(1), Some(most)] {
        for free in [None, Some(0), Some(most)] {
            for asked in [None, Some(0), Some(most)] {
                (why.total, why.free, why.asked.bytes) = (total, free, asked);
                why.pages = Some(PageUse::new((most, most), (most, most)));
                why.pools = vec![
                    PoolUse::new("", most, 0),
                    PoolUse::new("\u{1b}[2J", most, most),
                ];
                why.pools[0].threshold = Some(most);
                why.contexts = vec![OtherContext::new(1, most), OtherContext::new(2, most)];
                let processes = vec![ProcessUse::new(0, most), ProcessUse::new(1, most)];
                why.processes = Processes::Known(processes);
                why.held = vec![Held::new(Kind::Device, most, most); 2];
                why.given_away = vec![Held::new(Kind::Managed, most, most); 2];
                why.busy_streams = most;
                let mut holder = Holder::new(Group::new(Kind::Device, "u8", most, most));
                (holder.growth, holder.quarters) = (Some(i64::MIN), [most; 4]);
                holder.small_pages = most;
                why.holders = vec![holder; 2];
                let text = why.to_text();
                assert!(!text.contains('\u{1b}') && !why.to_string().is_empty());
                read(&why.to_json()).expect("it is JSON");
            }
        }
    }
    assert!(!OutOfMemory::default().to_text().is_empty());
}

/// A stream, of which only the driver knows how much it takes.
fn of_unknown_size(free: u64) -> OutOfMemory {
    let mut why = card(free, 0);
    (why.asked.bytes, why.asked.kind) = (None, Some(Kind::Stream));
    why
}

#[test]
fn what_nobody_knows_the_size_of_is_more_than_is_free() {
    // A full card: whose data it is full of.
    let mut why = of_unknown_size(MIB);
    own(&mut why, 138 * GIB);
    assert_eq!(names(&why), ["own_data"]);
    assert!(why.to_text().contains("  - free some of it\n"), "{why:#}");
    // Pages that small blocks keep are of no use to the driver.
    why.pages = Some(PageUse::new((0, 0), (2 * GIB, 138 * GIB / (2 * MIB))));
    why.held = vec![Held::new(Kind::Device, 1, 2 * GIB)];
    assert_eq!(names(&why), ["fragmentation"]);
    // A card that is full of who knows what.
    assert_eq!(names(&of_unknown_size(MIB)), ["unexplained"]);
    // One that is nearly empty: what little is taken is not why.
    let mut why = of_unknown_size(130 * GIB);
    own(&mut why, GIB);
    assert!(why.causes().is_empty(), "{why:#}");
    assert!(
        why.to_text().contains("known to the driver alone"),
        "{why:#}"
    );
    assert!(!why.to_text().contains("what helps"), "{why:#}");
    why.asked.function = Some("cuLaunchKernel");
    assert!(
        why.to_text().contains("let the kernel need less"),
        "{why:#}"
    );
}

/// Every member of the JSON is in the document that describes them.
#[test]
fn the_document_names_every_member() {
    let mut why = card(0, 100 * GIB);
    own(&mut why, 50 * GIB);
    why.pages = Some(PageUse::new((0, 0), (GIB, 1 << 14)));
    why.pools.push(PoolUse::new("", 20 * GIB, 0));
    why.contexts.push(OtherContext::new(2, 20 * GIB));
    why.processes = Processes::Known(vec![ProcessUse::new(1, 20 * GIB)]);
    let holder = Holder::new(Group::new(Kind::Device, "u8", 1, 50 * GIB));
    why.holders.push(holder);
    why.attempts.push(Attempt {
        rung: Rung::Wait,
        allowed: true,
        tried: true,
        freed: 0,
    });
    let document = include_str!("../../docs/out-of-memory-schema.md");
    let mut found = Vec::new();
    for busy in [0, 1] {
        why.busy_streams = busy;
        found.extend(member_names(&read(&why.to_json()).expect("it is JSON")));
    }
    assert!(found.len() > 60);
    for name in found {
        assert!(
            document.contains(&format!("`{name}`")),
            "{name} is not in the document"
        );
    }
}
