//! Records that are still among the newest of their thread are found, and none is counted twice.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use crate::{Amount, ContextInfo, Entry, Key, Registry, ResourceKind, TrackingLevel};

fn entry(bytes: u64) -> Entry {
    Entry {
        bytes,
        type_name: "f32",
        stream: 0,
    }
}

/// The key of a block that the calling thread makes.
fn key(address: u64) -> Key {
    Key::new(ResourceKind::Device, address)
}

fn make(registry: &Registry, address: u64) -> Key {
    let key = key(address);
    registry.insert(key, entry(100));
    key
}

fn addresses(registry: &Registry) -> BTreeSet<u64> {
    let groups = registry.snapshot(ContextInfo::default()).live;
    groups
        .iter()
        .flat_map(|group| group.addresses.clone())
        .collect()
}

#[test]
fn a_snapshot_has_the_newest_too() {
    let registry = Registry::new(TrackingLevel::Sites, 8);
    for count in 0..40 {
        let expected: BTreeSet<u64> = (1..=count).collect();
        assert_eq!(addresses(&registry), expected);
        assert_eq!(registry.memory_usage().sites.len(), usize::from(count > 0));
        make(&registry, count + 1);
    }
    assert_eq!(registry.drain().len(), 40);
    assert_eq!(registry.live(), Amount::default());
}

/// In any order, with what is in the slots and what had to make room.
#[test]
fn each_is_found_once() {
    let registry = Registry::new(TrackingLevel::Sites, 8);
    for step in [1_usize, 3, 7, 11] {
        let keys: Vec<Key> = (1..=20).map(|address| make(&registry, address)).collect();
        for index in 0..keys.len() {
            let key = keys[index * step % keys.len()];
            let record = registry.remove(key, 100).expect("it was entered");
            assert_eq!(record.bytes(), 100);
            assert!(registry.remove(key, 100).is_none());
        }
        assert_eq!(registry.live(), Amount::default());
        assert!(addresses(&registry).is_empty());
    }
}

/// A live address that the driver returns again was freed without its guard: the old record is removed.
#[test]
fn a_reused_address_replaces_its_record() {
    let registry = Registry::new(TrackingLevel::Sites, 8);
    make(&registry, 1);
    make(&registry, 1);
    assert_eq!(addresses(&registry), BTreeSet::from([1]));
    assert_eq!(registry.live(), Amount::new(1, 100));
}

/// The same with both among the newest, anywhere in the slots: the newer one stays.
#[test]
fn of_two_records_of_an_address_the_newer_one_stays() {
    for before in 0..10 {
        for between in 0..10 {
            let registry = Registry::new(TrackingLevel::Sites, 8);
            for n in 100..100 + before {
                make(&registry, n);
            }
            let key = make(&registry, 1);
            for n in 200..200 + between {
                make(&registry, n);
            }
            registry.insert(key, entry(300));
            registry.snapshot(ContextInfo::default());
            let live = Amount::new(before + between + 1, (before + between) * 100 + 300);
            assert_eq!(registry.live(), live, "{before}, {between}");
            assert_eq!(
                registry.remove(key, 300).map(|record| record.bytes()),
                Some(300)
            );
            assert!(registry.remove(key, 300).is_none());
        }
    }
}

#[test]
fn an_address_as_large_as_it_can_be() {
    let registry = Registry::new(TrackingLevel::Sites, 8);
    for address in [u64::MAX, 1 << 60, (1 << 60) - 1, 1 << 59, (1 << 59) - 1] {
        let key = make(&registry, address);
        assert_eq!(addresses(&registry), BTreeSet::from([address]));
        make(&registry, 5);
        assert!(registry.remove(key, 100).is_some());
        assert!(registry.remove(self::key(5), 100).is_some());
    }
    assert_eq!(registry.live(), Amount::default());
}

/// One thread allocates, another one names, releases and frees.
#[test]
fn what_another_thread_allocated_is_found() {
    let registry = Registry::new(TrackingLevel::Sites, 8);
    for round in 0..20 {
        let made = thread::scope(|scope| {
            let all = scope.spawn(|| -> Vec<Key> {
                (1..=6).map(|address| make(&registry, address)).collect()
            });
            all.join().expect("it ends")
        });
        match round % 4 {
            0 => registry.label(made[2], "named"),
            1 => registry.escape(made[2], 100),
            _ => {}
        }
        if round % 4 == 1 {
            assert_eq!(registry.recapture(made[2]), Some(made[2]));
        }
        for key in made {
            assert!(registry.remove(key, 100).is_some(), "round {round}");
        }
        assert!(registry.snapshot(ContextInfo::default()).is_clean());
    }
}

struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Threads make blocks, free most themselves, and send the rest to one that frees them, while another one
/// looks at all of it.
#[test]
fn nothing_is_lost_between_threads() {
    let registry = Registry::new(TrackingLevel::Sites, 8);
    let over = AtomicBool::new(false);
    let (send, receive) = mpsc::channel::<Key>();
    thread::scope(|scope| {
        // Also when an assertion fails, or the scope would wait for ever.
        let _over = AtEnd(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let snapshot = registry.snapshot(ContextInfo::default());
                let listed: u64 = snapshot.live.iter().map(|group| group.amount.count).sum();
                let found = addresses(&registry).len() as u64;
                assert!(listed <= 2_000 && found <= 2_000);
            }
        });
        let makers: Vec<_> = (1..4_u64)
            .map(|maker| {
                let (registry, send) = (&registry, send.clone());
                scope.spawn(move || {
                    for number in 0..3_000_u64 {
                        let base = maker << 32 | number << 4;
                        let keys = [0, 1, 2].map(|one| make(registry, base + one));
                        let sent = if number % 10 == 0 { 1 } else { 3 };
                        for key in &keys[..sent] {
                            assert!(registry.remove(*key, 100).is_some());
                        }
                        for key in &keys[sent..] {
                            send.send(*key).expect("the other thread frees");
                        }
                    }
                })
            })
            .collect();
        drop(send);
        for key in receive {
            assert!(registry.remove(key, 100).is_some());
        }
        for maker in makers {
            maker.join().expect("it ends");
        }
    });
    assert_eq!(registry.live(), Amount::default());
    assert_eq!(
        registry.totals(ResourceKind::Device).allocated,
        3 * 3_000 * 3
    );
    assert!(registry.snapshot(ContextInfo::default()).is_clean());
}
