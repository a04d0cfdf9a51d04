//! Recordings of programs, in real processes: what is read back is what the program did.
//!
//! Each test runs itself again as a child, which records.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::support::*;
use cuguard::report::ReportSettings;
use cuguard::{Context, DeviceBuffer, Error, PinnedBuffer, ResourceKind, Stream, label};
use cuguard_recording::{End, Event, Recording, What};

/// A folder that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("cuguard-recording-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        Self(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.join("run.cgr")
    }

    fn words(&self) -> String {
        format!("record,file={}", self.file().display())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a child that records, and reads the recording. Returns what is on standard error, too.
#[track_caller]
fn recorded(test: &str, part: &str, words: &str, file: &Path) -> (Recording, String) {
    let output = child(test, part, &[("LEAK_REPORT", words)]);
    let (_, err) = succeeded(&output);
    let recording = Recording::open(file).unwrap_or_else(|error| panic!("{error}\n{err}"));
    assert_eq!(recording.problems, Vec::<String>::new());
    (recording, err)
}

/// The events of some kinds of resources, in words: `+device 4096 "label" on thread`.
fn words(recording: &Recording, kinds: &[ResourceKind]) -> Vec<String> {
    let is_wanted = |kind: u8| {
        let name = &recording.kinds[usize::from(kind)].name;
        kinds.iter().any(|kind| kind.name() == name)
    };
    let mut sizes = std::collections::HashMap::new();
    let mut words = Vec::new();
    for Event { thread, what, .. } in &recording.events {
        let thread = &recording.names[*thread as usize];
        match *what {
            What::Allocated { kind, .. }
            | What::Freed { kind, .. }
            | What::Reclaimed { kind, .. }
                if !is_wanted(kind) => {}
            What::Allocated {
                kind,
                address,
                bytes,
                context,
                label,
                ..
            } => {
                sizes.insert((kind, address), bytes);
                let name = &recording.kinds[usize::from(kind)].name;
                let label = &recording.names[label as usize];
                words.push(format!(
                    "+{name} {bytes} {label:?} in {context} by {thread}"
                ));
            }
            What::Freed {
                kind,
                address,
                context,
            } => {
                let name = &recording.kinds[usize::from(kind)].name;
                let bytes = sizes.remove(&(kind, address));
                words.push(format!("-{name} {bytes:?} in {context} by {thread}"));
            }
            What::Reclaimed {
                kind,
                address,
                context,
            } => {
                let name = &recording.kinds[usize::from(kind)].name;
                let bytes = sizes.remove(&(kind, address));
                words.push(format!("leaked {name} {bytes:?} in {context}"));
            }
            What::ContextCreated { context, device } => {
                words.push(format!("context {context} on device {device}"));
            }
            What::ContextEnded { context } => words.push(format!("context {context} ends")),
            What::OutOfMemory { bytes, context, .. } => {
                words.push(format!("no memory for {bytes} in {context}"));
            }
        }
    }
    words
}

#[test]
fn a_recording_has_what_the_program_did() {
    const TEST: &str = "a_recording_has_what_the_program_did";
    if part().is_some() {
        let work = || {
            let context = context().unwrap();
            let stream = Stream::new(&context).unwrap();
            let first = DeviceBuffer::<f32>::zeroed(&context, 1024).unwrap();
            let leaked = {
                let _scope = label("training");
                let ordered = DeviceBuffer::<u8>::zeroed(&stream, 2048).unwrap();
                let named = DeviceBuffer::<u8>::zeroed(&context, 512).unwrap();
                drop(ordered);
                named.with_label("weights")
            };
            let other = std::thread::Builder::new().name("loader".to_owned());
            let pinned = || PinnedBuffer::<u8>::zeroed(&context, 8192).unwrap();
            std::thread::scope(|scope| drop(other.spawn_scoped(scope, pinned).unwrap().join()));
            drop(first);
            let refused = DeviceBuffer::<u8>::zeroed(&context, 1 << 50);
            assert!(refused.is_err());
            std::mem::forget(leaked);
            context.close().unwrap();
        };
        let main = std::thread::Builder::new().name("worker".to_owned());
        return main.spawn(work).unwrap().join().unwrap();
    }
    if !simulated(TEST) {
        return;
    }
    let scratch = Scratch::new("all");
    let (recording, err) = recorded(TEST, "run", &scratch.words(), &scratch.file());
    let memory: Vec<ResourceKind> = ResourceKind::ALL
        .iter()
        .copied()
        .filter(|kind| kind.is_memory())
        .collect();
    let oom = format!("no memory for {} in 1", 1_u64 << 50);
    assert_eq!(
        words(&recording, &memory),
        [
            "context 1 on device 0",
            "+device 4096 \"\" in 1 by worker",
            "+stream_ordered 2048 \"training\" in 1 by worker",
            "+device 512 \"training/weights\" in 1 by worker",
            "-stream_ordered Some(2048) in 1 by worker",
            "+pinned 8192 \"\" in 1 by loader",
            "-pinned Some(8192) in 1 by worker",
            "-device Some(4096) in 1 by worker",
            oom.as_str(),
            "leaked device Some(512) in 1",
            "context 1 ends",
        ]
    );
    // A stream is an event, too, and an allocation has its stream.
    let streams = words(&recording, &[ResourceKind::Stream]);
    assert!(
        streams.contains(&"+stream 0 \"\" in 1 by worker".to_owned()),
        "{streams:?}"
    );
    // The report goes to standard error.
    assert!(err.contains("leaked 512 B"), "{err}");
    // Every allocation has its line and its stack.
    for event in &recording.events {
        let (What::Allocated { stack, .. } | What::OutOfMemory { stack, .. }) = event.what else {
            continue;
        };
        let stack = &recording.stacks[stack as usize];
        assert!(
            stack
                .site
                .as_ref()
                .is_some_and(|site| site.file.ends_with("recording.rs")),
            "{stack:?}"
        );
        assert!(stack.frames.len() > 3, "{stack:?}");
    }
    let End::Exit { time } = recording.end else {
        panic!("no end");
    };
    assert!(recording.events.iter().all(|event| event.time <= time));
}

/// The diagnosis that the error has is in the recording, for the first few failures of each call site.
#[test]
fn failed_allocations_have_their_diagnosis() {
    const TEST: &str = "failed_allocations_have_their_diagnosis";
    if part().is_some() {
        let context = context().unwrap();
        for attempt in 0..10 {
            let refused = DeviceBuffer::<u8>::zeroed(&context, 1 << 50);
            let Err(Error::OutOfMemory(why)) = refused else {
                panic!("it is refused");
            };
            if attempt == 0 {
                eprint!("{}", why.to_text());
            }
        }
        let other = DeviceBuffer::<u8>::zeroed(&context, 1 << 51);
        assert!(other.is_err());
        return context.close().unwrap();
    }
    if !simulated(TEST) {
        return;
    }
    let scratch = Scratch::new("diagnosis");
    let (recording, err) = recorded(TEST, "run", &scratch.words(), &scratch.file());
    let failed = recording
        .events
        .iter()
        .filter_map(|event| match event.what {
            What::OutOfMemory { bytes, .. } => Some((event.time, event.thread, bytes)),
            _ => None,
        });
    let failed: Vec<_> = failed.collect();
    assert_eq!(failed.len(), 11);
    let diagnosed: Vec<_> = recording
        .diagnoses
        .iter()
        .map(|one| {
            let own = |failed: &&(u64, u32, u64)| (failed.0, failed.1) == (one.time, one.thread);
            failed.iter().find(own).expect("the event").2
        })
        .collect();
    assert_eq!(diagnosed, [1 << 50, 1 << 50, 1 << 50, 1 << 50, 1 << 51]);
    let first = &recording.diagnoses[0].text;
    assert!(first.contains("\nwhy: larger than the device"), "{first}");
    assert!(err.contains(first), "{err}");
}

#[test]
fn a_context_that_other_code_uses_does_not_end() {
    const TEST: &str = "a_context_that_other_code_uses_does_not_end";
    if part().is_some() {
        // Both retain the primary context.
        let (retained, context) = (context().unwrap(), context().unwrap());
        let escaped = DeviceBuffer::<u8>::zeroed(&context, 512).unwrap();
        let leaked = DeviceBuffer::<u8>::zeroed(&context, 1024).unwrap();
        std::mem::forget(leaked);
        let _ = escaped.into_raw();
        context.close().unwrap();
        return retained.close().unwrap();
    }
    if !simulated(TEST) {
        return;
    }
    let scratch = Scratch::new("primary");
    let (recording, _) = recorded(TEST, "run", &scratch.words(), &scratch.file());
    let words = words(&recording, &[ResourceKind::Device]);
    let events: Vec<&str> = words
        .iter()
        .map(|word| word.split(" by ").next().unwrap_or_default())
        .collect();
    assert_eq!(
        events,
        [
            "context 1 on device 0",
            "context 2 on device 0",
            "+device 512 \"\" in 2",
            "+device 1024 \"\" in 2",
            "leaked device Some(1024) in 2",
            "context 1 ends",
        ]
    );
}

#[test]
fn blocks_of_a_pool_are_recorded() {
    const TEST: &str = "blocks_of_a_pool_are_recorded";
    if part().is_some() {
        let context = context().unwrap();
        let stream = Stream::new(&context).unwrap();
        let pool = cuguard::Pool::new(&context).unwrap();
        drop(DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 4096).unwrap());
        stream.synchronize().unwrap();
        return;
    }
    if !simulated(TEST) {
        return;
    }
    let scratch = Scratch::new("pool");
    let (recording, _) = recorded(TEST, "run", &scratch.words(), &scratch.file());
    let words = words(&recording, &[ResourceKind::Pooled]);
    let of_pool: Vec<&String> = words
        .iter()
        .filter(|word| word.contains("pooled"))
        .collect();
    assert_eq!(of_pool.len(), 2, "{words:?}");
    assert!(of_pool[0].starts_with("+pooled 4096 \"\" in 1 by "));
    assert!(of_pool[1].starts_with("-pooled Some(4096) in 1 by "));
}

