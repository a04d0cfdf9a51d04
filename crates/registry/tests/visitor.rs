//! A snapshot while other threads insert and remove. In a process of its own: threads of other tests would share
//! the slots of these threads, and records outside the slots are not listed at one point in time.

use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use cuguard_registry::{Amount, ContextInfo, Entry, Key, Registry, ResourceKind, TrackingLevel};

#[track_caller]
fn insert(registry: &Registry, address: u64) -> Key {
    let key = Key::new(ResourceKind::Device, address);
    let entry = Entry {
        bytes: 100,
        type_name: "f32",
        stream: 0,
    };
    registry.insert_at(Location::caller(), key, entry);
    key
}

/// Sets the flag when dropped, also while a panic unwinds.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A snapshot that is taken in the middle of an insert or a remove waits for its end.
#[test]
fn a_snapshot_waits_for_inserts_and_removes() {
    let registry = Registry::new(TrackingLevel::Sites, 8);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for maker in 1..3_u64 {
            let (registry, over) = (&registry, &over);
            scope.spawn(move || {
                // Never the same address again: a record that was forgotten would be replaced.
                let mut next = maker << 40;
                while !over.load(Ordering::Relaxed) {
                    next += 4;
                    let keys = [1, 2, 3].map(|one| insert(registry, next + one));
                    for key in keys {
                        assert!(registry.remove(key, 100).is_some());
                    }
                }
            });
        }
        let _over = AtEnd(&over);
        for _ in 0..5_000 {
            let snapshot = registry.snapshot(ContextInfo::default());
            let mut listed = snapshot.live.iter();
            assert!(listed.all(|group| group.amount.count <= 6));
            // Each has a record, or is about to.
            assert_eq!(snapshot.unrecorded, []);
        }
    });
    assert_eq!(registry.live(), Amount::default());
    assert!(registry.snapshot(ContextInfo::default()).is_clean());
}
