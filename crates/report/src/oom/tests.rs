//! Causes from numbers alone: cases that are hard to produce on a device.

mod host;
mod whose;

use super::*;
use crate::tests_support::{items, member_names, read};
use cuguard_registry::{Amount, Group, Growth, ResourceKind, Rise, TrackingLevel};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// An H200 with `free` bytes, and a request of `request` bytes.
fn card(free: u64, request: u64) -> OutOfMemory {
    let mut why = OutOfMemory {
        total: Some(140 * GIB),
        free: Some(free),
        processes: Processes::Known(Vec::new()),
        ..OutOfMemory::default()
    };
    why.request.bytes = Some(request);
    why.request.kind = Some(ResourceKind::Device);
    why.settings.level = TrackingLevel::Sites;
    why
}

fn held(kind: ResourceKind, count: u64, bytes: u64) -> KindUsage {
    let amount = Amount::new(count, bytes);
    KindUsage { kind, amount }
}

/// Blocks with pages of their own and blocks that share pages, each as bytes and pages.
fn in_pages(large: (u64, u64), small: (u64, u64)) -> PageUse {
    PageUse {
        large_bytes: large.0,
        large_pages: large.1,
        small_bytes: small.0,
        small_pages: small.1,
        ..PageUse::default()
    }
}

fn pool(name: &str, reserved: u64, used: u64) -> PoolUse {
    PoolUse {
        name: name.to_owned(),
        reserved,
        used,
        threshold: None,
        of_cuguard: false,
    }
}

fn other_context(number: u64, bytes: u64) -> OtherContext {
    OtherContext {
        number,
        bytes,
        ..OtherContext::default()
    }
}

fn process(pid: u32, bytes: u64) -> ProcessUse {
    ProcessUse {
        pid,
        bytes: Some(bytes),
        ..ProcessUse::default()
    }
}

const GROWS: Growth = Growth::Grows(Rise {
    blocks: 8,
    first: 0,
    last: 9,
    only_lost: false,
});

/// A call site of which nothing else is known.
fn holder_of(group: Group) -> SiteUsage {
    SiteUsage {
        group,
        growth: None,
        trend: Growth::Steady,
        small_pages: 0,
    }
}

fn own(why: &mut OutOfMemory, bytes: u64) {
    why.usage.push(held(ResourceKind::Device, 1, bytes));
    why.pages = Some(in_pages((bytes, bytes / (2 * MIB)), (0, 0)));
}

fn names(why: &OutOfMemory) -> Vec<&'static str> {
    why.causes().iter().map(Cause::name).collect()
}

#[test]
fn a_small_process_is_not_blamed_for_a_full_card() {
    let mut why = card(0, GIB);
    own(&mut why, 138 * GIB);
    why.processes = Processes::Known(vec![process(7, GIB)]);
    assert_eq!(names(&why), ["own_data", "other_processes"]);
}

#[test]
fn a_leak_is_named_beside_what_rounding_costs() {
    let mut why = card(0, 64 * MIB);
    why.usage
        .push(held(ResourceKind::Device, 30_000, 100 * GIB));
    why.pages = Some(in_pages((100 * GIB, 70_000), (0, 0)));
    let mut holder = holder_of(Group::new(ResourceKind::Device, "u8", 30_000, 100 * GIB));
    holder.trend = GROWS;
    why.call_sites.push(holder);
    assert_eq!(names(&why), ["own_data", "rounding"]);
    assert!(matches!(
        why.causes()[0],
        Cause::OwnData { grows: true, .. }
    ));
}

/// Small call sites that grow, and host memory that grows, are not why the card is full.
#[test]
fn little_that_grows_is_not_the_cause() {
    let mut why = card(0, GIB);
    own(&mut why, 130 * GIB);
    for kind in [ResourceKind::Device, ResourceKind::Pinned] {
        let mut holder = holder_of(Group::new(kind, "u8", 16, 4096));
        holder.trend = GROWS;
        assert!(holder.grows());
        why.call_sites.push(holder);
    }
    assert!(matches!(
        why.causes()[..],
        [Cause::OwnData { grows: false, .. }]
    ));
}

