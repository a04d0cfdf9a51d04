//! Allocations as async slices, from the allocation to the free.

use std::cmp::Reverse;

use cuguard_report::ByteSize;
use serde_json::json;

use super::events::{Process, Track, arguments, stack};
use crate::by::By;
use crate::keys::Keys;
use crate::look::Frames;
use crate::run::{Allocation, FOREVER, Fate, Run};

/// Adds the allocations with the largest product of size and lifetime, which is their area in a timeline, and returns how many
/// are left out.
pub(super) fn add(process: &mut Process<'_>, run: &Run, frames: Frames, most: usize) -> usize {
    let mut shown: Vec<usize> = (0..run.allocations.len())
        .filter(|index| run.amount(&run.allocations[*index]).bytes != 0)
        .collect();
    let left_out = shown.len().saturating_sub(most);
    if left_out != 0 {
        shown.select_nth_unstable_by_key(most, |index| {
            let allocation = &run.allocations[*index];
            let time = end(run, allocation).saturating_sub(allocation.start);
            let area = u128::from(time) * u128::from(allocation.bytes);
            (Reverse(area), *index)
        });
        shown.truncate(most);
        shown.sort_unstable();
    }
    let functions = Keys::new(run, By::Function, Frames::Program);
    let kinds = Keys::new(run, By::Kind, Frames::Program);
    for index in shown {
        let allocation = &run.allocations[index];
        let name = functions.name(functions.of(allocation));
        let mut members = arguments(json!({
            "size": ByteSize(allocation.bytes).to_string(),
            "bytes": allocation.bytes,
            "kind": kinds.name(kinds.of(allocation)),
            "address": format!("{:#x}", allocation.address),
            "freed": freed(allocation),
            "call site": stack(run, allocation.site, frames),
        }));
        let mut name_of = |what: &str, index: u32| {
            let known = run
                .names
                .get(index as usize)
                .filter(|name| !name.is_empty());
            members.extend(known.map(|name| (what.to_owned(), json!(name))));
        };
        name_of("label", allocation.label);
        name_of("thread", allocation.thread);
        if allocation.stream != 0 {
            let stream = cuguard_report::phrase::stream(allocation.stream);
            members.insert("stream".to_owned(), json!(stream));
        }
        let track = Track {
            category: "allocation",
            name: &name,
            thread: allocation.thread,
        };
        let span = (allocation.start, end(run, allocation));
        process.slice(track, span, members);
    }
    left_out
}

fn end(run: &Run, allocation: &Allocation) -> u64 {
    match allocation.end {
        FOREVER => run.end,
        end => end,
    }
}

/// Whether the program freed it, in words.
fn freed(allocation: &Allocation) -> &'static str {
    match (
        allocation.end == FOREVER,
        allocation.leaked,
        allocation.fate,
    ) {
        (true, _, Fate::Lost) => "no: lost",
        (true, _, Fate::Reachable) => "no: still reachable at the end",
        (true, ..) => "not until the end",
        (false, true, _) => "no: it ended with its context",
        (false, false, _) => "yes",
    }
}
