//! `cuguard report` and `cuguard diff` in processes of their own, on recordings of other processes.

use crate::support::recorded;
use std::fs;

use crate::support::reporting::{Folder, TRAINING, cuguard, refused, shown};
use serde_json::Value;

/// Child processes record here.
#[test]
fn record_child() {
    recorded::child();
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&shown(arguments)).expect("it is JSON")
}

#[test]
fn the_peak_as_text() {
    let folder = Folder::new("text");
    let file = folder.record("a.cgr", None, TRAINING);
    let text = shown(&["report", &file]);
    assert!(text.starts_with("cuguard: process "), "{text}");
    assert!(text.contains("device memory: peak 96 MiB after "), "{text}");
    assert!(text.contains(", at the end 32 MiB"), "{text}");
    assert!(text.contains("; 1 out-of-memory error"), "{text}");
    assert!(text.contains("alive at the peak, after "), "{text}");
    let largest = text.find("64 MiB in 2 allocations of device memory, \"activations\"   67 %");
    let smaller =
        text.find("32 MiB in 1 allocation of device memory, \"weights \\u{1b}[31m<b>\"   33 %");
    assert!(largest.is_some() && largest < smaller, "{text}");
    assert!(
        text.contains("    app::step  src/main.rs:22\n    app::main  src/main.rs:33\n"),
        "{text}"
    );
    assert!(text.contains("thread worker, allocated after "), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
    assert_eq!(shown(&["report", &file]), text);
}

/// What `cuguard run` prints first comes first here, too.
#[test]
fn findings_come_first_unless_a_moment_is_asked_for() {
    let folder = Folder::new("findings");
    // Two failures at one call site; 20 rounds of which each keeps a block.
    let rounds = (1..=20_u64).map(|round| {
        let address = round << 20;
        format!("a{address},1048576,1,2 a77,33554432,2,3 f77")
    });
    let rounds: Vec<_> = rounds.collect();
    let script = format!("{} o1073741824 o2048", rounds.join(" "));
    let file = folder.record("a.cgr", None, &script);
    let text = shown(&["report", &file]);
    let (first, rest) = text.split_once('\n').expect("there are lines");
    assert!(
        first.ends_with(": 20 MiB in 20 allocations alive at exit; 1 call site growing; 2 allocations failed for lack of memory"),
        "{text}"
    );
    assert!(rest.starts_with("  exited after "), "{text}");
    let places = [
        "\nfailed: 2 allocations of 2 KiB to 1 GiB, after ",
        "\ngrowing by 20 MiB in 20 allocations over ",
        "\nIt is not known which of what is alive at exit is lost: ",
        "\nalive at the peak, after ",
    ];
    let places = places.map(|line| text.find(line).unwrap_or_else(|| panic!("{line}: {text}")));
    assert!(places.is_sorted(), "{text}");
    for arguments in [["--at", "peak"], ["--by", "label"]] {
        let text = shown(&["report", &file, arguments[0], arguments[1]]);
        assert!(text.contains("exited after "), "{text}");
        assert!(!text.contains("growing"), "{text}");
    }
    let run = &json(&["report", &file, "--json"])["runs"][0];
    assert_eq!(run["growing"][0]["blocks"], 20, "{run}");
    assert_eq!(
        (&run["lost"], &run["times_from"]),
        (&Value::Null, &"program".into())
    );
    assert!(run["begin_seconds"].as_f64() > Some(0.0), "{run}");
}

#[test]
fn moments_and_groups() {
    let folder = Folder::new("moments");
    let file = folder.record("a.cgr", None, TRAINING);
    let bytes = |at: &str| {
        json(&["report", &file, "--json", "--at", at])["runs"][0]["moment"]["bytes"].clone()
    };
    assert_eq!(bytes("peak"), 96 << 20);
    assert_eq!(bytes("exit"), 32 << 20);
    assert_eq!(bytes("oom"), 64 << 20);
    assert_eq!(bytes("oom:1"), 64 << 20);
    assert_eq!(bytes("0%"), 0);
    assert_eq!(bytes("100%"), 32 << 20);
    assert_eq!(bytes("0ms"), 0);
    for (by, first) in [
        ("stack", "app::step"),
        ("function", "app::step"),
        ("library", "unknown library"),
        ("label", "activations"),
        ("thread", "worker"),
        ("stream", "no stream"),
        ("size", "32 MiB to 64.00 MiB"),
        ("kind", "device memory"),
    ] {
        let document = json(&["report", &file, "--json", "--by", by]);
        let run = &document["runs"][0];
        assert_eq!(run["by"], by);
        assert_eq!(run["groups"][0]["name"], first, "{by}");
        let sum: u64 = run["groups"]
            .as_array()
            .expect("it is a list")
            .iter()
            .filter_map(|g| g["bytes"].as_u64())
            .sum();
        assert_eq!(sum, 96 << 20, "{by}");
        let text = shown(&["report", &file, "--by", by]);
        assert!(text.contains(first), "{by}: {text}");
    }
    let one = json(&["report", &file, "--json", "--top", "1"]);
    assert_eq!(one["runs"][0]["groups_not_shown"], 1);
    let text = shown(&["report", &file, "--top", "1"]);
    assert!(
        text.contains("… 1 of 2 groups shown; --top 2 shows the other 32 MiB in 1 too"),
        "{text}"
    );
}

#[test]
fn the_request_that_failed_comes_first() {
    let folder = Folder::new("failed");
    let script = format!("{TRAINING} o2048");
    let file = folder.record("a.cgr", None, &script);
    for (at, bytes) in [("oom", "2 KiB"), ("oom:1", "1 GiB"), ("oom:2", "2 KiB")] {
        let text = shown(&["report", &file, "--at", at]);
        let failed = text.find(&format!("\nfailed: an allocation of {bytes}, after "));
        let failed = failed.unwrap_or_else(|| panic!("{text}"));
        let (line, rest) = text[failed + 1..].split_once('\n').unwrap();
        assert!(line.ends_with(", thread worker"), "{text}");
        let stack = "    app::load  src/main.rs:11\n    app::main  src/main.rs:33\n\nalive at ";
        assert!(rest.starts_with(stack), "{text}");
    }
    assert!(!shown(&["report", &file, "--at", "peak"]).contains("failed:"));
    let run = &json(&["report", &file, "--json"])["runs"][0];
    assert_eq!(run["out_of_memory"][1]["thread"], "worker");
}

#[test]
fn default_streams_have_names() {
    let folder = Folder::new("streams");
    let file = folder.record(
        "a.cgr",
        None,
        "a1,512,1,2,1 a2,256,1,2,2 a3,4096,2,3,2 a4,64,2,3,32",
    );
    let text = shown(&["report", &file]);
    let streams = "streams legacy default and per-thread default, allocated after ";
    assert!(text.contains(streams), "{text}");
    assert!(
        text.contains("streams per-thread default and 0x20, "),
        "{text}"
    );
    let text = shown(&["report", &file, "--by", "stream"]);
    for name in [
        "legacy default stream: ",
        "per-thread default stream: ",
        "0x20: ",
    ] {
        assert!(text.contains(&format!("\n{name}")), "{text}");
    }
    let one = folder.record("b.cgr", None, "a1,512,1,2,1");
    let text = shown(&["report", &one]);
    assert!(
        text.contains("thread worker, legacy default stream, allocated"),
        "{text}"
    );
    // Handles, as documented.
    let run = &json(&["report", &one, "--json"])["runs"][0];
    assert_eq!(run["groups"][0]["streams"][0], "0x1");
}

#[test]
fn the_json_document() {
    let folder = Folder::new("json");
    let file = folder.record("a.cgr", Some(3), TRAINING);
    let document = json(&["report", &file, "--json"]);
    assert_eq!(document["version"], 1);
    assert_eq!(document["tool"], "cuguard-report");
    assert!(document["ranks"].is_null());
    let run = &document["runs"][0];
    assert_eq!(run["source"], file.as_str());
    assert_eq!((&run["rank"], &run["exited"]), (&3.into(), &true.into()));
    assert_eq!(run["peak"]["device_bytes"], 96 << 20);
    assert_eq!(run["end"]["bytes"], 32 << 20);
    assert_eq!(run["allocated"]["count"], 3);
    assert_eq!(run["out_of_memory"][0]["bytes"], 1 << 30);
    let frame = &run["out_of_memory"][0]["stack"][0];
    assert_eq!(
        (&frame["function"], &frame["line"]),
        (&"app::load".into(), &11.into())
    );
    let group = &run["groups"][1];
    assert_eq!(group["labels"][0], "weights \x1b[31m<b>");
    assert_eq!(group["kinds"][0]["kind"], "device");
    assert_eq!(group["stack"][1]["file"], "src/main.rs");
    // Every member of the document is described.
    let schema = include_str!("../../../docs/recording-schema.md");
    let mut members = Vec::new();
    names(&document, &mut members);
    for member in members {
        assert!(
            schema.contains(&format!("`{member}`")),
            "docs/recording-schema.md lacks {member}"
        );
    }
}

fn names(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                found.push(name.clone());
                names(value, found);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| names(value, found)),
        _ => {}
    }
}

