//! What changed between two snapshots.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::counters::Amount;
use super::kind::Kind;
use super::snapshot::{Group, Origin, Snapshot};

/// What changed from one snapshot to a later one of the same process; see
/// [`Snapshot::diff`].
///
/// `cuguard_report::display_diff` prints it: one line for each change, the largest first.
///
/// ```
/// use cuguard::Kind;
/// use cuguard::snapshot::{Group, Snapshot, Trend};
///
/// let mut before = Snapshot::default();
/// before.live.push(Group::new(Kind::Device, "f32", 1, 100));
/// let mut after = Snapshot::default();
/// after.live.push(Group::new(Kind::Device, "f32", 3, 300));
///
/// let diff = after.diff(&before);
/// assert_eq!(diff.changes[0].trend(), Trend::Grew);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diff {
    /// The groups that changed, those with the largest change first. Groups that escaped count as
    /// alive.
    pub changes: Vec<Change>,
}

/// One group before and after; part of a [`Diff`].
///
/// ```
/// use cuguard::Kind;
/// use cuguard::snapshot::{Group, Snapshot};
///
/// let mut before = Snapshot::default();
/// before.live.push(Group::new(Kind::Event, "", 4, 0));
/// let diff = Snapshot::default().diff(&before);
/// assert_eq!((diff.changes[0].before.count, diff.changes[0].after.count), (4, 0));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// What they are.
    pub kind: Kind,
    /// The type of the elements.
    pub type_name: &'static str,
    /// Their label.
    pub label: Option<String>,
    /// The place that made them; unknown for what was only counted.
    pub origin: Origin,
    /// What there was.
    pub before: Amount,
    /// What there is.
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
    /// There was nothing, now there is something.
    Appeared,
    /// There is more: more bytes, or as many bytes in more pieces.
    Grew,
    /// There is less.
    Shrank,
    /// There is nothing left.
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
    ///
    /// ```
    /// use cuguard::Kind;
    /// use cuguard::snapshot::{Group, Snapshot, Trend};
    ///
    /// let mut before = Snapshot::default();
    /// before.live.push(Group::new(Kind::Event, "", 4, 0));
    /// assert_eq!(Snapshot::default().diff(&before).changes[0].trend(), Trend::Went);
    /// ```
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
}

/// What makes a group the same group in another snapshot.
type Identity<'a> = (Kind, &'static str, Option<&'a str>, Origin);

impl Diff {
    /// Whether nothing changed.
    ///
    /// ```
    /// let snapshot = cuguard::snapshot::Snapshot::default();
    /// assert!(snapshot.diff(&snapshot).is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub(super) fn between(earlier: &Snapshot, later: &Snapshot) -> Self {
        let mut pairs: HashMap<Identity<'_>, (Amount, Amount)> = HashMap::new();
        for (identity, amount) in alive(earlier) {
            pairs.entry(identity).or_default().0 += amount;
        }
        for (identity, amount) in alive(later) {
            pairs.entry(identity).or_default().1 += amount;
        }
        let mut changes: Vec<_> = pairs
            .into_iter()
            .filter(|(_, (before, after))| before != after)
            .map(
                |((kind, type_name, label, origin), (before, after))| Change {
                    kind,
                    type_name,
                    label: label.map(str::to_owned),
                    origin,
                    before,
                    after,
                },
            )
            .collect();
        changes.sort_by(|one, other| one.order().cmp(&other.order()));
        Self { changes }
    }
}

impl Change {
    /// The largest change first; equal ones by what a person can read. The addresses of the stack
    /// come last, only so that the order is one.
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

fn alive(snapshot: &Snapshot) -> impl Iterator<Item = (Identity<'_>, Amount)> {
    let identity = |group: &'_ Group| (group.kind, group.type_name, group.origin, group.amount);
    let groups = snapshot
        .live
        .iter()
        .chain(&snapshot.escaped)
        .map(move |group| {
            let (kind, type_name, origin, amount) = identity(group);
            ((kind, type_name, group.label.as_deref(), origin), amount)
        });
    let counted = snapshot
        .unrecorded
        .iter()
        .map(|(kind, amount)| ((*kind, "", None, Origin::default()), *amount));
    groups.chain(counted)
}

#[cfg(test)]
mod tests {
    use super::Trend;
    use crate::{Amount, Group, Kind, Site, Snapshot};

    fn group(line: u32, count: u64, bytes: u64) -> Group {
        let mut group = Group::new(Kind::Device, "f32", count, bytes);
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
    fn every_way_to_change_is_told_and_the_largest_comes_first() {
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
    fn counted_things_are_compared_by_kind() {
        let before = Snapshot::default();
        let after = Snapshot {
            unrecorded: vec![(Kind::Pinned, Amount::new(1, 64))],
            ..Snapshot::default()
        };
        let diff = after.diff(&before);
        assert_eq!(
            (diff.changes[0].kind, diff.changes[0].after.bytes),
            (Kind::Pinned, 64)
        );
    }

    #[test]
    fn more_pieces_of_the_same_bytes_grow() {
        let diff = snapshot(vec![group(1, 3, 20)]).diff(&snapshot(vec![group(1, 2, 20)]));
        assert_eq!(diff.changes[0].trend(), Trend::Grew);
    }
}
