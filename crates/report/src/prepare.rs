//! A snapshot for rendering: addresses resolved to names, groups merged, suppressed leaks removed.

use std::borrow::Cow;

use cuguard_registry::{Amount, Group, Origin, ResourceKind, Snapshot, SnapshotReason};

use crate::frames::{cut, mark};
use crate::paths::Paths;
use crate::rows::{FailedRow, Row, merge_failed, merge_rows};
use crate::settings::ReportSettings;
use crate::suppress::Suppressions;
use crate::symbols::{Frame, Symbols};
use crate::words::{is_at_exit, total, when};

/// What of a snapshot is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'s> {
    pub(crate) suppressions: &'s Suppressions,
    /// Also frames of these crates and of the runtime.
    pub(crate) all_frames: bool,
    /// How many frames of the program.
    pub(crate) depth: usize,
}

impl<'s> View<'s> {
    /// What is shown without settings.
    pub(crate) const PLAIN: Self = View {
        suppressions: &Suppressions::NONE,
        all_frames: false,
        depth: usize::MAX,
    };

    pub(crate) fn of(settings: &'s ReportSettings) -> Self {
        View {
            suppressions: &settings.suppressions,
            all_frames: settings.all_frames.unwrap_or(false),
            depth: settings.wanted_depth(),
        }
    }

    fn cut(self, mut frames: Vec<Frame>) -> Vec<Frame> {
        if !self.all_frames {
            cut(&mut frames, self.depth);
        }
        frames
    }
}

/// A snapshot for rendering.
#[derive(Debug)]
pub(crate) struct PreparedSnapshot<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) live: Vec<Row<'a>>,
    pub(crate) escaped: Vec<Row<'a>>,
    pub(crate) failed: Vec<FailedRow<'a>>,
    /// Where the context was dropped before its resources.
    pub(crate) dropped: Vec<Frame>,
    pub(crate) suppressed: Suppressed,
    /// Whether frames of these crates and of the runtime are shown.
    pub(crate) all_frames: bool,
    pub(crate) paths: Paths,
}

/// Leaks that are suppressed.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Suppressed {
    pub(crate) groups: u64,
    pub(crate) amounts: Vec<(ResourceKind, Amount)>,
    /// Patterns that matched nothing so far.
    pub(crate) unused: Vec<String>,
}

impl Suppressed {
    pub(crate) fn amount(&self) -> Amount {
        self.amounts.iter().map(|(_, amount)| *amount).sum()
    }
}

