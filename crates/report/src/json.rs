//! The report as JSON: one object on one line.
//!
//! `docs/leak-report-schema.md` describes it for those who read it; here is the outline. Members may
//! be added without a new version; what is there keeps its name and meaning within a version.
//!
//! ```text
//! {"version": 1, "tool": "cuguard", "tool_version": …, "process": …,
//!  "reason": "drop" | "close" | "never_closed" | "kept_open" | "requested" | "left_behind" | "late_drops",
//!  "device": {"ordinal", "name"},
//!  "context": {"id", "primary", "closed_at", "dropped_stack": [FRAME]},
//!  "level": "counts" | "sites" | "stacks", "seconds": …, "leaked": true | false,
//!  "totals": [{"kind", "live_count", "live_bytes", "peak_bytes", "allocated_count"}],
//!  "leaks": [GROUP], "leaks_not_shown": …,
//!  "unrecorded": [{"kind", "count", "bytes"}],
//!  "failed_frees": [{"allocated": GROUP, "function", "code", "code_name", "freed_at", "freed_stack"}],
//!  "late_drops": [{"kind", "count", "bytes"}],
//!  "escaped": [GROUP], "deferred": [{"kind", "count", "bytes"}],
//!  "suppressed": {"groups", "count", "bytes", "unused": [PATTERN]}}
//!
//! GROUP = {"kind", "type", "label", "count", "bytes", "threads", "streams",
//!          "oldest_seconds", "youngest_seconds", "addresses", "site", "stack": [FRAME], "kept",
//!          "indirect": [GROUP]}
//! FRAME = {"address", "function", "file", "line", "column", "module", "offset", "build_id",
//!          "inlined", "in_app"}
//! site, freed_at, closed_at = null | {"file", "line", "column"}
//! ```

use super::json_writer::Writer;
use super::prepare::{Prepared, Row};
use super::symbols::Frame;
use cuguard_registry::{Amount, Group, Kind};

/// The version of the schema. It changes when a member goes or changes its meaning.
const VERSION: u64 = 1;

/// How many addresses of a group are written: a group of a million things is one group.
const ADDRESSES: usize = 16;

/// The report, without a line break at its end.
pub(super) fn render(prepared: &Prepared<'_>, max: Option<usize>) -> String {
    let snapshot = prepared.snapshot;
    let info = &snapshot.info;
    let mut json = Writer::default();
    json.object(|json| {
        json.key("version").number(VERSION);
        json.key("tool").string("cuguard");
        json.key("tool_version").string(env!("CARGO_PKG_VERSION"));
        json.key("process").number(std::process::id().into());
        json.key("reason").string(info.reason.name());
        json.key("device").object(|json| {
            json.key("ordinal").number(info.device.into());
            json.key("name").string(&info.device_name);
        });
        json.key("context").object(|json| {
            json.key("id").number(info.context);
            json.key("primary").boolean(info.primary);
            json.key("closed_at").site(info.closed_at);
            json.key("dropped_stack").array(&prepared.dropped, frame);
        });
        json.key("level").string(&snapshot.level.to_string());
        json.key("sample").number(snapshot.sample.into());
        json.key("seconds").seconds(snapshot.taken_at);
        json.key("leaked").boolean(prepared.is_leak());
        json.key("broken").refusal(snapshot.broken.as_ref());
        json.key("not_released")
            .refusal(snapshot.not_released.as_ref());
        json.key("totals")
            .array(&snapshot.totals, |json, (kind, totals)| {
                json.object(|json| {
                    json.key("kind").string(kind.name());
                    json.key("live_count").number(totals.count);
                    json.key("live_bytes").number(totals.bytes);
                    json.key("peak_bytes").number(totals.peak_bytes);
                    json.key("allocated_count").number(totals.allocated);
                });
            });
        let shown = max.unwrap_or(usize::MAX).min(prepared.live.len());
        json.key("leaks")
            .array(&prepared.live[..shown], |json, row| {
                json.object(|json| leak(json, row));
            });
        json.key("leaks_not_shown")
            .number((prepared.live.len() - shown) as u64);
        json.key("unrecorded")
            .array(&snapshot.unrecorded, |json, (kind, amount)| {
                json.object(|json| things(json, *kind, *amount));
            });
        json.key("failed_frees")
            .array(&prepared.failed, |json, row| {
                json.object(|json| {
                    json.key("allocated")
                        .object(|json| group(json, &row.failed.allocated, &row.allocated));
                    json.key("function").string(row.failed.function);
                    json.key("code").number(row.failed.code.into());
                    json.key("code_name").string(row.failed.code_name);
                    json.key("freed_at").site(row.failed.freed.site);
                    json.key("freed_stack").array(&row.freed, frame);
                });
            });
        json.key("late_drops")
            .array(&snapshot.late_drops, |json, late| {
                json.object(|json| things(json, late.kind, late.amount));
            });
        json.key("escaped").array(&prepared.escaped, |json, row| {
            json.object(|json| leak(json, row));
        });
        json.key("deferred")
            .array(&snapshot.deferred, |json, group| {
                json.object(|json| things(json, group.kind, group.amount));
            });
        let suppressed = &prepared.suppressed;
        let amount = suppressed.amount();
        json.key("suppressed").object(|json| {
            json.key("groups").number(suppressed.groups);
            json.key("count").number(amount.count);
            json.key("bytes").number(amount.bytes);
            json.key("unused")
                .array(&suppressed.unused, |json, pattern| json.string(pattern));
        });
    });
    json.finish()
}

