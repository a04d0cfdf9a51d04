//! The files that `cuguard report` writes: pictures, profiles and pages, and what they never replace.

use crate::support::recorded;
use std::fs;

use crate::support::reporting::{Folder, TRAINING, cuguard, refused, shown};

/// Child processes record here.
#[test]
fn record_child() {
    recorded::child();
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
        error.contains("no memory was alive after ") && error.contains(": there is no flame graph"),
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

#[test]
fn a_trace_has_the_whole_run() {
    let folder = Folder::new("trace");
    let (first, second) = (
        folder.record("a.cgr", Some(0), TRAINING),
        folder.record("b.cgr", Some(1), TRAINING),
    );
    let path = folder.path("a.json");
    assert_eq!(shown(&["report", &first, &second, "--trace", &path]), "");
    let trace = fs::read_to_string(&path).expect("it is written");
    let trace: serde_json::Value = serde_json::from_str(&trace).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("a list");
    for process in [1, 2] {
        let of = |name: &str, phase: &str| {
            let events = events.iter().filter(|event| event["pid"] == process);
            events
                .filter(|event| event["name"] == name && event["ph"] == phase)
                .collect::<Vec<_>>()
        };
        let counters = of("device memory by function", "C");
        let peak = counters
            .iter()
            .map(|event| event["args"]["app::step"].as_u64());
        assert_eq!(peak.max(), Some(Some(64 << 20)), "{counters:?}");
        let slices = of("app::load", "b");
        assert_eq!(slices.len(), of("app::load", "e").len());
        assert!(
            slices[0]["args"]["call site"]
                .as_str()
                .expect("text")
                .starts_with("app::load  src/main.rs:11\napp::main  ")
        );
        let is_error = |event: &&serde_json::Value| {
            let name = event["name"].as_str().unwrap_or_default();
            event["pid"] == process && event["ph"] == "i" && name.starts_with("out of memory: ")
        };
        assert_eq!(events.iter().filter(is_error).count(), 1, "{events:?}");
    }
    // An option that would change nothing, and what is never replaced.
    let (code, error) = refused(&["report", &first, "--trace", &path, "--at", "exit"]);
    assert_eq!(code, 2);
    assert!(
        error.contains("--at has no effect on --trace; accepted with text"),
        "{error}"
    );
    let (code, error) = refused(&["report", &first, "--trace", &second]);
    assert_eq!(code, 2);
    assert!(error.contains("it is a recording"), "{error}");
}

#[test]
fn the_page_opens_at_the_moment() {
    let folder = Folder::new("page-at");
    let file = folder.record("a.cgr", None, TRAINING);
    let path = folder.path("a.html");
    let page = |at: &[&str]| {
        let mut arguments = vec!["report", &file, "--html", &path];
        arguments.extend(at);
        assert_eq!(shown(&arguments), "");
        fs::read(&path).expect("it is written")
    };
    let peak = page(&[]);
    assert_eq!(page(&["--at", "peak"]), peak);
    let (oom, exit) = (page(&["--at", "oom"]), page(&["--at", "exit"]));
    assert!(oom != peak && exit != peak && oom != exit);
    let (code, error) = refused(&["report", &file, "--html", &path, "--at", "oom:2"]);
    assert_eq!(code, 2);
    assert!(
        error.contains("there was 1 out-of-memory error alone"),
        "{error}"
    );
    assert_eq!(fs::read(&path).expect("it is still there"), exit);
}

/// An option that would change nothing is an error, and nothing is written.
#[test]
fn options_without_effect_are_refused() {
    let folder = Folder::new("no-effect");
    let (a, b) = (
        folder.record("a.cgr", Some(0), TRAINING),
        folder.record("b.cgr", Some(1), TRAINING),
    );
    let out = folder.path("out");
    let grouped = "accepted with text and --json";
    for (arguments, what) in [
        (
            vec!["--folded", "--by", "label"],
            "--by has no effect on --folded",
        ),
        (
            vec!["--folded", "--top", "3"],
            "--top has no effect on --folded",
        ),
        (
            vec!["--flamegraph", &out, "--by", "kind"],
            "--by has no effect on --flamegraph",
        ),
        (
            vec!["--pprof", &out, "--top", "3"],
            "--top has no effect on --pprof",
        ),
        (
            vec!["--html", &out, "--by", "label"],
            "--by has no effect on --html",
        ),
        (
            vec!["--html", &out, "--folded", "--top", "3"],
            "--top has no effect on --folded and --html",
        ),
    ] {
        let (code, error) = refused(&[&["report", &a], &arguments[..]].concat());
        assert_eq!(code, 2, "{arguments:?}");
        assert!(error.contains(&format!("{what}; {grouped}\n")), "{error}");
    }
    let (code, error) = refused(&["report", &a, "--html", &out, "--frames", "all"]);
    assert_eq!(code, 2);
    let expected = "--frames has no effect on --html; accepted with text, --json, --folded, --flamegraph, --pprof and --trace\n";
    assert!(error.contains(expected), "{error}");
    let (code, error) = refused(&["report", &a, &b, "--by", "label"]);
    assert_eq!(code, 2);
    let expected = "--by has no effect on the text of several runs, which are compared by call site; accepted with one run and with --json\n";
    assert!(error.contains(expected), "{error}");
    assert!(!std::path::Path::new(&out).exists());

    // An output that follows the option is enough.
    let svg = folder.path("a.svg");
    let text = shown(&[
        "report",
        &a,
        "--json",
        "--flamegraph",
        &svg,
        "--by",
        "label",
        "--top",
        "1",
    ]);
    assert!(text.contains("\"by\":\"label\""), "{text}");
    assert!(shown(&["report", &a, &b, "--json", "--by", "label"]).contains("activations"));
    assert!(shown(&["report", &a, &b, "--by", "stack", "--top", "1"]).contains("2 runs"));
    shown(&[
        "report",
        &a,
        "--html",
        &out,
        "--flamegraph",
        &svg,
        "--frames",
        "all",
    ]);
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
    for (second, expected) in [
        ("page.html", "two outputs have this name"),
        ("-", "it is not a file name"),
    ] {
        let (code, error) = refused(&["report", &a, "--html", "page.html", "--flamegraph", second]);
        assert_eq!(code, 2, "{error}");
        assert!(
            error.contains(&format!("{second}: is not written: {expected}")),
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
        Err(error) => cuguard_testing::not_run(cuguard_testing::Requirement::Pprof, error),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(
                output.status.success() && text.contains("app::step"),
                "{output:?}"
            );
        }
    }
}

/// As for the files of leak reports: `/tmp/page.html` may be a link of another user to any file of this one.
#[test]
fn links_of_other_users_are_not_followed() {
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};
    // SAFETY: always succeeds.
    if unsafe { libc::geteuid() } != 0 {
        return cuguard_testing::not_run(cuguard_testing::Requirement::Root, "");
    }
    let folder = Folder::new("links");
    let file = folder.record("a.cgr", None, TRAINING);
    let shared = folder.0.join("shared");
    fs::create_dir(&shared).expect("it can be created");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).expect("it is our folder");
    let (target, link) = (folder.path("mine.txt"), folder.path("shared/page.html"));
    fs::write(&target, "mine").expect("it can be written");
    symlink(&target, &link).expect("it can be linked");
    lchown(&link, Some(65534), None).expect("it can be given to another user");
    for option in ["--html", "--flamegraph", "--pprof"] {
        let (code, error) = refused(&["report", &file, option, &link]);
        assert_eq!(code, 4, "{error}");
        assert!(
            error.contains("is a symbolic link of another user"),
            "{error}"
        );
    }
    assert_eq!(fs::read_to_string(&target).expect("it is there"), "mine");
}
