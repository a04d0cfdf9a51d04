//! What the driver destroyed together with its context, while the program had not freed it.
//!
//! Each resource is known by its key until the driver reuses the address, so that a free that comes too late is recognized.
//! There is no limit to how many contexts a program destroys: beyond [`KEYS`], resources are added up by call site alone.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::collect::GroupKey;
use crate::counters::Amount;
use crate::group::{Fate, Group};
use crate::hash::BuildMixHasher;
use crate::labels::LabelTexts;
use crate::record::{Key, Record};

/// How many are known by their key.
const KEYS: usize = 1 << 16;

#[derive(Default)]
pub(crate) struct Destroyed {
    /// The length of `known`: mostly 0, and then nothing is locked.
    count: AtomicUsize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    known: HashMap<Key, Record, BuildMixHasher>,
    /// Those whose key is not known any more, and late frees.
    sums: HashMap<GroupKey, Sum, BuildMixHasher>,
}

#[derive(Clone, Copy)]
struct Sum {
    amount: Amount,
    first: Duration,
    last: Duration,
}

impl Inner {
    fn sum_up(&mut self, key: Key, record: &Record, fate: Fate) {
        add(&mut self.sums, key, record, fate);
    }
}

fn add(sums: &mut HashMap<GroupKey, Sum, BuildMixHasher>, key: Key, record: &Record, fate: Fate) {
    let created = record.created();
    let group = GroupKey::classified(&key, record, fate, 0);
    let sum = sums.entry(group).or_insert(Sum {
        amount: Amount::default(),
        first: created,
        last: created,
    });
    sum.amount += Amount::new(1, record.bytes());
    sum.first = sum.first.min(created);
    sum.last = sum.last.max(created);
}

impl Destroyed {
    /// Adds the resources of a context.
    pub(crate) fn add(&self, records: &[(Key, Record)]) {
        let mut inner = self.lock();
        for (key, record) in records {
            // The address of an earlier context's resource, which was reused.
            if let Some(old) = inner.known.remove(key) {
                inner.sum_up(*key, &old, Fate::DestroyedWithContext);
            }
            if inner.known.len() < KEYS {
                inner.known.insert(*key, *record);
            } else {
                inner.sum_up(*key, record, Fate::DestroyedWithContext);
            }
        }
        self.count.store(inner.known.len(), Relaxed);
    }

    /// The address is in use again: a free is not late.
    #[inline]
    pub(crate) fn forget(&self, key: Key) {
        if self.count.load(Relaxed) != 0 {
            self.take(key, Fate::DestroyedWithContext);
        }
    }

    /// The program freed it.
    pub(crate) fn note_late_free(&self, key: Key) {
        if self.count.load(Relaxed) != 0 {
            self.take(key, Fate::FreedLate);
        }
    }

    #[cold]
    fn take(&self, key: Key, fate: Fate) {
        let mut inner = self.lock();
        if let Some(record) = inner.known.remove(&key) {
            inner.sum_up(key, &record, fate);
        }
        self.count.store(inner.known.len(), Relaxed);
    }

    /// All of it, the largest group first.
    pub(crate) fn groups(&self, now: Duration) -> Vec<Group> {
        let inner = self.lock();
        let mut sums = inner.sums.clone();
        for (key, record) in &inner.known {
            add(&mut sums, *key, record, Fate::DestroyedWithContext);
        }
        drop(inner);
        // Programs without guards have none.
        let labels = LabelTexts::default();
        let groups = sums.into_iter().map(|(key, sum)| Group {
            amount: sum.amount,
            ..key.to_group(&labels, sum.first, sum.last, now)
        });
        let mut groups: Vec<Group> = groups.collect();
        groups.sort_by(|one, other| {
            fn order(group: &Group) -> impl Ord + '_ {
                let size = group.size_order();
                (group.fate, size, group.kind, group.origin.stack)
            }
            order(one).cmp(&order(other))
        });
        groups
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        cuguard_sync::lock(&self.inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Destroyed, KEYS};
    use crate::group::Fate;
    use crate::kind::ResourceKind;
    use crate::record::{Key, Record};

    fn records(count: usize) -> Vec<(Key, Record)> {
        let key = |i| Key::by_address(ResourceKind::Device, (i as u64 + 1) << 9);
        (0..count).map(|i| (key(i), Record::unknown(2))).collect()
    }

    fn amounts(destroyed: &Destroyed) -> Vec<(Fate, u64, u64)> {
        let groups = destroyed.groups(Duration::ZERO).into_iter();
        groups
            .map(|group| (group.fate, group.amount.count, group.amount.bytes))
            .collect()
    }

    #[test]
    fn a_late_free_counts_once() {
        let destroyed = Destroyed::default();
        let records = records(3);
        destroyed.add(&records);
        destroyed.note_late_free(records[1].0);
        destroyed.note_late_free(records[1].0);
        let expected = [(Fate::DestroyedWithContext, 2, 4), (Fate::FreedLate, 1, 2)];
        assert_eq!(amounts(&destroyed), expected);
    }

    #[test]
    fn a_free_of_a_reused_address_is_not_late() {
        let destroyed = Destroyed::default();
        let records = records(2);
        destroyed.add(&records);
        destroyed.forget(records[0].0);
        destroyed.note_late_free(records[0].0);
        assert_eq!(amounts(&destroyed), [(Fate::DestroyedWithContext, 2, 4)]);
        // The same address, of the next context.
        destroyed.add(&records);
        assert_eq!(amounts(&destroyed), [(Fate::DestroyedWithContext, 4, 8)]);
    }

    #[test]
    fn none_is_lost_beyond_the_limit() {
        let destroyed = Destroyed::default();
        destroyed.add(&records(KEYS + 10));
        let all = (KEYS + 10) as u64;
        let expected = [(Fate::DestroyedWithContext, all, 2 * all)];
        assert_eq!(amounts(&destroyed), expected);
    }
}