#[test]
fn ranks_side_by_side() {
    let folder = Folder::new("ranks");
    let usual = "a1,1048576,1,0 a2,1048576,2,0";
    let files = [
        folder.record("0.cgr", Some(0), usual),
        folder.record("1.cgr", Some(1), usual),
        folder.record("2.cgr", Some(2), "a1,1048576,1,0 a2,5242880,2,0"),
        folder.record("3.cgr", Some(3), usual),
    ];
    let mut arguments = vec!["report"];
    arguments.extend(files.iter().map(String::as_str));
    let text = shown(&arguments);
    assert!(text.starts_with("cuguard: 4 runs: rank 2 on "), "{text}");
    assert!(
        text.contains(" differs most: 6 MiB alive at the peak, after "),
        "{text}"
    );
    assert!(
        text.contains(", 4 MiB more than the median of 2 MiB\n"),
        "{text}"
    );
    assert!(
        text.contains("\n4 MiB more: 5 MiB, median 1 MiB\n    app::step"),
        "{text}"
    );
    let order: Vec<_> = [2, 0, 1, 3]
        .iter()
        .map(|rank| text.find(&format!("\n  rank {rank} on ")))
        .collect();
    assert!(order.is_sorted() && order[0].is_some(), "{text}");
    let findings = text.lines().filter(|line| line.starts_with("rank "));
    let findings: Vec<_> = findings
        .map(|line| line.split_once(": ").expect("a rank and its findings").1)
        .collect();
    let alive = |size| format!("{size} in 2 allocations alive at exit");
    assert_eq!(
        findings,
        [
            alive("6 MiB"),
            alive("2 MiB"),
            alive("2 MiB"),
            alive("2 MiB")
        ]
    );
    arguments.push("--json");
    let document = json(&arguments);
    assert_eq!(document["ranks"]["rows"][0]["rank"], 2);
    assert_eq!(document["ranks"]["rows"][0]["difference"], 4 << 20);
    assert_eq!(
        document["ranks"]["differences"][0]["stack"][0]["function"],
        "app::step"
    );
    arguments.pop();
    arguments.push("--folded");
    assert!(shown(&arguments).contains(";app::main;app::step 5242880\n"));
}

