//! Amounts, ages and errors as text.

use std::time::Duration;

use cuguard_registry::{
    Amount, ContextInfo, FailedCall, Group, PoolUsage, ResourceKind, Snapshot, SnapshotReason,
};

use crate::paths::Paths;
use crate::phrase::{count, list, list_some, printable, streams};
use crate::size::ByteSize;

/// How many threads or addresses of a group are listed.
const LISTED: usize = 4;

/// An age in one or two units: `1.2 s`, `3 min 5 s`.
pub(crate) fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0 if age < Duration::from_millis(1) => format!("{} µs", age.as_micros()),
        0 => format!("{} ms", age.as_millis()),
        1..60 => format!("{}.{} s", seconds, age.subsec_millis() / 100),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// A part of a sentence that is there only sometimes.
pub(crate) fn when(holds: bool, text: &str) -> &str {
    if holds { text } else { "" }
}

/// `4 KiB in 2 allocations of device memory`, `1 stream`.
pub fn amount_of(kind: ResourceKind, amount: Amount) -> String {
    if kind.is_memory() {
        let allocations = count(amount.count, "allocation");
        format!("{} in {allocations} of {kind}", ByteSize(amount.bytes))
    } else {
        count(amount.count, &kind.to_string())
    }
}

/// `, f32, "weights"`: the type and the label of a group.
pub(crate) fn description(type_name: &str, label: Option<&str>) -> String {
    let mut text = String::new();
    if !type_name.is_empty() {
        text = format!(", {type_name}");
    }
    if let Some(label) = label {
        // Quoted: a label must not send control characters to a terminal.
        text += &format!(", {label:?}");
    }
    text
}

/// Who allocated the resources of a group, and when.
pub(crate) fn allocated_by(group: &Group) -> Vec<String> {
    let mut parts = Vec::new();
    let threads = some(&group.threads, |name| printable(name).into_owned());
    match group.threads.len() {
        0 => {}
        1 => parts.push(format!("thread {threads}")),
        _ => parts.push(format!("threads {threads}")),
    }
    if !group.streams.is_empty() {
        parts.push(streams(&group.streams, LISTED));
    }
    let (oldest, youngest) = (age(group.oldest), age(group.youngest));
    parts.push(match group.amount.count > 1 && oldest != youngest {
        true => format!("allocated {oldest} to {youngest} ago"),
        false => format!("allocated {oldest} ago"),
    });
    parts
}

/// A sum that does not overflow: snapshots are plain data, with any numbers.
pub(crate) fn total(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, u64::saturating_add)
}

/// Amounts of several kinds: `4 KiB in 2 allocations and 1 stream`.
pub fn sum(amounts: impl IntoIterator<Item = (ResourceKind, Amount)>) -> String {
    let mut memory = Amount::default();
    let mut handles = [Amount::default(); ResourceKind::COUNT];
    for (kind, amount) in amounts {
        if kind.is_memory() {
            memory += amount;
        } else {
            handles[kind.index()] += amount;
        }
    }
    let mut parts = Vec::new();
    if memory.count != 0 {
        let allocations = count(memory.count, "allocation");
        parts.push(format!("{} in {allocations}", ByteSize(memory.bytes)));
    }
    let handles = ResourceKind::ALL.iter().zip(handles);
    let handles = handles.filter(|(_, amount)| amount.count != 0);
    parts.extend(handles.map(|(kind, amount)| amount_of(*kind, amount)));
    list(&parts)
}

/// What a pool of cuguard holds: `pool "a": 8 MiB held in 4 pages, 3 MiB in live blocks, 5 MiB idle (2 MiB mapped nowhere)`.
pub(crate) fn pool(pool: &PoolUsage) -> String {
    let (name, pages) = (pool.name(), count(pool.pages, "page"));
    let (held, used, idle) = (
        ByteSize(pool.held),
        ByteSize(pool.used),
        ByteSize(pool.idle()),
    );
    let mut text = format!("{name}: {held} held in {pages}, {used} in live blocks, {idle} idle");
    let parts = [
        (pool.cached_by_threads, "in free blocks of threads"),
        (pool.cached, "in free blocks"),
        (pool.unmapped, "mapped nowhere"),
    ];
    let parts = parts.iter().filter(|(bytes, _)| *bytes != 0);
    let parts: Vec<_> = parts
        .map(|(bytes, what)| format!("{} {what}", ByteSize(*bytes)))
        .collect();
    if !parts.is_empty() {
        text.push_str(&format!(" ({})", parts.join(", ")));
    }
    if pool.pinned_pages != 0 {
        text.push_str(&format!("; {} pinned", count(pool.pinned_pages, "page")));
    }
    text
}

/// Names of functions are padded to the longest of their stack trace, but to no more than this.
const MAX_WIDTH: usize = 56;

/// Frames in two columns: the names of functions, and their locations, which are painted.
pub fn in_columns(rows: &[(String, String)], paint: impl Fn(&str) -> String) -> Vec<String> {
    let widths = rows.iter().map(|(name, _)| name.chars().count());
    let width = widths.filter(|width| *width <= MAX_WIDTH).max();
    let width = width.unwrap_or(0);
    let line = |(name, location): &(String, String)| match location.as_str() {
        "" => name.clone(),
        location => format!("{name:<width$}  {}", paint(location)),
    };
    rows.iter().map(line).collect()
}

