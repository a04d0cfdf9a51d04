//! A snapshot with the names that its addresses have, and without what is suppressed: what the
//! renderers work from.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::frames::{Paths, mark};
use super::merge::merged;
use super::suppress::Suppressions;
use super::symbols::{Frame, Symbol, Symbols};
use crate::registry::{Amount, FailedFreeGroup, Group, Kind, Origin, Snapshot};

/// A snapshot, ready to be put into words.
#[derive(Debug)]
pub(super) struct Prepared<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) leaks: Vec<Row<'a>>,
    pub(super) escaped: Vec<Row<'a>>,
    pub(super) failed: Vec<FailedRow<'a>>,
    /// How many groups of leaks are suppressed, and how much they are.
    pub(super) suppressed: (u64, Amount),
    pub(super) paths: Paths,
}

/// A group with its stack in names.
#[derive(Debug)]
pub(super) struct Row<'a> {
    /// As in the snapshot, unless several that look the same were put together.
    pub(super) group: Cow<'a, Group>,
    pub(super) frames: Vec<Frame>,
}

/// Failed frees with both stacks in names.
#[derive(Debug)]
pub(super) struct FailedRow<'a> {
    pub(super) failed: Cow<'a, FailedFreeGroup>,
    pub(super) made: Vec<Frame>,
    pub(super) freed: Vec<Frame>,
}

impl<'a> Prepared<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, suppressions: &Suppressions) -> Self {
        let mut symbols = Symbols::default();
        let paths = Paths::new();
        let mut named = |origin: &Origin| {
            let mut frames = symbols.frames(origin.stack);
            mark(&mut frames);
            frames
        };
        let mut row = |group: &'a Group| Row {
            group: Cow::Borrowed(group),
            frames: named(&group.origin),
        };
        let mut leaks = merged(snapshot.leaks.iter().map(&mut row).collect());
        let mut escaped = merged(snapshot.escaped.iter().map(&mut row).collect());
        let failed = snapshot.failed_frees.iter().map(|failed| FailedRow {
            failed: Cow::Borrowed(failed),
            made: named(&failed.made.origin),
            freed: named(&failed.freed),
        });
        let mut failed = merged(failed.collect());
        let mut suppressed = (0, Amount::default());
        if !suppressions.is_empty() {
            leaks.retain(|row| {
                let hidden = is_suppressed(row, suppressions, &paths);
                if hidden {
                    suppressed.0 += 1;
                    suppressed.1 += row.group.amount;
                }
                !hidden
            });
        }
        leaks.sort_by(order);
        escaped.sort_by(order);
        // Stable: of the same size, in the order that merging left.
        failed.sort_by_key(|row| {
            let amount = row.failed.made.amount;
            std::cmp::Reverse((amount.bytes, amount.count))
        });
        Self {
            snapshot,
            leaks,
            escaped,
            failed,
            suppressed,
            paths,
        }
    }

    /// Whether there is anything that was not freed or could not be freed.
    pub(super) fn is_leak(&self) -> bool {
        !self.leaks.is_empty()
            || !self.failed.is_empty()
            || !self.snapshot.unrecorded.is_empty()
            || self.snapshot.not_released.is_some()
    }

    /// Whether there is nothing to show at all.
    pub(super) fn is_empty(&self) -> bool {
        !self.is_leak()
            && self.escaped.is_empty()
            && self.suppressed.0 == 0
            && self.snapshot.late_drops.is_empty()
            && self.snapshot.broken.is_none()
    }

    /// What stands before the figures of a group: they are estimates where samples were recorded.
    /// What was recorded for another reason has no place.
    pub(super) fn about(&self, group: &Group) -> &'static str {
        if self.snapshot.sample > 1 && group.origin.site.is_some() {
            "about "
        } else {
            ""
        }
    }

    /// What leaked, with and without records.
    pub(super) fn leaked(&self) -> impl Iterator<Item = (Kind, Amount)> + '_ {
        let groups = self
            .leaks
            .iter()
            .map(|row| (row.group.kind, row.group.amount));
        groups.chain(self.snapshot.unrecorded.iter().copied())
    }
}

/// The order of a snapshot, and where only addresses tell two groups apart, the names of their
/// functions.
fn order(one: &Row<'_>, other: &Row<'_>) -> Ordering {
    fn key<'r>(row: &'r Row<'_>) -> impl Ord + 'r {
        let group = &row.group;
        let size = std::cmp::Reverse((group.amount.bytes, group.amount.count));
        (
            size,
            group.kind,
            group.type_name,
            group.label.as_deref(),
            group.origin.site,
        )
    }
    fn names<'r>(row: &'r Row<'_>) -> impl Iterator<Item = &'r Symbol> {
        row.frames.iter().map(|frame| &*frame.symbol)
    }
    key(one)
        .cmp(&key(other))
        .then_with(|| names(one).cmp(names(other)))
}

/// Whether a pattern matches the group's type or label, the line that made it, or a function or a
/// file on its stack. Files are compared as they are and as they are shown.
fn is_suppressed(row: &Row<'_>, suppressions: &Suppressions, paths: &Paths) -> bool {
    let group = &row.group;
    let file =
        |file: &str| suppressions.matches(file) || suppressions.matches(&paths.shorten(file));
    suppressions.matches(group.type_name)
        || group
            .label
            .as_deref()
            .is_some_and(|label| suppressions.matches(label))
        || group.origin.site.is_some_and(|site| file(site.file))
        || row.frames.iter().any(|frame| {
            let symbol = &frame.symbol;
            symbol
                .function
                .as_deref()
                .is_some_and(|name| suppressions.matches(name))
                || symbol.file.as_deref().is_some_and(file)
        })
}