fn things(json: &mut Writer, kind: Kind, amount: Amount) {
    json.key("kind").string(kind.name());
    json.key("count").number(amount.count);
    json.key("bytes").number(amount.bytes);
}

/// A group with what only follows from it.
fn leak(json: &mut Writer, row: &Row<'_>) {
    group(json, &row.group, &row.frames);
    json.key("indirect").array(&row.indirect, |json, row| {
        json.object(|json| leak(json, row));
    });
}

fn group(json: &mut Writer, group: &Group, frames: &[Frame]) {
    json.key("kind").string(group.kind.name());
    json.key("type").string(group.type_name);
    json.key("label").optional(group.label.as_deref());
    json.key("count").number(group.amount.count);
    json.key("bytes").number(group.amount.bytes);
    json.key("threads")
        .array(&group.threads, |json, name| json.string(name));
    json.key("streams")
        .array(&group.streams, |json, stream| json.address(*stream));
    json.key("oldest_seconds").seconds(group.oldest);
    json.key("youngest_seconds").seconds(group.youngest);
    let shown = ADDRESSES.min(group.addresses.len());
    json.key("addresses")
        .array(&group.addresses[..shown], |json, address| {
            json.address(*address)
        });
    json.key("site").site(group.origin.site);
    json.key("stack").array(frames, frame);
    json.key("kept").boolean(group.kept);
}

