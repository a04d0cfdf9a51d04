//! The recording of a process, in real processes: killed, with threads, with a file that is in use or cannot grow.
//!
//! Each test runs itself again as a child, which records.

#![allow(unsafe_code, reason = "sets limits of the process")]

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use cuguard_recording::{
    Diagnosis, Embedded, End, Event, Found, Frame, Options, Recording, Site, What, addresses,
    embed_symbols, is_on, note_exit, path, record, record_diagnosis, record_found,
    register_foreign, start,
};
use cuguard_sync::clock;

use crate::support::{FILE, Scratch, Source, allocate, free, started};

#[test]
fn a_process_that_is_killed_leaves_all_that_it_recorded() {
    const TEST: &str = "a_process_that_is_killed_leaves_all_that_it_recorded";
    if started() {
        for pair in 0..1_000_000_u64 {
            allocate(1, pair << 9);
            free(1, pair << 9);
            if (pair + 1) % 1000 == 0 {
                eprintln!("pairs {}", pair + 1);
            }
        }
        // The parent kills it here at the latest.
        loop {
            std::thread::park();
        }
    }
    let scratch = Scratch::new();
    let mut command = scratch.command(TEST);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut seen = 0;
    while seen < 300_000 {
        let line = lines.next().unwrap().unwrap();
        if let Some(pairs) = line.strip_prefix("pairs ") {
            seen = pairs.parse().unwrap();
        }
    }
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(libc::SIGKILL)
    );
    // What was in the pipe at the kill.
    for line in lines.map_while(Result::ok) {
        if let Some(pairs) = line.strip_prefix("pairs ") {
            seen = pairs.parse().unwrap();
        }
    }
    let recording = scratch.read();
    assert_eq!((recording.end, &recording.problems), (End::Open, &vec![]));
    let count = recording.events.len();
    assert!(count >= 2 * seen, "{count} events, {seen} pairs were seen");
    // Each pair in its order, up to the last event.
    for (index, event) in recording.events.iter().enumerate() {
        let expected = (index as u64 / 2) << 9;
        match event.what {
            What::Allocated { address, bytes, .. } => {
                assert_eq!((address, bytes, index % 2), (expected, 512, 0));
            }
            What::Freed { address, .. } => assert_eq!((address, index % 2), (expected, 1)),
            other => panic!("{other:?}"),
        }
    }
}

/// Standard error names the recording that has another name.
#[test]
fn a_recording_with_another_name_is_announced() {
    const TEST: &str = "a_recording_with_another_name_is_announced";
    const KEEP: &str = "KEEP";
    if let Some(file) = std::env::var_os(FILE) {
        let replace = std::env::var_os(KEEP).is_none();
        start(&Options::new(file).replace(replace), &Source).unwrap();
        println!("recording");
        // Until the test ends.
        let _ = std::io::stdin().lines().next();
        return note_exit(clock::nanoseconds());
    }
    let scratch = Scratch::new();
    let mut first = scratch.command(TEST);
    first.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut first = first.spawn().unwrap();
    let mut lines = BufReader::new(first.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("recording")));
    // Where files that exist are kept, another name is what the caller wants.
    for (keep, is_announced) in [(false, true), (true, false)] {
        let mut second = scratch.command(TEST);
        second.stdin(Stdio::null()).stdout(Stdio::null());
        second.stderr(Stdio::piped());
        if keep {
            second.env(KEEP, "1");
        }
        let second = second.spawn().unwrap();
        let other = Scratch(format!("{}.{}", scratch.0.display(), second.id()).into());
        let output = second.wait_with_output().unwrap();
        assert!(output.status.success() && other.0.exists(), "{output:?}");
        let err = String::from_utf8_lossy(&output.stderr);
        let line = format!(
            "cuguard: {} is in use or cannot be replaced; the recording is {}\n",
            scratch.0.display(),
            other.0.display()
        );
        assert_eq!(err.contains(&line), is_announced, "{err}");
    }
    drop(first.stdin.take());
    assert!(first.wait().unwrap().success());
}

