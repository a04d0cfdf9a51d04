//! `cuguard report` and `cuguard diff` in processes of their own, on recordings of other processes.

#[path = "support/recorded.rs"]
mod recorded;
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

/// A run of 96 MiB at the peak, 32 MiB of them never freed, and an out-of-memory error behind the peak.
const TRAINING: &str = "a1,33554432,1,2 a2,33554432,2,3 a3,33554432,2,3 f2 o1073741824 f3";

/// Child processes record here.
#[test]
fn record_child() {
    recorded::child();
}

/// A folder that is removed at the end of a test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("cuguard-report-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the folder can be created");
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn record(&self, name: &str, rank: Option<u32>, script: &str) -> String {
        let path = self.path(name);
        recorded::make("record_child", Path::new(&path), rank, script);
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn cuguard(arguments: &[&str]) -> Output {
    let output = support::cuguard("sim", arguments).output();
    output.expect("the command can be started")
}

/// Standard output of a command that succeeds and complains about nothing.
fn shown(arguments: &[&str]) -> String {
    let output = cuguard(arguments);
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).expect("the output is text")
}

/// The exit code and standard error of a command that fails.
fn refused(arguments: &[&str]) -> (i32, String) {
    let output = cuguard(arguments);
    let code = output.status.code().expect("no signal ends it");
    assert_ne!(code, 0, "{output:?}");
    (code, String::from_utf8_lossy(&output.stderr).into_owned())
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
fn folded_stacks_flame_graphs_and_profiles() {
    let folder = Folder::new("pictures");
    let file = folder.record("a.cgr", None, TRAINING);
    let folded = shown(&["report", &file, "--folded"]);
    assert_eq!(
        folded,
        "app::main;app::load 33554432\napp::main;app::step 67108864\n"
    );
    let (svg, profile) = (folder.path("a.svg"), folder.path("a.pb.gz"));
    let text = shown(&["report", &file, "--flamegraph", &svg, "--pprof", &profile]);
    assert_eq!(text, "");
    let picture = fs::read_to_string(&svg).expect("it is written");
    assert!(
        picture.contains("<svg") && picture.contains("app::step (67,108,864 bytes, 66.67%)"),
        "{picture}"
    );
    let bytes = fs::read(&profile).expect("it is written");
    assert_eq!(bytes[..2], [0x1f, 0x8b]);
    let page = folder.path("a.html");
    assert_eq!(shown(&["report", &file, "--html", &page]), "");
    let page = fs::read_to_string(&page).expect("it is written");
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    // Nothing is alive: no picture, and the old one stays.
    let (code, error) = refused(&["report", &file, "--at", "0%", "--flamegraph", &svg]);
    assert_eq!(code, 2);
    assert!(
        error.contains("no memory was alive after 0 s: there is no flame graph"),
        "{error}"
    );
    assert_eq!(
        fs::read_to_string(&svg).expect("it is still there"),
        picture
    );
    let (code, error) = refused(&["report", &file, "--pprof", &folder.path("no/such/folder")]);
    assert_eq!(code, 4);
    assert!(
        error.contains("no/such/folder: cannot be written: "),
        "{error}"
    );
    pprof_opens(&profile);
}

/// `--html a.cgr b.cgr` lacks the name of the page: the recording stays.
#[test]
fn recordings_and_inputs_are_never_overwritten() {
    let folder = Folder::new("overwrite");
    let (a, b) = (
        folder.record("a.cgr", None, TRAINING),
        folder.record("b.cgr", None, TRAINING),
    );
    let before = fs::read(&a).expect("it is recorded");
    for option in ["--html", "--flamegraph", "--pprof"] {
        let (code, error) = refused(&["report", option, &a, &b]);
        assert_eq!(code, 2, "{option}");
        assert!(
            error.contains("a.cgr: is not written: it is a recording"),
            "{error}"
        );
    }
    // A second name of an input is that input; what it begins with does not count.
    let report = folder.path("report.json");
    let json =
        r#"{"version": 1, "tool": "cuguard-audit", "process": 7, "seconds": 1, "groups": []}"#;
    fs::write(&report, json).expect("it can be written");
    let link = folder.path("page.html");
    std::os::unix::fs::symlink(&report, &link).expect("it can be linked");
    let (code, error) = refused(&["report", &report, "--html", &link]);
    assert_eq!(code, 2);
    assert!(
        error.contains("page.html: is not written: it is one of the files to read"),
        "{error}"
    );
    assert_eq!(fs::read(&a).expect("it is still there"), before);
    assert_eq!(
        fs::read_to_string(&report).expect("it is still there"),
        json
    );
}

/// The file behind a link is replaced, with its permissions, and nothing else is left in the folder.
#[test]
fn a_page_replaces_the_old_one_whole() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("replace");
    let file = folder.record("a.cgr", None, TRAINING);
    let (page, link) = (folder.path("page.html"), folder.path("link.html"));
    fs::write(&page, "old").expect("it can be written");
    fs::set_permissions(&page, fs::Permissions::from_mode(0o600)).expect("it is our file");
    std::os::unix::fs::symlink(&page, &link).expect("it can be linked");
    shown(&["report", &file, "--html", &link]);
    assert!(
        fs::symlink_metadata(&link)
            .expect("it is there")
            .is_symlink()
    );
    let text = fs::read_to_string(&page).expect("it is written");
    assert!(text.starts_with("<!DOCTYPE html>") && text.ends_with("</html>\n"));
    let mode = fs::metadata(&page).expect("it is there").permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    let output = cuguard(&["report", &file, "--html", "/dev/stdout"]);
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.starts_with(b"<!DOCTYPE html>"));
    refused(&["report", &file, "--at", "0%", "--flamegraph", &link]);
    let entries = fs::read_dir(&folder.0).expect("it can be read");
    let mut names: Vec<_> = entries
        .map(|entry| entry.expect("it can be read").file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["a.cgr", "link.html", "page.html"]);
}

/// pprof itself, where Go is installed.
fn pprof_opens(profile: &str) {
    let output = std::process::Command::new("go")
        .args(["tool", "pprof", "-raw", profile])
        .output();
    match output {
        Err(error) => println!("not run: go tool pprof: {error}"),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(
                output.status.success() && text.contains("app::step"),
                "{output:?}"
            );
        }
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
            "\"noon\" is no moment; accepted are peak, exit, oom",
        ),
        (
            vec!["report", &file, "--at", "101%"],
            2,
            "\"101%\" is no moment",
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
            "there is no moment after 50 min 0 s: the run ends after",
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
