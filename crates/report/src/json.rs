//! The leak report as JSON: one object on one line. `docs/leak-report-schema.md` is its schema.

use std::time::Duration;

use crate::json_value::{Value, object};
use crate::prepare::PreparedSnapshot;
use crate::rows::Row;
use crate::symbols::Frame;
use cuguard_registry::{Amount, FailedCall, Group, PoolUsage, ResourceKind, Site};

/// The version of the schema. It changes when a member is removed or changes its meaning.
const VERSION: u64 = 1;

/// How many addresses of a group are written: a group may have millions.
const ADDRESSES: usize = 16;

/// The report, without a line break at its end.
pub(crate) fn render(prepared: &PreparedSnapshot<'_>, max: Option<usize>) -> String {
    let snapshot = prepared.snapshot;
    let info = &snapshot.info;
    let shown = max.unwrap_or(usize::MAX).min(prepared.live.len());
    let suppressed = &prepared.suppressed;
    let kind_amount = |(kind, sum): &(ResourceKind, Amount)| amount(*kind, *sum);
    let totals = list(&snapshot.totals, |(kind, totals)| {
        object! {
            "kind": kind.name(),
            "live_count": totals.count,
            "live_bytes": totals.bytes,
            "peak_bytes": totals.peak_bytes,
            "allocated_count": totals.allocated,
        }
    });
    let failed_frees = list(&prepared.failed, |row| {
        object! {
            "allocated": group(&row.failed.allocated, &row.allocated),
            "function": row.failed.function,
            "code": row.failed.code,
            "code_name": row.failed.code_name,
            "freed_at": site(row.failed.freed.site),
            "freed_stack": list(&row.freed, frame),
        }
    });
    object! {
        "version": VERSION,
        "tool": "cuguard",
        "tool_version": env!("CARGO_PKG_VERSION"),
        "process": std::process::id(),
        "reason": info.reason.name(),
        "device": object! {"ordinal": info.device, "name": info.device_name.as_str()},
        "context": object! {
            "id": info.context,
            "primary": info.primary,
            "closed_at": site(info.closed_at),
            "dropped_stack": list(&prepared.dropped, frame),
        },
        "level": snapshot.level.to_string().as_str(),
        "sample": snapshot.sample,
        "seconds": seconds(snapshot.taken_at),
        "leaked": prepared.is_leak(),
        "broken": snapshot.broken.as_ref().map(failed_call),
        "not_released": snapshot.not_released.as_ref().map(failed_call),
        "totals": totals,
        "pools": list(&snapshot.pools, pool),
        "leaks": list(&prepared.live[..shown], leak),
        "leaks_not_shown": prepared.live.len() - shown,
        "unrecorded": list(&snapshot.unrecorded, kind_amount),
        "failed_frees": failed_frees,
        "late_drops": list(&snapshot.late_drops, kind_amount),
        "escaped": list(&prepared.escaped, leak),
        "deferred": list(&snapshot.deferred, |group| amount(group.kind, group.amount)),
        "suppressed": object! {
            "groups": suppressed.groups,
            "count": suppressed.amount().count,
            "bytes": suppressed.amount().bytes,
            "unused": list(&suppressed.unused, |one| one.as_str().into()),
        },
    }
    .to_string()
}

pub(crate) fn list<T>(items: &[T], each: impl FnMut(&T) -> Value) -> Value {
    Value::Array(items.iter().map(each).collect())
}

pub(crate) fn amount(kind: ResourceKind, amount: Amount) -> Value {
    object! {"kind": kind.name(), "count": amount.count, "bytes": amount.bytes}
}

/// What a pool of cuguard holds.
pub(crate) fn pool(pool: &PoolUsage) -> Value {
    object! {
        "number": pool.number,
        "label": pool.label.as_deref(),
        "of_context": pool.of_context,
        "held_bytes": pool.held,
        "used_bytes": pool.used,
        "idle_bytes": pool.idle(),
        "cached_by_threads_bytes": pool.cached_by_threads,
        "cached_bytes": pool.cached,
        "unmapped_bytes": pool.unmapped,
        "page_count": pool.pages,
        "pinned_page_count": pool.pinned_pages,
    }
}