/// All replace the same old file, and none the recording of another one.
#[test]
fn processes_that_start_together_have_a_file_each() {
    const TEST: &str = "processes_that_start_together_have_a_file_each";
    const PROCESSES: usize = 8;
    if started() {
        allocate(1, 0x1000);
        println!("recording");
        // Until all record.
        let _ = std::io::stdin().lines().next();
        return note_exit(clock::nanoseconds());
    }
    for round in 0..10 {
        let scratch = Scratch::new();
        // One may be left of a process that was killed.
        let _ = std::fs::remove_dir_all(&scratch.0);
        std::fs::create_dir(&scratch.0).unwrap();
        let file = scratch.0.join("run.cgr");
        std::fs::write(&file, "CUGUARDR").unwrap();
        let spawn = |_| {
            let mut command = scratch.command(TEST);
            command.env(FILE, &file).stdin(Stdio::piped());
            command.stdout(Stdio::piped()).spawn().unwrap()
        };
        let mut children: Vec<_> = (0..PROCESSES).map(spawn).collect();
        for child in &mut children {
            let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
            assert!(lines.any(|line| line.unwrap().contains("recording")));
        }
        for mut child in children {
            drop(child.stdin.take());
            assert!(child.wait().unwrap().success());
        }
        let files = std::fs::read_dir(&scratch.0).unwrap();
        let recordings: Vec<Recording> = files
            .map(|file| Recording::open(file.unwrap().path()).unwrap())
            .collect();
        let events: Vec<usize> = recordings.iter().map(|file| file.events.len()).collect();
        assert_eq!(events, [1; PROCESSES], "round {round}");
        std::fs::remove_dir_all(&scratch.0).unwrap();
    }
}

#[test]
fn threads_record_side_by_side_also_while_they_end() {
    const TEST: &str = "threads_record_side_by_side_also_while_they_end";
    if started() {
        /// Records after the values of the thread that recordings need are dropped, or before.
        struct AtEnd(u32);
        impl Drop for AtEnd {
            fn drop(&mut self) {
                free(self.0, u64::from(self.0) << 32);
            }
        }
        thread_local!(static AT_END: std::cell::RefCell<Vec<AtEnd>> = const { std::cell::RefCell::new(Vec::new()) });
        let work = |thread: u32| {
            // Half of them before the first event, half after: locals are dropped in an order of their own.
            let late = || AT_END.with(|list| list.borrow_mut().push(AtEnd(thread)));
            if thread.is_multiple_of(2) {
                late();
            }
            for pair in 0..2000 {
                allocate(thread, u64::from(thread) << 32 | pair << 9);
                free(thread, u64::from(thread) << 32 | pair << 9);
            }
            if !thread.is_multiple_of(2) {
                late();
            }
        };
        // Joined, and not scoped: a scope ends before the locals of its threads are dropped.
        let threads: Vec<_> = (1..=64)
            .map(|thread| std::thread::spawn(move || work(thread)))
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        note_exit(clock::nanoseconds());
        // No event is recorded any more.
        assert!(!is_on());
        return allocate(1, 0x1000);
    }
    let scratch = Scratch::new();
    scratch.run(TEST);
    let recording = scratch.read();
    assert_eq!(recording.problems, Vec::<String>::new());
    assert!(matches!(recording.end, End::Exit { .. }));
    let mut of_threads = std::collections::BTreeMap::new();
    for event in &recording.events {
        *of_threads
            .entry(&recording.names[event.thread as usize])
            .or_insert(0) += 1;
    }
    assert_eq!(of_threads.len(), 64);
    assert!(
        of_threads.values().all(|count| *count == 4001),
        "{of_threads:?}"
    );
    assert_eq!(
        of_threads.keys().next().map(|name| name.as_str()),
        Some("thread 1")
    );
}

