//! Recordings and leak reports of a program that uses the cuguard crate, on the simulated driver, and what `cuguard report` shows of
//! them. The program is this test program.

use crate::support;
use crate::support::recorded;
use cuguard_testing::{Requirement, not_run};
use std::process::Output;

use crate::support::reporting::{Folder, refused, shown};
use cuguard::TrackingLevel;
use cuguard::prelude::*;
use cuguard::report::ReportSettings;
use serde_json::Value;

/// The file that the program itself records into.
const FILE: &str = "CUGUARD_TEST_FILE";
/// Its name: a terminal would obey the character in it.
const OWN: &str = "own\u{1b}.cgr";
const CHILD: &str = "CUGUARD_TEST_CHILD";

/// Child processes record here, in other ways than through the crate.
#[test]
fn record_child() {
    recorded::child();
}

/// The program. Without the variable this is not a test.
#[test]
fn program() {
    let Ok(part) = std::env::var(CHILD) else {
        return;
    };
    let builder = Context::builder();
    let context = match part.as_str() {
        "counts" => builder.level(TrackingLevel::Counts).report(
            ReportSettings::off()
                .record(&std::env::var(FILE).unwrap())
                .unwrap(),
        ),
        "silent counts" => builder.level(TrackingLevel::Counts).report(
            ReportSettings::silent()
                .record(&std::env::var(FILE).unwrap())
                .unwrap(),
        ),
        "silent" => builder.report(
            ReportSettings::silent()
                .record(&std::env::var(FILE).unwrap())
                .unwrap(),
        ),
        "differ" => builder.report(
            ReportSettings::off()
                .record(&std::env::var(FILE).unwrap())
                .unwrap(),
        ),
        _ => builder,
    };
    let context = context.build().unwrap();
    match part.as_str() {
        "many" | "counts" | "silent" | "silent counts" => {
            let buffer = |_| DeviceBuffer::<u8>::zeroed(&context, 4096).unwrap();
            drop((0..500).map(buffer).collect::<Vec<_>>());
        }
        "differ" => {
            let settings = ReportSettings::off().sample(7);
            let sampled = Context::builder().report(settings).build().unwrap();
            let buffer = |context| DeviceBuffer::<u8>::zeroed(context, 4096).unwrap();
            drop([&context, &sampled].map(|context| [(); 250].map(|()| buffer(context))));
        }
        "leaks" => {
            for _ in 0..200 {
                std::mem::forget(DeviceBuffer::<u8>::zeroed(&context, 4096).unwrap());
            }
        }
        other => panic!("{other:?} is no part of this program"),
    }
}

/// Runs the program with these words of `LEAK_REPORT`.
fn run(folder: &Folder, part: &str, words: &str) -> Output {
    let mut command = cuguard_testing::test_command("program");
    command.env(CHILD, part).env("LEAK_REPORT", words);
    command.env(FILE, folder.path(OWN));
    command.env("CUGUARD_DRIVER", "sim").env_remove("RANK");
    command.output().expect("the test program can be started")
}

/// Runs the program, which succeeds. Returns the recording, and what is on standard error.
fn record(folder: &Folder, part: &str, words: &str) -> (String, String) {
    let file = folder.path("run.cgr");
    let output = run(folder, part, &format!("record,file={file},{words}"));
    assert!(output.status.success(), "{output:?}");
    (file, String::from_utf8_lossy(&output.stderr).into_owned())
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&shown(arguments)).expect("it is JSON")
}

/// What is said of a recording with `sample=7`.
const CAVEAT: &str = "at least one resource in 7 is recorded (sample=7, the largest of all contexts): counts and bytes are those of the samples, not of the whole program";

