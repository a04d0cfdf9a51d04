//! Reports of a running program that uses the crate: by request, by signal, and what neither may change. Each test starts a child,
//! which is this test program.

mod child;
mod clients;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use cuguard_live::{AskError, Format, Request, ask};
use cuguard_testing::{Requirement, not_run};

/// What the child does.
const ROLE: &str = "CUGUARD_TEST_LIVE";

/// Longer than anything takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// The child. Without the variable this is not a test.
#[test]
fn child() {
    let Ok(role) = env::var(ROLE) else { return };
    child::run(&role);
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

/// Runs a child with its socket in this folder, to its end.
#[track_caller]
fn run_child_in(folder: &Path) {
    let mut child = cuguard_testing::test_command("child");
    child
        .env(ROLE, "")
        .env("CUGUARD_DRIVER", "sim")
        .env("XDG_RUNTIME_DIR", folder)
        .env("LEAK_REPORT", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    assert!(child.status().unwrap().success());
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
        text.contains("\"weights\"") && text.contains("tests/live/child.rs"),
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
            .ends_with("live/child.rs")
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
    run_child_in(&folder);
    assert_eq!(fs::read_dir(folder.join("cuguard")).unwrap().count(), 0);
    let _ = fs::remove_dir_all(folder);
}

/// Another user could replace the folder of the socket, and a link would be there when its mode is set.
#[test]
fn a_runtime_folder_that_others_can_change_is_not_used() {
    let folder = env::temp_dir().join(format!("cuguard-live-shared-{}", std::process::id()));
    let is_used = || {
        run_child_in(&folder);
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