fn frame(json: &mut Writer, frame: &Frame) {
    let symbol = &frame.symbol;
    json.object(|json| {
        json.key("address").address(frame.address as u64);
        json.key("function").optional(symbol.function.as_deref());
        json.key("file").optional(symbol.file.as_deref());
        json.key("line").optional_number(symbol.line);
        json.key("column").optional_number(symbol.column);
        let spot = frame.spot.as_ref();
        json.key("module").optional(spot.map(|spot| &*spot.module));
        json.key("offset")
            .optional_address(spot.map(|spot| spot.offset as u64));
        let build_id = spot.map(|spot| &*spot.build_id);
        json.key("build_id")
            .optional(build_id.filter(|id| !id.is_empty()));
        json.key("inlined").boolean(frame.inlined);
        json.key("in_app").boolean(frame.in_app);
    });
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::render;
    use crate::Report;
    use crate::json_reader::{Value, member_names, read};
    use crate::prepare::{Prepared, View};
    use crate::testing::Insert;
    use cuguard_registry::{
        Amount, ContextInfo, Entry, FailedFree, Group, Key, Kind, Level, Registry, Site, Snapshot,
    };

    #[test]
    fn an_empty_snapshot() {
        let value = read(&Snapshot::default().to_json()).unwrap();
        assert_eq!(value["version"], Value::Number(1.0));
        assert_eq!(value["leaked"], Value::Boolean(false));
        assert_eq!(value["leaks"], Value::Array(Vec::new()));
        assert_eq!(value["device"]["ordinal"], Value::Number(0.0));
    }

    #[test]
    fn a_registry_with_everything_in_it() {
        let registry = Registry::new(Level::Stacks, 32);
        let key = |address| Key {
            kind: Kind::Device,
            slot: 0,
            address,
        };
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
        registry.count_late_drop(Kind::Event, 0);
        let value = read(&registry.snapshot(ContextInfo::default()).to_json()).unwrap();

        assert_eq!(value["leaked"], Value::Boolean(true));
        let [large, labelled] = value["leaks"].items() else {
            panic!("two groups")
        };
        assert_eq!(large["count"], Value::Number(37.0));
        assert_eq!(large["addresses"].items().len(), super::ADDRESSES);
        assert_eq!(large["label"], Value::Null);
        assert_eq!(labelled["label"], Value::Text("a \"label\"\n".to_owned()));
        let frames = large["stack"].items();
        assert!(
            frames
                .iter()
                .any(|frame| frame["in_app"] == Value::Boolean(true))
        );
        assert!(matches!(&frames[0]["address"], Value::Text(text) if text.starts_with("0x")));
        assert_eq!(value["escaped"].items().len(), 1);
        let failed = &value["failed_frees"].items()[0];
        assert_eq!(failed["code"], Value::Number(1.0));
        assert_eq!(failed["allocated"]["site"]["line"], large["site"]["line"]);
        assert!(!failed["freed_stack"].items().is_empty());
        assert_eq!(
            value["late_drops"].items()[0]["kind"],
            Value::Text("event".to_owned())
        );
        assert_eq!(
            value["totals"].items()[0]["peak_bytes"],
            Value::Number(4000.0)
        );
    }

    #[test]
    fn rows_can_be_limited() {
        let types = ["u8", "u16", "u32", "u64", "f32"];
        let snapshot = Snapshot {
            live: types
                .map(|name| Group::new(Kind::Device, name, 1, 1))
                .into(),
            ..Snapshot::default()
        };
        let json = render(&Prepared::new(&snapshot, View::PLAIN), Some(2));
        let value = read(&json).unwrap();
        assert_eq!(value["leaks"].items().len(), 2);
        assert_eq!(value["leaks_not_shown"], Value::Number(3.0));
    }

    /// Every member is in the document that describes them.
    #[test]
    fn the_document_names_every_member() {
        let document = include_str!("../../../docs/leak-report-schema.md");
        let registry = Registry::new(Level::Stacks, 32);
        let key = Key {
            kind: Kind::Device,
            slot: 0,
            address: 1,
        };
        let failed = FailedFree::new(key, 1, None, "cuMemFree", 1, "");
        registry.file_failed_free(failed);
        registry.insert(
            key,
            Entry {
                bytes: 1,
                type_name: "u8",
                stream: 0,
            },
        );
        let json = registry.snapshot(ContextInfo::default()).to_json();
        let found = member_names(&read(&json).unwrap());
        assert!(found.len() > 30);
        for name in found {
            assert!(
                document.contains(&format!("`{name}`")),
                "{name} is not in the document"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_snapshot_can_be_read_back(
            name in any::<String>(),
            groups in prop::collection::vec((any::<Option<String>>(), 0..9_usize, any::<u32>(), any::<u64>()), 0..6),
        ) {
            let mut snapshot = Snapshot::default();
            snapshot.info.device_name = name.clone();
            for (label, kind, number, time) in &groups {
                let mut group = Group::new(Kind::ALL[*kind], "f32", 1, u64::from(*number));
                group.label = label.clone();
                group.oldest = Duration::from_nanos(*time);
                group.origin.site = number.is_multiple_of(2).then(|| Site::new("a\\b.rs", *number, 1));
                snapshot.live.push(group);
            }
            snapshot.unrecorded = vec![(Kind::Pinned, Amount::new(1, 2))];
            let value = read(&snapshot.to_json());
            let value = value.unwrap();
            prop_assert_eq!(&value["device"]["name"], &Value::Text(name));
            let mut labels: Vec<_> = value["leaks"].items().iter().map(|leak| match &leak["label"] {
                Value::Text(text) => Some(text.clone()),
                _ => None,
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