#[test]
fn samples_are_called_samples() {
    let folder = Folder::new("samples");
    let (file, _) = record(&folder, "many", "sample=7");
    let recording = cuguard_recording::Recording::open(&file).unwrap();
    assert_eq!(recording.sample, 7);
    let text = shown(&["report", &file]);
    let before = text.find(CAVEAT).unwrap_or_else(|| panic!("{text}"));
    assert!(before < text.find("peak").unwrap(), "{text}");
    let run = &json(&["report", &file, "--json"])["runs"][0];
    assert_eq!(
        (&run["sample"], &run["caveats"][0]),
        (&7.into(), &CAVEAT.into())
    );
    let text = shown(&["report", &file, &file]);
    assert!(text.contains(&format!("{file}: {CAVEAT}\n")), "{text}");
    let arguments = ["diff", &file, "--at-a", "0%", "--at-b", "50%"];
    let text = shown(&arguments);
    assert_eq!(text.matches(CAVEAT).count(), 1, "{text}");
    let diff = json(&[&arguments[..], &["--json"]].concat());
    assert_eq!(diff["before"]["caveats"][0], CAVEAT);

    let (file, _) = record(&folder, "many", "sample=1");
    let text = shown(&["report", &file]);
    assert!(
        text.contains("allocated 1.95 MiB in 500 resources"),
        "{text}"
    );
    assert!(!text.contains("sample"), "{text}");
    let run = &json(&["report", &file, "--json"])["runs"][0];
    assert_eq!(
        (&run["sample"], &run["caveats"]),
        (&1.into(), &Vec::<Value>::new().into())
    );
}

/// One context of two records all of its 250 allocations, the other samples of as many.
#[test]
fn contexts_may_differ_in_their_samples() {
    let folder = Folder::new("differ");
    let output = run(&folder, "differ", "");
    assert!(output.status.success(), "{output:?}");
    let run = &json(&["report", &folder.path(OWN), "--json"])["runs"][0];
    let count = run["allocated"]["count"].as_u64().unwrap();
    assert!((251..500).contains(&count), "{run}");
    assert_eq!(run["caveats"][0], CAVEAT);
}

#[test]
fn a_limit_below_a_mebibyte_is_refused() {
    let folder = Folder::new("limit");
    let words = ["record-limit=64K", "record-limit=1048575"];
    for word in words {
        let (_, stderr) = record(&folder, "many", word);
        let value = word.split_once('=').unwrap().1;
        let line = format!(
            "cannot use {word:?}: {value:?} is not a size of at least 1 MiB, in bytes, or with K, M or G: 256MiB"
        );
        let with_limit = format!("{line}; the recording's limit is 1 MiB\n");
        assert!(stderr.contains(&with_limit), "{stderr}");
        let file = folder.path("refused.cgr");
        let options = [
            "run",
            "--record",
            &file,
            "--record-limit",
            value,
            "--",
            "true",
        ];
        let (code, stderr) = refused(&options);
        assert_eq!(code, 2, "{stderr}");
        // Nothing is recorded.
        assert!(stderr.contains(&format!("{line}\n")), "{stderr}");
    }
    let (file, stderr) = record(&folder, "many", "record-limit=1MiB");
    assert!(!stderr.contains("record-limit"), "{stderr}");
    assert!(std::fs::metadata(file).unwrap().len() <= 1 << 20);
}

#[test]
fn a_recording_without_allocations_is_refused() {
    const WORD: &str = "cannot use \"level=counts\": a recording needs call sites; beside record, level is one of sites, stacks\n";
    let folder = Folder::new("counts");
    let (file, stderr) = record(&folder, "many", "level=counts");
    assert!(stderr.contains(WORD), "{stderr}");
    let text = shown(&["report", &file]);
    assert!(text.contains(" in 500 resources\n"), "{text}");

    let file = folder.path("refused.cgr");
    let mut command = support::cuguard("sim", &["run", "--record", &file, "--", "true"]);
    let output = command.env("LEAK_REPORT", "level=counts").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains(WORD), "{stderr}");

    // Neither setting is wrong by itself.
    let output = run(&folder, "counts", "");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let line = format!(
        "cuguard: a context has level counts: its resources are not in the recording {}; levels sites and stacks record them\n",
        folder.path("own\\u{1b}.cgr")
    );
    assert_eq!(stderr.matches(&line).count(), 1, "{stderr}");

    std::fs::remove_file(folder.path(OWN)).unwrap();
    let output = run(&folder, "silent counts", "");
    assert!(output.status.success(), "{output:?}");
    assert!(std::fs::exists(folder.path(OWN)).unwrap());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("level counts"), "{stderr}");
}

