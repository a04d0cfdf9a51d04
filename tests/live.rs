//! Reports of a running program that uses the crate: by request, by signal, and what neither may change. Each test starts a child,
//! which is this test program.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use cuguard::prelude::*;
use cuguard_live::{AskError, Format, Request, ask};
use cuguard_testing::{Requirement, not_run};

/// What the child does.
const ROLE: &str = "CUGUARD_TEST_LIVE";

/// Longer than anything takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

fn wait_for_end() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

fn say_ready() {
    println!("\nready {}", std::process::id());
}

static HANDLED: AtomicBool = AtomicBool::new(false);

extern "C" fn handle(_: i32) {
    HANDLED.store(true, Ordering::Relaxed);
}

extern "C" fn end_thread(_: i32) {
    // SAFETY: ends this thread alone, without unwinding.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

/// Ends the main thread, which waits for this test, as `pthread_exit` does.
fn end_main_thread() {
    let process = std::process::id().cast_signed();
    // SAFETY: the handler does nothing but end the thread.
    unsafe {
        libc::signal(libc::SIGUSR1, end_thread as *const () as usize);
        libc::syscall(libc::SYS_tgkill, process, process, libc::SIGUSR1);
    }
}

/// The child. Without the variable this is no test.
#[test]
fn child() {
    let Ok(role) = env::var(ROLE) else { return };
    if role == "own handler" {
        // SAFETY: the handler only stores a flag.
        unsafe { libc::signal(libc::SIGUSR2, handle as *const () as usize) };
    }
    let context = Context::new(0).unwrap();
    let labelled = DeviceBuffer::<u8>::zeroed(&context, 3 << 20).unwrap();
    let labelled = labelled.named("weights");
    let _other = DeviceBuffer::<u32>::zeroed(&context, 1 << 18).unwrap();
    if role == "fork" {
        // SAFETY: the child calls only functions that are async-signal-safe.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe {
                libc::pause();
                libc::_exit(97);
            }
        }
        println!("\nchild {child}");
        say_ready();
        let mut status = 0;
        // SAFETY: the status can be written to.
        unsafe { libc::waitpid(child, &mut status, 0) };
        println!("\nended by {}", libc::WTERMSIG(status));
        wait_for_end();
        return;
    }
    if role == "main thread ends" {
        // Of the program, whatever its name.
        let named = thread::Builder::new().name("cuguard-live".to_owned());
        let waits = named.spawn(move || {
            wait_for_end();
            println!("\nits thread ends with {} bytes", context.live_bytes());
            drop((labelled, _other));
        });
        waits.unwrap();
        end_main_thread();
        say_ready();
        return;
    }
    if role == "served" {
        return served(&context);
    }
    let busy = AtomicBool::new(role == "busy");
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while busy.load(Ordering::Relaxed) {
                    drop(DeviceBuffer::<u8>::zeroed(&context, 4096).unwrap());
                }
            });
        }
        say_ready();
        wait_for_end();
        busy.store(false, Ordering::Relaxed);
    });
    if HANDLED.load(Ordering::Relaxed) {
        println!("\nhandled");
    }
    drop(labelled);
}

/// The soft limit of descriptors of the child `served`.
const DESCRIPTORS: usize = 128;

