//! The registry from outside: records, counts, samples, escaped resources.

use std::thread;

use crate::ContextInfo;
use crate::counters::Amount;
use crate::kind::{ResourceKind, TrackingLevel};
use crate::record::{Entry, Key};
use crate::registry::Registry;

fn key(address: u64) -> Key {
    Key {
        kind: ResourceKind::Device,
        slot: 0,
        address,
    }
}

fn entry(bytes: u64) -> Entry {
    Entry {
        bytes,
        type_name: "u8",
        stream: 0,
    }
}

#[test]
fn what_is_inserted_is_found_and_counted() {
    let registry = Registry::new(TrackingLevel::Sites, 8);
    registry.insert(key(1), entry(10));
    registry.insert(key(2), entry(20));
    assert_eq!(registry.live(), Amount::new(2, 30));
    let record = registry.remove(key(1), 10).unwrap();
    assert_eq!(record.bytes(), 10);
    assert!(registry.remove(key(1), 10).is_none());
    assert_eq!(registry.live(), Amount::new(1, 20));
}

/// A record is erased wherever it is: among the newest of the thread, in the table, among those of another thread; and what
/// has none is counted.
#[test]
fn what_is_erased_is_counted() {
    let own = |address| Key::new(ResourceKind::Pooled, address);
    for level in [
        TrackingLevel::Counts,
        TrackingLevel::Sites,
        TrackingLevel::Stacks,
    ] {
        let registry = Registry::new(level, 8);
        let keys: Vec<Key> = (1..=50).map(own).collect();
        keys.iter().for_each(|key| registry.insert(*key, entry(10)));
        assert_eq!(registry.live(), Amount::new(50, 500));
        registry.erase(keys[49], 10);
        registry.erase(keys[0], 10);
        assert_eq!(registry.live(), Amount::new(48, 480));
        thread::scope(|scope| {
            let erase = || keys[1..49].iter().for_each(|key| registry.erase(*key, 10));
            scope.spawn(erase);
        });
        assert!(registry.live().is_zero(), "{level:?}");
        assert!(registry.drain().is_empty(), "{level:?}");
    }
}

/// The size that was recorded counts, as in [`Registry::remove`].
#[test]
fn what_is_erased_has_the_size_that_was_recorded() {
    let registry = Registry::new(TrackingLevel::Sites, 8);
    let key = Key::new(ResourceKind::Pooled, 1);
    registry.insert(key, entry(10));
    registry.erase(key, 7);
    assert!(registry.live().is_zero());
    // It is not there twice.
    registry.erase(key, 10);
    assert!(registry.live().is_zero());
}

#[test]
fn the_same_number_is_another_resource_of_another_kind() {
    let registry = Registry::new(TrackingLevel::Sites, 8);
    registry.insert(key(1), entry(10));
    registry.insert(
        Key {
            kind: ResourceKind::Stream,
            slot: 0,
            address: 1,
        },
        entry(0),
    );
    assert!(
        registry
            .remove(
                Key {
                    kind: ResourceKind::Event,
                    slot: 0,
                    address: 1
                },
                0
            )
            .is_none()
    );
    assert_eq!(registry.live().count, 2);
}

#[test]
fn counts_need_no_record() {
    let registry = Registry::new(TrackingLevel::Counts, 8);
    registry.insert(key(1), entry(10));
    registry.insert(key(2), entry(20));
    registry.label(key(1), "no record to label");
    assert!(registry.remove(key(1), 10).is_none());
    assert_eq!(registry.live(), Amount::new(1, 20));
    assert!(registry.drain().is_empty());
    assert_eq!(registry.totals(ResourceKind::Device).peak_bytes, 30);
}

#[test]
fn the_level_can_change_at_any_time() {
    let registry = Registry::new(TrackingLevel::Counts, 8);
    registry.insert(key(1), entry(1));
    registry.set_level(TrackingLevel::Stacks);
    registry.insert(key(2), entry(2));
    registry.set_level(TrackingLevel::Counts);
    registry.insert(key(3), entry(4));
    assert!(registry.remove(key(1), 1).is_none());
    assert!(registry.remove(key(2), 2).is_some());
    assert_eq!(registry.live(), Amount::new(1, 4));
    assert!(registry.remove(key(3), 4).is_none());
    assert_eq!(registry.live(), Amount::default());
}

