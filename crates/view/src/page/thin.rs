//! Leaves out what is too small to see, where a run has more allocations than a page should.

use std::cmp::Reverse;

use super::order::{NEVER, Order};
use crate::{By, FOREVER, MarkKind, Memory, Run, timeline};

/// Into how many equal parts a run is divided to find its spikes: more than a screen has columns of pixels.
const PARTS: usize = 4096;

/// Which allocations a page has, and what is known of the others.
pub(super) struct Kept {
    /// By the index of [`Run::allocations`]; none: all.
    pub(super) keep: Option<Vec<bool>>,
    pub(super) left_out: LeftOut,
}

/// Allocations that a page does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(super) struct LeftOut {
    pub(super) count: u64,
    /// Of all of them, one after the other.
    pub(super) bytes: u64,
    /// The longest life of one, in nanoseconds.
    pub(super) longest: u64,
    /// The most bytes that were alive of them at once: no curve of the page is lower than the true one by more.
    pub(super) at_once: u64,
    /// How many of them are memory.
    pub(super) memory_count: u64,
    /// How many of them are on a device.
    pub(super) device_count: u64,
    /// The bytes of those on a device.
    pub(super) device_bytes: u64,
}

/// Keeps at most `limit` allocations, or as many as are alive at the peak, at an out-of-memory error, at the end or when the page
/// opens.
///
/// Half of the page is for spikes: the largest of what is alive at the highest moment of each part of the run. The other
/// half has the largest product of bytes and lifetime: the area in the timeline.
pub(super) fn keep(run: &Run, order: &Order, limit: usize, opens: Option<u64>) -> Kept {
    let all = run.allocations.len();
    if all <= limit {
        return Kept {
            keep: None,
            left_out: LeftOut::default(),
        };
    }
    let mut keep = alive_at(run, named(run, opens));
    let of_spikes = alive_at(run, highest(run));
    let bytes = |index: u32| run.amount(&run.allocations[index as usize]).bytes;
    let room = limit.saturating_sub(count(&keep));
    keep_most(
        &mut keep,
        room / 2,
        |index| of_spikes[index as usize],
        bytes,
    );
    let area = |index: u32| {
        let allocation = &run.allocations[index as usize];
        let time = allocation.end.saturating_sub(allocation.start);
        u128::from(time) * u128::from(bytes(index).max(1))
    };
    let room = limit.saturating_sub(count(&keep));
    keep_most(&mut keep, room, |_| true, area);
    let left_out = left_out(run, order, &keep);
    Kept {
        keep: Some(keep),
        left_out,
    }
}

/// Keeps `room` more of those that `may` be kept, those with the largest value.
fn keep_most<T: Ord>(
    keep: &mut [bool],
    room: usize,
    may: impl Fn(u32) -> bool,
    value: impl Fn(u32) -> T,
) {
    let mut rest: Vec<u32> = (0u32..)
        .zip(&*keep)
        .filter(|(index, keep)| !**keep && may(*index))
        .map(|(index, _)| index)
        .collect();
    let room = room.min(rest.len());
    if room > 0 && room < rest.len() {
        rest.select_nth_unstable_by_key(room, |index| (Reverse(value(*index)), *index));
    }
    for index in &rest[..room] {
        keep[*index as usize] = true;
    }
}

/// The moments that the page names.
fn named(run: &Run, opens: Option<u64>) -> Vec<u64> {
    let mut times = vec![crate::peak(run).time];
    times.extend(opens);
    times.extend(
        run.marks
            .iter()
            .filter(|mark| matches!(mark.kind, MarkKind::OutOfMemory { .. }))
            .map(|mark| mark.time),
    );
    times
}

/// The moment of the highest use in each part of the run.
fn highest(run: &Run) -> Vec<u64> {
    let has_device_memory = crate::peak(run).device_bytes > 0;
    let memory = match has_device_memory {
        true => Memory::Device,
        false => Memory::All,
    };
    timeline(run, PARTS, By::Kind, memory, 1).times
}

/// What is alive at one of these times, or was not freed.
fn alive_at(run: &Run, mut times: Vec<u64>) -> Vec<bool> {
    times.sort_unstable();
    times.dedup();
    run.allocations
        .iter()
        .map(|allocation| {
            let next = times.partition_point(|time| *time < allocation.start);
            let is_leak = allocation.end == FOREVER || allocation.leaked;
            is_leak || times.get(next).is_some_and(|time| *time < allocation.end)
        })
        .collect()
}

fn count(keep: &[bool]) -> usize {
    keep.iter().filter(|keep| **keep).count()
}