/// Runs the program under `cuguard run`, and returns what is on standard error. `None` where there is no audit library.
fn run_audited(options: &[&str], part: &str) -> Option<String> {
    let own = std::env::current_exe().expect("this program has a file");
    let mut command = support::cuguard("sim", &["run"]);
    command.args(options).arg("--").arg(own);
    command.args([
        &cuguard_testing::test_path("program"),
        "--exact",
        "--nocapture",
    ]);
    let output = command.env(CHILD, part).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    if stderr.contains("this build of cuguard has no audit library") {
        not_run(Requirement::AuditLibrary, &stderr);
        return None;
    }
    assert!(output.status.success(), "{stderr}");
    Some(stderr)
}

/// The audit library does not see the simulated GPU of a program that uses the crate.
#[test]
fn a_run_that_is_recorded_used_cuda() {
    let folder = Folder::new("run");
    for name in ["run.cgr", "run-%p.cgr"] {
        let file = folder.path(name);
        let Some(stderr) = run_audited(&["--record", &file], "many") else {
            return;
        };
        assert!(!stderr.contains("no process used CUDA"), "{stderr}");
        let mut files = stderr
            .lines()
            .filter_map(|line| line.split_once("recording in "));
        let (before, recorded) = files.next().unwrap_or_else(|| panic!("{stderr}"));
        assert_eq!((before, files.next()), ("cuguard run: ", None), "{stderr}");
        let text = shown(&["report", recorded]);
        assert!(text.contains(" in 500 resources\n"), "{text}");
    }
}

#[test]
fn a_run_with_a_report_of_the_crate_used_cuda() {
    let Some(stderr) = run_audited(&[], "leaks") else {
        return;
    };
    assert!(stderr.contains("leaked 800 KiB"), "{stderr}");
    assert!(!stderr.contains("cuguard run: "), "{stderr}");
}

#[test]
fn the_file_of_the_recording_is_printed() {
    let folder = Folder::new("printed");
    let (file, stderr) = record(&folder, "many", "text");
    let line = format!("cuguard: recording in {file}\n");
    assert!(stderr.ends_with(&line), "{stderr}");
    assert_eq!(stderr.matches(&line).count(), 1, "{stderr}");

    let output = run(&folder, "silent", "");
    assert!(std::fs::exists(folder.path(OWN)).unwrap());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("recording in"), "{stderr}");
    std::fs::remove_file(folder.path(OWN)).unwrap();
    // Everything is off.
    let output = run(&folder, "counts", "0");
    assert!(!std::fs::exists(folder.path(OWN)).unwrap());
    assert!(!String::from_utf8_lossy(&output.stderr).contains("recording in"));
}

#[test]
fn a_sampled_leak_report_is_an_estimate() {
    let folder = Folder::new("estimate");
    let report = folder.path("leaks.json");
    let output = run(&folder, "leaks", &format!("json,file={report},sample=7"));
    assert!(output.status.success(), "{output:?}");
    let caveat = "figures are estimates: at least one resource in 7 was recorded";
    let text = shown(&["report", &report]);
    assert!(text.contains(&format!("\n  {caveat}\n")), "{text}");
    let run = &json(&["report", &report, "--json"])["runs"][0];
    assert_eq!(
        (&run["sample"], &run["caveats"][1]),
        (&7.into(), &caveat.into())
    );
}
