//! `cuguard run --record`: what a recording has, and where it is, on the simulated driver.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::audited::{cuguard_run, live_program, output, stderr, subfolder, text};
use crate::support::reporting::shown;
use cuguard_recording::{End, Frame, Recording, What};
use cuguard_testing::{Requirement, not_run};
use serde_json::Value;

/// `cuguard run` with a recording of a program that ends at once.
pub(crate) fn record(file: &Path, program: &Path, what: &str) -> Command {
    let mut command = cuguard_run(&["--record", file.to_str().unwrap()]);
    command
        .arg("--")
        .arg(program)
        .arg(what)
        .stdin(Stdio::null());
    command
}

#[track_caller]
pub(crate) fn open(file: &Path) -> Recording {
    let recording = Recording::open(file).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(recording.problems, [""; 0]);
    recording
}

/// Bytes of allocations in order, of kinds that are memory.
fn allocated(recording: &Recording) -> Vec<u64> {
    let events = recording.events.iter();
    let bytes = events.filter_map(|event| match event.what {
        What::Allocated { kind, bytes, .. } => recording.kinds[usize::from(kind)]
            .is_memory
            .then_some(bytes),
        _ => None,
    });
    bytes.collect()
}

/// Children that no handler of `fork` runs in allocate, too: that is none of the parent's, whose recording they share.
#[test]
fn children_of_any_fork_are_not_in_a_recording() {
    let Some(program) = crate::support::audited::program() else {
        return;
    };
    for fork in ["forked use", "_Fork", "clone"] {
        let file = subfolder("forked").join("run.cgr");
        let run = output(&mut record(&file, program, fork));
        let recording = open(&file);
        assert_eq!(allocated(&recording), [4096], "{fork}: {}", stderr(&run));
        assert!(matches!(recording.end, End::Exit { .. }), "{fork}");
    }
}

#[test]
fn a_recording_has_allocations_contexts_and_the_exit() {
    let Some(program) = live_program() else {
        return;
    };
    let file = subfolder("record").join("run.cgr");
    let run = output(&mut record(&file, program, ""));
    assert!(run.status.success(), "{}", text(&run.stderr));
    let printed = stderr(&run);
    // The search neither finds addresses in the recording nor in what writes it.
    assert!(
        printed.contains(": lost 1 MiB in 1 allocation; reachable 3 MiB"),
        "{printed}"
    );
    let line = format!("cuguard run: recording in {}\n", file.display());
    assert!(printed.ends_with(&line), "{printed}");
    let recording = open(&file);
    assert_eq!(allocated(&recording), [1 << 20, 3 << 20]);
    assert!(
        matches!(recording.end, End::Exit { .. }),
        "{:?}",
        recording.end
    );
    let created = recording
        .events
        .iter()
        .filter_map(|event| match event.what {
            What::ContextCreated { context, device } => Some((context, device)),
            _ => None,
        });
    assert_eq!(created.collect::<Vec<_>>(), [(1, 0)]);
    // What the program did not free is alive at the exit.
    let is_end = |what: &What| {
        matches!(
            what,
            What::Freed { .. } | What::Reclaimed { .. } | What::ContextEnded { .. }
        )
    };
    assert!(!recording.events.iter().any(|event| is_end(&event.what)));
    let stacks = recording
        .events
        .iter()
        .filter_map(|event| match event.what {
            What::Allocated { stack, .. } => Some(stack),
            _ => None,
        });
    for stack in stacks {
        assert!(!recording.stacks[stack as usize].frames.is_empty());
    }
    assert!(recording.meta.command.contains("live"));
}

#[test]
fn an_allocation_without_memory_is_recorded() {
    let Some(program) = live_program() else {
        return;
    };
    let file = subfolder("record-oom").join("run.cgr");
    let run = output(&mut record(&file, program, "out of memory"));
    assert!(run.status.success(), "{}", text(&run.stderr));
    let recording = open(&file);
    let refused = recording
        .events
        .iter()
        .filter_map(|event| match event.what {
            What::OutOfMemory { bytes, context, .. } => Some((bytes, context)),
            _ => None,
        });
    assert_eq!(refused.collect::<Vec<_>>(), [(1 << 50, 1)]);
    // The diagnosis, as it was printed.
    let [diagnosis] = recording.diagnoses.as_slice() else {
        panic!("{:?}", recording.diagnoses);
    };
    assert!(diagnosis.text.contains("\nwhy: "), "{diagnosis:?}");
    let printed = stderr(&run);
    assert!(printed.contains(&diagnosis.text), "{printed}");
    let file = file.to_str().expect("it is text");
    let report = shown(&["report", file]);
    let failed = report.split_once("\nfailed: an allocation of 1024 TiB, after ");
    let (_, failed) = failed.unwrap_or_else(|| panic!("{report}"));
    let why = "\n  | why: larger than the device, which has 4 GiB\n";
    assert!(failed.contains(why), "{report}");
    // Here the numbers behind it.
    assert!(!failed.contains("where the memory is:"), "{report}");
    let report = shown(&["report", file, "--at", "oom"]);
    assert!(report.contains("\n  | where the memory is:\n"), "{report}");
    let document = shown(&["report", file, "--json"]);
    let document: Value = serde_json::from_str(&document).expect("it is JSON");
    let shown = &document["runs"][0]["out_of_memory"][0]["diagnosis"];
    assert_eq!(shown.as_str(), Some(diagnosis.text.as_str()));
}