#[cfg(test)]
mod tests {
    use super::Prepared;
    use crate::registry::{
        About, Amount, Entry, Group, Key, Kind, Level, Registry, Site, Snapshot,
    };
    use crate::report::suppress::Suppressions;

    fn group(type_name: &'static str, label: &str, file: &'static str) -> Group {
        let mut group = Group::new(Kind::Device, type_name, 1, 10);
        group.label = Some(label.to_owned());
        group.origin.site = Some(Site::new(file, 1, 1));
        group
    }

    fn left(pattern: &str) -> (Vec<&'static str>, Amount) {
        let snapshot = Snapshot {
            leaks: vec![
                group("f32", "cache/a", "src/a.rs"),
                group("f64", "model", "src/b.rs"),
            ],
            ..Snapshot::default()
        };
        let mut suppressions = Suppressions::default();
        suppressions.add(pattern);
        let prepared = Prepared::new(&snapshot, &suppressions);
        let left = prepared
            .leaks
            .iter()
            .map(|row| row.group.type_name)
            .collect();
        (left, prepared.suppressed.1)
    }

    #[test]
    fn types_labels_and_files_can_be_suppressed() {
        for pattern in ["f32", "cache/*", "*/a.rs", "src/a.rs"] {
            assert_eq!(
                left(pattern),
                (vec!["f64"], Amount::new(1, 10)),
                "{pattern}"
            );
        }
        assert_eq!(left("cache").0.len(), 2);
        assert!(left("*").0.is_empty());
    }

    #[test]
    fn functions_on_the_stack_can_be_suppressed() {
        #[inline(never)]
        fn expected_to_leak(registry: &Registry) {
            let key = Key {
                kind: Kind::Device,
                lane: 0,
                address: 1,
            };
            registry.insert(
                key,
                Entry {
                    bytes: 1,
                    type_name: "u8",
                    stream: 0,
                },
            );
        }
        let registry = Registry::new(Level::Stacks, 32);
        expected_to_leak(&registry);
        let snapshot = registry.snapshot(About::default());
        let mut suppressions = Suppressions::default();
        assert!(Prepared::new(&snapshot, &suppressions).is_leak());
        suppressions.add("*::expected_to_leak");
        let prepared = Prepared::new(&snapshot, &suppressions);
        assert!(!prepared.is_leak() && !prepared.is_empty());
        assert_eq!(prepared.suppressed, (1, Amount::new(1, 1)));
    }

    /// What an optimiser makes of loops: one line at two addresses.
    #[test]
    fn one_line_at_two_addresses_is_one_group() {
        #[inline(never)]
        fn make(registry: &Registry, address: u64) -> u64 {
            let kind = Kind::Device;
            let entry = Entry {
                bytes: 1,
                type_name: "u8",
                stream: 0,
            };
            registry.insert(
                Key {
                    kind,
                    lane: 0,
                    address,
                },
                entry,
            );
            std::hint::black_box(address)
        }
        let registry = Registry::new(Level::Stacks, 32);
        assert_eq!([make(&registry, 1), make(&registry, 2)], [1, 2]);
        registry.insert(
            Key {
                kind: Kind::Device,
                lane: 0,
                address: 3,
            },
            Entry {
                bytes: 5,
                type_name: "u8",
                stream: 0,
            },
        );
        let snapshot = registry.snapshot(About::default());
        assert_eq!(snapshot.leaks.len(), 3);
        let prepared = Prepared::new(&snapshot, &Suppressions::NONE);
        let [large, twice] = &prepared.leaks[..] else {
            panic!("{:#?}", prepared.leaks);
        };
        assert_eq!(large.group.amount, Amount::new(1, 5));
        assert_eq!(twice.group.amount, Amount::new(2, 2));
        assert_eq!(twice.group.addresses, [1, 2]);
        // What is suppressed is counted as it would be shown.
        let mut suppressions = Suppressions::default();
        suppressions.add("*::make");
        let prepared = Prepared::new(&snapshot, &suppressions);
        assert_eq!(prepared.suppressed, (1, Amount::new(2, 2)));
        assert_eq!(prepared.leaks.len(), 1);
    }

    /// Two stacks that differ in addresses only are put in the order of the names.
    #[test]
    fn names_decide_where_sizes_and_sites_are_equal() {
        #[inline(never)]
        fn b_second(registry: &Registry) {
            one_site(registry, 1);
        }
        #[inline(never)]
        fn a_first(registry: &Registry) {
            one_site(registry, 2);
        }
        #[inline(never)]
        fn one_site(registry: &Registry, address: u64) {
            let key = Key {
                kind: Kind::Device,
                lane: 0,
                address,
            };
            registry.insert(
                key,
                Entry {
                    bytes: 1,
                    type_name: "u8",
                    stream: 0,
                },
            );
            std::hint::black_box(());
        }
        let registry = Registry::new(Level::Stacks, 32);
        b_second(&registry);
        a_first(&registry);
        let snapshot = registry.snapshot(About::default());
        let prepared = Prepared::new(&snapshot, &Suppressions::NONE);
        let addresses: Vec<_> = prepared
            .leaks
            .iter()
            .map(|row| row.group.addresses[0])
            .collect();
        assert_eq!(addresses, [2, 1]);
    }
}