/// A checkpoint at every step leaves little growth since the last.
#[test]
fn growth_is_seen_with_a_checkpoint_a_moment_ago() {
    let mut holder = holder_of(Group::new(ResourceKind::Device, "u8", 60, 60));
    (holder.trend, holder.growth) = (GROWS, Some(1));
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
    why.processes = Processes::Known(vec![process(48_211, 131 * GIB)]);
    assert_eq!(names(&why), ["own_data", "other_processes"]);
    assert_eq!(why.causes()[1].bytes(), 5 * GIB);

    let mut slice = card(GIB, 2 * GIB);
    slice.total = Some(16 * GIB);
    own(&mut slice, 15 * GIB);
    slice.processes = Processes::Known(vec![process(9, 60 * GIB)]);
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
    let mut silent = process(7, 0);
    silent.bytes = None;
    why.processes = Processes::Known(vec![silent]);
    assert_eq!(names(&why), ["unexplained"]);
    assert!(
        why.to_text().contains("what pid 7 holds is unknown"),
        "{why:#}"
    );
}

#[test]
fn managed_memory_is_somebodys() {
    let mut why = card(GIB, 10 * GIB);
    why.usage.push(held(ResourceKind::Managed, 1, 138 * GIB));
    assert_eq!(why.shares().rest, GIB);
    why.request.kind = Some(ResourceKind::Managed);
    why.request.bytes = Some(200 * GIB);
    assert!(!names(&why).contains(&"larger_than_device"));
}

/// Managed memory that lies on the host hides nobody, and a few own bytes explain nothing.
#[test]
fn what_is_elsewhere_or_tiny_hides_nobody() {
    let mut why = card(10 * GIB, 50 * GIB);
    why.usage.push(held(ResourceKind::Managed, 1, 200 * GIB));
    why.processes = Processes::Known(vec![process(3, 120 * GIB)]);
    assert_eq!(names(&why), ["other_processes"]);

    let mut why = card(140 * GIB - 523 * MIB, 140 * GIB - MIB);
    own(&mut why, 2 * MIB);
    assert_eq!(names(&why), ["unexplained"]);
}

/// A context on a card that others have filled, and one on a card that they have not.
#[test]
fn a_context_is_refused_by_somebody_large() {
    let mut why = card(0, 0);
    why.request.bytes = None;
    why.processes = Processes::Known(vec![process(1, 139 * GIB), process(2, MIB)]);
    assert_eq!(names(&why), ["other_processes"]);
    why.processes = Processes::Known(vec![process(2, 5 * MIB)]);
    assert_eq!(names(&why), ["unexplained"]);
}

/// A call site that grows.
fn growing(kind: ResourceKind, bytes: u64) -> SiteUsage {
    let mut holder = holder_of(Group::new(kind, "u8", 1000, bytes));
    holder.trend = GROWS;
    holder
}

/// A little that a pool keeps does not hide what leaks through it.
#[test]
fn a_leak_beside_a_pool_with_a_little_to_spare() {
    let mut why = card(0, GIB);
    why.usage
        .push(held(ResourceKind::StreamOrdered, 1000, 130 * GIB));
    why.pages = Some(PageUse::default());
    why.pools.push(pool("", 132 * GIB, 130 * GIB));
    let mut holder = growing(ResourceKind::StreamOrdered, 130 * GIB);
    holder.growth = Some(120 << 30);
    why.call_sites.push(holder);
    assert_eq!(names(&why), ["own_data", "hoarded_by_pools"]);
    assert!(why.to_text().contains("and grows"), "{why:#}");
    assert!(why.to_text().contains("grew by 120 GiB"), "{why:#}");
    // On one line it is clear where one cause ends and the next begins.
    let line = why.to_string();
    let causes = "takes 130 GiB, and grows; memory pools have 2 GiB that they do not use";
    assert!(line.ends_with(causes), "{line}");
    // The same without growth: a little waste is not why the card is full.
    why.call_sites[0].growth = Some(0);
    assert_eq!(names(&why), ["own_data", "hoarded_by_pools"]);
    assert!(!why.to_text().contains("and grows"), "{why:#}");
}

