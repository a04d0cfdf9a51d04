//! A checkpoint for tests: nothing may leak after it.

use cuguard_registry::{Amount, FailedFreeGroup, Group, PoolUsage, Snapshot, SnapshotReason};

use crate::report_trait::Report;

/// A moment after which nothing may leak.
///
/// Take a snapshot before the work and one after it. Groups by kind, type, label and call site that are
/// larger after the work were left behind. A call site that frees one resource and allocates another of the
/// same size is even.
///
/// ```
/// use cuguard::ResourceKind;
/// use cuguard::report::Checkpoint;
/// use cuguard::snapshot::{Group, Snapshot};
///
/// let mut before = Snapshot::default(); // context.snapshot()
/// before.live.push(Group::new(ResourceKind::Device, "f32", 1, 4096));
/// let checkpoint = Checkpoint::new(before.clone());
///
/// checkpoint.assert_clean(&before); // nothing happened
///
/// let mut after = before;
/// after.live.push(Group::new(ResourceKind::Stream, "", 1, 0));
/// let behind = checkpoint.left_behind(&after);
/// assert_eq!(behind.live.len(), 1);
/// let failed = std::panic::catch_unwind(|| checkpoint.assert_clean(&after));
/// assert!(failed.is_err());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    before: Snapshot,
}

impl Checkpoint {
    /// A checkpoint at this snapshot.
    #[must_use]
    pub const fn new(before: Snapshot) -> Self {
        Self { before }
    }

    /// The later snapshot without what was alive at the checkpoint. It is [clean](Snapshot::is_clean) when
    /// nothing was left behind. Amounts are differences; there are no totals, which are of the whole
    /// context.
    #[must_use]
    pub fn left_behind(&self, now: &Snapshot) -> Snapshot {
        let before = &self.before;
        let mut behind = now.clone();
        behind.totals.clear();
        let is_new = |pool: &PoolUsage| before.pools.iter().all(|old| old.number != pool.number);
        behind.pools.retain(is_new);
        if behind.info.reason == SnapshotReason::Requested {
            behind.info.reason = SnapshotReason::LeftBehind;
        }
        behind.live = left(
            &now.live,
            &before.live,
            Moved::new(&before.escaped, &now.escaped),
        );
        behind.escaped = left(
            &now.escaped,
            &before.escaped,
            Moved::new(&before.live, &now.live),
        );
        behind.unrecorded.retain_mut(|(kind, amount)| {
            let earlier = before
                .unrecorded
                .iter()
                .filter(|(earlier, _)| earlier == kind);
            *amount -= earlier.map(|(_, amount)| *amount).sum();
            let is_more = !amount.is_zero();
            // As for groups: the same number may have more bytes.
            amount.count = amount.count.max(1);
            is_more
        });
        behind.failed_frees.retain_mut(|failed| {
            let earlier = before.failed_frees.iter();
            let error = |failed: &FailedFreeGroup| (failed.freed, failed.function, failed.code);
            let wanted = error(failed);
            let same = earlier.filter(|earlier| error(earlier) == wanted);
            let same = same.map(|earlier| &earlier.allocated);
            let same: Vec<_> = same.filter(|one| is_same(one, &failed.allocated)).collect();
            subtract(&mut failed.allocated, total(&same), &same)
        });
        behind
    }

    /// Panics when something was left behind, with the report as the message.
    ///
    /// # Panics
    ///
    /// When more is alive than at the checkpoint, or a free failed since.
    #[track_caller]
    pub fn assert_clean(&self, now: &Snapshot) {
        let behind = self.left_behind(now);
        assert!(
            behind.is_clean(),
            "left behind since the checkpoint:\n{}",
            behind.display()
        );
    }
}

/// The groups of the other owner, before and now: what escaped and was taken again, or the other way round.
struct Moved<'a> {
    before: &'a [Group],
    now: &'a [Group],
}