/// What is lost and when the process ended: the recording has it from the report of `cuguard run`.
#[test]
fn the_report_of_a_recording_agrees_with_that_of_the_run() {
    let Some(program) = live_program() else {
        return;
    };
    let file = subfolder("record-agrees").join("run.cgr");
    let file = file.to_str().expect("it is text");
    let mut run = cuguard_run(&["--record", file, "--report", "json"]);
    run.arg("--").arg(program).stdin(Stdio::null());
    let run = output(&mut run);
    assert!(run.status.success(), "{}", text(&run.stderr));
    let printed = stderr(&run);
    let report = printed.lines().find(|line| line.starts_with('{'));
    let report: Value = serde_json::from_str(report.expect("a report")).expect("it is JSON");
    let document = shown(&["report", file, "--json"]);
    let document: Value = serde_json::from_str(&document).expect("it is JSON");
    let recorded = &document["runs"][0];
    let fates = |fate: &str| {
        let groups = report["groups"].as_array().expect("groups").iter();
        let groups = groups.filter(|group| group["fate"] == fate);
        let sum = |member: &str| -> u64 {
            let numbers = groups.clone().filter_map(|group| group[member].as_u64());
            numbers.sum()
        };
        (sum("count"), sum("bytes"))
    };
    for fate in ["lost", "reachable"] {
        let of = |member: &str| recorded[fate][member].as_u64();
        let (count, bytes) = fates(fate);
        assert_eq!(
            (of("count"), of("bytes")),
            (Some(count), Some(bytes)),
            "{fate}"
        );
    }
    assert_eq!(fates("lost"), (1, 1 << 20));
    let seconds = |report: &Value| report["seconds"].as_f64().expect("a number");
    let (one, other) = (seconds(&report), seconds(recorded));
    // Both are nanoseconds of one clock, rounded to a double.
    assert!((one - other).abs() < 1e-6, "{one} {other}");
    let begin = recorded["begin_seconds"].as_f64().expect("a number");
    assert!(0.0 < begin && begin < one, "{begin} {one}");
    // So do the first lines.
    let first = shown(&["report", file]);
    let first = first.lines().next().expect("a line").to_owned();
    assert!(
        first.contains(": lost 1 MiB in 1 allocation; reachable 3 MiB in "),
        "{first}"
    );
}

#[test]
fn a_launcher_that_allocates_nothing_takes_no_name() {
    let Some(program) = live_program() else {
        return;
    };
    let folder = subfolder("record-launcher");
    let run = output(&mut record(
        &folder.join("rank-%r.cgr"),
        program,
        "launcher",
    ));
    assert!(run.status.success(), "{}", text(&run.stderr));
    let names = fs::read_dir(&folder).unwrap().flatten();
    let names: Vec<_> = names.map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["rank-0.cgr"]);
    let recording = open(&folder.join("rank-0.cgr"));
    assert_eq!(allocated(&recording), [1 << 20, 3 << 20]);
}

#[test]
fn several_processes_have_a_file_each() {
    let Some(program) = live_program() else {
        return;
    };
    let folder = subfolder("record-several");
    let script = format!("{0} && {0} && {0}", program.display());
    let names = || {
        let names = fs::read_dir(&folder).unwrap().flatten();
        let mut names: Vec<_> = names
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    for _ in 0..2 {
        let file = folder.join("run.cgr");
        for name in names().iter().filter(|name| *name != "run.cgr") {
            fs::remove_file(folder.join(name)).unwrap();
        }
        let mut command = cuguard_run(&["--record", file.to_str().unwrap()]);
        let run = output(
            command
                .args(["--", "sh", "-c", &script])
                .stdin(Stdio::null()),
        );
        assert!(run.status.success(), "{}", text(&run.stderr));
        // The file of the run before is replaced, those of this one are not.
        let names = names();
        assert_eq!(names.len(), 3, "{names:?}");
        assert_eq!(names[0], "run.cgr");
        for name in &names {
            let recording = open(&folder.join(name));
            assert_eq!(allocated(&recording).len(), 2);
            if name != "run.cgr" {
                assert_eq!(*name, format!("run.cgr.{}", recording.meta.pid));
            }
        }
    }
    let folder = subfolder("record-pattern");
    let pattern = folder.join("run-%p.cgr");
    let mut command = cuguard_run(&["--record", pattern.to_str().unwrap()]);
    output(
        command
            .args(["--", "sh", "-c", &script])
            .stdin(Stdio::null()),
    );
    let files: Vec<_> = fs::read_dir(&folder).unwrap().flatten().collect();
    assert_eq!(files.len(), 3);
    for file in files {
        let recording = open(&file.path());
        let name = format!("run-{}.cgr", recording.meta.pid);
        assert_eq!(file.file_name(), name.as_str());
    }
}

#[test]
fn a_killed_process_leaves_its_recording() {
    let Some(program) = live_program() else {
        return;
    };
    let file = subfolder("record-killed").join("run.cgr");
    let mut command = record(&file, program, "");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let mut byte = [0];
        stdout.read_exact(&mut byte).expect("it is ready");
        line.push(byte[0]);
    }
    let process = text(&line);
    let process = process
        .trim()
        .strip_prefix("ready ")
        .unwrap()
        .parse()
        .unwrap();
    // SAFETY: a process of this test.
    assert_eq!(unsafe { libc::kill(process, libc::SIGKILL) }, 0);
    child.wait().unwrap();
    let recording = open(&file);
    assert_eq!(allocated(&recording), [1 << 20, 3 << 20]);
    assert_eq!(recording.end, End::Open);
}

