//! Traces, read back and checked against the trace event format.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::write;
use crate::{Allocation, CallSite, FOREVER, Frame, Frames, Mark, MarkKind, RecordedKind, Run};

fn read(runs: &[Run], moments: usize, slices: usize) -> (Vec<Value>, Value) {
    let mut out = Vec::new();
    write(runs, Frames::Program, moments, slices, &mut out).expect("memory takes all");
    let trace: Value = serde_json::from_slice(&out).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("a list").clone();
    check(&events);
    (events, trace["otherData"].clone())
}

/// What viewers require, as the description of the format has it.
fn check(events: &[Value]) {
    let mut last = f64::MIN;
    let mut series: BTreeMap<(u64, String), BTreeSet<String>> = BTreeMap::new();
    let mut open: BTreeMap<(String, String), f64> = BTreeMap::new();
    let mut used = BTreeSet::new();
    for event in events {
        let members = event.as_object().expect("an object");
        let pid = event["pid"].as_u64().expect("a process");
        let name = event["name"].as_str().expect("a name").to_owned();
        assert!(!name.is_empty(), "{event}");
        let phase = event["ph"].as_str().expect("a phase");
        if phase == "M" {
            assert!(event["args"].is_object() && !members.contains_key("ts"));
            continue;
        }
        // In order of time, over all tracks.
        let time = event["ts"].as_f64().expect("a time");
        assert!(time >= last && time >= 0.0, "{event}");
        last = time;
        match phase {
            "C" => {
                let values = event["args"].as_object().expect("values");
                assert!(
                    !values.is_empty() && values.values().all(Value::is_u64),
                    "{event}"
                );
                let names: BTreeSet<String> = values.keys().cloned().collect();
                assert_eq!(names.len(), values.len());
                // All events of a counter have the same series.
                let known = series.entry((pid, name)).or_insert_with(|| names.clone());
                assert_eq!(*known, names);
            }
            "b" => {
                let id = event["id"].as_str().expect("an id").to_owned();
                let digits = id.strip_prefix("0x").expect("hexadecimal");
                assert!(u64::from_str_radix(digits, 16).is_ok(), "{id}");
                assert!(used.insert(id.clone()), "{id} twice");
                open.insert((id, event["cat"].to_string() + &name), time);
            }
            "e" => {
                let id = event["id"].as_str().expect("an id").to_owned();
                let begin = open.remove(&(id, event["cat"].to_string() + &name));
                assert!(begin.expect("it has begun") <= time);
            }
            "i" => assert_eq!(event["s"], "p"),
            other => panic!("phase {other}"),
        }
        assert!(event["tid"].is_u64() && event["cat"].is_string(), "{event}");
    }
    assert!(open.is_empty(), "without an end: {open:?}");
}

fn kind(name: &str, on_device: bool, is_memory: bool) -> RecordedKind {
    RecordedKind {
        name: name.to_owned(),
        on_device,
        is_memory,
    }
}

fn site(function: &str) -> CallSite {
    let frame = Frame {
        function: function.to_owned(),
        file: "a.c".to_owned(),
        line: 3,
        in_app: true,
        ..Frame::default()
    };
    CallSite {
        frames: vec![frame],
        ..CallSite::default()
    }
}

fn block(start: u64, end: u64, bytes: u64, (context, kind, site): (u32, u8, u32)) -> Allocation {
    Allocation {
        start,
        end,
        bytes,
        site,
        kind,
        context,
        thread: 1,
        ..Allocation::default()
    }
}

/// Two devices; device memory, pinned memory and a stream.
fn run() -> Run {
    let context = |time, context, device| Mark {
        time,
        kind: MarkKind::ContextCreated { context, device },
    };
    let refused = MarkKind::OutOfMemory {
        bytes: 1 << 30,
        site: 1,
        thread: 1,
        diagnosis: "why: it is full\n\"quoted\"".to_owned(),
    };
    Run {
        source: "a.cgr".to_owned(),
        command: "./train --big".to_owned(),
        pid: 42,
        begin: 1_000,
        end: 9_000,
        exit_begins: Some(8_500),
        kinds: vec![
            kind("device", true, true),
            kind("pinned", false, true),
            kind("stream", false, false),
            kind("stream_ordered", true, true),
        ],
        sites: vec![CallSite::default(), site("load"), site("step")],
        names: vec![String::new(), "main".to_owned(), "weights".to_owned()],
        allocations: vec![
            block(2_000, FOREVER, 100, (1, 0, 1)),
            block(3_001, 5_000, 20, (2, 0, 2)),
            block(3_001, 4_000, 7, (1, 1, 2)),
            block(3_500, 6_000, 0, (1, 2, 2)),
            block(4_000, 6_000, 3, (0, 3, 0)),
        ],
        marks: vec![
            context(1_000, 1, 0),
            context(1_500, 2, 1),
            Mark {
                time: 4_500,
                kind: refused,
            },
            Mark {
                time: 7_000,
                kind: MarkKind::ContextEnded { context: 2 },
            },
        ],
        ..Run::default()
    }
}

/// The values of a counter: times and series.
fn counter(events: &[Value], name: &str) -> Vec<(f64, BTreeMap<String, u64>)> {
    let events = events.iter().filter(|event| event["name"] == name);
    events
        .map(|event| {
            let values = event["args"].as_object().expect("values").iter();
            let values =
                values.map(|(name, value)| (name.clone(), value.as_u64().expect("a number")));
            (event["ts"].as_f64().expect("a time"), values.collect())
        })
        .collect()
}