#[test]
fn what_grew() {
    let folder = Folder::new("diff");
    let old = folder.record("old.cgr", None, "a1,1048576,1,0 a2,1048576,2,0");
    let new = folder.record(
        "new.cgr",
        None,
        "a1,1048576,1,0 a2,1048576,2,0 a3,2097152,2,0",
    );
    let text = shown(&["diff", &old, &new]);
    assert!(
        text.contains("2 MiB in 2 resources → 4 MiB in 3 resources: 2 MiB more\n"),
        "{text}"
    );
    assert!(
        text.contains("\n2 MiB more: 1 MiB → 3 MiB in 1 → 2 resources\n    app::step"),
        "{text}"
    );
    assert!(
        text.contains("\nunchanged: 1 call site with 1 MiB\n"),
        "{text}"
    );
    let document = json(&["diff", &new, &old, "--json"]);
    assert_eq!(document["changes"][0]["bytes"], -(2 << 20));
    assert_eq!(document["changes"][0]["match"], "lines");
    let schema = include_str!("../../../docs/recording-schema.md");
    let mut members = Vec::new();
    names(&document, &mut members);
    for member in members {
        assert!(
            schema.contains(&format!("`{member}`")),
            "docs/recording-schema.md lacks {member}"
        );
    }
    // Two moments of one run.
    let text = shown(&["diff", &new, "--at-a", "0%", "--at-b", "exit"]);
    assert!(
        text.contains("3 MiB more: 0 B → 3 MiB in 0 → 2 resources; new\n    app::step"),
        "{text}"
    );
    let (code, error) = refused(&["diff", &new, "--at-a", "50%"]);
    assert_eq!(code, 2);
    assert!(
        error.contains("one file needs two moments, or a second file: --at-a 20% --at-b 80%"),
        "{error}"
    );
}