/// A program that works while its socket is asked: its own files open, and its allocations succeed. Each line on standard input is a
/// command.
fn served(context: &Context) {
    let limit = libc::rlimit {
        rlim_cur: DESCRIPTORS as u64,
        rlim_max: DESCRIPTORS as u64,
    };
    // SAFETY: a structure that is read.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    // As in a program that is not written in Rust: a closed connection must not end it.
    // SAFETY: the default disposition.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    // A report of half a megabyte: more than a connection buffers.
    let many: Vec<_> = (0..400)
        .map(|number| {
            let buffer = DeviceBuffer::<u8>::zeroed(context, 16).unwrap();
            buffer.named(&format!("{number:08} {}", "x".repeat(1000)))
        })
        .collect();
    let (works, ended) = (AtomicU32::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                drop(DeviceBuffer::<u8>::zeroed(context, 4096).unwrap());
                works.fetch_add(1, Ordering::Relaxed);
                thread::yield_now();
            }
        });
        let open = || fs::File::open("/dev/null");
        say_ready();
        let mut files = Vec::new();
        for command in std::io::stdin().lines() {
            match &*command.unwrap() {
                // All descriptors.
                "exhaust" => files.extend(std::iter::from_fn(|| open().ok())),
                // All but two, of which it uses one.
                "nearly" => {
                    files.extend(std::iter::from_fn(|| open().ok()));
                    files.truncate(files.len() - 2);
                }
                "open" => (0..20_000).for_each(|_| drop(open().unwrap())),
                _ => files.clear(),
            }
            println!("\ndone {}", works.load(Ordering::Relaxed));
        }
        ended.store(true, Ordering::Relaxed);
    });
    drop(many);
}

struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
    folder: PathBuf,
}

impl Running {
    fn start(role: &str, words: Option<&str>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("cuguard-live-test-{}-{count}", std::process::id());
        let folder = env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let mut command = cuguard_testing::test_command("child");
        command
            .env(ROLE, role)
            .env("CUGUARD_DRIVER", "sim")
            .env("XDG_RUNTIME_DIR", &folder)
            .env_remove("LEAK_REPORT");
        if let Some(words) = words {
            command.env(
                "LEAK_REPORT",
                words.replace("FOLDER", folder.to_str().unwrap()),
            );
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut running = Self {
            child,
            stdout,
            folder,
        };
        if role != "fork" {
            running.line_with("ready ");
        }
        running
    }

    fn line_with(&mut self, start: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(
                self.stdout.read_line(&mut line).unwrap(),
                0,
                "the child ended"
            );
            if let Some(rest) = line.strip_prefix(start) {
                return rest.trim_end().to_owned();
            }
        }
    }

    fn process(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, signal: i32) {
        send(self.process(), signal);
    }

    fn end(mut self) -> Output {
        drop(self.child.stdin.take());
        let mut stdout = Vec::new();
        self.stdout.read_to_end(&mut stdout).unwrap();
        let mut ended = self.child.wait_with_output().unwrap();
        ended.stdout = stdout;
        let _ = fs::remove_dir_all(&self.folder);
        ended
    }
}

fn send(process: u32, signal: i32) {
    // SAFETY: a process of this test.
    assert_eq!(unsafe { libc::kill(process.cast_signed(), signal) }, 0);
}

const DUMP: Request = Request::Dump {
    format: Format::Json,
    search: true,
};

