//! Tests of records under keys by address.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use crate::{Amount, ContextInfo, Entry, Fate, Key, Registry, ResourceKind, TrackingLevel, label};

const fn entry(bytes: u64) -> Entry {
    Entry {
        bytes,
        type_name: "",
        stream: 0,
    }
}

fn key(address: u64) -> Key {
    Key::by_address(ResourceKind::Device, address)
}

#[test]
fn any_thread_frees_what_another_one_allocated() {
    let registry = Registry::new(TrackingLevel::Stacks, 8);
    thread::scope(|scope| {
        for part in 0..8_u64 {
            let registry = &registry;
            scope.spawn(move || {
                for i in 0..500 {
                    registry.insert_stack(key(part << 32 | i << 9), entry(8), &[i as usize], 1);
                }
            });
        }
    });
    assert_eq!(registry.live(), Amount::new(4000, 32_000));
    thread::scope(|scope| {
        for part in 0..8_u64 {
            let registry = &registry;
            scope.spawn(move || {
                for i in 0..500 {
                    let other = (part + 1) % 8;
                    assert!(registry.remove(key(other << 32 | i << 9), 8).is_some());
                }
            });
        }
    });
    assert_eq!(registry.live(), Amount::default());
}

/// Records of guards and records by address are in one table, also at one address.
#[test]
fn guards_keep_their_own_records() {
    let registry = Registry::new(TrackingLevel::Sites, 8);
    let guard = Key::new(ResourceKind::Device, 0x1000);
    {
        let _label = label("guards");
        registry.insert(guard, entry(100));
        registry.insert_stack(key(0x1000), entry(30), &[1, 2], 7);
    }
    let snapshot = registry.snapshot(ContextInfo::default());
    let rows: Vec<_> = snapshot
        .live
        .iter()
        .map(|group| (group.amount.bytes, group.label.as_deref()))
        .collect();
    assert_eq!(rows, [(100, Some("guards")), (30, None)]);
    assert_eq!(registry.get(key(0x1000)).unwrap().context(), 7);
    assert_eq!(registry.drain_context(7).len(), 1);
    assert_eq!(registry.remove(guard, 100).unwrap().bytes(), 100);
    assert_eq!(registry.live(), Amount::default());
}

#[test]
fn a_record_that_is_put_back_counts_again() {
    let registry = Registry::new(TrackingLevel::Stacks, 8);
    registry.insert_stack(key(0x1000), entry(30), &[1, 2], 7);
    let record = registry.remove(key(0x1000), 0);
    registry.put_back(key(0x1000), record, 0);
    assert_eq!(registry.live(), Amount::new(1, 30));
    assert_eq!(registry.totals(ResourceKind::Device).allocated, 1);
    // Unknown to the registry: nothing changes.
    assert!(registry.remove(key(0x2000), 30).is_none());
    registry.put_back(key(0x2000), None, 30);
    assert_eq!(registry.live(), Amount::new(1, 30));
}

#[test]
fn an_address_that_was_freed_unseen_is_counted_once() {
    let registry = Registry::new(TrackingLevel::Stacks, 8);
    registry.insert_stack(key(0x1000), entry(30), &[1], 1);
    registry.insert_stack(key(0x1000), entry(50), &[2], 1);
    assert_eq!(registry.live(), Amount::new(1, 50));
}

#[test]
fn a_context_is_destroyed_with_its_own_records_alone() {
    let registry = Registry::new(TrackingLevel::Stacks, 8);
    for (address, context) in [(1, 1), (2, 1), (3, 2)] {
        registry.insert_stack(key(address << 12), entry(10), &[5], context);
    }
    let pool = Key::by_address(ResourceKind::MemoryPool, 0x77);
    registry.insert_stack(pool, Entry::of_handle(""), &[6], 1);
    let destroyed = registry.destroy_context(1, |key, _| key.kind == ResourceKind::MemoryPool);
    assert_eq!(destroyed, Amount::new(2, 20));
    assert_eq!(registry.live(), Amount::new(2, 10));
    let groups = registry.destroyed();
    assert_eq!(groups.len(), 1);
    assert_eq!(groups[0].origin.stack, [5]);
    assert_eq!(groups[0].fate, Fate::DestroyedWithContext);
    // What it is now, is not what was destroyed.
    assert_eq!(registry.snapshot(ContextInfo::default()).live.len(), 2);
}

/// Groups that differ in their fate or in their holder stay apart.
#[test]
fn groups_are_kept_apart_by_fate_and_holder() {
    let registry = Registry::new(TrackingLevel::Stacks, 8);
    for address in 1..=6 {
        registry.insert_stack(key(address << 12), entry(10), &[5], 1);
    }
    let snapshot =
        registry.snapshot_with(ContextInfo::default(), |key, _| match key.address >> 12 {
            1 | 2 => (Fate::Lost, None),
            3 => (Fate::Reachable, Some("global `cache`")),
            _ => (Fate::Reachable, Some("the heap")),
        });
    let rows: Vec<_> = snapshot
        .live
        .iter()
        .map(|group| (group.amount.count, group.fate, group.holder))
        .collect();
    assert_eq!(
        rows,
        [
            (3, Fate::Reachable, Some("the heap")),
            (2, Fate::Lost, None),
            (1, Fate::Reachable, Some("global `cache`")),
        ]
    );
}

/// The size of a range of addresses is no memory.
#[test]
fn a_reserved_range_takes_no_memory() {
    let registry = Registry::new(TrackingLevel::Stacks, 8);
    let range = Key::by_address(ResourceKind::AddressRange, 1 << 40);
    registry.insert_stack(range, entry(1 << 40), &[5], 1);
    assert_eq!(registry.live(), Amount::new(1, 0));
    assert_eq!(registry.get(range).unwrap().bytes(), 1 << 40);
    assert_eq!(registry.destroy_context(1, |_, _| false), Amount::new(1, 0));
}

