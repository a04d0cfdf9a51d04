//! Call sites in text, with their stack traces.

use std::fmt::Write;

use cuguard_report::ByteSize;
use cuguard_report::phrase::{count, list, printable, streams};

use crate::group::Group;
use crate::look::Frames;
use crate::run::{CallSite, Run};
use crate::stack_text::stack;
use crate::words::{self, LISTED, duration, some};
use cuguard_registry::Amount;

/// The stack trace of an allocation that failed.
pub(super) fn failed_stack(page: &mut String, run: &Run, site: u32, frames: Frames) {
    let unknown = CallSite::default();
    let site = run.sites.get(site as usize).unwrap_or(&unknown);
    stack(page, site, frames);
}

/// A call site, with its stack trace.
pub(super) fn stack_group(
    page: &mut String,
    run: &Run,
    group: &Group,
    share: &str,
    frames: Frames,
) {
    let unknown = CallSite::default();
    let site = group
        .sites
        .first()
        .and_then(|(site, _)| run.sites.get(*site as usize));
    let site = site.unwrap_or(&unknown);
    let mut line = amounts(run, &group.kinds);
    if !site.type_name.is_empty() {
        let _ = write!(line, ", {}", printable(&site.type_name));
    }
    if !group.labels.is_empty() {
        let _ = write!(
            line,
            ", {}",
            some(&group.labels, |label| format!("{:?}", name(run, *label)))
        );
    }
    let _ = writeln!(page, "{line}{share}");
    let _ = writeln!(page, "  {}", origin(run, group));
    stack(page, site, frames);
}

/// `4 KiB in 2 allocations of device memory and 1 stream`.
pub(super) fn amounts(run: &Run, kinds: &[(u8, Amount)]) -> String {
    let parts = kinds.iter().map(|(index, amount)| {
        let Some(kind) = run.kinds.get(usize::from(*index)) else {
            return count(amount.count, "resource");
        };
        let name = words::kind(&kind.name);
        match kind.is_memory {
            true => {
                let allocations = count(amount.count, "allocation");
                format!("{} in {allocations} of {name}", ByteSize(amount.bytes))
            }
            false => count(amount.count, &name),
        }
    });
    list(&parts.collect::<Vec<_>>())
}

/// Threads, streams and times: `thread main, stream 0x7f00, allocated after 1.20 s to 8.21 s`.
pub(super) fn origin(run: &Run, group: &Group) -> String {
    let mut line = String::new();
    let threads = some(&group.threads, |thread| {
        printable(name(run, *thread)).into_owned()
    });
    if !threads.is_empty() {
        let many = if group.threads.len() == 1 { "" } else { "s" };
        let _ = write!(line, "thread{many} {threads}, ");
    }
    if !group.streams.is_empty() {
        let _ = write!(line, "{}, ", streams(&group.streams, LISTED));
    }
    let (oldest, youngest) = (duration(group.oldest), duration(group.youngest));
    match oldest == youngest {
        true => line + &format!("allocated after {oldest}"),
        false => line + &format!("allocated after {oldest} to {youngest}"),
    }
}

pub(super) fn name(run: &Run, index: u32) -> &str {
    run.names.get(index as usize).map_or("", String::as_str)
}