/// Groups are scaled to the live total, whatever the period in which the program allocates.
#[test]
fn a_sample_stands_for_all() {
    let registry = Registry::new(TrackingLevel::Sites, 8)
        .sampling(10)
        .seeded(1);
    for i in 0..20_000 {
        // Two call sites in turn; every tenth would always be the same one.
        if i % 2 == 0 {
            registry.insert(key(i), entry(1));
        } else {
            registry.insert(key(i), entry(3));
        }
    }
    let snapshot = registry.snapshot(ContextInfo::default());
    assert_eq!(snapshot.sample, 10);
    assert_eq!(registry.live(), Amount::new(20_000, 40_000));
    assert_eq!(snapshot.live.len(), 2);
    for (group, bytes) in snapshot.live.iter().zip([30_000, 10_000]) {
        assert!(
            group.amount.bytes.abs_diff(bytes) < bytes / 5,
            "{:?}",
            group.amount
        );
        assert!(group.addresses.len() < 1500);
    }
    // But for rounding, the groups add up to the total.
    let sum = snapshot.leaked();
    assert_eq!((sum.count, sum.bytes), (20_000, 40_000));
    for i in 0..20_000 {
        registry.remove(key(i), if i % 2 == 0 { 1 } else { 3 });
    }
    assert_eq!(registry.live(), Amount::default());
}

/// The first resource of each kind is recorded as often as any other: a program that leaks one of each
/// must not be recorded in every run, or in none.
#[test]
fn the_first_of_each_kind_is_sampled_like_all_others() {
    let is_recorded = |registry: Registry, kind: ResourceKind, nth: u64| {
        let keys = (0..=nth).map(|address| Key {
            kind,
            ..key(address)
        });
        keys.for_each(|key| registry.insert(key, entry(1)));
        let snapshot = registry.snapshot(ContextInfo::default());
        let mut addresses = snapshot.live.iter().flat_map(|group| &group.addresses);
        addresses.any(|address| *address == nth)
    };
    for one_in in [2, 7] {
        for kind in [
            ResourceKind::Device,
            ResourceKind::Stream,
            ResourceKind::Pinned,
            ResourceKind::Event,
        ] {
            for nth in 0..3 {
                let registry = |seed| {
                    Registry::new(TrackingLevel::Sites, 8)
                        .sampling(one_in)
                        .seeded(seed)
                };
                let recorded = (0..300).filter(|seed| is_recorded(registry(*seed), kind, nth));
                let (recorded, expected) = (recorded.count(), 300 / one_in as usize);
                assert!(
                    recorded.abs_diff(expected) < expected / 2,
                    "{kind:?}, the {nth}th: {recorded} of {expected}"
                );
            }
        }
    }
    // Without a chosen seed: it would take 64 equal throws of a coin.
    let met = (0..64).filter(|_| {
        let registry = Registry::new(TrackingLevel::Sites, 8).sampling(2);
        is_recorded(registry, ResourceKind::Device, 0)
    });
    assert!((1..64).contains(&met.count()));
}

/// What no sample picked is listed as unrecorded.
#[test]
fn what_no_sample_picked_is_unrecorded() {
    let registry = Registry::new(TrackingLevel::Sites, 8)
        .sampling(1_000_000)
        .seeded(1);
    registry.insert(key(1), entry(10));
    registry.insert(key(2), entry(10));
    let snapshot = registry.snapshot(ContextInfo::default());
    assert_eq!(snapshot.leaked(), Amount::new(2, 20));
    // Also where another resource of the kind has a record, because it escaped.
    registry.escape(key(2), 10);
    let snapshot = registry.snapshot(ContextInfo::default());
    assert_eq!(snapshot.leaked(), Amount::new(1, 10));
    assert!(!snapshot.is_clean());
}