#[test]
fn counters_have_every_change_and_add_up() {
    let (events, _) = read(&[run()], 100, 100);
    let devices = counter(&events, "device memory");
    let values = |zero, one, unknown| {
        let names = ["device 0", "device 1", "device not recorded"].map(str::to_owned);
        BTreeMap::from_iter(names.into_iter().zip([zero, one, unknown]))
    };
    let expected = [
        (1.0, values(0, 0, 0)),
        (2.0, values(100, 0, 0)),
        (3.001, values(100, 20, 0)),
        (4.0, values(100, 20, 3)),
        (5.0, values(100, 0, 3)),
        (6.0, values(100, 0, 0)),
        (9.0, values(100, 0, 0)),
    ];
    assert_eq!(devices, expected);
    let functions = counter(&events, "device memory by function");
    let at_four = functions.iter().find(|(time, _)| *time == 4.0);
    let expected = [("load", 100), ("step", 20), ("unknown call site", 3)];
    let expected = expected.map(|(name, bytes)| (name.to_owned(), bytes));
    assert_eq!(
        at_four.map(|(_, values)| values),
        Some(&BTreeMap::from(expected))
    );
    let kinds = counter(&events, "live bytes by kind");
    assert!(
        kinds
            .iter()
            .any(|(_, values)| values["pinned host memory"] == 7)
    );
    assert!(
        kinds.iter().all(|(_, values)| values.len() == 3),
        "{kinds:?}"
    );
}

#[test]
fn allocations_are_slices_and_errors_are_instants() {
    let (events, other) = read(&[run()], 100, 100);
    let named = |name: &str, phase: &str| -> Vec<&Value> {
        let events = events.iter();
        events
            .filter(|event| event["name"] == name && event["ph"] == phase)
            .collect()
    };
    // Device and pinned memory; the stream has no bytes.
    assert_eq!(named("step", "b").len(), 2);
    let load = named("load", "b")[0];
    assert_eq!(
        (&load["ts"], &load["args"]["size"]),
        (&2.0.into(), &"100 B".into())
    );
    assert_eq!(load["args"]["freed"], "not until the end");
    assert_eq!(load["args"]["call site"], "load  a.c:3");
    assert_eq!(named("load", "e")[0]["ts"], 9.0);
    let refused = named("out of memory: 1 GiB", "i")[0];
    assert_eq!(refused["ts"], 4.5);
    assert_eq!(refused["args"]["diagnosis"], "why: it is full\n\"quoted\"");
    assert_eq!(named("peak: 123 B", "i")[0]["ts"], 4.0);
    assert_eq!(named("exit begins", "i")[0]["ts"], 8.5);
    assert_eq!(named("context 2 on device 1", "e")[0]["ts"], 7.0);
    assert_eq!(named("context 1 on device 0", "e")[0]["ts"], 9.0);
    assert_eq!(
        named("process_name", "M")[0]["args"]["name"],
        "./train --big (process 42)"
    );
    let thread = named("thread_name", "M")[0];
    assert_eq!(
        (&thread["args"]["name"], &thread["tid"]),
        (&"main".into(), &refused["tid"])
    );
    assert_eq!(other["runs"][0]["allocations_without_a_slice"], 0);
}

/// A viewer holds all of a trace.
#[test]
fn a_long_run_is_thinned_and_keeps_its_peak() {
    let mut run = run();
    run.end = 1_000_000;
    let many = (0..5_000_u64).map(|index| {
        let bytes = if index == 3_333 { 100_000 } else { 10 + index };
        block(10_000 + index * 100, 10_050 + index * 100, bytes, (1, 0, 2))
    });
    run.allocations.extend(many);
    let (events, other) = read(&[run.clone()], 50, 20);
    let devices = counter(&events, "device memory");
    assert!((20..=53).contains(&devices.len()), "{}", devices.len());
    let peak = devices
        .iter()
        .map(|(_, values)| values.values().sum::<u64>())
        .max();
    assert_eq!(peak, Some(crate::peak(&run).device_bytes));
    let slices = events
        .iter()
        .filter(|event| event["ph"] == "b" && event["cat"] == "allocation");
    assert_eq!(slices.count(), 20);
    // Of 5,005 allocations one is a stream.
    assert_eq!(other["runs"][0]["allocations_without_a_slice"], 5_004 - 20);
}

#[test]
fn runs_are_aligned_by_the_time_of_day() {
    let (mut first, mut second) = (run(), run());
    (first.started, second.started) = (5_000_000, 5_002_000);
    let (events, _) = read(&[first, second], 100, 100);
    let begin = |pid: u64| {
        let mut events = events.iter();
        let event = events.find(|event| event["pid"] == pid && event["ph"] != "M");
        event.expect("it has events")["ts"].clone()
    };
    assert_eq!((begin(1), begin(2)), (1.0.into(), 3.0.into()));
}

#[test]
fn a_run_with_nothing_and_broken_times_is_a_trace() {
    let (events, _) = read(&[Run::default()], 100, 100);
    assert!(events.iter().all(|event| event["ph"] == "M"), "{events:?}");
    let mut broken = run();
    broken.end = 0;
    broken.allocations[1].end = 5;
    broken.allocations[2].kind = 200;
    broken.marks[3].time = 0;
    read(&[broken], 100, 100);
}
