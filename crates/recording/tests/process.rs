//! The recording of a process, in real processes: killed, forked, with threads, with a file that cannot grow.
//!
//! Each test runs itself again as a child, which records.

#![allow(unsafe_code, reason = "forks, and sets limits of the process")]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use cuguard_recording::{
    Definitions, Embedded, End, Event, Frame, Kind, Options, Recording, Site, StackDefinition,
    What, addresses, embed_symbols, is_on, note_exit, path, record, register_foreign, start,
};
use cuguard_sync::clock;

/// Where the file of a child is, by this variable.
const FILE: &str = "RECORDING";

struct Source;

impl Definitions for Source {
    fn kinds(&self) -> Vec<Kind> {
        vec![Kind {
            name: "device".to_owned(),
            on_device: true,
            is_memory: true,
        }]
    }

    fn stack(&self, id: u32) -> Option<StackDefinition> {
        static FRAMES: [usize; 2] = [0x10_0000, 7 | 1 << 63];
        Some(StackDefinition {
            site: None,
            type_name: "u8",
            frames: if id == 9 { &FRAMES } else { &FRAMES[..1] },
        })
    }

    fn name(&self, id: u32) -> Option<String> {
        Some(format!("thread {id}"))
    }
}

struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("cuguard-process-{}-{number}.cgr", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn command(&self, test: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]);
        command.env(FILE, &self.0);
        command
    }

    fn run(&self, test: &str) -> Output {
        let output = self.command(test).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output
    }

    fn read(&self) -> Recording {
        Recording::open(&self.0).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// In a child, starts its recording.
fn started() -> bool {
    let Some(file) = std::env::var_os(FILE) else {
        return false;
    };
    start(&Options::new(file).keep_addresses(true), &Source).unwrap();
    assert!(is_on());
    true
}

fn allocate(thread: u32, address: u64) {
    let what = What::Allocated {
        kind: 0,
        address,
        bytes: 512,
        stack: 1 + address as u32 % 3,
        stream: 0,
        context: 1,
        label: 0,
    };
    let time = clock::nanoseconds();
    record(&Event { time, thread, what });
}

fn free(thread: u32, address: u64) {
    let what = What::Freed {
        kind: 0,
        address,
        context: 1,
    };
    let time = clock::nanoseconds();
    record(&Event { time, thread, what });
}

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

#[test]
fn a_forked_child_records_nothing() {
    const TEST: &str = "a_forked_child_records_nothing";
    if started() {
        allocate(1, 0x1000);
        // SAFETY: the child calls nothing that needs other threads, and ends by `_exit`.
        match unsafe { libc::fork() } {
            0 => {
                let was_on = is_on();
                free(1, 0x1000);
                allocate(1, 0x2000);
                // SAFETY: ends the process at once.
                unsafe { libc::_exit(i32::from(was_on)) };
            }
            child => {
                let mut status = 0;
                // SAFETY: a child of this process, and a variable to write to.
                unsafe { libc::waitpid(child, &raw mut status, 0) };
                assert_eq!(status, 0, "it was on in the child");
            }
        }
        allocate(1, 0x3000);
        return note_exit(clock::nanoseconds());
    }
    let scratch = Scratch::new();
    scratch.run(TEST);
    let recording = scratch.read();
    let address = |event: &Event| match event.what {
        What::Allocated { address, .. } => address,
        other => panic!("{other:?}"),
    };
    let addresses: Vec<u64> = recording.events.iter().map(address).collect();
    assert_eq!(addresses, [0x1000, 0x3000]);
}

/// A child lives longer than the process, which ends without the end of its recording, or with it where the child was
/// created without the handlers of `fork`.
#[test]
fn a_child_that_lives_longer_does_not_keep_the_file() {
    const TEST: &str = "a_child_that_lives_longer_does_not_keep_the_file";
    const CHILD: &str = "CHILD";
    let wait_and_end = || {
        let mut byte = 0_u8;
        // SAFETY: reads to the end of the standard input, and ends the process.
        unsafe {
            libc::read(0, (&raw mut byte).cast(), 1);
            libc::_exit(0);
        }
    };
    if started() {
        allocate(1, 0x1000);
        match std::env::var(CHILD).as_deref() {
            // SAFETY: the child calls nothing that needs other threads.
            Ok("fork") => match unsafe { libc::fork() } {
                0 => wait_and_end(),
                // SAFETY: ends the process at once.
                _ => unsafe { libc::_exit(0) },
            },
            Ok("clone") => {
                // SAFETY: as `fork`, without its handlers; the child uses a copy of this stack.
                let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
                match child {
                    0 => wait_and_end(),
                    _ => note_exit(clock::nanoseconds()),
                }
            }
            _ => assert_eq!(path().unwrap().as_os_str(), std::env::var_os(FILE).unwrap()),
        }
        return;
    }
    for way in ["fork", "clone"] {
        let scratch = Scratch::new();
        let mut command = scratch.command(TEST);
        command.env(CHILD, way).stdin(Stdio::piped());
        let mut first = command.stdout(Stdio::null()).spawn().unwrap();
        let input = first.stdin.take();
        assert!(first.wait().unwrap().success());
        assert_eq!(scratch.read().events.len(), 1, "{way}");
        let output = scratch.run(TEST);
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(!err.contains("cuguard: "), "{err}");
        // Ends the child.
        drop(input);
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

/// Ends this process by a signal, where it hangs.
fn end_if_it_hangs() {
    // SAFETY: sets the timer of the process; SIGALRM ends it.
    unsafe { libc::alarm(100) };
}

/// The child has the cursor of the forking thread, and the locks of threads that it does not have.
#[test]
fn a_forked_child_exits_whatever_other_threads_do() {
    const TEST: &str = "a_forked_child_exits_whatever_other_threads_do";
    if started() {
        allocate(1, 0x1000);
        let stop = AtomicBool::new(false);
        let mut hanging = 0;
        std::thread::scope(|scope| {
            let busy = || {
                // Each new chunk is mapped under the lock of the file.
                while !stop.load(Ordering::Relaxed) {
                    allocate(2, 0x2000);
                }
            };
            (0..3).for_each(|_| drop(scope.spawn(busy)));
            for _ in 0..300 {
                // SAFETY: the child drops what belongs to its thread, and ends.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    // SAFETY: a child that hangs ends by the signal.
                    unsafe { libc::alarm(20) };
                    // SAFETY: drops the locals of this thread, and ends the process.
                    unsafe { libc::exit(0) };
                }
                let mut status = 0;
                // SAFETY: a child of this process, and a variable to write to.
                unsafe { libc::waitpid(child, &raw mut status, 0) };
                if status != 0 {
                    hanging += 1;
                    break;
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(hanging, 0, "a child hangs");
        return note_exit(clock::nanoseconds());
    }
    Scratch::new().run(TEST);
}

/// A signal handler records, also where it interrupts the recording of an event on its own thread.
#[test]
fn signal_handlers_do_not_wait_for_their_own_thread() {
    const TEST: &str = "signal_handlers_do_not_wait_for_their_own_thread";
    static BEGUN: AtomicU32 = AtomicU32::new(0);
    // Counted when all is recorded: the handler may run on another thread, while this one ends the recording.
    static HANDLED: AtomicU32 = AtomicU32::new(0);
    extern "C" fn handler(_: libc::c_int) {
        let number = BEGUN.fetch_add(1, Ordering::Relaxed);
        // A new name each time.
        allocate(1_000_000 + number, u64::from(number) << 9);
        HANDLED.fetch_add(1, Ordering::Release);
    }
    if started() {
        end_if_it_hangs();
        let interval = libc::timeval {
            tv_sec: 0,
            tv_usec: 100,
        };
        let timer = libc::itimerval {
            it_interval: interval,
            it_value: interval,
        };
        let handler: extern "C" fn(libc::c_int) = handler;
        // SAFETY: the handler uses what the interrupted thread uses within `record` alone; the structure is valid.
        unsafe {
            libc::signal(libc::SIGVTALRM, handler as libc::sighandler_t);
            libc::setitimer(libc::ITIMER_VIRTUAL, &raw const timer, std::ptr::null_mut());
        }
        let mut number = 1;
        while HANDLED.load(Ordering::Acquire) < 200 {
            allocate(number, u64::from(number) << 9);
            number = number % 900_000 + 1;
        }
        // SAFETY: the signal is ignored from now on.
        unsafe { libc::signal(libc::SIGVTALRM, libc::SIG_IGN) };
        return note_exit(clock::nanoseconds());
    }
    let scratch = Scratch::new();
    scratch.run(TEST);
    let recording = scratch.read();
    // Each is recorded or counted.
    let is_of_handler = |event: &&Event| {
        recording.names[event.thread as usize]
            .strip_prefix("thread ")
            .and_then(|number| number.parse().ok())
            .is_some_and(|number: u32| number >= 1_000_000)
    };
    let recorded = recording.events.iter().filter(is_of_handler).count() as u64;
    assert!(
        recorded + recording.lost >= 200,
        "{recorded}, {}",
        recording.lost
    );
    assert_eq!(recording.dropped, 0);
}

/// Whether the next growth of the file is interrupted by a signal.
static INTERRUPT: AtomicBool = AtomicBool::new(false);

/// In place of the C library's: the recording calls it while it holds its locks.
///
/// # Safety
/// As the C library's: no memory is passed.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_fallocate(
    file: libc::c_int,
    offset: libc::off_t,
    length: libc::off_t,
) -> libc::c_int {
    if INTERRUPT.swap(false, Ordering::Relaxed) {
        // SAFETY: the handler that is installed runs on this thread, before this returns.
        unsafe { libc::raise(libc::SIGUSR1) };
    }
    // SAFETY: no memory is passed.
    match unsafe { libc::fallocate(file, 0, offset, length) } {
        0 => 0,
        _ => std::io::Error::last_os_error().raw_os_error().unwrap_or(-1),
    }
}

/// A signal handler calls `exit` while its thread holds the locks of the recording.
#[test]
fn a_signal_handler_may_exit_within_the_recording() {
    const TEST: &str = "a_signal_handler_may_exit_within_the_recording";
    extern "C" fn handler(_: libc::c_int) {
        // SAFETY: ends the process. No lock but those of the recording is held where the signal is raised.
        unsafe { libc::exit(0) };
    }
    extern "C" fn at_exit() {
        assert_eq!(addresses(), []);
        embed_symbols([Embedded::default()]);
        note_exit(clock::nanoseconds());
    }
    if started() {
        end_if_it_hangs();
        let handler: extern "C" fn(libc::c_int) = handler;
        // SAFETY: both are functions of this program.
        unsafe {
            libc::signal(libc::SIGUSR1, handler as libc::sighandler_t);
            libc::atexit(at_exit);
        }
        INTERRUPT.store(true, Ordering::Relaxed);
        for number in 0..1 << 20 {
            allocate(1, number << 9);
        }
        unreachable!("the handler ends the process");
    }
    let scratch = Scratch::new();
    scratch.run(TEST);
    let recording = scratch.read();
    // The end cannot be written.
    assert_eq!((recording.end, &recording.problems), (End::Open, &vec![]));
    assert!(recording.events.len() > 10_000);
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
        std::fs::create_dir(&scratch.0).unwrap();
        let file = scratch.0.join("run.cgr");
        std::fs::write(&file, "old").unwrap();
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
