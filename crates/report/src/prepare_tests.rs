//! What is shown of a snapshot: names, suppressions, indirect leaks.

use crate::prepare::{PreparedSnapshot, View};
use crate::suppress::Suppressions;
use crate::tests_support::{Insert, ONE_BYTE};
use cuguard_registry::{
    Amount, ContextInfo, Entry, Group, Key, Registry, ResourceKind, Site, Snapshot, TrackingLevel,
};

fn group(type_name: &'static str, label: &str, file: &'static str) -> Group {
    let mut group = Group::new(ResourceKind::Device, type_name, 1, 10);
    group.label = Some(label.to_owned());
    group.origin.site = Some(Site::new(file, 1, 1));
    group
}

fn prepared<'a>(snapshot: &'a Snapshot, suppressions: &Suppressions) -> PreparedSnapshot<'a> {
    let view = View {
        suppressions,
        ..View::PLAIN
    };
    PreparedSnapshot::new(snapshot, view)
}

fn left(pattern: &str) -> (Vec<&'static str>, Amount) {
    let snapshot = Snapshot {
        live: vec![
            group("f32", "cache/a", "src/a.rs"),
            group("f64", "model", "src/b.rs"),
        ],
        ..Snapshot::default()
    };
    let mut suppressions = Suppressions::default();
    suppressions.add(pattern);
    let prepared = prepared(&snapshot, &suppressions);
    let left = prepared
        .live
        .iter()
        .map(|row| row.group.type_name)
        .collect();
    (left, prepared.suppressed.amount())
}

#[test]
fn types_labels_and_files_can_be_suppressed() {
    for pattern in [
        "f32",
        "cache/*",
        "*/a.rs",
        "src/a.rs",
        "cache",
        "leak:a.rs$",
    ] {
        assert_eq!(
            left(pattern),
            (vec!["f64"], Amount::new(1, 10)),
            "{pattern}"
        );
    }
    for pattern in ["^ache", "cach$", "b.rs/", "cuguard"] {
        assert_eq!(left(pattern).0.len(), 2, "{pattern}");
    }
    assert!(left("*").0.is_empty());
}

#[test]
fn functions_on_the_stack_can_be_suppressed() {
    #[inline(never)]
    fn expected_to_leak(registry: &Registry) {
        let key = Key::new(ResourceKind::Device, 1);
        registry.insert(key, ONE_BYTE);
    }
    let registry = Registry::new(TrackingLevel::Stacks, 32);
    expected_to_leak(&registry);
    let snapshot = registry.snapshot(ContextInfo::default());
    let mut suppressions = Suppressions::default();
    assert!(prepared(&snapshot, &suppressions).is_leak());
    suppressions.add("no_such_function");
    suppressions.add("*::expected_to_leak");
    let prepared = prepared(&snapshot, &suppressions);
    assert!(!prepared.is_leak() && !prepared.is_empty());
    let suppressed = &prepared.suppressed;
    assert_eq!(
        (suppressed.groups, suppressed.amount()),
        (1, Amount::new(1, 1))
    );
    assert_eq!(suppressed.unused, ["no_such_function"]);
}

/// What an optimiser makes of loops: one line at two addresses.
#[test]
fn one_line_at_two_addresses_is_one_group() {
    #[inline(never)]
    fn make(registry: &Registry, address: u64) -> u64 {
        let kind = ResourceKind::Device;
        let entry = ONE_BYTE;
        registry.insert(Key::new(kind, address), entry);
        std::hint::black_box(address)
    }
    let registry = Registry::new(TrackingLevel::Stacks, 32);
    assert_eq!([make(&registry, 1), make(&registry, 2)], [1, 2]);
    registry.insert(
        Key::new(ResourceKind::Device, 3),
        Entry {
            bytes: 5,
            type_name: "u8",
            stream: 0,
        },
    );
    let snapshot = registry.snapshot(ContextInfo::default());
    assert_eq!(snapshot.live.len(), 3);
    let prepared = PreparedSnapshot::new(&snapshot, View::PLAIN);
    let [large, twice] = &prepared.live[..] else {
        panic!("{:#?}", prepared.live);
    };
    assert_eq!(large.group.amount, Amount::new(1, 5));
    assert_eq!(twice.group.amount, Amount::new(2, 2));
    assert_eq!(twice.group.addresses, [1, 2]);
    // What is suppressed is counted as it would be shown.
    let mut suppressions = Suppressions::default();
    suppressions.add("*::make");
    let prepared = self::prepared(&snapshot, &suppressions);
    let suppressed = &prepared.suppressed;
    assert_eq!(
        (suppressed.groups, suppressed.amount()),
        (1, Amount::new(2, 2))
    );
    assert_eq!(prepared.live.len(), 1);
}