impl<'a> Moved<'a> {
    const fn new(before: &'a [Group], now: &'a [Group]) -> Self {
        Self { before, now }
    }
}

/// What is in the groups and was not before. Each resource of before is subtracted once.
fn left(now: &[Group], before: &[Group], moved: Moved<'_>) -> Vec<Group> {
    let mut left = Vec::new();
    for (index, group) in now.iter().enumerate() {
        let same = |groups: &[Group]| -> Amount {
            let same = groups.iter().filter(|other| is_same(other, group));
            same.map(|other| other.amount).sum()
        };
        let mut was = same(moved.before);
        was -= same(moved.now);
        was += same(before);
        // What groups that differ in nothing else, such as by a resource that keeps them, were reduced by.
        was -= same(&now[..index]);
        let earlier = before.iter().chain(moved.before);
        let earlier: Vec<_> = earlier.filter(|other| is_same(other, group)).collect();
        let mut group = group.clone();
        if subtract(&mut group, was, &earlier) {
            left.push(group);
        }
    }
    left
}

fn is_same(one: &Group, other: &Group) -> bool {
    fn identity(group: &Group) -> impl PartialEq + '_ {
        let label = group.label.as_deref();
        (group.kind, group.type_name, label, group.origin)
    }
    identity(one) == identity(other)
}

fn total(groups: &[&Group]) -> Amount {
    groups.iter().map(|group| group.amount).sum()
}

