//! Tests of what a snapshot groups.

use std::thread;

use crate::{
    Amount, ContextInfo, Entry, FailedFree, Key, Registry, ResourceKind, Snapshot, TrackingLevel,
    label,
};

fn key(kind: ResourceKind, address: u64) -> Key {
    Key {
        kind,
        slot: 0,
        address,
    }
}

fn entry(bytes: u64, type_name: &'static str) -> Entry {
    Entry {
        bytes,
        type_name,
        stream: 0,
    }
}

fn snapshot(registry: &Registry) -> Snapshot {
    registry.snapshot(ContextInfo::default())
}

#[test]
fn an_empty_registry_gives_an_empty_snapshot() {
    let snapshot = snapshot(&Registry::new(TrackingLevel::Sites, 8));
    assert!(snapshot.is_clean() && snapshot.totals.is_empty());
}

#[test]
fn equal_resources_are_one_group_and_the_largest_comes_first() {
    let registry = Registry::new(TrackingLevel::Sites, 8);
    for address in 1..=3 {
        registry.insert(key(ResourceKind::Device, address), entry(10, "f32"));
    }
    registry.insert(key(ResourceKind::Device, 4), entry(100, "f64"));
    registry.insert(key(ResourceKind::Stream, 5), entry(0, ""));
    let snapshot = snapshot(&registry);
    let rows: Vec<_> = snapshot
        .live
        .iter()
        .map(|g| (g.type_name, g.amount.count, g.amount.bytes))
        .collect();
    assert_eq!(rows, [("f64", 1, 100), ("f32", 3, 30), ("", 1, 0)]);
    assert_eq!(snapshot.live[1].addresses, [1, 2, 3]);
    assert!(snapshot.live[1].oldest >= snapshot.live[1].youngest);
    assert_eq!(snapshot.leaked(), Amount::new(5, 130));
    assert!(snapshot.unrecorded.is_empty());
    assert_eq!(snapshot.totals.len(), 2);
}

#[test]
fn labels_keep_groups_apart_however_they_came_about() {
    let registry = Registry::new(TrackingLevel::Sites, 8);
    let insert = |address| registry.insert(key(ResourceKind::Device, address), entry(1, "u8"));
    {
        let _scope = label("model");
        insert(1);
        insert(2);
    }
    registry.label(key(ResourceKind::Device, 2), "ignored");
    registry.label(key(ResourceKind::Device, 2), "bias");
    insert(3);
    registry.label(key(ResourceKind::Device, 3), "model/bias");
    insert(4);
    let snapshot = snapshot(&registry);
    let labels: Vec<_> = snapshot
        .live
        .iter()
        .map(|g| (g.label.as_deref(), g.amount.count))
        .collect();
    assert_eq!(
        labels,
        [(Some("model/bias"), 2), (None, 1), (Some("model"), 1)]
    );
}

#[test]
fn threads_are_named_once_and_sorted() {
    let registry = Registry::new(TrackingLevel::Sites, 8);
    let insert = |address| registry.insert(key(ResourceKind::Device, address), entry(1, "u8"));
    let insert = &insert;
    thread::scope(|scope| {
        for (address, name) in (1..).zip(["b", "a", "b"]) {
            let builder = thread::Builder::new().name(name.into());
            builder
                .spawn_scoped(scope, move || insert(address))
                .unwrap();
        }
    });
    let snapshot = snapshot(&registry);
    assert_eq!(snapshot.live.len(), 1);
    assert_eq!(snapshot.live[0].threads, ["a", "b"]);
}

#[test]
fn stacks_keep_groups_apart() {
    let registry = Registry::new(TrackingLevel::Stacks, 32);
    #[inline(never)]
    fn make(registry: &Registry, address: u64) {
        registry.insert(key(ResourceKind::Device, address), entry(1, "u8"));
        std::hint::black_box(());
    }
    for address in 1..=2 {
        make(&registry, address);
    }
    make(&registry, 3);
    let snapshot = snapshot(&registry);
    let counts: Vec<_> = snapshot
        .live
        .iter()
        .map(|group| group.amount.count)
        .collect();
    assert_eq!(counts, [2, 1]);
    assert_eq!(snapshot.live[0].origin.site, snapshot.live[1].origin.site);
    assert_ne!(snapshot.live[0].origin.stack, snapshot.live[1].origin.stack);
}

#[test]
fn what_escaped_is_listed_apart_and_is_no_leak() {
    let registry = Registry::new(TrackingLevel::Counts, 8);
    registry.insert(key(ResourceKind::Device, 1), entry(10, "u8"));
    registry.escape(key(ResourceKind::Device, 1), 10);
    let before = snapshot(&registry);
    assert!(before.is_clean());
    assert_eq!(before.escaped[0].amount, Amount::new(1, 10));
    registry.insert(key(ResourceKind::Device, 2), entry(5, "u8"));
    let after = snapshot(&registry);
    assert_eq!(
        after.unrecorded,
        [(ResourceKind::Device, Amount::new(1, 5))]
    );
    assert!(!after.is_clean());
    assert_eq!(after.leaked(), Amount::new(1, 5));
}

#[test]
fn failed_frees_and_late_drops_are_kept() {
    let registry = Registry::new(TrackingLevel::Sites, 8);
    for address in 1..=3 {
        let key = key(ResourceKind::Device, address);
        registry.insert(key, entry(10, "u8"));
        let record = registry.remove(key, 10);
        let (code, name) = if address == 3 {
            (1, "INVALID_VALUE")
        } else {
            (700, "ILLEGAL_ADDRESS")
        };
        let failed = FailedFree::new(key, 10, record, "cuMemFree", code, name);
        registry.file_failed_free(failed);
    }
    registry.count_late_drop(ResourceKind::Event, 0);
    registry.count_late_drop(ResourceKind::Device, 7);
    registry.count_late_drop(ResourceKind::Device, 8);
    let snapshot = snapshot(&registry);
    assert!(snapshot.live.is_empty() && !snapshot.is_clean());
    let failed: Vec<_> = snapshot
        .failed_frees
        .iter()
        .map(|f| (f.code, f.code_name, f.function, f.allocated.amount.count))
        .collect();
    assert_eq!(
        failed,
        [
            (700, "ILLEGAL_ADDRESS", "cuMemFree", 2),
            (1, "INVALID_VALUE", "cuMemFree", 1)
        ]
    );
    assert_eq!(snapshot.failed_frees[0].allocated.addresses, [1, 2]);
    assert!(!snapshot.failed_frees[0].freed.stack.is_empty());
    let late: Vec<_> = snapshot
        .late_drops
        .iter()
        .map(|(kind, amount)| (*kind, amount.bytes))
        .collect();
    assert_eq!(late, [(ResourceKind::Device, 15), (ResourceKind::Event, 0)]);
}