/// A few of the names of a group.
pub(crate) fn some<T>(items: &[T], word: impl Fn(&T) -> String) -> String {
    list_some(items, LISTED, word)
}

/// The first few addresses of a group.
pub(crate) fn addresses(group: &Group) -> String {
    match group.addresses.as_slice() {
        [] => "address unknown".to_owned(),
        addresses => some(addresses, |address| format!("{address:#x}")),
    }
}

/// What happened to the context, and where: `closed at src/main.rs:41`.
pub(crate) fn context_end(info: &ContextInfo, paths: &Paths) -> String {
    let end = match info.reason {
        SnapshotReason::Requested | SnapshotReason::LeftBehind => "in use",
        SnapshotReason::Drop => "dropped",
        SnapshotReason::Close => "closed",
        SnapshotReason::NeverClosed => "never closed",
        SnapshotReason::KeptOpen => "kept open until exit",
        // `LateDrops`, and reasons to come.
        _ => "closed before its guards",
    };
    match info.closed_at {
        Some(site) => format!("{end} at {}:{}", paths.shorten(site.file), site.line),
        None => end.to_owned(),
    }
}

/// The words for an empty report. A context that was never closed may itself have leaked.
pub(crate) fn nothing(reason: SnapshotReason) -> &'static str {
    match reason {
        SnapshotReason::Requested => "nothing is live",
        SnapshotReason::LeftBehind => "nothing was left behind",
        SnapshotReason::NeverClosed => "no resource leaked",
        _ => "nothing leaked",
    }
}

/// Whether the snapshot is of a context that is still open when the process exits.
pub(crate) fn is_at_exit(reason: SnapshotReason) -> bool {
    matches!(
        reason,
        SnapshotReason::NeverClosed | SnapshotReason::KeptOpen
    )
}

/// Resources that were dropped in a host function and are not freed, if there are any. At exit they never
/// are.
pub(crate) fn deferred(snapshot: &Snapshot) -> Option<String> {
    let deferred = snapshot.deferred.iter();
    let what = sum(deferred.clone().map(|group| (group.kind, group.amount)));
    let dropped = match total(deferred.map(|group| group.amount.count)) {
        0 => return None,
        1 => "1 was dropped in a host function".to_owned(),
        many => format!("{many} were dropped in a host function"),
    };
    Some(if is_at_exit(snapshot.info.reason) {
        format!(
            "{dropped} and not freed before the exit ({what}); call synchronize after the last \
             host function"
        )
    } else {
        format!("{dropped} and not freed yet: {what}")
    })
}

/// The error that broke a context, and the operation that returned it first.
pub(crate) fn broken(error: &FailedCall) -> String {
    let (function, operation) = (error.function, error.operation);
    let code = error_code(error.code, error.code_name);
    format!("{code}, first returned by {function} in {operation}")
}

/// `cuMemFree returned CUDA_ERROR_INVALID_VALUE (1)`.
pub(crate) fn failed_call(error: &FailedCall) -> String {
    let code = error_code(error.code, error.code_name);
    format!("{} returned {code}", error.function)
}

/// `CUDA_ERROR_INVALID_VALUE (1)`, or `error 1` where the code has no name.
pub(crate) fn error_code(code: u32, name: &str) -> String {
    match name {
        "" => format!("error {code}"),
        name => format!("{name} ({code})"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{age, amount_of, list, sum};
    use cuguard_registry::{Amount, ResourceKind};

    #[test]
    fn ages_read_well() {
        for (nanoseconds, text) in [
            (0, "0 µs"),
            (999_999, "999 µs"),
            (1_000_000, "1 ms"),
            (999_999_999, "999 ms"),
            (1_290_000_000, "1.2 s"),
            (59_999_000_000, "59.9 s"),
            (185_000_000_000, "3 min 5 s"),
            (7_380_000_000_000, "2 h 3 min"),
            (180_000_000_000_000, "2 d 2 h"),
        ] {
            assert_eq!(age(Duration::from_nanos(nanoseconds)), text);
        }
    }

    #[test]
    fn amounts_read_well() {
        assert_eq!(
            amount_of(ResourceKind::Pinned, Amount::new(1, 5)),
            "5 B in 1 allocation of pinned host memory"
        );
        assert_eq!(
            amount_of(ResourceKind::Stream, Amount::new(2, 0)),
            "2 streams"
        );
        assert_eq!(
            amount_of(ResourceKind::PeerAccess, Amount::new(2, 0)),
            "2 peer accesses"
        );
        assert_eq!(sum([]), "");
        let all = [
            (ResourceKind::Event, Amount::new(1, 0)),
            (ResourceKind::Device, Amount::new(1, 1024)),
            (ResourceKind::Managed, Amount::new(2, 1024)),
            (ResourceKind::Stream, Amount::new(3, 0)),
        ];
        assert_eq!(sum(all), "2 KiB in 3 allocations, 3 streams and 1 event");
        assert_eq!(list(&["a", "b"]), "a and b");
    }
}