#[track_caller]
fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_request_has_a_report_and_figures() {
    let running = Running::start("", Some("1"));
    let replies = ask(running.process(), DUMP).unwrap();
    assert_eq!(replies.len(), 1);
    let report = json(&replies[0]);
    assert_eq!(report["reason"], "requested");
    let text = Request::Dump {
        format: Format::Text,
        search: true,
    };
    let text = ask(running.process(), text).unwrap().concat();
    assert!(
        text.contains("\"weights\"") && text.contains("tests/live.rs"),
        "{text}"
    );
    let stats = ask(running.process(), Request::Stats { sites: 1 }).unwrap();
    let stats = json(&stats[0]);
    assert_eq!(stats["tool"], "cuguard");
    assert_eq!(stats["process"], running.process());
    assert_eq!(stats["device_live_bytes"], 4 << 20);
    assert_eq!(stats["device_live_count"], 2);
    assert_eq!(stats["sites"][0]["bytes"], 3 << 20);
    assert_eq!(stats["sites"][0]["label"], "weights");
    assert!(
        stats["sites"][0]["file"]
            .as_str()
            .unwrap()
            .ends_with("live.rs")
    );
    assert_eq!(stats["sites_not_shown"], 1);
    let folder = running.folder.join("cuguard");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    let ended = running.end();
    assert!(
        ended.status.success(),
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
    // It was no leak.
    assert!(String::from_utf8_lossy(&ended.stderr).contains("nothing leaked"));
}

#[test]
fn a_signal_writes_a_report_and_the_program_runs_on() {
    let running = Running::start("", Some("json,file=FOLDER/leaks.json,exitcode=23"));
    let file = running.folder.join("leaks.json");
    running.signal(libc::SIGUSR2);
    let begun = Instant::now();
    let report = loop {
        let text = fs::read_to_string(&file).unwrap_or_default();
        if text.ends_with('\n') {
            break json(&text);
        }
        assert!(begun.elapsed() < LIMIT, "no report");
        thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(report["reason"], "requested");
    // Live resources of a running program are no leaks: the exit code stays.
    let ended = running.end();
    assert!(ended.status.success(), "{:?}", ended.status);
}

#[test]
fn a_handler_of_the_program_stays() {
    let running = Running::start("own handler", Some("1"));
    running.signal(libc::SIGUSR2);
    assert!(ask(running.process(), DUMP).is_ok());
    let ended = running.end();
    assert!(String::from_utf8_lossy(&ended.stdout).contains("handled"));
}

/// The server ends the process with its last thread, and not before.
#[test]
fn a_thread_of_the_program_keeps_it_whatever_its_name() {
    let running = Running::start("main thread ends", Some("1"));
    // Longer than the pause between two looks at the threads.
    thread::sleep(Duration::from_secs(2));
    assert!(ask(running.process(), DUMP).is_ok());
    let ended = running.end();
    assert!(ended.status.success(), "{:?}", ended.status);
    let stdout = String::from_utf8_lossy(&ended.stdout);
    assert!(
        stdout.contains("its thread ends with 4194304 bytes"),
        "{stdout}"
    );
}

#[test]
fn without_reports_there_is_no_server_and_no_handler() {
    for words in [None, Some("0")] {
        let running = Running::start("", words);
        assert!(matches!(
            ask(running.process(), DUMP),
            Err(AskError::NoServer { .. })
        ));
        assert!(!running.folder.join("cuguard").exists());
        running.signal(libc::SIGUSR2);
        assert_eq!(running.end().status.signal(), Some(libc::SIGUSR2));
    }
    let running = Running::start("", Some("1,dump-signal=none"));
    assert!(ask(running.process(), DUMP).is_ok());
    running.signal(libc::SIGUSR2);
    assert_eq!(running.end().status.signal(), Some(libc::SIGUSR2));
}

#[test]
fn a_forked_child_is_not_served_and_ends_by_the_signal() {
    let mut running = Running::start("fork", Some("1"));
    let child: u32 = running.line_with("child ").parse().unwrap();
    running.line_with("ready ");
    assert!(matches!(ask(child, DUMP), Err(AskError::NoServer { .. })));
    send(child, libc::SIGUSR2);
    let signal = running.line_with("ended by ");
    assert_eq!(signal, libc::SIGUSR2.to_string());
    assert!(ask(running.process(), DUMP).is_ok());
    running.end();
}

/// Requests while threads allocate and free, signals among them.
#[test]
fn requests_while_other_threads_allocate() {
    let running = Running::start("busy", Some("1,file=FOLDER/leaks.txt"));
    for _ in 0..10 {
        running.signal(libc::SIGUSR2);
        let report = json(&ask(running.process(), DUMP).unwrap()[0]);
        assert_eq!(report["reason"], "requested");
        let stats = ask(running.process(), Request::Stats { sites: 5 }).unwrap();
        let bytes = json(&stats[0])["device_live_bytes"].as_u64().unwrap();
        assert!(bytes >= 4 << 20, "{bytes}");
    }
    let ended = running.end();
    assert!(
        ended.status.success(),
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
}

/// What is left over from a process with the same id, as after `SIGKILL`, is replaced.
#[test]
fn sockets_of_killed_processes_are_removed() {
    let killed = Running::start("", Some("1"));
    let socket = killed
        .folder
        .join(format!("cuguard/{}.sock", killed.process()));
    assert!(socket.exists());
    killed.signal(libc::SIGKILL);
    let (process, folder) = (killed.process(), killed.folder.clone());
    let Running { mut child, .. } = killed;
    child.wait().unwrap();
    assert!(socket.exists());
    assert!(matches!(
        ask(process, DUMP),
        Err(AskError::NoProcess { .. })
    ));
    // The next process in that folder.
    let mut next = cuguard_testing::test_command("child")
        .env(ROLE, "")
        .env("CUGUARD_DRIVER", "sim")
        .env("XDG_RUNTIME_DIR", &folder)
        .env("LEAK_REPORT", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert!(next.wait().unwrap().success());
    assert_eq!(fs::read_dir(folder.join("cuguard")).unwrap().count(), 0);
    let _ = fs::remove_dir_all(folder);
}

/// Another user could replace the folder of the socket, and a link would be there when its mode is set.
#[test]
fn a_runtime_folder_that_others_can_change_is_not_used() {
    let folder = env::temp_dir().join(format!("cuguard-live-shared-{}", std::process::id()));
    let is_used = || {
        let mut child = cuguard_testing::test_command("child");
        child
            .env(ROLE, "")
            .env("CUGUARD_DRIVER", "sim")
            .env("XDG_RUNTIME_DIR", &folder)
            .env("LEAK_REPORT", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        assert!(child.status().unwrap().success());
        folder.join("cuguard").exists()
    };
    let set_mode = |mode| fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
    fs::create_dir_all(&folder).unwrap();
    set_mode(0o777);
    assert!(!is_used());
    set_mode(0o700);
    match chown(&folder, Some(1), None) {
        Ok(()) => {
            assert!(!is_used());
            chown(&folder, Some(0), None).unwrap();
        }
        Err(error) => not_run(Requirement::Root, error),
    }
    assert!(is_used());
    fs::remove_dir_all(folder).unwrap();
}

/// A connection to the server of a child, with a request.
fn connect(running: &Running, request: &[u8]) -> UnixStream {
    let name = format!("cuguard/{}.sock", running.process());
    let mut stream = UnixStream::connect(running.folder.join(name)).unwrap();
    // The server may have closed it already.
    let _ = stream.write_all(request);
    stream
}

/// What a server replies up to the end, or to the reset after more bytes than a request has.
fn reply(mut stream: UnixStream) -> String {
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    String::from_utf8(reply).unwrap()
}

impl Running {
    /// Has the child carry out a command; returns how much it has worked so far.
    fn command(&mut self, command: &str) -> u32 {
        let stdin = self.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{command}").unwrap();
        self.line_with("done ").parse().unwrap()
    }

    /// How many entries a folder of the child in `/proc` has.
    fn count(&self, name: &str) -> usize {
        let folder = format!("/proc/{}/{name}", self.process());
        fs::read_dir(folder).unwrap().count()
    }

    fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.unwrap().trim().split(' ').next().unwrap();
        kib.parse::<u64>().unwrap() << 10
    }

    /// Waits until the child has as many descriptors and threads as before: connections are closed behind their last byte.
    #[track_caller]
    fn settles_at(&self, before: [usize; 2]) {
        let begun = Instant::now();
        while [self.count("fd"), self.count("task")] != before {
            assert!(begun.elapsed() < LIMIT, "{before:?} before");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

const UNKNOWN: &str = "error unknown request; accepted: dump, stats, report, trim\n";

/// 100,000 requests, most of them malformed: all are answered, and nothing is left of them.
#[test]
fn a_server_withstands_many_and_malformed_requests() {
    let mut running = Running::start("served", Some("1,silent"));
    assert!(reply(connect(&running, b"dump json no-search\n")).len() > 400_000);
    let before = [running.count("fd"), running.count("task")];
    let resident = running.resident();
    let long = [b'x'; 300];
    let malformed: [&[u8]; 8] = [
        b"\n",
        b"dump\n",
        b"stats -1\n",
        b"\xff\xfe\0\x01\n",
        b"report now\n",
        b"stats 1\nstats 1\n",
        b"trim 00\n",
        &long,
    ];
    for round in 0..12_500 {
        for request in malformed {
            let reply = reply(connect(&running, request));
            assert_eq!(reply, UNKNOWN, "{}", request.escape_ascii());
        }
        if round % 250 == 0 {
            assert!(reply(connect(&running, b"stats 3\n")).starts_with("ok\n{"));
            // Closed without a request, and before the reply.
            drop(connect(&running, b""));
            drop(connect(&running, b"stats 3\n"));
            drop(connect(&running, b"dump text no-search\n"));
        }
    }
    running.settles_at(before);
    let grown = running.resident().saturating_sub(resident);
    assert!(grown < 32 << 20, "{grown} bytes more");
    assert!(running.command("") > 0);
    assert!(running.end().status.success());
}

/// Clients that send nothing, half a line, or read nothing of a long reply: others are served, and the program works.
#[test]
fn clients_that_stand_still_keep_nobody_from_a_reply() {
    let mut running = Running::start("served", Some("1,silent"));
    let before = [running.count("fd"), running.count("task")];
    let slow: [&[u8]; 3] = [b"", b"dump js", b"dump json no-search\n"];
    let mut slow: Vec<UnixStream> = (0..24)
        .map(|number| connect(&running, slow[number % slow.len()]))
        .collect();
    for _ in 0..2 {
        let stats = ask(running.process(), Request::Stats { sites: 3 }).unwrap();
        assert_eq!(json(&stats[0])["process"], running.process());
        let report = ask(running.process(), DUMP).unwrap();
        assert_eq!(json(&report[0])["reason"], "requested");
    }
    // Descriptors are bounded whatever the number of clients.
    assert!(running.count("fd") <= before[0] + 8);
    let worked = running.command("");
    // One that hangs up in the middle of its reply.
    for _ in 0..5 {
        let mut stream = connect(&running, b"dump json no-search\n");
        stream.read_exact(&mut [0; 100]).unwrap();
    }
    // A client whose reply was not sent to its end has an error, not a short report.
    for stream in &mut slow {
        let mut reply = Vec::new();
        let end = stream.read_to_end(&mut reply);
        if reply.starts_with(b"ok\n") && end.is_ok() {
            json(str::from_utf8(&reply[3..]).unwrap());
        }
    }
    drop(slow);
    assert!(ask(running.process(), DUMP).is_ok());
    running.settles_at(before);
    assert!(running.command("") >= worked);
    assert!(running.end().status.success());
}

/// A program without descriptors works on, and its server replies when there are some again. The last ones are the program's.
#[test]
fn descriptors_are_left_to_the_program() {
    let mut running = Running::start("served", Some("1,silent"));
    let before = [running.count("fd"), running.count("task")];
    running.command("exhaust");
    // It may have inherited one with a greater number.
    assert!(running.count("fd") >= DESCRIPTORS);
    // They wait in the queue of the socket.
    let waiting: Vec<_> = (0..20).map(|_| connect(&running, b"stats 1\n")).collect();
    let worked = running.command("exhaust");
    running.command("release");
    for stream in waiting {
        assert!(reply(stream).starts_with("ok\n{"));
    }
    running.settles_at(before);
    running.command("nearly");
    let waiting: Vec<_> = (0..20).map(|_| connect(&running, b"stats 1\n")).collect();
    running.command("open");
    assert!(running.command("release") >= worked);
    for stream in waiting {
        assert!(reply(stream).starts_with("ok\n{"));
    }
    assert!(ask(running.process(), DUMP).is_ok());
    running.settles_at(before);
    assert!(running.end().status.success());
}