/// A single resource that a sample picked stands for itself.
#[test]
fn a_sample_stands_for_no_more_than_there_is() {
    let registry = Registry::new(TrackingLevel::Sites, 8).sampling(3);
    let mut allocated = 0;
    while registry.snapshot(ContextInfo::default()).live.is_empty() {
        allocated += 1;
        registry.insert(key(allocated), entry(10));
    }
    (1..allocated).for_each(|address| {
        registry.remove(key(address), 10);
    });
    let snapshot = registry.snapshot(ContextInfo::default());
    assert_eq!(snapshot.live[0].amount, Amount::new(1, 10));
    assert!(snapshot.unrecorded.is_empty());
}

#[test]
fn what_escapes_stays_and_can_come_back() {
    for level in [TrackingLevel::Counts, TrackingLevel::Sites] {
        let registry = Registry::new(level, 8);
        registry.insert(key(1), entry(10));
        registry.escape(key(1), 10);
        assert_eq!(registry.live(), Amount::new(1, 10));
        assert!(registry.drain().is_empty());
        assert!(registry.recapture(key(2)).is_none());
        assert!(registry.recapture(key(1)).is_some());
        let record = registry.remove(key(1), 10).unwrap();
        assert_eq!((record.bytes(), registry.live()), (10, Amount::default()));
    }
}

#[test]
fn a_reused_address_replaces_what_escaped() {
    for level in [
        TrackingLevel::Counts,
        TrackingLevel::Sites,
        TrackingLevel::Stacks,
    ] {
        let registry = Registry::new(level, 8);
        registry.insert(key(1), entry(10));
        registry.escape(key(1), 10);
        // A thread with another slot gets it.
        let again = Key { slot: 1, ..key(1) };
        registry.insert(again, entry(5));
        assert_eq!(registry.live(), Amount::new(1, 5), "{level}");
        assert!(registry.snapshot(ContextInfo::default()).escaped.is_empty());
        let recorded = usize::from(level != TrackingLevel::Counts);
        assert_eq!(registry.drain().len(), recorded, "{level}");
    }
}

#[test]
fn an_unknown_key_changes_nothing() {
    let registry = Registry::new(TrackingLevel::Sites, 8);
    registry.insert(key(1), entry(10));
    registry.escape(key(9), 100);
    assert!(registry.remove(key(9), 100).is_none());
    assert_eq!(registry.live(), Amount::new(1, 10));
}

#[test]
fn teardown_order() {
    let registry = Registry::new(TrackingLevel::Sites, 8);
    let kinds = [
        ResourceKind::MemoryPool,
        ResourceKind::Module,
        ResourceKind::Stream,
        ResourceKind::Device,
        ResourceKind::Event,
        ResourceKind::StreamOrdered,
        ResourceKind::Device,
        ResourceKind::Graph,
        ResourceKind::GraphExec,
    ];
    for (address, kind) in (1..).zip(kinds) {
        registry.insert(
            Key {
                kind,
                slot: 0,
                address,
            },
            entry(0),
        );
    }
    let order: Vec<u64> = registry
        .drain()
        .iter()
        .map(|(key, _)| key.address)
        .collect();
    assert_eq!(order, [9, 8, 7, 4, 6, 5, 3, 2, 1]);
}

/// Threads allocate and free the same few addresses: an address returns to the "driver" after it was
/// removed from the registry, and is inserted after the "driver" returned it.
#[test]
fn addresses_that_are_reused_at_once_by_many_threads() {
    use std::sync::Mutex;
    for level in [
        TrackingLevel::Counts,
        TrackingLevel::Sites,
        TrackingLevel::Stacks,
    ] {
        let registry = Registry::new(level, 8);
        let driver: Mutex<Vec<u64>> = Mutex::new((1..=12).collect());
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let Some(address) = driver.lock().unwrap().pop() else {
                            continue;
                        };
                        registry.insert(key(address), entry(address));
                        let record = registry.remove(key(address), address);
                        assert_eq!(record.is_some(), level != TrackingLevel::Counts);
                        driver.lock().unwrap().push(address);
                    }
                });
            }
        });
        assert_eq!(registry.live(), Amount::default());
        assert!(registry.drain().is_empty());
    }
}
