//! A process for rendering: addresses resolved to names, groups merged and classified, suppressed ones removed.

use std::borrow::Cow;
use std::collections::HashSet;

use cuguard_registry::{Amount, Fate, ResourceKind, TrackingLevel};

use super::class::{Class, class};
use super::fold;
use super::growing::{self, Growing};
use super::process::{Process, Refused};
use super::sites::{SiteNames, key_of};
use super::tables::{self, PeakTable, Share, memory};
use crate::paths::Paths;
use crate::prepare::is_suppressed;
use crate::rows::{Row, merge_rows};
use crate::settings::ReportSettings;
use crate::symbols::{Frame, Symbols};
use crate::words::total;

/// The order of a report.
pub(super) const FATES: [Fate; 5] = [
    Fate::Lost,
    Fate::Unclassified,
    Fate::Reachable,
    Fate::DestroyedWithContext,
    Fate::FreedLate,
];

/// A process for rendering.
#[derive(Debug)]
pub(super) struct PreparedProcess<'a> {
    pub(super) process: &'a Process,
    /// In the order of [`FATES`], the largest of each first.
    pub(super) rows: Vec<Row<'a>>,
    pub(super) suppressed: Vec<(ResourceKind, Amount)>,
    pub(super) suppressed_groups: usize,
    /// Patterns that matched nothing.
    pub(super) unused: Vec<String>,
    pub(super) by_library: Vec<Share>,
    pub(super) by_holder: Vec<Share>,
    pub(super) by_frame: Vec<Share>,
    pub(super) growing: Vec<Growing>,
    pub(super) peak: Option<PeakTable>,
    pub(super) refused: Vec<RefusedRow<'a>>,
    pub(super) names: SiteNames,
    pub(super) all_frames: bool,
    pub(super) paths: Paths,
}

/// Allocations of one call site that the driver refused, with the names of its frames.
#[derive(Debug)]
pub(super) struct RefusedRow<'a> {
    pub(super) refused: &'a Refused,
    pub(super) frames: Vec<Frame>,
}

