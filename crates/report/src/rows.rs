//! Groups with their stack traces as names, and those merged that a reader cannot tell apart.
//!
//! The registry tells stack traces apart by address. An optimizer unrolls loops and inlines functions in
//! several callers, so one line may have several addresses, and its resources several groups.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::rc::Rc;

use cuguard_registry::{Amount, FailedFreeGroup, Group, ResourceKind, merge_equal};

use crate::symbols::Frame;

/// A group with its stack trace as names.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    /// As in the snapshot, unless several were merged.
    pub(crate) group: Cow<'a, Group>,
    pub(crate) frames: Vec<Frame>,
    /// Groups that leaked only because this one did.
    pub(crate) indirect: Vec<Row<'a>>,
}

/// Failed frees with both stack traces as names.
#[derive(Debug)]
pub(crate) struct FailedRow<'a> {
    pub(crate) failed: Cow<'a, FailedFreeGroup>,
    pub(crate) allocated: Vec<Frame>,
    pub(crate) freed: Vec<Frame>,
}

impl Row<'_> {
    /// What leaked, indirect leaks included.
    pub(crate) fn amounts(&self) -> impl Iterator<Item = (ResourceKind, Amount)> + '_ {
        let indirect = self.indirect.iter().map(|row| &row.group);
        let groups = std::iter::once(&self.group).chain(indirect);
        groups.map(|group| (group.kind, group.amount))
    }

    /// Whether a resource of this row keeps one of the other alive. A stream is found by its handle; the
    /// pool of an allocation is not recorded.
    pub(crate) fn keeps(&self, other: &Self) -> bool {
        let mut handles = other.group.addresses.iter();
        handles.any(|handle| self.group.streams.binary_search(handle).is_ok())
    }

    /// The order of a snapshot, and where only addresses differ, by the names of functions.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        let size = |row: &Self| row.group.size_order();
        size(self)
            .cmp(&size(other))
            .then_with(|| self.group.identity().cmp(&other.group.identity()))
            .then_with(|| {
                let names = self.frames.iter().map(|frame| &frame.symbol);
                names.cmp(other.frames.iter().map(|frame| &frame.symbol))
            })
    }
}

/// Merges rows that look the same. `all_frames` says that all frames are shown, not only the program's.
pub(crate) fn merge_rows(rows: &mut Vec<Row<'_>>, all_frames: bool) {
    merge_equal(
        rows,
        |one, other| {
            let frames = || compare_frames(&one.frames, &other.frames, all_frames);
            let (one, other) = (&one.group, &other.group);
            one.identity().cmp(&other.identity()).then_with(frames)
        },
        |row, more| {
            row.group.to_mut().absorb(&more.group);
            clear_columns(&mut row.frames, &more.frames);
        },
    );
    for row in rows {
        // Once for each row that others were merged into.
        if let Cow::Owned(group) = &mut row.group {
            group.sort_lists();
        }
    }
}

/// The same for failed frees, which also have an error.
pub(crate) fn merge_failed(rows: &mut Vec<FailedRow<'_>>, all_frames: bool) {
    fn identity<'r>(row: &'r FailedRow<'_>) -> impl Ord + 'r {
        let failed = &row.failed;
        let error = (failed.function, failed.code, failed.code_name);
        (failed.allocated.identity(), failed.freed.site, error)
    }
    merge_equal(
        rows,
        |one, other| {
            identity(one)
                .cmp(&identity(other))
                .then_with(|| compare_frames(&one.allocated, &other.allocated, all_frames))
                .then_with(|| compare_frames(&one.freed, &other.freed, all_frames))
        },
        |row, more| {
            let allocated = &mut row.failed.to_mut().allocated;
            allocated.absorb(&more.failed.allocated);
            clear_columns(&mut row.allocated, &more.allocated);
            clear_columns(&mut row.freed, &more.freed);
        },
    );
    for row in rows {
        if let Cow::Owned(failed) = &mut row.failed {
            failed.allocated.sort_lists();
        }
    }
}

/// Clears columns in which merged stack traces differ.
fn clear_columns(frames: &mut [Frame], other: &[Frame]) {
    // Frames of the runtime, which are not shown, may be on one of the stacks only.
    let others = other.iter().filter(|frame| frame.in_app);
    for (frame, other) in frames.iter_mut().filter(|frame| frame.in_app).zip(others) {
        if frame.symbol.column != other.symbol.column && frame.symbol.column.is_some() {
            Rc::make_mut(&mut frame.symbol).column = None;
        }
    }
}