fn left_out(run: &Run, order: &Order, keep: &[bool]) -> LeftOut {
    let mut sum = LeftOut::default();
    let mut live = 0u64;
    for event in &order.events {
        if keep[event.allocation as usize] {
            continue;
        }
        let allocation = &run.allocations[event.allocation as usize];
        let bytes = run.amount(allocation).bytes;
        if event.is_free {
            live = live.saturating_sub(bytes);
        } else {
            sum.count += 1;
            sum.bytes = sum.bytes.saturating_add(bytes);
            sum.longest = sum
                .longest
                .max(allocation.end.saturating_sub(allocation.start));
            live = live.saturating_add(bytes);
            sum.at_once = sum.at_once.max(live);
            let kind = run.kinds.get(usize::from(allocation.kind));
            sum.memory_count += u64::from(kind.is_some_and(|kind| kind.is_memory));
            if kind.is_some_and(|kind| kind.on_device) {
                sum.device_count += 1;
                sum.device_bytes = sum.device_bytes.saturating_add(bytes);
            }
        }
    }
    sum
}

/// The positions at which allocations begin and end, counted in the events that are kept, by the index of [`Run::allocations`].
pub(super) fn positions(run: &Run, order: &Order) -> (Vec<u32>, Vec<u32>) {
    let mut starts = vec![NEVER; run.allocations.len()];
    let mut ends = vec![NEVER; run.allocations.len()];
    for (position, event) in (0u32..).zip(&order.events) {
        let side = if event.is_free {
            &mut ends
        } else {
            &mut starts
        };
        side[event.allocation as usize] = position;
    }
    (starts, ends)
}

#[cfg(test)]
mod tests {
    use super::{LeftOut, keep};
    use crate::page::order::Order;
    use crate::{Allocation, FOREVER, RecordedKind, Run};

    fn run(lives: &[(u64, u64, u64)]) -> Run {
        Run {
            kinds: vec![RecordedKind {
                name: "device".into(),
                on_device: true,
                is_memory: true,
            }],
            allocations: lives
                .iter()
                .map(|&(start, end, bytes)| Allocation {
                    start,
                    end,
                    bytes,
                    ..Allocation::default()
                })
                .collect(),
            ..Run::default()
        }
    }

    #[test]
    fn the_smallest_area_is_left_out_first() {
        let run = run(&[
            (0, 10, 100),
            (20, 21, 5),
            (22, 23, 7),
            (30, FOREVER, 1),
            (40, 90, 2),
        ]);
        let kept = keep(&run, &Order::of(&run), 3, None);
        assert_eq!(kept.keep, Some(vec![true, false, false, true, true]));
        assert_eq!(
            kept.left_out,
            LeftOut {
                count: 2,
                bytes: 12,
                longest: 1,
                at_once: 7,
                memory_count: 2,
                device_count: 2,
                device_bytes: 12,
            }
        );
    }

    /// The figures of a page are those of device memory, where there is some.
    #[test]
    fn device_memory_and_other_memory_and_handles_are_summed_up_apart() {
        let mut run = run(&[(0, 10, 100), (20, 21, 5), (22, 23, 7), (24, 25, 0)]);
        for (name, is_memory) in [("pinned", true), ("stream", false)] {
            run.kinds.push(RecordedKind {
                name: name.into(),
                on_device: false,
                is_memory,
            });
        }
        (run.allocations[2].kind, run.allocations[3].kind) = (1, 2);
        let left_out = keep(&run, &Order::of(&run), 1, None).left_out;
        assert_eq!((left_out.count, left_out.bytes), (3, 12));
        assert_eq!(left_out.memory_count, 2);
        assert_eq!((left_out.device_count, left_out.device_bytes), (1, 5));
    }

    #[test]
    fn what_is_alive_at_the_peak_or_the_end_is_kept_beyond_the_limit() {
        let run = run(&[
            (0, 10, 100),
            (1, 10, 100),
            (20, FOREVER, 1),
            (21, FOREVER, 1),
            (30, 31, 3),
        ]);
        let kept = keep(&run, &Order::of(&run), 1, None);
        assert_eq!(kept.keep, Some(vec![true, true, true, true, false]));
    }

    /// A spike has a smaller area than a small block that lives for long.
    #[test]
    fn short_spikes_are_kept() {
        let small = (0..2000).map(|number| (number * 10, number * 10 + 5000, 512));
        let spikes = (0..50).map(|number| (number * 400 + 7, number * 400 + 8, 10_000));
        let mut lives: Vec<_> = small.chain(spikes).collect();
        lives.sort_unstable();
        let mut run = run(&lives);
        run.end = 25_000;
        let kept = keep(&run, &Order::of(&run), 1500, None);
        let keep = kept.keep.expect("it is more than the limit");
        let (spikes, kept_spikes): (Vec<_>, Vec<_>) = (0..)
            .zip(&run.allocations)
            .filter(|(_, allocation)| allocation.bytes == 10_000)
            .partition(|(index, _)| !keep[*index]);
        assert_eq!((spikes.len(), kept_spikes.len()), (0, 50));
        assert_eq!(super::count(&keep), 1500);
    }

    #[test]
    fn a_run_within_the_limit_is_kept_whole() {
        let run = run(&[(0, 10, 100)]);
        assert!(keep(&run, &Order::of(&run), 1, None).keep.is_none());
    }
}
