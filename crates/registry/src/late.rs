//! Guards that were dropped after their context. Their count is small and outlives the registry: the
//! context is gone and told of when they go, so they are told when the process ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::caller;
use super::counters::Amount;
use super::kind::Kind;
use super::snapshot::{ContextInfo, LateDrops, Snapshot, SnapshotReason};

type Amounts = [Amount; Kind::COUNT];

/// How many of each kind, and how much they held.
#[derive(Debug, Default)]
pub struct Late {
    amounts: Mutex<Amounts>,
    listed: AtomicBool,
}

impl Late {
    pub(super) fn count(&self, kind: Kind, bytes: u64) {
        self.lock()[kind.index()] += Amount::new(1, bytes);
    }

    /// Those so far.
    pub(super) fn drops(&self) -> Vec<LateDrops> {
        to_list(*self.lock())
    }

    /// Those that nobody has taken yet, to be told once.
    pub fn take(&self) -> Vec<LateDrops> {
        to_list(std::mem::take(&mut *self.lock()))
    }

    /// Whether this is the first to ask, and has to put it on the list of what is told at the end.
    pub fn is_new(&self) -> bool {
        !self.listed.swap(true, Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Amounts> {
        self.amounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn to_list(amounts: Amounts) -> Vec<LateDrops> {
    let all = Kind::ALL.iter().zip(amounts);
    all.filter(|(_, amount)| !amount.is_zero())
        .map(|(kind, amount)| LateDrops::new(*kind, amount.count, amount.bytes))
        .collect()
}

impl Snapshot {
    /// Late drops and nothing else, of a context that was told of before.
    pub fn of_late_drops(info: ContextInfo, late_drops: Vec<LateDrops>) -> Self {
        Self {
            info: ContextInfo {
                reason: SnapshotReason::LateDrops,
                ..info
            },
            taken_at: caller::snapshot_time(),
            late_drops,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Late;
    use crate::{Kind, LateDrops};

    #[test]
    fn each_is_told_once() {
        let late = Late::default();
        late.count(Kind::Device, 10);
        late.count(Kind::Device, 20);
        late.count(Kind::Event, 0);
        let both = [
            LateDrops::new(Kind::Device, 2, 30),
            LateDrops::new(Kind::Event, 1, 0),
        ];
        assert_eq!(late.drops(), both);
        assert_eq!(late.take(), both);
        assert_eq!(late.take(), []);
        late.count(Kind::Event, 0);
        assert_eq!(late.take(), both[1..]);
        assert!(late.is_new() && !late.is_new());
    }
}