/// Compares what is shown of two stack traces: functions, files and lines; the module of a function without a file, and the
/// offset in it, or the address, of one without a name. Of libraries that had one path, one after the other, an offset is not the
/// same place. Without line numbers, two calls in one function are equal.
fn compare_frames(one: &[Frame], other: &[Frame], all_frames: bool) -> Ordering {
    fn shown(frame: &Frame) -> impl Ord + '_ {
        let symbol = &frame.symbol;
        let module = frame.module.as_ref();
        let path = module.filter(|_| symbol.file.is_none()).map(|m| &m.path);
        let place = module.map_or((frame.address, 0), |m| (m.offset, m.library));
        let place = symbol.function.is_none().then_some(place);
        (&symbol.function, symbol.line, &symbol.file, path, place)
    }
    let is_shown = |frame: &&Frame| frame.in_app || all_frames;
    let mut others = other.iter().filter(is_shown);
    for one in one.iter().filter(is_shown) {
        let Some(other) = others.next() else {
            return Ordering::Greater;
        };
        // Mostly the same symbol, without a look at its text.
        let same = Rc::ptr_eq(&one.symbol, &other.symbol) && one.address == other.address;
        if !same && shown(one).cmp(&shown(other)).is_ne() {
            return shown(one).cmp(&shown(other));
        }
    }
    others.next().map_or(Ordering::Equal, |_| Ordering::Less)
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::rc::Rc;
    use std::time::Duration;

    use super::{FailedRow, Row, merge_failed, merge_rows};
    use crate::symbols::{Frame, ModuleOffset, Symbol};
    use cuguard_registry::{Amount, FailedFreeGroup, Group, ResourceKind};

    fn frame(function: Option<&str>, line: u32, address: usize) -> Frame {
        Frame {
            address,
            symbol: Rc::new(Symbol {
                function: function.map(str::to_owned),
                file: Some("src/a.rs".to_owned()),
                line: Some(line),
                column: Some(address as u32),
            }),
            module: None,
            inlined: false,
            own: false,
            in_app: true,
        }
    }

    fn group(address: u64, milliseconds: u64) -> Group {
        let mut group = Group::new(ResourceKind::Device, "u8", 1, 10);
        (group.addresses, group.threads) = (vec![address], vec!["main"]);
        group.oldest = Duration::from_millis(milliseconds);
        group.youngest = group.oldest;
        group
    }

    fn rows(groups: &[(Group, Vec<Frame>)]) -> Vec<Row<'_>> {
        groups
            .iter()
            .map(|(group, frames)| Row {
                group: Cow::Borrowed(group),
                frames: frames.clone(),
                indirect: Vec::new(),
            })
            .collect()
    }

    fn merged<'a>(mut rows: Vec<Row<'a>>, all_frames: bool) -> Vec<Row<'a>> {
        merge_rows(&mut rows, all_frames);
        rows
    }

    #[test]
    fn one_line_at_several_addresses_is_one_row() {
        let stack = |address| vec![frame(Some("app::load"), 7, address)];
        let mut last = group(1, 30);
        (last.threads, last.streams) = (vec!["io", "main"], vec![5]);
        let groups = [
            (group(3, 10), stack(0x10)),
            (group(2, 20), stack(0x20)),
            (last, stack(0x30)),
        ];
        let rows = merged(rows(&groups), false);
        let [row] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!(row.group.amount, Amount::new(3, 30));
        assert_eq!(row.group.addresses, [1, 2, 3]);
        assert_eq!(row.group.threads, ["io", "main"]);
        assert_eq!(row.group.streams, [5]);
        assert_eq!(row.group.oldest, Duration::from_millis(30));
        assert_eq!(row.group.youngest, Duration::from_millis(10));
        // The first stands for all, without the column, in which they differ.
        let frame = &row.frames[0];
        assert_eq!((frame.address, frame.symbol.line), (0x10, Some(7)));
        assert_eq!(frame.symbol.column, None);
    }

    #[test]
    fn what_looks_different_stays_apart() {
        let named = |function, line| vec![frame(Some(function), line, 1)];
        let mut labelled = group(1, 1);
        labelled.label = Some("weights".to_owned());
        let deeper = vec![frame(Some("f"), 1, 1), frame(Some("g"), 1, 2)];
        let groups = [
            (group(1, 1), named("f", 1)),
            (group(2, 1), named("f", 2)),
            (group(3, 1), named("g", 1)),
            (group(4, 1), deeper),
            (labelled, named("f", 1)),
            // Without a name, the address decides.
            (group(5, 1), vec![frame(None, 1, 1)]),
            (group(6, 1), vec![frame(None, 1, 2)]),
        ];
        assert_eq!(merged(rows(&groups), false).len(), groups.len());
    }

    /// One of them was unloaded before the other was loaded at its addresses.
    #[test]
    fn libraries_stay_apart() {
        let of = |library: &str, function: Option<&str>| {
            let mut frame = frame(function, 1, 0x10);
            frame.module = Some(ModuleOffset {
                path: library.into(),
                offset: 0x10,
                build_id: "".into(),
                library: 0,
            });
            frame.symbol = Rc::new(Symbol {
                function: function.map(str::to_owned),
                ..Symbol::default()
            });
            vec![frame]
        };
        let groups = [
            (group(1, 1), of("/a.so", Some("enter"))),
            (group(2, 1), of("/b.so", Some("enter"))),
            (group(3, 1), of("/a.so", None)),
            (group(4, 1), of("/b.so", None)),
        ];
        assert_eq!(merged(rows(&groups), false).len(), groups.len());
    }

    /// As in a release build, which has names and no lines.
    #[test]
    fn what_looks_the_same_is_one_row() {
        let bare = |function: &str, address, in_app| {
            let mut frame = frame(Some(function), 1, address);
            frame.symbol = Rc::new(Symbol {
                function: Some(function.to_owned()),
                ..Symbol::default()
            });
            frame.in_app = in_app;
            frame
        };
        let stack = |address| vec![bare("app::load", address, true), bare("app::main", 9, true)];
        // A frame of the runtime, which is not shown.
        let mut glue = stack(0x30);
        glue.insert(1, bare("core::option::Option<T>::map", 0x40, false));
        let groups = [
            (group(1, 1), stack(0x10)),
            (group(2, 1), stack(0x20)),
            (group(3, 1), glue),
        ];
        let one = merged(rows(&groups), false);
        assert_eq!(one.len(), 1, "{one:?}");
        assert_eq!(one[0].group.addresses, [1, 2, 3]);
        assert_eq!(merged(rows(&groups), true).len(), 2);
    }

    #[test]
    fn failed_frees_are_told_apart_by_both_stacks_and_the_error() {
        let refused = |code, address| {
            let made = group(address, 1);
            FailedFreeGroup::new(made, "cuMemFree", code, "")
        };
        let failed = [
            (refused(1, 1), 7),
            (refused(1, 2), 7),
            (refused(1, 3), 8),
            (refused(2, 4), 7),
        ];
        let rows = failed.iter().map(|(failed, line)| FailedRow {
            failed: Cow::Borrowed(failed),
            allocated: vec![frame(
                Some("made"),
                1,
                failed.allocated.addresses[0] as usize,
            )],
            freed: vec![frame(Some("freed"), *line, failed.code as usize)],
        });
        let mut rows = rows.collect();
        merge_failed(&mut rows, false);
        let counts: Vec<_> = rows
            .iter()
            .map(|row| (row.failed.code, row.failed.allocated.amount.count))
            .collect();
        assert_eq!(counts, [(1, 2), (1, 1), (2, 1)]);
        assert_eq!(rows[0].failed.allocated.addresses, [1, 2]);
    }

    /// A thousand groups of a thousand addresses each that all become one. Quadratic in the number
    /// of groups it would take minutes.
    #[test]
    fn a_million_addresses_become_one_row() {
        let groups: Vec<_> = (0..1000)
            .map(|index| {
                let mut group = group(0, index);
                group.addresses = (0..1000).map(|i| i * 1000 + index).collect();
                let stack = (0..32).map(|i| frame(Some("app::f"), i, index as usize));
                (group, stack.collect())
            })
            .collect();
        let rows = merged(rows(&groups), false);
        assert_eq!((rows.len(), rows[0].group.addresses.len()), (1, 1_000_000));
    }
}
