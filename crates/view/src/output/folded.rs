//! Folded stacks: one line for each stack trace, as the tools of flame graphs read them.

use std::collections::BTreeMap;

use crate::look::{Frames, UNKNOWN};
use crate::moment::Moment;
use crate::run::{CallSite, Frame};
use cuguard_report::phrase::printable;

/// Lines of the form `main;load;alloc 512`: the frames from the outermost to the innermost, and the live bytes. Sorted.
/// Resources without bytes have no line. With more than one moment, a run is the outermost frame.
///
/// ```
/// use cuguard_view::{Allocation, At, FOREVER, Frames, RecordedKind, Run, folded, moment};
///
/// let device = RecordedKind { name: "device".to_owned(), on_device: true, is_memory: true };
/// let block = Allocation { end: FOREVER, bytes: 512, ..Allocation::default() };
/// let run = Run { kinds: vec![device], allocations: vec![block], ..Run::default() };
/// let moment = moment(&run, At::Peak)?;
/// assert_eq!(folded(&[&moment], Frames::Program), "unknown call site 512\n");
/// # Ok::<(), cuguard_view::ViewError>(())
/// ```
#[must_use]
pub fn folded(moments: &[&Moment<'_>], frames: Frames) -> String {
    lines(stacks(moments, frames))
}

/// The bytes of each stack trace that has some.
pub(super) fn stacks(moments: &[&Moment<'_>], frames: Frames) -> BTreeMap<String, u64> {
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    for moment in moments {
        let run = moment.run;
        let mut by_site: BTreeMap<u32, u64> = BTreeMap::new();
        for allocation in moment.allocations() {
            let bytes = by_site.entry(allocation.site).or_default();
            *bytes = bytes.saturating_add(run.amount(allocation).bytes);
        }
        for (site, bytes) in by_site.into_iter().filter(|(_, bytes)| *bytes > 0) {
            let mut parts = Vec::new();
            if moments.len() > 1 {
                parts.push(plain(&run.title()));
            }
            match run.sites.get(site as usize) {
                Some(site) if !site.frames.is_empty() => parts.extend(stack(site, frames)),
                _ => parts.push(UNKNOWN.to_owned()),
            }
            let sum = stacks.entry(parts.join(";")).or_default();
            *sum = sum.saturating_add(bytes);
        }
    }
    stacks
}

pub(super) fn lines(stacks: BTreeMap<String, u64>) -> String {
    let stacks = stacks.into_iter();
    stacks
        .map(|(stack, bytes)| format!("{stack} {bytes}\n"))
        .collect()
}

/// From the outermost to the innermost.
fn stack(site: &CallSite, frames: Frames) -> impl Iterator<Item = String> {
    site.shown(frames)
        .rev()
        .map(|frame: &Frame| plain(&frame.function))
}

/// Without the characters that separate frames and lines, and without a number behind a space: that would be a second column,
/// as in the folded stacks of a difference.
fn plain(name: &str) -> String {
    let name = printable(name.trim()).replace(';', ":");
    match name.rsplit_once(' ') {
        _ if name.is_empty() => "unknown".to_owned(),
        Some((front, number)) if is_number(number) => format!("{front}_{number}"),
        _ => name,
    }
}

fn is_number(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.')
}
