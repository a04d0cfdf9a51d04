//! A snapshot with the names that its addresses have, and without what is suppressed: what the
//! renderers work from.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::frames::{cut, mark};
use super::merge::merged;
use super::paths::Paths;
use super::suppress::Suppressions;
use super::symbols::{Frame, Symbol, Symbols};
use super::words::{is_at_exit, total};
use cuguard_registry::{Amount, FailedFreeGroup, Group, Kind, Origin, Snapshot};

/// What of a snapshot is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'s> {
    pub(super) suppressions: &'s Suppressions,
    /// Also frames of this crate and of the runtime.
    pub(super) all_frames: bool,
    /// How many frames of the program.
    pub(super) depth: usize,
}

impl View<'_> {
    /// What is shown where there are no settings.
    pub(super) const PLAIN: Self = View {
        suppressions: &Suppressions::NONE,
        all_frames: false,
        depth: usize::MAX,
    };
}

/// A snapshot, ready to be put into words.
#[derive(Debug)]
pub(super) struct Prepared<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) live: Vec<Row<'a>>,
    pub(super) escaped: Vec<Row<'a>>,
    pub(super) failed: Vec<FailedRow<'a>>,
    /// Where the context was dropped before its resources, in names.
    pub(super) dropped: Vec<Frame>,
    pub(super) suppressed: Suppressed,
    /// Whether frames of this crate and of the runtime are shown.
    pub(super) all_frames: bool,
    pub(super) paths: Paths,
}

/// Leaks that are suppressed.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Suppressed {
    pub(super) groups: u64,
    pub(super) amounts: Vec<(Kind, Amount)>,
    /// Patterns that matched nothing so far.
    pub(super) unused: Vec<String>,
}

impl Suppressed {
    pub(super) fn amount(&self) -> Amount {
        let mut sum = Amount::default();
        self.amounts.iter().for_each(|(_, amount)| sum += *amount);
        sum
    }
}

/// A group with its stack in names.
#[derive(Debug)]
pub(super) struct Row<'a> {
    /// As in the snapshot, unless several that look the same were put together.
    pub(super) group: Cow<'a, Group>,
    pub(super) frames: Vec<Frame>,
    /// What leaked only because this did.
    pub(super) indirect: Vec<Row<'a>>,
}

impl Row<'_> {
    /// What leaked, with what follows from it.
    pub(super) fn amounts(&self) -> impl Iterator<Item = (Kind, Amount)> + '_ {
        let indirect = self.indirect.iter();
        let groups = std::iter::once(&self.group).chain(indirect.map(|row| &row.group));
        groups.map(|group| (group.kind, group.amount))
    }

    /// Whether one of these is what keeps one of those alive. A stream is found by its handle. Which
    /// pool some memory is from is not recorded.
    fn keeps(&self, other: &Self) -> bool {
        let mut handles = other.group.addresses.iter();
        handles.any(|handle| self.group.streams.binary_search(handle).is_ok())
    }
}

/// Failed frees with both stacks in names.
#[derive(Debug)]
pub(super) struct FailedRow<'a> {
    pub(super) failed: Cow<'a, FailedFreeGroup>,
    pub(super) allocated: Vec<Frame>,
    pub(super) freed: Vec<Frame>,
}

