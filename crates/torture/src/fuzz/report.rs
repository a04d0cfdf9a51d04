//! `LEAK_REPORT` settings, and the JSON of reports.

use std::collections::BTreeMap;

use arbitrary::Unstructured;
use cuguard::report::{Report, ReportSettings};
use cuguard::snapshot::{Amount, FailedFreeGroup, Group, Snapshot};
use cuguard::{ResourceKind, TrackingLevel};
use serde_json::Value;

use super::bounded;

/// Parses any text as a value of `LEAK_REPORT`.
///
/// # Panics
///
/// Where the parser ignores a word without reporting a problem, or a problem affects other words.
pub fn setting(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    // It would read a file of suppressions from any path.
    if text.contains("suppress") {
        return;
    }
    // A problem has the word that is wrong and those that are right, and each word is in at most one.
    let parsed = bounded(bytes.len(), 1024, 16 << 10, || ReportSettings::parse(&text));
    let (settings, problems) = parsed;
    for problem in &problems {
        assert!(!problem.to_string().is_empty());
    }
    assert_eq!(
        ReportSettings::parse(&text).0,
        settings,
        "parsing is deterministic"
    );
    if let Some(level) = settings.wanted_level() {
        assert!(level <= TrackingLevel::Stacks);
    }
    assert!((1..=cuguard::snapshot::MAX_DEPTH).contains(&settings.wanted_depth()));
    // A word for off turns everything off, at any position, and one problem names the rest.
    let is_off_word = |word: &str| {
        let word = word.trim().to_ascii_lowercase();
        ["0", "off", "no", "false"].contains(&word.as_str())
    };
    let is_off = text.split(',').any(is_off_word);
    assert!(!is_off || !settings.is_on());
    // An unknown word at the end is a problem and changes nothing.
    if !text.trim().is_empty() {
        let (same, more) = ReportSettings::parse(&format!("{text},no-such-word"));
        assert_eq!(same, settings);
        let count = if is_off { 1 } else { problems.len() + 1 };
        assert_eq!(more.len(), count);
    }
    // The last word about the report as a whole wins.
    for (word, on) in [
        ("off", false),
        ("False", false),
        ("yes", true),
        ("github", true),
    ] {
        let (settings, more) = ReportSettings::parse(&format!("{text},{word}"));
        assert_eq!(settings.is_on(), on && !is_off, "{word}");
        // After an empty text, the comma is a problem too.
        assert!(more.len() <= problems.len() + 1);
    }
}

/// Static strings, as type and thread names are.
const NAMES: [&str; 6] = ["", "u8", "a \"b\"", "\n\t\\", "λ\u{2028}", "\u{1}\u{7f}"];

fn group(bytes: &mut Unstructured<'_>) -> arbitrary::Result<Group> {
    let kind = *bytes.choose(ResourceKind::ALL)?;
    let name = bytes.choose(&NAMES)?;
    let mut group = Group::new(kind, name, bytes.arbitrary()?, bytes.arbitrary()?);
    if bytes.arbitrary()? {
        group.label = Some(bytes.arbitrary::<String>()?);
    }
    group.threads = vec![bytes.choose(&NAMES)?];
    group.streams = bytes.arbitrary()?;
    group.addresses = bytes.arbitrary()?;
    group.kept = bytes.arbitrary()?;
    Ok(group)
}

fn snapshot(bytes: &mut Unstructured<'_>) -> arbitrary::Result<Snapshot> {
    let mut snapshot = Snapshot::default();
    snapshot.info.device = bytes.arbitrary()?;
    snapshot.info.context = bytes.arbitrary()?;
    snapshot.info.primary = bytes.arbitrary()?;
    for _ in 0..bytes.int_in_range(0..=4)? {
        snapshot.live.push(group(bytes)?);
    }
    for _ in 0..bytes.int_in_range(0..=3)? {
        snapshot.escaped.push(group(bytes)?);
    }
    for _ in 0..bytes.int_in_range(0..=3)? {
        let (made, name) = (group(bytes)?, bytes.choose(&NAMES)?);
        let failed = FailedFreeGroup::new(made, name, bytes.arbitrary()?, name);
        snapshot.failed_frees.push(failed);
    }
    for _ in 0..bytes.int_in_range(0..=3)? {
        let kind = *bytes.choose(ResourceKind::ALL)?;
        let amount = Amount::new(bytes.arbitrary()?, bytes.arbitrary()?);
        snapshot.unrecorded.push((kind, amount));
        snapshot.late_drops.push((kind, amount));
    }
    let rest = bytes.bytes(bytes.len())?;
    snapshot.info.device_name = String::from_utf8_lossy(rest).into_owned();
    Ok(snapshot)
}

/// Makes a snapshot of any bytes, writes it as JSON and parses that.
///
/// # Panics
///
/// Where the text is not JSON, or differs from the snapshot.
pub fn report_json(bytes: &[u8]) {
    let Ok(snapshot) = snapshot(&mut Unstructured::new(bytes)) else {
        return;
    };
    // A group has some twenty members, and is made of a few bytes. Text is written more than once before it is whole.
    let text = bounded(bytes.len(), 1024, 256 << 10, || snapshot.to_json());
    assert!(!text.contains('\n'), "one line");
    let json: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    assert_eq!(json["device"]["ordinal"], snapshot.info.device);
    assert_eq!(json["device"]["name"], snapshot.info.device_name);
    assert_eq!(json["context"]["id"], snapshot.info.context);
    assert_eq!(json["context"]["primary"], snapshot.info.primary);
    assert_eq!(json["leaked"], !snapshot.is_clean());
    assert_eq!(json["leaks_not_shown"], 0);
    same_groups(&json["leaks"], &snapshot.live);
    same_groups(&json["escaped"], &snapshot.escaped);
    let failed_frees = snapshot.failed_frees.iter();
    let made: Vec<_> = failed_frees.map(|f| f.allocated.clone()).collect();
    let failed = json["failed_frees"].as_array().expect("an array");
    let listed = Value::Array(failed.iter().map(|f| f["allocated"].clone()).collect());
    same_groups(&listed, &made);
    let late = json["late_drops"].as_array().expect("an array");
    assert_eq!(late.len(), snapshot.late_drops.len());
    for (json, (kind, amount)) in late.iter().zip(&snapshot.late_drops) {
        assert_eq!(json["kind"], kind.name());
        assert_eq!(json["count"], amount.count);
        assert_eq!(json["bytes"], amount.bytes);
    }
}

/// The same groups, in any order; those that the JSON does not distinguish are merged.
fn same_groups(json: &Value, groups: &[Group]) {
    let mut read: BTreeMap<_, Amount> = BTreeMap::new();
    let list = |json: &Value| json.as_array().cloned().unwrap_or_default();
    assert!(json.is_array());
    let mut rest = list(json);
    while let Some(group) = rest.pop() {
        rest.extend(list(&group["indirect"]));
        let text = |key: &str| group[key].as_str().unwrap_or("").to_owned();
        let number = |key: &str| group[key].as_u64().expect("a number");
        let identity = (text("kind"), text("type"), text("label"));
        *read.entry(identity).or_default() += Amount::new(number("count"), number("bytes"));
    }
    let mut expected: BTreeMap<_, Amount> = BTreeMap::new();
    for group in groups {
        let kind = group.kind.name().to_owned();
        let label = group.label.clone().unwrap_or_default();
        let identity = (kind, group.type_name.to_owned(), label);
        *expected.entry(identity).or_default() += group.amount;
    }
    assert_eq!(read, expected);
}