#[test]
fn a_leak_of_small_blocks_with_a_few_holes() {
    let mut why = card(0, GIB);
    why.usage
        .push(held(ResourceKind::Device, 130_000, 130 * GIB));
    why.pages = Some(in_pages((0, 0), (130 * GIB, 134 * 512)));
    let mut holder = growing(ResourceKind::Device, 130 * GIB);
    holder.small_pages = 134 * 512;
    why.call_sites.push(holder);
    assert_eq!(names(&why), ["own_data", "fragmentation"]);
    assert!(why.to_text().contains("and grows"), "{why:#}");
}

#[test]
fn rounding_that_is_next_to_nothing_hides_no_data() {
    let mut why = card(0, 64 * MIB);
    why.usage.push(held(ResourceKind::Device, 50, 138 * GIB));
    why.pages = Some(in_pages((138 * GIB, 138 * 512 + 50), (0, 0)));
    assert_eq!(names(&why), ["own_data", "rounding"]);
}

/// Where half of the small blocks was freed, and the rest of the card is one block, the pages are
/// why; also where the small blocks are of all ages.
#[test]
fn much_waste_stands_alone() {
    let mut why = card(0, 20 * GIB);
    why.usage
        .push(held(ResourceKind::Device, 30_721, 109 * GIB));
    why.pages = Some(in_pages((79 * GIB, 79 * 512), (30 * GIB, 60 * 512)));
    let mut holder = growing(ResourceKind::Device, 30 * GIB);
    holder.small_pages = 60 * 512;
    why.call_sites = vec![
        holder_of(Group::new(ResourceKind::Device, "u8", 1, 79 * GIB)),
        holder,
    ];
    assert_eq!(names(&why), ["fragmentation"]);

    let mut why = card(0, 20 * GIB);
    own(&mut why, 79 * GIB);
    why.usage
        .push(held(ResourceKind::StreamOrdered, 1000, 30 * GIB));
    why.pools.push(pool("", 60 * GIB, 30 * GIB));
    why.call_sites
        .push(growing(ResourceKind::StreamOrdered, 30 * GIB));
    assert_eq!(names(&why), ["hoarded_by_pools"]);
    // Also where most of it waits to be freed.
    (why.busy_streams, why.pending_bytes) = (1, 27 * GIB);
    assert_eq!(names(&why), ["pending_frees", "hoarded_by_pools"]);
    // Both are in the same pools, which are listed once.
    let told = why.to_text().matches("\n     : 60 GiB reserved").count();
    assert_eq!(told, 1, "{why:#}");
}

/// Where as much is free as was requested, holders of the rest are no cause.
#[test]
fn memory_that_is_free_and_refused() {
    let mut why = card(70 * GIB, 10 * GIB);
    own(&mut why, 60 * GIB);
    why.processes = Processes::Known(vec![process(7, 8 * GIB)]);
    assert_eq!(names(&why), ["free_but_refused"]);
    let text = why.to_text();
    assert!(
        text.contains("why: 70 GiB are free, and yet it was refused"),
        "{text}"
    );
    assert!(text.contains("OomPolicy::probe_largest(true)"), "{text}");
    assert!(text.contains("MPS") && text.contains("cuguard doctor"));
    why.largest = Some(4 * GIB);
    let text = why.to_text();
    assert!(text.contains("the largest block that can be allocated is 4 GiB"));
    assert!(!text.contains("probe_largest"), "{text}");
    why.largest = Some(70 * GIB);
    assert!(why.to_text().contains("try again"), "{why:#}");
    // Waste is named all the same.
    why.pages = Some(in_pages((0, 0), (60 * GIB, 61 * 1024)));
    assert_eq!(names(&why), ["free_but_refused", "fragmentation"]);
    // Whole pages are allocated: less is free than needed.
    let mut why = card(3 * MIB, 3 * MIB);
    own(&mut why, 138 * GIB);
    assert_eq!(names(&why), ["own_data"]);
}