/// Two stacks that differ in addresses only are put in the order of the names.
#[test]
fn names_decide_where_sizes_and_sites_are_equal() {
    #[inline(never)]
    fn b_second(registry: &Registry) {
        one_site(registry, 1);
    }
    #[inline(never)]
    fn a_first(registry: &Registry) {
        one_site(registry, 2);
    }
    #[inline(never)]
    fn one_site(registry: &Registry, address: u64) {
        let key = Key::new(ResourceKind::Device, address);
        registry.insert(key, ONE_BYTE);
        std::hint::black_box(());
    }
    let registry = Registry::new(TrackingLevel::Stacks, 32);
    b_second(&registry);
    a_first(&registry);
    let snapshot = registry.snapshot(ContextInfo::default());
    // All frames here are of these crates, of which few are shown otherwise.
    let view = View {
        all_frames: true,
        ..View::PLAIN
    };
    let prepared = PreparedSnapshot::new(&snapshot, view);
    let addresses: Vec<_> = prepared
        .live
        .iter()
        .map(|row| row.group.addresses[0])
        .collect();
    assert_eq!(addresses, [2, 1]);
}

/// A stream that a leaked buffer keeps is no leak of its own.
#[test]
fn what_only_follows_from_a_leak_is_listed_under_it() {
    let memory = |bytes, stream| {
        let mut group = Group::new(ResourceKind::StreamOrdered, "u8", 1, bytes);
        group.streams = vec![stream];
        group
    };
    let handle = |kind, address, kept| {
        let mut group = Group::new(kind, "", 1, 0);
        (group.addresses, group.kept) = (vec![address], kept);
        group
    };
    let mut elsewhere = handle(ResourceKind::Stream, 8, true);
    elsewhere.origin.site = Some(Site::new("src/b.rs", 1, 1));
    let mut snapshot = Snapshot {
        live: vec![
            memory(100, 7),
            handle(ResourceKind::Stream, 7, true),
            elsewhere,
            handle(ResourceKind::Stream, 9, false),
            handle(ResourceKind::MemoryPool, 5, true),
        ],
        ..Snapshot::default()
    };
    let shown = |snapshot: &Snapshot| -> Vec<(ResourceKind, usize)> {
        let prepared = PreparedSnapshot::new(snapshot, View::PLAIN);
        let rows = prepared.live.iter();
        rows.map(|row| (row.group.kind, row.indirect.len()))
            .collect()
    };
    let (memory_kind, stream) = (ResourceKind::StreamOrdered, ResourceKind::Stream);
    // Stream 8 is kept by something that is not here, and 9 was forgotten itself.
    let expected = [(memory_kind, 2), (stream, 0), (stream, 0)];
    assert_eq!(shown(&snapshot), expected);
    let all = PreparedSnapshot::new(&snapshot, View::PLAIN)
        .leaked()
        .count();
    assert_eq!(all, 5);
    // Which pool which memory is from is not recorded: with two it stands by itself.
    snapshot.live[1] = memory(50, 9);
    snapshot.live[1].label = Some("other".to_owned());
    let pool = (ResourceKind::MemoryPool, 0);
    assert!(shown(&snapshot).contains(&pool), "{:?}", shown(&snapshot));

    // What follows from a suppressed leak is suppressed with it.
    snapshot.live = vec![memory(100, 7), handle(ResourceKind::Stream, 7, true)];
    let mut suppressions = Suppressions::default();
    suppressions.add("u8");
    let prepared = prepared(&snapshot, &suppressions);
    assert!(!prepared.is_leak(), "{prepared:?}");
    assert_eq!(prepared.suppressed.amount(), Amount::new(2, 100));
    // As many groups as there would be if they were shown.
    assert_eq!(prepared.suppressed.groups, 1);
}