pub(crate) fn seconds(time: Duration) -> Value {
    Value::Literal(format!("{}.{:06}", time.as_secs(), time.subsec_micros()))
}

pub(crate) fn site(site: Option<Site>) -> Value {
    site.map(|site| object! {"file": site.file, "line": site.line, "column": site.column})
        .into()
}

fn failed_call(failed: &FailedCall) -> Value {
    object! {
        "operation": failed.operation,
        "function": failed.function,
        "code": failed.code,
        "code_name": failed.code_name,
    }
}

/// A string, because not every reader keeps all digits of a 64-bit number.
pub(crate) fn address(address: u64) -> Value {
    format!("{address:#x}").as_str().into()
}

/// A group with its indirect leaks.
fn leak(row: &Row<'_>) -> Value {
    let mut value = group(&row.group, &row.frames);
    value.push("indirect", list(&row.indirect, leak));
    value
}

pub(crate) fn group(group: &Group, frames: &[Frame]) -> Value {
    let addresses = &group.addresses[..ADDRESSES.min(group.addresses.len())];
    object! {
        "kind": group.kind.name(),
        "type": group.type_name,
        "label": group.label.as_deref(),
        "count": group.amount.count,
        "bytes": group.amount.bytes,
        "threads": list(&group.threads, |name| (*name).into()),
        "streams": list(&group.streams, |stream| address(*stream)),
        "oldest_seconds": seconds(group.oldest),
        "youngest_seconds": seconds(group.youngest),
        "addresses": list(addresses, |one| address(*one)),
        "site": site(group.origin.site),
        "stack": list(frames, frame),
        "kept": group.kept,
    }
}