#[test]
fn a_file_that_cannot_grow_ends_the_recording_and_not_the_process() {
    const TEST: &str = "a_file_that_cannot_grow_ends_the_recording_and_not_the_process";
    if started() {
        let limit = libc::rlimit {
            rlim_cur: 2 << 20,
            rlim_max: 2 << 20,
        };
        // SAFETY: a valid structure. The kernel would end this process with SIGXFSZ beyond the limit.
        let code = unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) };
        assert_eq!(code, 0);
        for pair in 0..1_000_000_u64 {
            allocate(1, pair << 9);
        }
        assert!(!is_on());
        return note_exit(clock::nanoseconds());
    }
    let scratch = Scratch::new();
    let output = scratch.run(TEST);
    let err = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = err
        .lines()
        .filter(|line| line.starts_with("cuguard: "))
        .collect();
    let expected = format!(
        "cuguard: recording ends: {}: the limit of the process",
        scratch.0.display()
    );
    assert!(lines.len() == 1 && lines[0].starts_with(&expected), "{err}");
    let recording = scratch.read();
    let count = recording.events.len();
    assert!(count > 100_000, "{count}");
    assert!(
        recording
            .problems
            .iter()
            .any(|problem| problem.contains("before the process did"))
    );
    assert_eq!(recording.end, End::Open);
}

#[test]
fn what_is_known_of_events_is_in_the_file() {
    const TEST: &str = "what_is_known_of_events_is_in_the_file";
    let found = Found {
        kind: 0,
        address: 0x1000,
        context: 1,
        lost: true,
    };
    if started() {
        let what = What::OutOfMemory {
            bytes: 5,
            stack: 9,
            context: 0,
        };
        let event = Event {
            time: clock::nanoseconds(),
            thread: 1,
            what,
        };
        record(&event);
        record_diagnosis(&event, "why: \u{1b}\n");
        record_found([found]);
        return note_exit(clock::nanoseconds());
    }
    let scratch = Scratch::new();
    scratch.run(TEST);
    let recording = scratch.read();
    let [event] = recording.events.as_slice() else {
        panic!("{:?}", recording.events);
    };
    let diagnosis = Diagnosis {
        time: event.time,
        thread: event.thread,
        text: "why: \u{1b}\n".to_owned(),
    };
    assert_eq!(recording.diagnoses, [diagnosis]);
    assert_eq!(recording.found, [found]);
    let End::Exit { time } = recording.end else {
        panic!("{:?}", recording.end);
    };
    assert!(0 < recording.begin && recording.begin < event.time && event.time < time);
}

#[test]
fn symbols_and_foreign_frames_are_in_the_file() {
    const TEST: &str = "symbols_and_foreign_frames_are_in_the_file";
    if started() {
        register_foreign(|address| {
            (address == 7 | 1 << 63).then(|| ("main".to_owned(), "app.py".to_owned(), 3))
        });
        let what = What::OutOfMemory {
            bytes: 5,
            stack: 9,
            context: 0,
        };
        let time = clock::nanoseconds();
        record(&Event {
            time,
            thread: 1,
            what,
        });
        assert_eq!(addresses(), [0x10_0000]);
        let site = Site {
            file: "a.rs".to_owned(),
            line: 5,
            column: 1,
        };
        embed_symbols([Embedded {
            address: 0x10_0000,
            functions: vec![("inner".to_owned(), Some(site)), ("outer".to_owned(), None)],
        }]);
        assert!(start(&Options::new("/tmp/second.cgr"), &Source).is_err());
        assert_eq!(path().unwrap().as_os_str(), std::env::var_os(FILE).unwrap());
        return note_exit(clock::nanoseconds());
    }
    let scratch = Scratch::new();
    scratch.run(TEST);
    let recording = scratch.read();
    assert_eq!(recording.symbols.len(), 1);
    assert_eq!(recording.symbols[0].functions[1].0, "outer");
    let foreign = Frame::Foreign {
        function: "main".into(),
        file: "app.py".into(),
        line: 3,
    };
    assert_eq!(
        recording.stacks[1].frames,
        [Frame::Native(0x10_0000), foreign]
    );
}
