//! The metrics, parsed.

use std::collections::{BTreeMap, BTreeSet};

use cuguard_registry::{Amount, Totals};

use super::Metrics;
use crate::figures::{DeviceFigures, Figures, KindFigures, SiteFigures};

/// A series: its name, labels and value.
type Series = (String, BTreeMap<String, String>, u64);

/// Reads the text format strictly: each metric has its description and type once, before its series, which are together and
/// differ in their labels.
fn parse(text: &str) -> Vec<Series> {
    let mut series = Vec::new();
    let (mut families, mut distinct) = (BTreeSet::new(), BTreeSet::new());
    let mut family = String::new();
    let mut lines = text.lines();
    assert!(text.ends_with('\n'));
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect("a description");
            assert!(help.ends_with('.'), "{help}");
            let kind = lines.next().expect("a type");
            let kind = kind.strip_prefix(&format!("# TYPE {name} ")).expect(kind);
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            assert!(["counter", "gauge"].contains(&kind));
            assert!(families.insert(name.to_owned()), "{name} twice");
            family = name.to_owned();
            continue;
        }
        let (rest, value) = line.rsplit_once(' ').expect(line);
        let (name, labels) = match rest.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}').expect(line)),
            None => (rest, ""),
        };
        assert_eq!(name, family);
        assert!(distinct.insert(rest.to_owned()), "{rest} twice");
        series.push((
            name.to_owned(),
            parse_labels(labels),
            value.parse().expect(line),
        ));
    }
    series
}

fn parse_labels(text: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (name, value) = rest.split_once("=\"").expect(text);
        let (mut read, mut characters) = (String::new(), value.char_indices());
        let end = loop {
            match characters.next().expect(text) {
                (at, '"') => break at,
                (_, '\\') => match characters.next().expect(text).1 {
                    'n' => read.push('\n'),
                    other => {
                        assert!(['\\', '"'].contains(&other), "{text}");
                        read.push(other);
                    }
                },
                (_, other) => read.push(other),
            }
        };
        assert!(labels.insert(name.to_owned(), read).is_none(), "{text}");
        rest = &value[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    labels
}

/// The values of a metric, by its other labels.
fn values<'s>(series: &'s [Series], name: &str, labels: &[&str]) -> BTreeMap<Vec<&'s str>, u64> {
    let wanted = series.iter().filter(|(own, ..)| own == name);
    wanted
        .map(|(_, own, value)| {
            (
                labels.iter().map(|label| own[*label].as_str()).collect(),
                *value,
            )
        })
        .collect()
}

fn kind(name: &str, on_device: bool, bytes: u64, count: u64) -> KindFigures {
    let totals = Totals {
        count,
        bytes,
        peak_bytes: 2 * bytes,
        allocated: count + 7,
    };
    KindFigures {
        kind: name.to_owned(),
        on_device,
        totals,
    }
}

fn site(kind: &str, function: &str, bytes: u64) -> SiteFigures {
    SiteFigures {
        kind: kind.to_owned(),
        amount: Amount::new(1, bytes),
        function: Some(function.to_owned()),
        file: Some("a.c".to_owned()),
        line: Some(3),
        ..SiteFigures::default()
    }
}

#[test]
fn call_sites_add_up_to_their_kind() {
    let figures = Figures {
        process: 7,
        kinds: vec![
            kind("device", true, 1000, 20),
            kind("pinned", false, 64, 1),
            kind("stream", false, 0, 3),
            kind("address_range", false, 1 << 40, 1),
        ],
        sites: vec![
            site("device", "a", 500),
            site("device", "b", 200),
            // The same name, by another stack trace or with another label.
            site("device", "a", 100),
            site("pinned", "a", 64),
            site("device", "c", 1),
            site("stream", "a", 0),
        ],
        ..Figures::default()
    };
    let series = parse(&Metrics::new(2).text(&[figures], 0));
    let sites = values(&series, "cuguard_call_site_live_bytes", &["kind", "site"]);
    let expected = [
        (vec!["device", "a a.c:3"], 600),
        (vec!["device", "b a.c:3"], 200),
        (vec!["device", "other"], 200),
        (vec!["pinned", "other"], 64),
    ];
    assert_eq!(sites, BTreeMap::from(expected));
    let counts = values(
        &series,
        "cuguard_call_site_live_allocations",
        &["kind", "site"],
    );
    assert_eq!(counts[&vec!["device", "other"]], 17);
    // A range of addresses has a size, and is no memory.
    let memory = values(&series, "cuguard_memory_live_bytes", &["kind"]);
    assert_eq!(
        memory,
        BTreeMap::from([(vec!["device"], 1000), (vec!["pinned"], 64)])
    );
    let alive = values(&series, "cuguard_live_resources", &["kind"]);
    assert_eq!((alive[&vec!["stream"]], alive.len()), (3, 4));
    assert_eq!(
        values(&series, "cuguard_frees_total", &["kind"])[&vec!["stream"]],
        7
    );
}