impl<'a> PreparedProcess<'a> {
    pub(super) fn new(process: &'a Process, settings: &ReportSettings) -> Self {
        let all_frames = settings.all_frames.unwrap_or(false);
        // The call site, and the function that it called.
        let depth = match settings.wanted_level() {
            Some(TrackingLevel::Sites) => 2,
            _ => settings.wanted_depth(),
        };
        let suppressions = &settings.suppressions;
        let paths = Paths::new();
        let mut symbols = Symbols::default();
        symbols.resolve_all(process.stacks().flatten().copied());
        let names = SiteNames::new(process, &mut symbols);
        let row = |group| Row {
            group: Cow::Borrowed(group),
            frames: symbols.frames(group.origin.stack, all_frames),
            indirect: Vec::new(),
        };
        let rows: Vec<Row<'_>> = process.groups.iter().map(row).collect();
        let is_alive = |row: &Row<'_>| {
            let fate = row.group.fate;
            !matches!(fate, Fate::DestroyedWithContext | Fate::FreedLate)
        };
        // Handles that were destroyed are no finding, so there is nothing to suppress.
        let may_be_finding = |row: &Row<'_>| is_alive(row) || is_destroyed_memory(row);
        let (hidden, mut rows): (Vec<_>, Vec<_>) = rows
            .into_iter()
            .partition(|row| may_be_finding(row) && is_suppressed(row, suppressions, &paths));
        let alive: Vec<Row<'_>> = rows.iter().filter(|row| is_alive(row)).map(copy).collect();
        let is_hidden = |frames: Vec<Frame>| {
            let row = Row {
                group: Cow::Owned(cuguard_registry::Group::new(ResourceKind::Device, "", 0, 0)),
                frames,
                indirect: Vec::new(),
            };
            is_suppressed(&row, suppressions, &paths)
        };
        // Growth is what grows without the call sites that are suppressed. By whole stack traces: those of `growing` end where
        // its call sites differ. Only what grows is compared: a suppression that matches none of it is named.
        let mut hidden_sites = HashSet::new();
        let mut growing = loop {
            let growing = growing::growing(process, &mut symbols, &names, &hidden_sites);
            let before = hidden_sites.len();
            for stack in growing.iter().flat_map(|growing| &growing.stacks) {
                if is_hidden(symbols.frames(stack, all_frames)) {
                    hidden_sites.insert(*stack);
                }
            }
            if hidden_sites.len() == before {
                break growing;
            }
        };
        for growing in &mut growing {
            cut(&mut growing.frames, depth, all_frames);
        }
        let refused = process.refused.iter().filter_map(|refused| {
            let mut frames = symbols.frames(refused.origin.stack, all_frames);
            let is_shown = !is_hidden(frames.clone());
            cut(&mut frames, depth, all_frames);
            is_shown.then_some(RefusedRow { refused, frames })
        });
        let refused = refused.collect();
        let peak = tables::peak(process, &names);
        for row in &mut rows {
            cut(&mut row.frames, depth, all_frames);
        }
        merge_rows(&mut rows, all_frames);
        sort(&mut rows);
        Self {
            process,
            rows,
            suppressed_groups: hidden.len(),
            suppressed: hidden.iter().flat_map(Row::amounts).collect(),
            unused: suppressions.unused().map(str::to_owned).collect(),
            by_library: tables::by_library(&alive),
            by_holder: tables::by_holder(&alive),
            by_frame: tables::by_frame(&alive, &names),
            growing,
            peak,
            refused,
            names,
            all_frames,
            paths,
        }
    }

    /// The rows as text has them: those are one whose shown frames are equal.
    pub(super) fn folded(&self) -> Vec<Row<'a>> {
        let mut rows: Vec<Row<'a>> = self.rows.iter().map(copy).collect();
        if !self.all_frames {
            for row in &mut rows {
                fold::mark(&mut row.frames);
            }
            merge_rows(&mut rows, false);
            sort(&mut rows);
        }
        rows
    }

    /// How many allocations the driver refused for lack of memory.
    pub(super) fn refused_count(&self) -> u64 {
        total(self.refused.iter().map(|row| row.refused.count))
    }

    /// The rows of one fate.
    pub(super) fn of(&self, fate: Fate) -> &[Row<'a>] {
        of(&self.rows, fate)
    }

    /// Whether all that was alive at the peak of device memory still is.
    pub(super) fn ends_at_its_peak(&self) -> bool {
        let Some(peak) = &self.peak else {
            return false;
        };
        let is_there = |share: &Share| {
            let same = |other: &&Share| {
                share.frame.as_ref().map(key_of) == other.frame.as_ref().map(key_of)
            };
            let now = self.by_frame.iter().find(same);
            now.is_some_and(|now| now.live.bytes >= share.live.bytes)
        };
        peak.shares.iter().all(is_there)
    }

    /// How much of one fate there is. Bytes are those of memory.
    pub(super) fn amount(&self, fate: Fate) -> Amount {
        let amounts = self.of(fate).iter();
        amounts
            .map(|row| memory(row.group.kind, row.group.amount))
            .sum()
    }

    /// The memory that was destroyed with its context: the program did not free it. Of handles that is not a finding.
    pub(super) fn destroyed_memory(&self) -> Amount {
        let rows = self.rows.iter().filter(|row| is_destroyed_memory(row));
        rows.map(|row| row.group.amount).sum()
    }

    /// How much of one fate there is, by kind.
    pub(super) fn amounts(&self, fate: Fate) -> impl Iterator<Item = (ResourceKind, Amount)> + '_ {
        self.of(fate).iter().flat_map(Row::amounts)
    }

    /// How many resources were ever allocated.
    pub(super) fn allocated(&self) -> u64 {
        total(
            self.process
                .totals
                .iter()
                .map(|(_, totals)| totals.allocated),
        )
    }
}

/// Those of one fate, of rows in the order of [`FATES`].
pub(super) fn of<'r, 'a>(rows: &'r [Row<'a>], fate: Fate) -> &'r [Row<'a>] {
    let is = |row: &Row<'_>| row.group.fate == fate;
    let start = rows.iter().position(is).unwrap_or_default();
    let rest = &rows[start..];
    &rest[..rest.iter().take_while(|row| is(row)).count()]
}

/// Whether this is memory that was destroyed with its context.
pub(super) fn is_destroyed_memory(row: &Row<'_>) -> bool {
    row.group.fate == Fate::DestroyedWithContext && row.group.kind.is_memory()
}

fn copy<'a>(row: &Row<'a>) -> Row<'a> {
    Row {
        group: row.group.clone(),
        frames: row.frames.clone(),
        indirect: Vec::new(),
    }
}