#[test]
fn more_than_the_limit_and_more_than_the_device() {
    let mut why = card(139 * GIB, 20 * GIB);
    why.limit = Some(Limit {
        bytes: 10 * GIB,
        held: GIB,
        refused: true,
        of_pool: false,
    });
    assert_eq!(names(&why), ["memory_limit"]);
    let text = why.to_text();
    assert!(
        text.contains("why: 20 GiB were requested, and the limit is 10 GiB"),
        "{text}"
    );
    assert!(text.contains("raise memory_limit from 10 GiB"), "{text}");
    assert!(!text.contains("free some of it"), "{text}");

    why.request.bytes = Some(200 * GIB);
    assert_eq!(names(&why), ["memory_limit", "larger_than_device"]);
    let text = why.to_text();
    assert!(!text.contains("raise memory_limit"), "{text}");
    assert_eq!(text.matches("cuguard::Chunked").count(), 1, "{text}");

    // It would fit the limit, and with what is held not the device.
    why.request.bytes = Some(8 * GIB);
    (why.limit.as_mut().unwrap().held, why.total) = (9 * GIB, Some(16 * GIB));
    let text = why.to_text();
    assert!(text.contains("9 GiB of the 10 GiB"), "{text}");
    assert!(!text.contains("raise memory_limit"), "{text}");
}

/// Only what the verdict calls growing has a line that says so.
#[test]
fn details_agree_with_the_verdict() {
    let mut why = card(0, GIB);
    own(&mut why, 130 * GIB);
    why.call_sites = vec![
        growing(ResourceKind::Pinned, 4096),
        growing(ResourceKind::Device, 4096),
    ];
    let text = why.to_text();
    assert!(!text.contains("and grows"), "{text}");
    assert!(
        !text.contains("throughout the context's lifetime"),
        "{text}"
    );
    why.call_sites
        .push(growing(ResourceKind::Device, 100 * GIB));
    let text = why.to_text();
    assert!(text.contains("and grows"), "{text}");
    assert_eq!(text.matches("throughout the context's lifetime").count(), 1);
}

/// Advice comes from the settings, and nothing is said that is so already.
#[test]
fn advice_knows_the_settings() {
    let mut why = card(0, GIB);
    why.usage.push(held(ResourceKind::Device, 100, 130 * GIB));
    let has = |why: &OutOfMemory, text: &str| why.advice().iter().any(|one| one.contains(text));
    let record = |why: &mut OutOfMemory, level, sample| {
        (why.settings.level, why.settings.sample) = (level, sample);
    };
    record(&mut why, TrackingLevel::Counts, 1);
    assert!(has(&why, "level=sites") && !has(&why, "sample=1"));
    let unknown = "how it lies in pages is unknown (level counts)";
    assert!(why.to_text().contains(unknown), "{why:#}");
    record(&mut why, TrackingLevel::Sites, 100);
    assert!(has(&why, "sample=1") && !has(&why, "level=sites"));
    let unknown = "how it lies in pages is unknown (one resource in 100 is recorded)";
    assert!(why.to_text().contains(unknown), "{why:#}");
    why.pages = Some(in_pages((130 * GIB, 130 * 512), (0, 0)));
    assert!(!has(&why, "sample=1") && !why.to_text().contains("is unknown"));

    assert!(has(&why, "Context::release_on_oom"));
    why.settings.callbacks = 1;
    assert!(!has(&why, "release_on_oom"));
    why.recovery.push(RecoveryResult {
        step: RecoveryStep::Callbacks,
        allowed: false,
        tried: false,
        freed: 0,
    });
    assert!(has(&why, "OomPolicy::callbacks(true)"));
    let json = read(&why.to_json());
    assert_eq!(items(&json["advice"]).len(), why.advice().len());
}