#[test]
fn the_libraries_of_a_process_are_added_up_and_processes_are_not() {
    let device = |device, bytes, cached_bytes| DeviceFigures {
        device,
        live: Amount::new(1, bytes),
        peak_bytes: bytes,
        cached_bytes,
        refused: Amount::new(2, 30),
    };
    let figures = |process, devices| Figures {
        process,
        command: "/opt/my \"app\" --token=secret".to_owned(),
        devices,
        ..Figures::default()
    };
    let all = [
        figures(7, vec![device(Some(0), 100, None), device(None, 1, None)]),
        figures(7, vec![device(Some(0), 50, Some(8))]),
        figures(3, vec![device(Some(0), 9, None)]),
    ];
    let text = Metrics::new(5).text(&all, 4);
    let series = parse(&text);
    let live = values(
        &series,
        "cuguard_device_memory_live_bytes",
        &["pid", "device"],
    );
    let expected = [
        (vec!["3", "0"], 9),
        (vec!["7", "0"], 150),
        (vec!["7", "unknown"], 1),
    ];
    assert_eq!(live, BTreeMap::from(expected));
    let cached = values(
        &series,
        "cuguard_device_memory_cached_bytes",
        &["pid", "device"],
    );
    assert_eq!(cached, BTreeMap::from([(vec!["7", "0"], 8)]));
    let refused = values(&series, "cuguard_refused_bytes_total", &["pid", "device"]);
    assert_eq!(refused[&vec!["7", "0"]], 60);
    assert_eq!(values(&series, "cuguard_processes", &[])[&vec![]], 2);
    assert_eq!(values(&series, "cuguard_processes_silent", &[])[&vec![]], 4);
    let info = values(&series, "cuguard_process_info", &["command"]);
    assert_eq!(info.into_keys().collect::<Vec<_>>(), [vec!["my"]]);
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn names_are_escaped_and_cut() {
    let long = "ü".repeat(500);
    let names = ["a\"b\\c\nd", &long, "other"];
    let mut sites: Vec<_> = names.iter().map(|name| site("device", name, 10)).collect();
    (sites[2].file, sites[2].line) = (None, None);
    let figures = Figures {
        kinds: vec![kind("device", true, 30, 3)],
        sites,
        ..Figures::default()
    };
    let series = parse(&Metrics::new(5).text(&[figures], 0));
    let sites = values(&series, "cuguard_call_site_live_bytes", &["site"]);
    let short = format!("{}… a.c:3", "ü".repeat(120));
    let expected = [
        (vec!["a\"b\\c\\nd a.c:3"], 10),
        (vec!["other"], 0),
        (vec!["other ()"], 10),
        (vec![short.as_str()], 10),
    ];
    assert_eq!(sites, BTreeMap::from(expected));
}

/// Generated code may have a new name for each request.
#[test]
fn the_number_of_call_sites_over_time_is_bounded() {
    let mut metrics = Metrics::new(3);
    let mut seen = BTreeSet::new();
    let mut text = |metrics: &mut Metrics, process, names: &[String]| {
        let figures = Figures {
            process,
            kinds: vec![kind("device", true, 100, 10)],
            sites: names.iter().map(|name| site("device", name, 10)).collect(),
            ..Figures::default()
        };
        let series = parse(&metrics.text(&[figures], 0));
        let sites = values(&series, "cuguard_call_site_live_bytes", &["site"]);
        assert!(sites.len() <= 4);
        assert_eq!(sites.values().sum::<u64>(), 100);
        seen.extend(sites.into_keys().map(|site| site[0].to_owned()));
        seen.len()
    };
    let mut count = 0;
    for round in 0..50 {
        let names: Vec<_> = (0..5)
            .map(|index| format!("generated {round} {index}"))
            .collect();
        count = text(&mut metrics, 1, &names);
    }
    assert_eq!(count, 3 * 10 + 1);
    // Another process with the same number later has names of its own.
    metrics.text(&[], 0);
    assert_eq!(text(&mut metrics, 1, &["new".to_owned()]), count + 1);
}

#[test]
fn sums_of_any_figures_do_not_overflow() {
    let figures = Figures {
        kinds: vec![
            kind("device", true, u64::MAX / 2, 3),
            kind("later", false, 5, 1),
        ],
        sites: vec![site("device", "a", u64::MAX), site("later", "a", 5)],
        devices: vec![DeviceFigures {
            peak_bytes: u64::MAX,
            cached_bytes: Some(u64::MAX),
            ..DeviceFigures::default()
        }],
        ..Figures::default()
    };
    let series = parse(&Metrics::new(5).text(&[figures.clone(), figures.clone(), figures], 0));
    let sites = values(&series, "cuguard_call_site_live_bytes", &["kind", "site"]);
    assert_eq!(sites[&vec!["device", "other"]], 0);
    assert_eq!(sites.len(), 2);
}