impl<'a> Prepared<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, view: View<'_>) -> Self {
        let mut symbols = Symbols::default();
        let paths = Paths::new();
        let mut named = |origin: &Origin| {
            let mut frames = symbols.frames(origin.stack, view.all_frames);
            mark(&mut frames);
            frames
        };
        let shown = |mut frames: Vec<Frame>| {
            if !view.all_frames {
                cut(&mut frames, view.depth);
            }
            frames
        };
        let mut row = |group: &'a Group| {
            let frames = named(&group.origin);
            if let Some(site) = group.origin.site {
                let files = frames.iter().filter_map(|f| f.symbol.file.as_deref());
                files.for_each(|file| paths.learn(site.file, file));
            }
            Row {
                group: Cow::Borrowed(group),
                frames,
                indirect: Vec::new(),
            }
        };
        let leaks = snapshot.live.iter().map(&mut row);
        // By all frames that were recorded, also those that are not shown.
        let (hidden, leaks): (Vec<_>, Vec<_>) =
            leaks.partition(|row| is_suppressed(row, view.suppressions, &paths));
        let escaped: Vec<_> = snapshot.escaped.iter().map(&mut row).collect();
        let rows = |rows: Vec<Row<'a>>| {
            let cut = rows.into_iter().map(|row| Row {
                frames: shown(row.frames),
                ..row
            });
            merged(cut.collect(), view.all_frames)
        };
        let (mut hidden, mut leaks) = (nested(rows(hidden)), nested(rows(leaks)));
        let mut escaped = rows(escaped);
        // What only follows from a suppressed leak is suppressed with it.
        let follows = |row: &mut Row<'_>| row.group.kept && hidden.iter().any(|h| h.keeps(row));
        let follow: Vec<_> = leaks.extract_if(.., follows).collect();
        for row in follow {
            // Under what keeps it, as among the live: it is no group of its own.
            if let Some(keeper) = hidden.iter_mut().find(|hidden| hidden.keeps(&row)) {
                keeper.indirect.push(row);
            }
        }
        let failed = snapshot.failed_frees.iter().map(|failed| FailedRow {
            failed: Cow::Borrowed(failed),
            allocated: shown(named(&failed.allocated.origin)),
            freed: shown(named(&failed.freed)),
        });
        let mut failed = merged(failed.collect(), view.all_frames);
        let dropped = snapshot.dropped.as_ref();
        let dropped = dropped.map_or_else(Vec::new, |origin| shown(named(origin)));
        leaks.sort_by(order);
        escaped.sort_by(order);
        // Stable: of the same size, in the order that merging left.
        failed.sort_by_key(|row| {
            let amount = row.failed.allocated.amount;
            std::cmp::Reverse((amount.bytes, amount.count))
        });
        let suppressed = Suppressed {
            groups: hidden.len() as u64,
            amounts: hidden.iter().flat_map(Row::amounts).collect(),
            unused: view.suppressions.unused().map(str::to_owned).collect(),
        };
        Self {
            snapshot,
            live: leaks,
            escaped,
            failed,
            dropped,
            suppressed,
            all_frames: view.all_frames,
            paths,
        }
    }

    /// Whether there is anything that was not freed or could not be freed.
    pub(super) fn is_leak(&self) -> bool {
        !self.live.is_empty()
            || !self.failed.is_empty()
            || !self.snapshot.unrecorded.is_empty()
            || self.snapshot.not_released.is_some()
    }

    /// Whether there is nothing to show but one line.
    pub(super) fn is_empty(&self) -> bool {
        !self.is_leak()
            && self.escaped.is_empty()
            && self.suppressed.groups == 0
            && (self.snapshot.deferred.is_empty() || is_at_exit(self.snapshot.info.reason))
            && self.snapshot.late_drops.is_empty()
            && self.snapshot.broken.is_none()
    }

    /// What stands before the figures of a group: they are estimates where samples were recorded.
    /// What was recorded for another reason has no place.
    pub(super) fn info(&self, group: &Group) -> &'static str {
        if self.snapshot.sample > 1 && group.origin.site.is_some() {
            "about "
        } else {
            ""
        }
    }

    /// What leaked, with and without records.
    pub(super) fn leaked(&self) -> impl Iterator<Item = (Kind, Amount)> + '_ {
        let groups = self.live.iter().flat_map(Row::amounts);
        groups.chain(self.snapshot.unrecorded.iter().copied())
    }

    /// How many frees failed.
    pub(super) fn failed_count(&self) -> u64 {
        total(
            self.failed
                .iter()
                .map(|row| row.failed.allocated.amount.count),
        )
    }
}

/// Puts what is only kept by other leaks under the largest of them. Memory does not tell which pool
/// it is from, so a pool is put under it where there is but one group that can be meant.
fn nested(rows: Vec<Row<'_>>) -> Vec<Row<'_>> {
    let (kept, mut direct): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.group.kept);
    direct.sort_by(order);
    let mut alone = Vec::new();
    for row in kept {
        let mut pooled = (0..direct.len()).filter(|i| direct[*i].group.kind == Kind::StreamOrdered);
        let keeper = match row.group.kind {
            Kind::MemoryPool => pooled.next().filter(|_| pooled.next().is_none()),
            _ => direct.iter().position(|keeper| keeper.keeps(&row)),
        };
        match keeper {
            Some(keeper) => direct[keeper].indirect.push(row),
            None => alone.push(row),
        }
    }
    for row in &mut direct {
        row.indirect.sort_by(order);
    }
    direct.append(&mut alone);
    direct
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

/// Whether a pattern matches the group's type or label, the line that made it, or a function, a file
/// or a module on its stack. Files are compared as they are shown, and whole where the pattern has a
/// slash: the folder that somebody works in is no part of a pattern for what is in it.
fn is_suppressed(row: &Row<'_>, suppressions: &Suppressions, paths: &Paths) -> bool {
    if suppressions.is_empty() {
        return false;
    }
    let group = &row.group;
    // This crate's functions are on every stack.
    let frames = row.frames.iter().filter(|frame| !frame.own);
    let mut names = vec![group.type_name, group.label.as_deref().unwrap_or_default()];
    let mut files: Vec<&str> = group.origin.site.iter().map(|site| site.file).collect();
    for frame in frames {
        names.extend(frame.symbol.function.as_deref());
        files.extend(frame.symbol.file.as_deref());
        files.extend(frame.spot.as_ref().map(|spot| &*spot.module));
    }
    for list in [&mut names, &mut files] {
        list.sort_unstable();
        list.dedup();
    }
    let shown: Vec<_> = files.iter().map(|file| paths.shorten(file)).collect();
    let found = suppressions.find(|one| {
        names.iter().any(|name| one.matches(name))
            || shown.iter().any(|file| one.matches(file))
            || one.has_slash() && files.iter().any(|file| one.matches(file))
    });
    found.is_some()
}