/// In the order of [`FATES`], the largest of each first.
fn sort(rows: &mut [Row<'_>]) {
    rows.sort_by(|one, other| {
        let rank = |row: &Row<'_>| {
            let fate = FATES.iter().position(|fate| *fate == row.group.fate);
            (fate, !row.group.kind.is_memory())
        };
        rank(one).cmp(&rank(other)).then_with(|| one.order(other))
    });
}

/// Leaves out frames of these crates and of language runtimes, and those inside of CUDA libraries that have no name. Then
/// frames beyond `depth`: those of CUDA libraries and allocators on top of the stack first, but for the outermost, which the
/// program called; then others between frames of the user; then the outermost.
fn cut(frames: &mut Vec<Frame>, depth: usize, all_frames: bool) {
    if all_frames {
        frames.iter_mut().for_each(|frame| frame.in_app = true);
        return;
    }
    let mut classes: Vec<Class> = frames.iter().map(class).collect();
    let user = classes.iter().position(|class| *class == Class::User);
    if user.is_some() || classes.iter().any(|class| is_library(*class)) {
        let mut index = 0;
        frames.retain(|frame| {
            let class = classes[index];
            index += 1;
            let is_nameless = is_library(class) && frame.symbol.function.is_none();
            let is_inside = matches!(class, Class::Own | Class::Runtime);
            !is_inside && (!is_nameless || user.is_none())
        });
        classes = frames.iter().map(class).collect();
    }
    let top = classes
        .iter()
        .take_while(|class| is_library(**class))
        .count();
    let over = frames.len().saturating_sub(depth);
    let removed = over.min(top.saturating_sub(1));
    frames.drain(..removed);
    classes.drain(..removed);
    let mut over = frames.len().saturating_sub(depth);
    let mut index = 0;
    frames.retain(|_| {
        let between = index != 0 && is_library(classes[index]);
        index += 1;
        let remove = between && over > 0;
        over -= usize::from(remove);
        !remove
    });
    frames.truncate(depth);
    frames.iter_mut().for_each(|frame| frame.in_app = true);
}

fn is_library(class: Class) -> bool {
    matches!(class, Class::Driver | Class::Library)
}

#[cfg(test)]
mod tests {
    use super::cut;
    use crate::symbols::Frame;
    use crate::tests_support;

    /// `libfoo.so!name`, or a name of the program.
    fn frame(function: &str) -> Frame {
        let (module, function) = function.split_once('!').unwrap_or(("a.out", function));
        tests_support::frame(module, function)
    }

    fn shown(stack: &[&str], depth: usize) -> Vec<String> {
        let mut frames: Vec<Frame> = stack.iter().map(|name| frame(name)).collect();
        cut(&mut frames, depth, false);
        assert!(frames.iter().all(|frame| frame.in_app));
        let names = frames.iter().map(|frame| frame.symbol.function.clone());
        names.map(Option::unwrap_or_default).collect()
    }

    const STACK: [&str; 10] = [
        "libcudart.so.12!",
        "libcudart.so.12!cudaMalloc",
        "libc10_cuda.so!c10::cuda::allocate",
        "libtorch_cpu.so!at::empty",
        "std::function<void ()>::operator()",
        "load",
        "libtorch_cpu.so!at::call",
        "run",
        "main",
        "libc.so.6!__libc_start_main",
    ];

    #[test]
    fn runtimes_and_nameless_frames_of_libraries_are_left_out() {
        let expected = [
            "cudaMalloc",
            "c10::cuda::allocate",
            "at::empty",
            "load",
            "at::call",
            "run",
            "main",
        ];
        assert_eq!(shown(&STACK, 32), expected);
    }

    #[test]
    fn the_limit_keeps_the_frames_of_the_user() {
        assert_eq!(
            shown(&STACK, 6),
            [
                "c10::cuda::allocate",
                "at::empty",
                "load",
                "at::call",
                "run",
                "main"
            ]
        );
        assert_eq!(
            shown(&STACK, 5),
            ["at::empty", "load", "at::call", "run", "main"]
        );
        assert_eq!(shown(&STACK, 4), ["at::empty", "load", "run", "main"]);
        assert_eq!(shown(&STACK, 2), ["at::empty", "load"]);
    }

    #[test]
    fn a_stack_without_frames_of_the_user_is_shown() {
        assert_eq!(
            shown(&["libcudart.so!", "libcublas.so!cublasCreate"], 32),
            ["", "cublasCreate"]
        );
        assert_eq!(shown(&["libc.so.6!", "libc.so.6!clone"], 32), ["", "clone"]);
        assert!(shown(&[], 32).is_empty());
    }
}
