//! Guards that were dropped after their context. The counts outlive the registry, because the context
//! is already reported when these guards are dropped; a second report at exit has them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::caller;
use crate::counters::Amount;
use crate::kind::ResourceKind;
use crate::snapshot::{ContextInfo, Snapshot, SnapshotReason};

type Amounts = [Amount; ResourceKind::COUNT];

/// Counts late drops by kind.
#[derive(Debug, Default)]
pub struct Late {
    amounts: Mutex<Amounts>,
    listed: AtomicBool,
}

impl Late {
    pub(crate) fn count(&self, kind: ResourceKind, bytes: u64) {
        self.lock()[kind.index()] += Amount::new(1, bytes);
    }

    /// The drops so far.
    pub(crate) fn drops(&self) -> Vec<(ResourceKind, Amount)> {
        to_list(*self.lock())
    }

    /// The drops since the last call.
    pub fn take(&self) -> Vec<(ResourceKind, Amount)> {
        to_list(std::mem::take(&mut *self.lock()))
    }

    /// Whether this is the first call: the caller then adds it to what is reported at exit.
    pub fn is_new(&self) -> bool {
        !self.listed.swap(true, Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Amounts> {
        cuguard_sync::lock(&self.amounts)
    }
}

fn to_list(amounts: Amounts) -> Vec<(ResourceKind, Amount)> {
    let all = ResourceKind::ALL.iter().copied().zip(amounts);
    all.filter(|(_, amount)| !amount.is_zero()).collect()
}

impl Snapshot {
    /// A snapshot of late drops alone, for a context that has been reported.
    #[must_use]
    pub fn of_late_drops(info: ContextInfo, late_drops: Vec<(ResourceKind, Amount)>) -> Self {
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
    use crate::{Amount, ResourceKind};

    #[test]
    fn each_is_returned_once() {
        let late = Late::default();
        late.count(ResourceKind::Device, 10);
        late.count(ResourceKind::Device, 20);
        late.count(ResourceKind::Event, 0);
        let both = [
            (ResourceKind::Device, Amount::new(2, 30)),
            (ResourceKind::Event, Amount::new(1, 0)),
        ];
        assert_eq!(late.drops(), both);
        assert_eq!(late.take(), both);
        assert_eq!(late.take(), []);
        late.count(ResourceKind::Event, 0);
        assert_eq!(late.take(), both[1..]);
        assert!(late.is_new() && !late.is_new());
    }
}
