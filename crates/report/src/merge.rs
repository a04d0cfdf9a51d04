//! Rows that a person cannot tell apart, made one.
//!
//! The registry tells stacks apart by addresses. An optimiser copies code (loops are unrolled,
//! functions inlined in several places), so one line of the program may have several addresses, and
//! what it made several groups.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::rc::Rc;

use super::prepare::{FailedRow, Row};
use super::symbols::Frame;
use cuguard_registry::Group;

/// A row that may be one of several that are alike.
pub(super) trait Alike {
    /// Equal for rows that a person cannot tell apart; any total order will do.
    fn compare(&self, other: &Self, all_frames: bool) -> Ordering;

    /// Takes in a row that is alike. The lists of the group are not in order then.
    fn absorb(&mut self, other: &Self);

    /// The group, if it has taken others in.
    fn changed(&mut self) -> Option<&mut Group>;
}

/// Makes one of rows that are alike. What is left is in the order of [`Alike::compare`]. `all_frames`
/// says that a person is shown all frames, and not only those of the program.
pub(super) fn merged<R: Alike>(mut rows: Vec<R>, all_frames: bool) -> Vec<R> {
    // Rows that are alike lie side by side after this, in the order that they had: the first one's
    // addresses of functions stand for all.
    rows.sort_by(|one, other| one.compare(other, all_frames));
    rows.dedup_by(|more, row| {
        let alike = more.compare(row, all_frames).is_eq();
        if alike {
            row.absorb(more);
        }
        alike
    });
    // Once for each row, however many were put into it.
    for group in rows.iter_mut().filter_map(R::changed) {
        sort(&mut group.threads);
        sort(&mut group.streams);
        sort(&mut group.addresses);
    }
    rows
}

fn add(group: &mut Group, more: &Group) {
    group.amount += more.amount;
    group.threads.extend_from_slice(&more.threads);
    group.streams.extend_from_slice(&more.streams);
    group.addresses.extend_from_slice(&more.addresses);
    group.oldest = group.oldest.max(more.oldest);
    group.youngest = group.youngest.min(more.youngest);
}

/// Forgets columns in which like stacks differ: that of the first would tell only a part.
fn blur(frames: &mut [Frame], other: &[Frame]) {
    // Frames of the runtime, which are not shown, may be on one stack only.
    let others = other.iter().filter(|frame| frame.in_app);
    for (frame, other) in frames.iter_mut().filter(|frame| frame.in_app).zip(others) {
        if frame.symbol.column != other.symbol.column && frame.symbol.column.is_some() {
            Rc::make_mut(&mut frame.symbol).column = None;
        }
    }
}

fn sort<T: Ord>(list: &mut Vec<T>) {
    list.sort_unstable();
    list.dedup();
}

impl Alike for Row<'_> {
    fn compare(&self, other: &Self, all_frames: bool) -> Ordering {
        identity(&self.group)
            .cmp(&identity(&other.group))
            .then_with(|| by_frames(&self.frames, &other.frames, all_frames))
    }

    fn absorb(&mut self, other: &Self) {
        add(self.group.to_mut(), &other.group);
        blur(&mut self.frames, &other.frames);
    }

    fn changed(&mut self) -> Option<&mut Group> {
        match &mut self.group {
            Cow::Owned(group) => Some(group),
            Cow::Borrowed(_) => None,
        }
    }
}

impl Alike for FailedRow<'_> {
    fn compare(&self, other: &Self, all_frames: bool) -> Ordering {
        fn refusal<'r>(row: &'r FailedRow<'_>) -> impl Ord + 'r {
            let failed = &row.failed;
            let answer = (failed.function, failed.code, failed.code_name);
            (identity(&failed.allocated), failed.freed.site, answer)
        }
        refusal(self)
            .cmp(&refusal(other))
            .then_with(|| by_frames(&self.allocated, &other.allocated, all_frames))
            .then_with(|| by_frames(&self.freed, &other.freed, all_frames))
    }

    fn absorb(&mut self, other: &Self) {
        add(&mut self.failed.to_mut().allocated, &other.failed.allocated);
        blur(&mut self.allocated, &other.allocated);
        blur(&mut self.freed, &other.freed);
    }

    fn changed(&mut self) -> Option<&mut Group> {
        match &mut self.failed {
            Cow::Owned(failed) => Some(&mut failed.allocated),
            Cow::Borrowed(_) => None,
        }
    }
}

/// What a group is of, without its stack.
fn identity(group: &Group) -> impl Ord + '_ {
    (
        group.kind,
        group.type_name,
        group.label.as_deref(),
        group.origin.site,
        group.kept,
    )
}

/// By what a person sees of two stacks: functions, files and lines, and the address of a function
/// without a name. Where there are no lines, two calls in one function look the same, and are the same.
fn by_frames(one: &[Frame], other: &[Frame], all_frames: bool) -> Ordering {
    fn seen(frame: &Frame) -> impl Ord + '_ {
        let symbol = &frame.symbol;
        let address = symbol.function.is_none().then_some(frame.address);
        (&symbol.function, symbol.line, &symbol.file, address)
    }
    let shown = |frame: &&Frame| frame.in_app || all_frames;
    let by_frame = |one: &&Frame, other: &&Frame| {
        if Rc::ptr_eq(&one.symbol, &other.symbol) && one.address == other.address {
            return Ordering::Equal;
        }
        seen(one).cmp(&seen(other))
    };
    let (mut one, mut other) = (one.iter().filter(shown), other.iter().filter(shown));
    loop {
        match (one.next(), other.next()) {
            (Some(one), Some(other)) => match by_frame(&one, &other) {
                Ordering::Equal => {}
                order => return order,
            },
            (one, other) => return one.is_some().cmp(&other.is_some()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::rc::Rc;
    use std::time::{Duration, Instant};

    use super::{FailedRow, Row, merged};
    use crate::symbols::{Frame, Symbol};
    use cuguard_registry::{Amount, FailedFreeGroup, Group, Kind};

    fn frame(function: Option<&str>, line: u32, address: usize) -> Frame {
        Frame {
            address,
            symbol: Rc::new(Symbol {
                function: function.map(str::to_owned),
                file: Some("src/a.rs".to_owned()),
                line: Some(line),
                column: Some(address as u32),
            }),
            spot: None,
            inlined: false,
            own: false,
            in_app: true,
        }
    }

    fn group(address: u64, milliseconds: u64) -> Group {
        let mut group = Group::new(Kind::Device, "u8", 1, 10);
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
    fn what_a_person_can_tell_apart_stays_apart() {
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
            // Without a name, only the address tells.
            (group(5, 1), vec![frame(None, 1, 1)]),
            (group(6, 1), vec![frame(None, 1, 2)]),
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
        // A frame of the runtime, which a person is not shown.
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
    fn failed_frees_are_told_apart_by_both_stacks_and_the_answer() {
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
        let rows = merged(rows.collect(), false);
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
    fn many_groups_take_little_time() {
        let groups: Vec<_> = (0..1000)
            .map(|index| {
                let mut group = group(0, index);
                group.addresses = (0..1000).map(|i| i * 1000 + index).collect();
                let stack = (0..32).map(|i| frame(Some("app::f"), i, index as usize));
                (group, stack.collect())
            })
            .collect();
        let begin = Instant::now();
        let rows = merged(rows(&groups), false);
        assert_eq!((rows.len(), rows[0].group.addresses.len()), (1, 1_000_000));
        assert!(begin.elapsed() < Duration::from_secs(10));
    }
}