/// A single small block keeps its page, but nothing would be free without it lying where it does.
#[test]
fn pages_that_are_needed_are_not_wasted() {
    let pages = in_pages((0, 0), (4, 1));
    assert_eq!(pages.pinned(), 0);
    assert_eq!(in_pages((0, 0), (4 * MIB, 7)).pinned(), 10 * MIB);
}

/// Whatever the numbers are, nothing panics, and the JSON can be read.
#[test]
fn extreme_numbers() {
    let most = u64::MAX;
    let mut why = card(0, most);
    for total in [None, Some(0), Some(1), Some(most)] {
        for free in [None, Some(0), Some(most)] {
            for request in [None, Some(0), Some(most)] {
                (why.total, why.free, why.request.bytes) = (total, free, request);
                why.pages = Some(in_pages((most, most), (most, most)));
                why.pools = vec![pool("", most, 0), pool("\u{1b}[2J", most, most)];
                why.pools[0].threshold = Some(most);
                why.contexts = vec![other_context(1, most), other_context(2, most)];
                let processes = vec![process(0, most), process(1, most)];
                why.processes = Processes::Known(processes);
                why.usage = vec![held(ResourceKind::Device, most, most); 2];
                why.escaped = vec![held(ResourceKind::Managed, most, most); 2];
                (why.busy_streams, why.pending_bytes) = (most, most);
                let mut holder = holder_of(Group::new(ResourceKind::Device, "u8", most, most));
                (holder.growth, holder.trend) = (Some(i64::MIN), GROWS);
                holder.small_pages = most;
                why.call_sites = vec![holder; 2];
                let text = why.to_text();
                assert!(!text.contains('\u{1b}') && !why.to_string().is_empty());
                read(&why.to_json());
            }
        }
    }
    assert!(!OutOfMemory::default().to_text().is_empty());
}

/// A stream, of which only the driver knows how much it takes.
fn of_unknown_size(free: u64) -> OutOfMemory {
    let mut why = card(free, 0);
    (why.request.bytes, why.request.kind) = (None, Some(ResourceKind::Stream));
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
    why.pages = Some(in_pages((0, 0), (2 * GIB, 138 * GIB / (2 * MIB))));
    why.usage = vec![held(ResourceKind::Device, 1, 2 * GIB)];
    assert_eq!(names(&why), ["fragmentation"]);
    // A card that is full of who knows what.
    assert_eq!(names(&of_unknown_size(MIB)), ["unexplained"]);
    // One that is nearly empty: what little is taken is not why.
    let mut why = of_unknown_size(130 * GIB);
    own(&mut why, GIB);
    assert_eq!(names(&why), ["free_but_refused"]);
    // But a kernel may want any amount.
    why.request.function = Some("cuLaunchKernel");
    assert!(why.causes().is_empty(), "{why:#}");
    assert!(
        why.to_text().contains("only the driver knows how much"),
        "{why:#}"
    );
    assert_eq!(why.advice().len(), 1);
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
    why.pages = Some(in_pages((0, 0), (GIB, 1 << 14)));
    why.pools.push(pool("", 20 * GIB, 0));
    why.contexts.push(other_context(2, 20 * GIB));
    why.processes = Processes::Known(vec![process(1, 20 * GIB)]);
    let holder = holder_of(Group::new(ResourceKind::Device, "u8", 1, 50 * GIB));
    why.call_sites.push(holder);
    why.recovery.push(RecoveryResult {
        step: RecoveryStep::Wait,
        allowed: true,
        tried: true,
        freed: 0,
    });
    let document = include_str!("../../../../docs/out-of-memory-schema.md");
    let mut found = Vec::new();
    for busy in [0, 1] {
        (why.busy_streams, why.pending_bytes) = (busy, busy * GIB);
        found.extend(member_names(&read(&why.to_json())));
    }
    assert!(found.len() > 60);
    for name in found {
        assert!(
            document.contains(&format!("`{name}`")),
            "{name} is not in the document"
        );
    }
}