/// Whichever way a record is removed, its call site is charged for what is alive.
#[test]
fn call_sites_hold_what_is_alive() {
    let registry = Registry::new(TrackingLevel::Stacks, 8);
    let live = || {
        // A new peak is copied at once.
        registry.insert_stack(key(1 << 50), entry(1 << 40), &[99], 9);
        let peak = registry.peak().unwrap();
        registry.remove(key(1 << 50), 0);
        peak.bytes - (1 << 40)
    };
    for address in 1..=10 {
        registry.insert_stack(key(address << 12), entry(10), &[5], (address % 2) as u32);
    }
    // The address of another record.
    registry.insert_stack(key(10 << 12), entry(10), &[6], 0);
    let record = registry.remove(key(1 << 12), 0);
    registry.put_back(key(1 << 12), record, 0);
    assert_eq!(registry.totals(ResourceKind::Device).bytes, 100);
    assert_eq!(live(), 100);
    registry.destroy_context(1, |_, _| false);
    registry.drain_context(0);
    registry.insert_stack(key(1 << 51), entry(1 << 41), &[99], 9);
    let peak = registry.peak().unwrap();
    assert_eq!((peak.bytes, peak.sites.len()), (1 << 41, 1));
}

/// Removes in any order, what is among the newest and what had to make room.
#[test]
fn each_is_found_once_under_its_kind() {
    let registry = Registry::new(TrackingLevel::Stacks, 8);
    for step in [1_u64, 3, 7, 11] {
        for i in 0..20 {
            let key = Key::by_address(ResourceKind::Managed, (i + 1) << 9);
            registry.insert_stack(key, entry(i), &[5], 1);
        }
        for i in 0..20 {
            let i = i * step % 20;
            let address = (i + 1) << 9;
            let others = [ResourceKind::Device, ResourceKind::StreamOrdered];
            assert!(registry.remove_any(&others, address).is_none());
            let kinds = [ResourceKind::Device, ResourceKind::Managed];
            let removed = registry.remove_any(&kinds, address).unwrap();
            assert_eq!(
                (removed.kind, removed.record.bytes()),
                (ResourceKind::Managed, i)
            );
            assert!(registry.remove_any(&kinds, address).is_none());
        }
        assert_eq!(registry.live(), Amount::default());
    }
}

/// An address that was freed unseen, while its record was in the table.
#[test]
fn an_old_record_does_not_survive_a_new_one() {
    let registry = Registry::new(TrackingLevel::Stacks, 8);
    registry.insert_stack(key(0x1000), entry(30), &[1], 1);
    // Moves it to the table.
    assert_eq!(registry.snapshot(ContextInfo::default()).live.len(), 1);
    registry.insert_stack(key(0x1000), entry(50), &[2], 1);
    assert_eq!(registry.live(), Amount::new(1, 50));
    assert_eq!(registry.remove(key(0x1000), 0).unwrap().bytes(), 50);
    assert_eq!(registry.live(), Amount::default());
    assert!(registry.snapshot(ContextInfo::default()).live.is_empty());
}

/// One thread allocates what others free at the same time, while a third one makes snapshots.
#[test]
fn nothing_is_lost_between_threads() {
    const BLOCKS: u64 = 20_000;
    let registry = Registry::new(TrackingLevel::Stacks, 8);
    let (sender, receiver) = mpsc::channel();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let snapshot = registry.snapshot(ContextInfo::default());
                let amount: Amount = snapshot.live.iter().map(|group| group.amount).sum();
                assert_eq!(amount.bytes, amount.count * 8);
                thread::yield_now();
            }
        });
        scope.spawn(|| {
            let sender = sender;
            for block in 1..=BLOCKS {
                registry.insert_stack(key(block << 9), entry(8), &[1, 2], 1);
                // Every other one is freed here.
                match block % 2 {
                    0 => assert!(registry.remove(key(block << 9), 8).is_some(), "{block}"),
                    _ => sender.send(block).unwrap(),
                }
            }
        });
        for block in receiver {
            assert!(registry.remove(key(block << 9), 8).is_some(), "{block}");
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert_eq!(registry.live(), Amount::default());
    assert_eq!(registry.totals(ResourceKind::Device).allocated, BLOCKS);
    assert!(registry.snapshot(ContextInfo::default()).live.is_empty());
}

/// Addresses that leave no room for the kind in a word.
#[test]
fn high_addresses_have_records_too() {
    let registry = Registry::new(TrackingLevel::Stacks, 8);
    for address in [u64::MAX, 1 << 58, 1 << 63 | 0x1000, 0] {
        registry.insert_stack(key(address), entry(8), &[1], 1);
        assert_eq!(
            registry.get(key(address)).unwrap().bytes(),
            8,
            "{address:#x}"
        );
        assert!(registry.remove(key(address), 8).is_some(), "{address:#x}");
        assert!(registry.remove(key(address), 8).is_none(), "{address:#x}");
    }
}

/// Records that the table never had are in the peak and in the samples.
#[test]
fn the_newest_records_are_at_the_peak() {
    let registry = Registry::new(TrackingLevel::Stacks, 8);
    for (address, bytes) in [(1, 100), (2, 1000), (3, 10_000)] {
        registry.insert_stack(key(address << 12), entry(bytes), &[5], 1);
    }
    for address in 1..=3 {
        registry.remove(key(address << 12), 0);
    }
    let peak = registry.peak().unwrap();
    assert_eq!(peak.bytes, 11_100);
    assert_eq!(peak.sites[0].1, Amount::new(3, 11_100));
    assert_eq!(registry.history().sites[0].bytes[0], 100);
}
