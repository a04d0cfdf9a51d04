//! What changed between two snapshots.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::counters::Amount;
use crate::kind::ResourceKind;
use crate::origin::Origin;
use crate::snapshot::Snapshot;

/// What changed from one snapshot to a later one of the same process; see [`Snapshot::diff`].
///
/// `cuguard::report::display_diff` prints one line for each change, the largest first.
///
/// ```
/// use cuguard::ResourceKind;
/// use cuguard::snapshot::{Group, Snapshot, Trend};
///
/// let mut before = Snapshot::default();
/// before.live.push(Group::new(ResourceKind::Device, "f32", 1, 100));
/// let mut after = Snapshot::default();
/// after.live.push(Group::new(ResourceKind::Device, "f32", 3, 300));
///
/// let diff = after.diff(&before);
/// assert_eq!(diff.changes[0].trend(), Trend::Grew);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diff {
    /// The groups that changed, the largest change first. Escaped groups count as alive.
    pub changes: Vec<Change>,
}

/// One group before and after; part of a [`Diff`].
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Their kind.
    pub kind: ResourceKind,
    /// The type of the elements.
    pub type_name: &'static str,
    /// Their label.
    pub label: Option<String>,
    /// Where they were allocated; unknown for resources without a record.
    pub origin: Origin,
    /// What was alive.
    pub before: Amount,
    /// What is alive.
    pub after: Amount,
}

/// Which way a [`Change`] went.
///
/// ```
/// assert_eq!(cuguard::snapshot::Trend::Appeared.to_string(), "appeared");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Trend {
    /// None before, some after.
    Appeared,
    /// More bytes, or as many bytes in more resources.
    Grew,
    /// Fewer bytes, or as many bytes in fewer resources.
    Shrank,
    /// Some before, none after.
    Went,
}

impl std::fmt::Display for Trend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Appeared => "appeared",
            Self::Grew => "grew",
            Self::Shrank => "shrank",
            Self::Went => "went",
        })
    }
}

impl Change {
    /// Which way it went.
    #[must_use]
    pub fn trend(&self) -> Trend {
        let size = |amount: Amount| (amount.bytes, amount.count);
        if self.before.count == 0 {
            Trend::Appeared
        } else if self.after.count == 0 {
            Trend::Went
        } else if size(self.after) > size(self.before) {
            Trend::Grew
        } else {
            Trend::Shrank
        }
    }

    /// The largest change first, equal ones by what a reader sees. The addresses of the stack come last:
    /// they only make the order total.
    fn order(&self) -> impl Ord + '_ {
        let Self { before, after, .. } = self;
        (
            Reverse(before.bytes.abs_diff(after.bytes)),
            Reverse(before.count.abs_diff(after.count)),
            self.kind,
            self.type_name,
            self.label.as_deref(),
            self.origin.site,
            self.origin.stack,
        )
    }
}

impl Diff {
    pub(crate) fn sorted(mut changes: Vec<Change>) -> Self {
        changes.sort_by(|one, other| one.order().cmp(&other.order()));
        Self { changes }
    }

    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

impl Snapshot {
    /// What changed since an earlier snapshot: what appeared, grew, shrank and went.
    ///
    /// ```
    /// use cuguard::ResourceKind;
    /// use cuguard::snapshot::{Group, Snapshot};
    ///
    /// let before = Snapshot::default();
    /// let mut after = before.clone();
    /// after.live.push(Group::new(ResourceKind::Stream, "", 1, 0));
    /// assert_eq!(after.diff(&before).changes.len(), 1);
    /// assert!(after.diff(&after).is_empty());
    /// ```
    #[must_use]
    pub fn diff(&self, earlier: &Self) -> Diff {
        let mut pairs: HashMap<Identity<'_>, (Amount, Amount)> = HashMap::new();
        for (identity, amount) in alive(earlier) {
            pairs.entry(identity).or_default().0 += amount;
        }
        for (identity, amount) in alive(self) {
            pairs.entry(identity).or_default().1 += amount;
        }
        pairs.retain(|_, (before, after)| before != after);
        let changes = pairs.into_iter().map(|(identity, (before, after))| {
            let (kind, type_name, label, origin) = identity;
            Change {
                kind,
                type_name,
                label: label.map(str::to_owned),
                origin,
                before,
                after,
            }
        });
        Diff::sorted(changes.collect())
    }
}

/// What makes a group the same group in another snapshot.
pub(crate) type Identity<'a> = (ResourceKind, &'static str, Option<&'a str>, Origin);

/// What is live, by group.
pub(crate) fn alive(snapshot: &Snapshot) -> impl Iterator<Item = (Identity<'_>, Amount)> {
    let groups = snapshot.live.iter().chain(&snapshot.escaped);
    let groups = groups.map(|group| {
        let label = group.label.as_deref();
        let identity = (group.kind, group.type_name, label, group.origin);
        (identity, group.amount)
    });
    let unrecorded = snapshot.unrecorded.iter();
    let unrecorded =
        unrecorded.map(|(kind, amount)| ((*kind, "", None, Origin::default()), *amount));
    groups.chain(unrecorded)
}

#[cfg(test)]
mod tests {
    use super::Trend;
    use crate::{Amount, Group, ResourceKind, Site, Snapshot};

    fn group(line: u32, count: u64, bytes: u64) -> Group {
        let mut group = Group::new(ResourceKind::Device, "f32", count, bytes);
        group.origin.site = Some(Site::new("a.rs", line, 1));
        group
    }

    fn snapshot(live: Vec<Group>) -> Snapshot {
        Snapshot {
            live,
            ..Snapshot::default()
        }
    }

    #[test]
    fn every_trend_is_listed_the_largest_first() {
        let before = snapshot(vec![
            group(1, 2, 20),
            group(2, 2, 20),
            group(3, 1, 10),
            group(4, 1, 1),
        ]);
        let after = snapshot(vec![
            group(1, 9, 90),
            group(2, 1, 10),
            group(5, 1, 5),
            group(4, 1, 1),
        ]);
        let diff = after.diff(&before);
        let rows: Vec<_> = diff
            .changes
            .iter()
            .map(|c| (c.trend(), c.origin.site.unwrap().line))
            .collect();
        let expected = [
            (Trend::Grew, 1),
            (Trend::Shrank, 2),
            (Trend::Went, 3),
            (Trend::Appeared, 5),
        ];
        assert_eq!(rows, expected);
        let back = before.diff(&after);
        assert_eq!(back.changes[0].trend(), Trend::Shrank);
        assert_eq!(back.changes.len(), diff.changes.len());
    }

    #[test]
    fn what_escapes_does_not_change_what_is_alive() {
        let before = snapshot(vec![group(1, 2, 20)]);
        let after = Snapshot {
            live: vec![group(1, 1, 10)],
            escaped: vec![group(1, 1, 10)],
            ..Snapshot::default()
        };
        assert!(after.diff(&before).is_empty());
    }

    #[test]
    fn unrecorded_resources_are_compared_by_kind() {
        let before = Snapshot::default();
        let after = Snapshot {
            unrecorded: vec![(ResourceKind::Pinned, Amount::new(1, 64))],
            ..Snapshot::default()
        };
        let diff = after.diff(&before);
        assert_eq!(
            (diff.changes[0].kind, diff.changes[0].after.bytes),
            (ResourceKind::Pinned, 64)
        );
    }

    #[test]
    fn the_same_bytes_in_more_resources_grow() {
        let diff = snapshot(vec![group(1, 3, 20)]).diff(&snapshot(vec![group(1, 2, 20)]));
        assert_eq!(diff.changes[0].trend(), Trend::Grew);
    }
}