#[test]
fn bad_input_is_named_with_what_is_accepted() {
    let folder = Folder::new("bad");
    let file = folder.record("a.cgr", None, "a1,1,1,0");
    for (arguments, code, expected) in [
        (
            vec!["report", &file, "--at", "noon"],
            2,
            "\"noon\" is not a moment; accepted are peak, exit, oom",
        ),
        (
            vec!["report", &file, "--at", "101%"],
            2,
            "\"101%\" is not a moment",
        ),
        (
            vec!["report", &file, "--at", "1h"],
            2,
            "such as 12.5s, 800ms or 2min",
        ),
        (
            vec!["report", &file, "--by", "colour"],
            2,
            "none of stack, function, library, label",
        ),
        (
            vec!["report", &file, "--at", "oom"],
            2,
            "there was no out-of-memory error",
        ),
        (
            vec!["report", &file, "--at", "3000s"],
            2,
            "there is not a moment after 50 min 0 s: the run ends after",
        ),
        (
            vec!["report", "/nowhere/a.cgr"],
            2,
            "/nowhere/a.cgr: No such file",
        ),
        (
            vec!["diff", &file, "/nowhere/a.cgr"],
            2,
            "/nowhere/a.cgr: No such file",
        ),
        (vec!["report"], 2, "<FILE>"),
    ] {
        let (exit, error) = refused(&arguments);
        assert_eq!(exit, code, "{arguments:?}: {error}");
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}

#[test]
fn foreign_and_broken_files() {
    let folder = Folder::new("foreign");
    let good = folder.record("good.cgr", None, TRAINING);
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path(name);
        fs::write(&path, bytes).expect("the file can be written");
        path
    };
    for (name, bytes, expected) in [
        ("empty", &b""[..], "the file is empty"),
        ("program", b"\x7fELF\x02\x01\x01", "ELF"),
        ("notes.txt", b"hello\n", "accepted are recordings"),
        ("other.json", b"{\"a\": 1}\n", "no line is a leak report"),
    ] {
        let path = write(name, bytes);
        let (code, error) = refused(&["report", &path]);
        assert_eq!(code, 2, "{error}");
        assert!(error.contains(&path) && error.contains(expected), "{error}");
    }
    // The others are shown.
    let output = cuguard(&["report", &good, &folder.path("notes.txt")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("peak 96 MiB"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("notes.txt"));
    // All that can be read of a file that was cut off.
    let bytes = fs::read(&good).expect("it is there");
    let torn = write("torn.cgr", &bytes[..bytes.len() - bytes.len() / 3]);
    let output = cuguard(&["report", &torn]);
    assert!(output.status.success(), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stdout).starts_with("cuguard: process "),
        "{output:?}"
    );
    assert!(output.stderr.is_empty(), "{output:?}");
    // An output that has no place for it; of the page it is a part.
    let said = format!("cuguard report: {torn}: the file was cut off: ");
    for (option, is_said) in [("--trace", true), ("--pprof", true), ("--html", false)] {
        let out = folder.path(&option[2..]);
        let output = cuguard(&["report", &torn, option, &out]);
        assert!(output.status.success(), "{output:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(stderr.starts_with(&said), is_said, "{stderr}");
    }
    let output = cuguard(&["report", &good, "--trace", &folder.path("whole")]);
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_leak_report_is_accepted_too() {
    let folder = Folder::new("leaks");
    let path = folder.path("leaks.json");
    let report = r#"{"version": 1, "tool": "cuguard-audit", "process": 7, "command": "train", "seconds": 3.5,
        "groups": [{"fate": "lost", "kind": "device", "count": 2, "bytes": 2048, "oldest_seconds": 1.5,
        "youngest_seconds": 0.5, "addresses": ["0x7000"], "stack": [{"function": "load", "class": "user"}]}]}"#;
    fs::write(&path, report).expect("the file can be written");
    let text = shown(&["report", &path, "--at", "exit"]);
    assert!(text.starts_with("cuguard: process 7 (train)"), "{text}");
    assert!(
        text.contains("2 KiB in 2 allocations of device memory   100 %"),
        "{text}"
    );
    // What a leak report does not have is not a figure.
    let text = shown(&["report", &path]);
    let begin = "cuguard: process 7 (train): lost 2 KiB in 2 allocations
  exited after 3.50 s
  a leak report has only what was not freed: the peak, what was allocated in all and out-of-memory errors are not known
  device memory: at the end 2 KiB

lost 2 KiB in 2 allocations of device memory
  allocated after 2.00 s to 3.00 s
    load

alive in the leak report, after 3.50 s: 2 KiB in 2 allocations of device memory
";
    assert!(text.starts_with(begin), "{text}");
    let run = &json(&["report", &path, "--json"])["runs"][0];
    for member in ["peak", "allocated", "out_of_memory"] {
        assert_eq!(run.get(member), Some(&Value::Null), "{run}");
    }
    assert_eq!(run["end"]["bytes"], 2048);
    let text = shown(&["report", &path, &path]);
    let row = text.lines().find(|line| line.starts_with("  process 7 "));
    assert!(row.is_some_and(|row| row.contains("not known")), "{text}");
}

#[test]
fn help_has_examples() {
    for (command, example) in [
        ("report", "cuguard report run.cgr --at oom --top 3"),
        ("diff", "cuguard diff run.cgr --at-a 20% --at-b 80%"),
    ] {
        let help = shown(&[command, "--help"]);
        assert!(
            help.contains("Examples:") && help.contains(example),
            "{help}"
        );
        assert!(help.contains("Exit codes:"), "{help}");
    }
}