/// Subtracts an amount, and the addresses of the earlier groups. Returns whether anything is left.
fn subtract(group: &mut Group, was: Amount, earlier: &[&Group]) -> bool {
    let is_more = group.amount.count > was.count || group.amount.bytes > was.bytes;
    group.amount -= was;
    // A call site that allocates several sizes may have as many resources as before, with more bytes.
    group.amount.count = group.amount.count.max(1);
    let is_known = |address: &u64| {
        let mut groups = earlier.iter();
        groups.any(|group| group.addresses.binary_search(address).is_ok())
    };
    group.addresses.retain(|address| !is_known(address));
    is_more
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::Checkpoint;
    use crate::tests_support::Insert;
    use cuguard_registry::{
        Amount, ContextInfo, Entry, FailedFree, Key, Registry, ResourceKind, Snapshot,
        TrackingLevel,
    };

    fn insert(registry: &Registry, address: u64, bytes: u64) {
        registry.insert(
            Key::new(ResourceKind::Device, address),
            Entry {
                bytes,
                type_name: "u8",
                stream: 0,
            },
        );
    }

    fn snapshot(registry: &Registry) -> Snapshot {
        registry.snapshot(ContextInfo::default())
    }

    #[test]
    fn what_was_there_before_is_not_left_behind() {
        for level in [
            TrackingLevel::Counts,
            TrackingLevel::Sites,
            TrackingLevel::Stacks,
        ] {
            let registry = Registry::new(level, 32);
            insert(&registry, 1, 10);
            let checkpoint = Checkpoint::new(snapshot(&registry));
            checkpoint.assert_clean(&snapshot(&registry));
            insert(&registry, 2, 20);
            let behind = checkpoint.left_behind(&snapshot(&registry));
            assert_eq!(behind.leaked(), Amount::new(1, 20), "{level}");
            registry.remove(Key::new(ResourceKind::Device, 2), 20);
            checkpoint.assert_clean(&snapshot(&registry));
        }
    }

    /// One resource is freed, and a larger one allocated.
    #[test]
    fn more_bytes_in_as_many_resources_are_left_behind() {
        for level in [TrackingLevel::Counts, TrackingLevel::Sites] {
            let registry = Registry::new(level, 32);
            let mut checkpoint = None;
            for (address, bytes) in [(1, 10), (2, 1000)] {
                insert(&registry, address, bytes);
                checkpoint.get_or_insert_with(|| Checkpoint::new(snapshot(&registry)));
            }
            let key = Key::new(ResourceKind::Device, 1);
            registry.remove(key, 10);
            let behind = checkpoint.unwrap().left_behind(&snapshot(&registry));
            assert_eq!(behind.leaked(), Amount::new(1, 990), "{level}");
        }
    }

    #[test]
    fn one_more_in_a_loop_is_left_behind_with_its_address() {
        let registry = Registry::new(TrackingLevel::Sites, 32);
        let mut checkpoint = None;
        for address in 1..=3 {
            insert(&registry, address, 10);
            if address == 2 {
                checkpoint = Some(Checkpoint::new(snapshot(&registry)));
            }
        }
        let behind = checkpoint.unwrap().left_behind(&snapshot(&registry));
        assert_eq!(
            (behind.leaked(), &behind.live[0].addresses),
            (Amount::new(1, 10), &vec![3])
        );
    }

    #[test]
    fn what_escapes_and_comes_back_was_there() {
        let registry = Registry::new(TrackingLevel::Sites, 32);
        let key = Key::new(ResourceKind::Device, 1);
        insert(&registry, 1, 10);
        registry.escape(key, 10);
        let checkpoint = Checkpoint::new(snapshot(&registry));
        assert!(registry.recapture(key).is_some());
        checkpoint.assert_clean(&snapshot(&registry));
    }

    /// A call site of which a resource escaped before leaks another one.
    #[test]
    fn an_escaped_resource_hides_no_leak() {
        let registry = Registry::new(TrackingLevel::Sites, 32);
        let mut checkpoint = None;
        for address in [1, 2] {
            insert(&registry, address, 10);
            if address == 1 {
                registry.escape(Key::new(ResourceKind::Device, 1), 10);
                checkpoint = Some(Checkpoint::new(snapshot(&registry)));
            }
        }
        let behind = checkpoint.unwrap().left_behind(&snapshot(&registry));
        assert_eq!(behind.leaked(), Amount::new(1, 10));
        assert_eq!(behind.live[0].addresses, [2]);
        assert!(behind.escaped.is_empty());
    }

    /// Nor does one that another resource keeps.
    #[test]
    fn a_kept_resource_hides_no_leak() {
        let registry = Registry::new(TrackingLevel::Sites, 32);
        let mut checkpoint = None;
        for address in [1, 2] {
            insert(&registry, address, 10);
            checkpoint.get_or_insert_with(|| Checkpoint::new(snapshot(&registry)));
        }
        registry.keep(Key::new(ResourceKind::Device, 1));
        let behind = checkpoint.unwrap().left_behind(&snapshot(&registry));
        assert_eq!(behind.leaked(), Amount::new(1, 10));
    }

    #[test]
    fn the_message_is_the_report() {
        let registry = Registry::new(TrackingLevel::Sites, 32);
        let checkpoint = Checkpoint::new(snapshot(&registry));
        insert(&registry, 1, 10);
        let key = Key::new(ResourceKind::Event, 9);
        let failed = FailedFree::new(
            key,
            0,
            None,
            "cuEventDestroy",
            4,
            "CUDA_ERROR_DEINITIALIZED",
        );
        registry.file_failed_free(failed);
        let now = snapshot(&registry);
        let panic = catch_unwind(AssertUnwindSafe(|| checkpoint.assert_clean(&now))).unwrap_err();
        let message = panic.downcast_ref::<String>().unwrap();
        assert!(
            message.starts_with("left behind since the checkpoint:\n"),
            "{message}"
        );
        assert!(
            message.contains("\ncuguard: what was left behind in context 0 ")
                && message
                    .contains("\ncuguard: 10 B in 1 allocation left behind, in 1 group; 1 free"),
            "{message}"
        );
        assert!(
            message.contains("live 10 B in 1 allocation of device memory, u8"),
            "{message}"
        );
        assert!(
            message.contains("cuEventDestroy returned CUDA_ERROR_DEINITIALIZED (4)"),
            "{message}"
        );
        Checkpoint::new(now.clone()).assert_clean(&now);
    }
}