impl<'a> PreparedSnapshot<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, view: View<'_>) -> Self {
        let mut symbols = Symbols::default();
        let paths = Paths::new();
        let mut resolve = |origin: &Origin| {
            let mut frames = symbols.frames(origin.stack, view.all_frames);
            mark(&mut frames);
            frames
        };
        let mut row = |group: &'a Group| {
            let frames = resolve(&group.origin);
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
        // Suppressions match all frames that were recorded, also those that are not shown.
        let (mut hidden, mut live): (Vec<_>, Vec<_>) = snapshot
            .live
            .iter()
            .map(&mut row)
            .partition(|row| is_suppressed(row, view.suppressions, &paths));
        let mut escaped: Vec<_> = snapshot.escaped.iter().map(&mut row).collect();
        for rows in [&mut hidden, &mut live, &mut escaped] {
            for row in rows.iter_mut() {
                row.frames = view.cut(std::mem::take(&mut row.frames));
            }
            merge_rows(rows, view.all_frames);
        }
        let (mut hidden, mut live) = (nest(hidden), nest(live));
        // Indirect leaks of a suppressed one are suppressed with it, under it and not as groups.
        let follows = |row: &mut Row<'_>| row.group.kept && hidden.iter().any(|h| h.keeps(row));
        let following: Vec<_> = live.extract_if(.., follows).collect();
        for row in following {
            if let Some(keeper) = hidden.iter_mut().find(|hidden| hidden.keeps(&row)) {
                keeper.indirect.push(row);
            }
        }
        let failed = snapshot.failed_frees.iter().map(|failed| FailedRow {
            failed: Cow::Borrowed(failed),
            allocated: view.cut(resolve(&failed.allocated.origin)),
            freed: view.cut(resolve(&failed.freed)),
        });
        let mut failed: Vec<_> = failed.collect();
        merge_failed(&mut failed, view.all_frames);
        let dropped = snapshot.dropped.as_ref();
        let dropped = dropped.map_or_else(Vec::new, |origin| view.cut(resolve(origin)));
        live.sort_by(Row::order);
        escaped.sort_by(Row::order);
        // Stable: of the same size, in the order that merging left.
        failed.sort_by_key(|row| row.failed.allocated.size_order());
        let suppressed = Suppressed {
            groups: hidden.len() as u64,
            amounts: hidden.iter().flat_map(Row::amounts).collect(),
            unused: view.suppressions.unused().map(str::to_owned).collect(),
        };
        Self {
            snapshot,
            live,
            escaped,
            failed,
            dropped,
            suppressed,
            all_frames: view.all_frames,
            paths,
        }
    }

    /// Whether anything was not freed or could not be freed.
    pub(crate) fn is_leak(&self) -> bool {
        !self.live.is_empty()
            || !self.failed.is_empty()
            || !self.snapshot.unrecorded.is_empty()
            || self.snapshot.not_released.is_some()
    }

    /// Whether the report is one line.
    pub(crate) fn is_empty(&self) -> bool {
        !self.is_leak()
            && self.escaped.is_empty()
            && self.suppressed.groups == 0
            && (self.snapshot.deferred.is_empty() || is_at_exit(self.snapshot.info.reason))
            && self.snapshot.late_drops.is_empty()
            && self.snapshot.broken.is_none()
            && !self.shows_pools()
    }

    /// Whether pools alone make a report: where the program asks what is live, and pools hold memory. At the end of a context
    /// they are released.
    fn shows_pools(&self) -> bool {
        self.snapshot.info.reason == SnapshotReason::Requested
            && self.snapshot.pools.iter().any(|pool| pool.held != 0)
    }

    /// `about ` before the figures of a group that are estimates. A group that no sample picked has no
    /// call site, and exact figures.
    pub(crate) fn about(&self, group: &Group) -> &'static str {
        let is_estimate = self.snapshot.sample > 1 && group.origin.site.is_some();
        when(is_estimate, "about ")
    }

    /// What leaked, with and without records.
    pub(crate) fn leaked(&self) -> impl Iterator<Item = (ResourceKind, Amount)> + '_ {
        let groups = self.live.iter().flat_map(Row::amounts);
        groups.chain(self.snapshot.unrecorded.iter().copied())
    }

    /// How many frees failed.
    pub(crate) fn failed_count(&self) -> u64 {
        let failed = self.failed.iter();
        total(failed.map(|row| row.failed.allocated.amount.count))
    }
}

/// Moves indirect leaks under the largest leak that keeps them. The pool of an allocation is not
/// recorded, so a pool moves only if exactly one group can be from it.
fn nest(rows: Vec<Row<'_>>) -> Vec<Row<'_>> {
    let (kept, mut direct): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.group.kept);
    direct.sort_by(Row::order);
    let mut alone = Vec::new();
    for row in kept {
        let mut pooled =
            (0..direct.len()).filter(|i| direct[*i].group.kind == ResourceKind::StreamOrdered);
        let keeper = match row.group.kind {
            ResourceKind::MemoryPool => pooled.next().filter(|_| pooled.next().is_none()),
            _ => direct.iter().position(|keeper| keeper.keeps(&row)),
        };
        match keeper {
            Some(keeper) => direct[keeper].indirect.push(row),
            None => alone.push(row),
        }
    }
    for row in &mut direct {
        row.indirect.sort_by(Row::order);
    }
    direct.append(&mut alone);
    direct
}

/// Whether a pattern matches the type, the label or the call site of a group, or a function, a file or a
/// module on its stack trace. Files match as they are shown; the whole path only where the pattern has a
/// slash, because the name of the folder that someone works in must not match.
pub(crate) fn is_suppressed(row: &Row<'_>, suppressions: &Suppressions, paths: &Paths) -> bool {
    if suppressions.is_empty() {
        return false;
    }
    let group = &row.group;
    let mut names = vec![group.type_name, group.label.as_deref().unwrap_or_default()];
    let mut files: Vec<&str> = group.origin.site.iter().map(|site| site.file).collect();
    // Frames of these crates are on every stack.
    for frame in row.frames.iter().filter(|frame| !frame.own) {
        names.extend(frame.symbol.function.as_deref());
        files.extend(frame.symbol.file.as_deref());
        files.extend(frame.module.as_ref().map(|module| &*module.path));
    }
    for list in [&mut names, &mut files] {
        list.sort_unstable();
        list.dedup();
    }
    let shown: Vec<_> = files.iter().map(|file| paths.shorten(file)).collect();
    let found = suppressions.find(|pattern| {
        names.iter().any(|name| pattern.matches(name))
            || shown.iter().any(|file| pattern.matches(file))
            || pattern.has_slash() && files.iter().any(|file| pattern.matches(file))
    });
    found.is_some()
}