#[test]
fn a_killed_program_leaves_a_recording_up_to_the_last_event() {
    const TEST: &str = "a_killed_program_leaves_a_recording_up_to_the_last_event";
    if part().is_some() {
        let context = context().unwrap();
        let stream = Stream::new(&context).unwrap();
        for pair in 1..=1_000_000 {
            // SAFETY: nothing reads the memory.
            drop(unsafe { DeviceBuffer::<u8>::uninitialized(&stream, 512) }.unwrap());
            if pair % 100 == 0 {
                stream.synchronize().unwrap();
                eprintln!("pairs {pair}");
            }
        }
        return;
    }
    if !simulated(TEST) {
        return;
    }
    let scratch = Scratch::new("killed");
    let mut child = cuguard_testing::test_command(TEST)
        .env("CHILD", "run")
        .env("LEAK_REPORT", scratch.words())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut seen = 0;
    while seen < 10_000 {
        let line = lines.next().expect("the child goes on").unwrap();
        if let Some(pairs) = line.strip_prefix("pairs ") {
            seen = pairs.parse().unwrap();
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let recording = Recording::open(scratch.file()).unwrap();
    assert_eq!((recording.end, &recording.problems), (End::Open, &vec![]));
    let pairs = words(&recording, &[ResourceKind::StreamOrdered]);
    assert!(
        pairs.len() > 2 * seen,
        "{} events, {seen} pairs",
        pairs.len()
    );
}

#[test]
fn a_path_that_cannot_be_written_is_one_line_and_the_program_goes_on() {
    const TEST: &str = "a_path_that_cannot_be_written_is_one_line_and_the_program_goes_on";
    if part().is_some() {
        for _ in 0..2 {
            let context = context().unwrap();
            drop(DeviceBuffer::<u8>::zeroed(&context, 512).unwrap());
            context.close().unwrap();
        }
        return;
    }
    let output = child(
        TEST,
        "run",
        &[("LEAK_REPORT", "record,file=/nowhere/at/all.cgr")],
    );
    let (_, err) = succeeded(&output);
    let expected = "cuguard: cannot record into /nowhere/at/all.cgr: No such file or directory (os error 2); \
                    the program goes on without a recording";
    assert_eq!(
        err.lines().filter(|line| *line == expected).count(),
        1,
        "{err}"
    );
}

#[test]
fn symbols_are_embedded_where_they_are_asked_for() {
    const TEST: &str = "symbols_are_embedded_where_they_are_asked_for";
    if part().is_some() {
        let context = context().unwrap();
        return drop(DeviceBuffer::<u8>::zeroed(&context, 512).unwrap());
    }
    let scratch = Scratch::new("symbols");
    let (with, _) = recorded(
        TEST,
        "run",
        &(scratch.words() + ",embed-symbols"),
        &scratch.file(),
    );
    let is_here = |(function, _): &(String, Option<_>)| function.contains(TEST);
    let functions = with.symbols.iter().flat_map(|symbol| &symbol.functions);
    // The names of functions of the test harness may contain this one's, too.
    let here: Vec<_> = functions.filter(|one| is_here(one)).collect();
    assert!(
        here.iter().any(|(_, site)| site
            .as_ref()
            .is_none_or(|site| site.file.ends_with("tests/recording.rs") && site.line > 0)),
        "{here:?}"
    );
    let (without, _) = recorded(TEST, "run", &scratch.words(), &scratch.file());
    assert!(without.symbols.is_empty() && !without.modules.is_empty());
}

#[test]
fn the_program_can_record_and_the_environment_can_turn_that_off() {
    const TEST: &str = "the_program_can_record_and_the_environment_can_turn_that_off";
    if let Some(file) = part() {
        let settings = ReportSettings::off().record(&file).unwrap();
        let context = Context::builder().report(settings).build().unwrap();
        return drop(DeviceBuffer::<u8>::zeroed(&context, 512).unwrap());
    }
    let scratch = Scratch::new("program");
    let file = scratch.0.join("run-%r.cgr");
    let file = file.to_str().unwrap();
    let output = child(TEST, file, &[("RANK", "3")]);
    let (_, err) = succeeded(&output);
    assert!(
        !err.contains("nothing leaked"),
        "no report was asked for: {err}"
    );
    let recording = Recording::open(scratch.0.join("run-3.cgr")).unwrap();
    assert_eq!(recording.meta.rank, Some(3));
    assert_eq!(words(&recording, &[ResourceKind::Device]).len(), 4);

    let other = Scratch::new("environment");
    succeeded(&child(
        TEST,
        file,
        &[("LEAK_REPORT", &other.words()), ("RANK", "4")],
    ));
    assert!(other.file().exists() && !scratch.0.join("run-4.cgr").exists());
    succeeded(&child(TEST, file, &[("LEAK_REPORT", "0"), ("RANK", "5")]));
    assert!(!scratch.0.join("run-5.cgr").exists());
}