/// The command refuses its own option then; the words of the environment are those of the process.
#[test]
fn a_policy_without_a_limit_is_named() {
    let Some(program) = live_program() else {
        return;
    };
    let file = subfolder("record-unlimited").join("run.cgr");
    let printed = |words: &str| {
        let words = format!("record,file={},{words}", file.display());
        let mut command = cuguard_run(&["--"]);
        command.arg(program).env("LEAK_REPORT", words);
        let run = output(command.stdin(Stdio::null()));
        assert!(run.status.success(), "{}", text(&run.stderr));
        assert_eq!(allocated(&open(&file)), [1 << 20, 3 << 20]);
        stderr(&run)
    };
    for policy in ["last", "aggregate"] {
        let printed = printed(&format!("record-policy={policy}"));
        let line = format!(
            "cuguard: record-policy={policy} has no effect without record-limit=SIZE, such as record-limit=256MiB: the recording has no limit\n"
        );
        assert_eq!(printed.matches(&line).count(), 1, "{printed}");
    }
    // Everything is recorded, as the policy says.
    for words in ["record-policy=all", "record-policy=last,record-limit=8MiB"] {
        let printed = printed(words);
        assert!(!printed.contains("record-policy"), "{printed}");
    }
}

#[test]
fn files_that_are_no_recordings_are_not_replaced() {
    let folder = subfolder("record-refused");
    let script = folder.join("train.py");
    fs::write(&script, "import torch\n").unwrap();
    for (arguments, why) in [
        (
            vec!["--record", script.to_str().unwrap()],
            "the file exists and is not a recording",
        ),
        (vec!["--record", "/does/not/exist/run.cgr"], "No such file"),
        (vec!["--record", "x-%z.cgr"], "%z means nothing"),
        (
            vec!["--record", "x.cgr", "--record-limit", "many"],
            "\"many\" is not a size",
        ),
        (
            vec![
                "--record",
                "x.cgr",
                "--record-limit",
                "1G",
                "--record-policy",
                "first",
            ],
            "\"first\" is none of all, last, aggregate",
        ),
        (
            vec!["--record", "x.cgr", "--output", "y"],
            "cannot be used with",
        ),
        (vec!["--embed-symbols"], "--record"),
    ] {
        let refused = output(cuguard_run(&arguments).args(["--", "true"]));
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        let printed = stderr(&refused);
        assert!(printed.contains(why), "{printed}");
    }
    assert_eq!(fs::read_to_string(&script).unwrap(), "import torch\n");
}

#[test]
fn python_frames_have_names() {
    if live_program().is_none() {
        return;
    }
    let is_there = Command::new("python3").arg("--version").output();
    if !is_there.is_ok_and(|python| python.status.success()) {
        return not_run(Requirement::Python, "");
    }
    let folder = subfolder("record-python");
    let script = folder.join("train.py");
    fs::write(
        &script,
        "import ctypes
cuda = ctypes.CDLL('libcuda.so.1')
def load_weights():
    memory = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(5 << 20)) == 0
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
load_weights()
",
    )
    .unwrap();
    let file = folder.join("run.cgr");
    let run = output(&mut record(
        &file,
        Path::new("python3"),
        script.to_str().unwrap(),
    ));
    assert!(run.status.success(), "{}", text(&run.stderr));
    let recording = open(&file);
    assert_eq!(allocated(&recording), [5 << 20]);
    let frames = recording.stacks.iter().flat_map(|stack| &stack.frames);
    let python: Vec<_> = frames
        .filter_map(|frame| match frame {
            Frame::Foreign {
                function,
                file,
                line,
            } => Some((&**function, &**file, *line)),
            Frame::Native(_) => None,
        })
        .collect();
    let name = script.to_str().unwrap().to_owned();
    assert!(python.contains(&("load_weights", &*name, 5)), "{python:?}");
}