pub(crate) fn frame(frame: &Frame) -> Value {
    let (symbol, module) = (&frame.symbol, frame.module.as_ref());
    let build_id = module.map(|module| &*module.build_id);
    object! {
        "address": address(frame.address as u64),
        "function": symbol.function.as_deref(),
        "file": symbol.file.as_deref(),
        "line": symbol.line,
        "column": symbol.column,
        "module": module.map(|module| &*module.path),
        "offset": module.map(|module| address(module.offset as u64)),
        "build_id": build_id.filter(|id| !id.is_empty()),
        "inlined": frame.inlined,
        "in_app": frame.in_app,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use serde_json::json;

    use super::render;
    use crate::prepare::{PreparedSnapshot, View};
    use crate::report_trait::Report;
    use crate::tests_support::{Insert, ONE_BYTE, items, member_names, read};
    use cuguard_registry::{
        Amount, ContextInfo, Entry, FailedFree, Group, Key, PoolUsage, Registry, ResourceKind,
        Site, Snapshot, TrackingLevel,
    };

    #[test]
    fn an_empty_snapshot() {
        let value = read(&Snapshot::default().to_json());
        assert_eq!(value["version"], 1);
        assert_eq!(value["leaked"], false);
        assert_eq!(value["leaks"], json!([]));
        assert_eq!(value["device"]["ordinal"], 0);
    }

    #[test]
    fn a_registry_with_everything_in_it() {
        let registry = Registry::new(TrackingLevel::Stacks, 32);
        let key = |address| Key::new(ResourceKind::Device, address);
        let entry = Entry {
            bytes: 100,
            type_name: "f32",
            stream: 0,
        };
        for address in 1..=40 {
            registry.insert(key(address), entry);
        }
        registry.label(key(2), "a \"label\"\n");
        registry.escape(key(1), 100);
        let record = registry.remove(key(40), 100);
        let failed = FailedFree::new(
            key(40),
            100,
            record,
            "cuMemFree",
            1,
            "CUDA_ERROR_INVALID_VALUE",
        );
        registry.file_failed_free(failed);
        registry.count_late_drop(ResourceKind::Event, 0);
        let value = read(&registry.snapshot(ContextInfo::default()).to_json());

        assert_eq!(value["leaked"], true);
        let [large, labelled] = items(&value["leaks"]) else {
            panic!("two groups")
        };
        assert_eq!(large["count"], 37);
        assert_eq!(items(&large["addresses"]).len(), super::ADDRESSES);
        assert_eq!(large["label"], json!(null));
        assert_eq!(labelled["label"], "a \"label\"\n");
        let frames = items(&large["stack"]);
        assert!(frames.iter().any(|frame| frame["in_app"] == true));
        assert!(frames[0]["address"].as_str().unwrap().starts_with("0x"));
        assert_eq!(items(&value["escaped"]).len(), 1);
        let failed = &items(&value["failed_frees"])[0];
        assert_eq!(failed["code"], 1);
        assert_eq!(failed["allocated"]["site"]["line"], large["site"]["line"]);
        assert!(!items(&failed["freed_stack"]).is_empty());
        assert_eq!(items(&value["late_drops"])[0]["kind"], "event");
        assert_eq!(items(&value["totals"])[0]["peak_bytes"], 4000);
    }

    #[test]
    fn rows_can_be_limited() {
        let types = ["u8", "u16", "u32", "u64", "f32"];
        let snapshot = Snapshot {
            live: types
                .map(|name| Group::new(ResourceKind::Device, name, 1, 1))
                .into(),
            ..Snapshot::default()
        };
        let json = render(&PreparedSnapshot::new(&snapshot, View::PLAIN), Some(2));
        let value = read(&json);
        assert_eq!(items(&value["leaks"]).len(), 2);
        assert_eq!(value["leaks_not_shown"], 3);
    }

    /// Every member is in the document that describes them.
    #[test]
    fn the_document_names_every_member() {
        let document = include_str!("../../../docs/leak-report-schema.md");
        let registry = Registry::new(TrackingLevel::Stacks, 32);
        let key = Key::new(ResourceKind::Device, 1);
        let failed = FailedFree::new(key, 1, None, "cuMemFree", 1, "");
        registry.file_failed_free(failed);
        registry.insert(key, ONE_BYTE);
        let mut snapshot = registry.snapshot(ContextInfo::default());
        snapshot.pools.push(PoolUsage::new(1));
        let json = snapshot.to_json();
        let found = member_names(&read(&json));
        assert!(found.len() > 30);
        for name in found {
            assert!(
                document.contains(&format!("`{name}`")),
                "{name} is not in the document"
            );
        }
    }

    proptest! {
        #![proptest_config(cuguard_testing::property_config!())]

        #[test]
        fn any_snapshot_can_be_read_back(
            name in any::<String>(),
            groups in prop::collection::vec((any::<Option<String>>(), 0..9_usize, any::<u32>(), any::<u64>()), 0..6),
        ) {
            let mut snapshot = Snapshot::default();
            snapshot.info.device_name = name.clone();
            for (label, kind, number, time) in &groups {
                let mut group = Group::new(ResourceKind::ALL[*kind], "f32", 1, u64::from(*number));
                group.label = label.clone();
                group.oldest = Duration::from_nanos(*time);
                group.origin.site = number.is_multiple_of(2).then(|| Site::new("a\\b.rs", *number, 1));
                snapshot.live.push(group);
            }
            snapshot.unrecorded = vec![(ResourceKind::Pinned, Amount::new(1, 2))];
            let value = read(&snapshot.to_json());
            prop_assert_eq!(&value["device"]["name"], &name);
            let mut labels: Vec<_> = items(&value["leaks"]).iter().map(|leak| {
                leak["label"].as_str().map(str::to_owned)
            }).collect();
            let mut expected: Vec<_> = groups.into_iter().map(|(label, ..)| label).collect();
            // Groups that are alike become one.
            labels.sort();
            labels.dedup();
            expected.sort();
            expected.dedup();
            prop_assert_eq!(labels, expected);
        }
    }
}
