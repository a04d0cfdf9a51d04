//! `cuguard dump`, `cuguard watch` and the signal, on programs that run under `cuguard run` with the simulated driver.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::audited::{live_program, output, subfolder, text};
use crate::support::cuguard;
use crate::support::running::{Running, json, send, wait_until};
use cuguard_testing::{Requirement, not_run};

#[test]
fn a_dump_says_what_is_lost_and_the_program_runs_on() {
    let Some(program) = live_program() else {
        return;
    };
    let running = Running::start(program, "", &[]);
    let report = json(&running.dump(&["--json"]));
    assert_eq!(report["reason"], "dump");
    assert_eq!(report["process"], running.process);
    assert_eq!(report["lost"]["bytes"], 1 << 20);
    let group = |bytes: u64| {
        let groups = report["groups"].as_array().unwrap().iter();
        let mut groups = groups.filter(|group| group["bytes"] == bytes);
        groups.next().unwrap_or_else(|| panic!("{report}")).clone()
    };
    assert_eq!(group(3 << 20)["fate"], "reachable");
    assert_eq!(group(1 << 20)["fate"], "lost");
    // A second time, as text, and without the search.
    let dumped = text(&running.dump(&[]).stdout);
    assert!(dumped.contains(", and still runs"), "{dumped}");
    assert!(
        dumped.contains("its threads were stopped meanwhile"),
        "{dumped}"
    );
    assert!(dumped.contains("lose      "), "{dumped}");
    let dumped = text(&running.dump(&["--no-search"]).stdout);
    assert!(dumped.contains(": alive 4 MiB"), "{dumped}");
    assert!(
        dumped.contains("not searched for lost addresses"),
        "{dumped}"
    );
    assert!(!dumped.contains("nothing is lost"), "{dumped}");
    let ended = running.end();
    assert!(ended.status.success());
    // The report of the end is as without dumps.
    let stderr = text(&ended.stderr);
    assert_eq!(stderr.matches("cuguard: process ").count(), 1, "{stderr}");
    assert!(stderr.contains("lost 1 MiB in 1 allocation"), "{stderr}");
    assert!(stderr.contains("ended by exit"), "{stderr}");
}

#[test]
fn the_command_run_leads_to_the_program() {
    let Some(program) = live_program() else {
        return;
    };
    let running = Running::start(program, "", &[]);
    let command = running.command.id().to_string();
    let report = json(&output(&mut running.cuguard(&["dump", "--json", &command])));
    assert_eq!(report["process"], running.process);
    running.end();
}

/// As in `cuguard run -- program & cuguard dump $!`: the program has not used the driver yet. Returns what the command prints then.
fn wait_for_the_driver(program: &Path, arguments: &[&str]) -> (Output, u32) {
    let mut running = Running::start(program, "unused", &[]);
    let command = running.command.id().to_string();
    let mut waiting = running.cuguard(arguments);
    let waiting = waiting.arg(&command).stdout(Stdio::piped());
    let waiting = waiting.stderr(Stdio::piped()).spawn();
    let mut waiting = waiting.expect("it can be started");
    let mut told = String::new();
    let stderr = waiting.stderr.take().expect("a pipe");
    BufReader::new(stderr)
        .read_line(&mut told)
        .expect("a line of text");
    let start = format!("cuguard {}: waiting for the first call of", arguments[0]);
    assert!(told.starts_with(&start), "{told}");
    running.write("u");
    let output = waiting.wait_with_output().expect("it ends");
    let process = running.process;
    running.end();
    (output, process)
}

#[test]
fn a_dump_or_watch_of_the_command_run_waits_for_the_driver() {
    let Some(program) = live_program() else {
        return;
    };
    let (dumped, process) = wait_for_the_driver(program, &["dump", "--json"]);
    assert_eq!(json(&dumped)["process"], process);
    let watch = ["watch", "--once", "--interval", "0.1"];
    let (watched, process) = wait_for_the_driver(program, &watch);
    let frame = text(&watched.stdout);
    assert!(watched.status.success(), "{frame}");
    let start = format!("process {process} (");
    assert!(frame.starts_with(&start), "{frame}");
}

#[test]
fn a_dump_goes_to_a_file() {
    let Some(program) = live_program() else {
        return;
    };
    let running = Running::start(program, "", &[]);
    let file = running.runtime.join("now.json");
    let dumped = running.dump(&["--json", "--output", file.to_str().unwrap()]);
    assert!(dumped.status.success() && dumped.stdout.is_empty());
    let report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(report["lost"]["bytes"], 1 << 20);
    // An earlier report is overwritten, also by a shorter one. Who may read it stays the same.
    let long = fs::metadata(&file).unwrap().len();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let dumped = running.dump(&["--no-search", "--output", file.to_str().unwrap()]);
    assert!(dumped.status.success(), "{}", text(&dumped.stderr));
    let written = fs::read_to_string(&file).unwrap();
    assert!(
        written.contains(": alive 4 MiB") && !written.contains('{'),
        "{written}"
    );
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    assert!((written.len() as u64) < long);
    let dumped = running.dump(&["--output", "/does/not/exist/x"]);
    assert_eq!(dumped.status.code(), Some(1));
    let stderr = text(&dumped.stderr);
    let start = "cuguard dump: cannot write the report to /does/not/exist/x: ";
    assert!(stderr.starts_with(start), "{stderr}");
    running.end();
}

#[test]
fn a_dump_overwrites_neither_recordings_nor_what_a_link_of_another_user_names() {
    let Some(program) = live_program() else {
        return;
    };
    let folder = subfolder("dump-refused");
    let recording = folder.join("run.cgr");
    let running = Running::start(program, "", &["--record", recording.to_str().unwrap()]);
    let refused = |file: &Path, why: &str| {
        let before = fs::read(file).unwrap();
        let dumped = running.dump(&["--output", file.to_str().unwrap()]);
        assert_eq!(dumped.status.code(), Some(1));
        let stderr = text(&dumped.stderr);
        let start = format!(
            "cuguard dump: cannot write the report to {}: ",
            file.display()
        );
        assert!(
            stderr.starts_with(&start) && stderr.contains(why),
            "{stderr}"
        );
        assert_eq!(fs::read(file).unwrap(), before);
    };
    refused(&recording, "it is a recording; remove it first");
    // SAFETY: always succeeds.
    if unsafe { libc::geteuid() } == 0 {
        use std::os::unix::fs::{chown, lchown, symlink};
        let shared = folder.join("shared");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
        let (target, link) = (folder.join("mine.txt"), shared.join("report.txt"));
        fs::write(&target, "mine").unwrap();
        symlink(&target, &link).unwrap();
        lchown(&link, Some(65534), None).unwrap();
        refused(&link, "is a symbolic link of another user");
        let other = shared.join("other.txt");
        fs::write(&other, "of another user").unwrap();
        chown(&other, Some(65534), None).unwrap();
        refused(&other, "is not a file of this user");
    } else {
        not_run(Requirement::Root, "to create links of another user");
    }
    running.end();
}

#[test]
fn the_signal_writes_a_report_to_the_file() {
    let Some(program) = live_program() else {
        return;
    };
    let file = subfolder("signal").join("reports.json");
    let running = Running::start(
        program,
        "",
        &["--report", "json", "--output", file.to_str().unwrap()],
    );
    let lines = || {
        fs::read_to_string(&file)
            .unwrap_or_default()
            .matches('\n')
            .count()
    };
    for count in 1..=2 {
        running.signal(libc::SIGUSR2);
        wait_until("a report", || lines() == count);
    }
    let ended = running.end();
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    let text = fs::read_to_string(&file).unwrap();
    let reasons: Vec<String> = text
        .lines()
        .map(|line| {
            let report: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(report["lost"]["bytes"], 1 << 20);
            report["reason"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(reasons, ["dump", "dump", "exit"]);
}

#[test]
fn another_signal_and_none_can_be_chosen() {
    let Some(program) = live_program() else {
        return;
    };
    let file = subfolder("other-signal").join("reports.json");
    let words = format!("json,file={},dump-signal=USR1", file.display());
    let running = Running::start_with(program, "", |command| {
        command.env("LEAK_REPORT", words);
    });
    running.signal(libc::SIGUSR1);
    wait_until("a report", || {
        fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n'))
    });
    // The other one ends the process, as without this.
    running.signal(libc::SIGUSR2);
    let ended = running.end();
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(ended.status.signal(), Some(libc::SIGUSR2));
    let running = Running::start_with(program, "", |command| {
        command.env("LEAK_REPORT", "1,dump-signal=none");
    });
    running.signal(libc::SIGUSR2);
    assert_eq!(running.end().status.signal(), Some(libc::SIGUSR2));
}

#[test]
fn a_program_that_handles_the_signal_is_left_alone() {
    let Some(program) = live_program() else {
        return;
    };
    for what in ["own handler before", "own handler after"] {
        let running = Running::start(program, what, &[]);
        running.signal(libc::SIGUSR2);
        let dumped = running.dump(&["--json"]);
        assert_eq!(json(&dumped)["reason"], "dump");
        let ended = running.end();
        assert!(text(&ended.stdout).contains("handled\n"), "{what}");
        assert!(!text(&ended.stderr).contains("still runs"), "{what}");
    }
    let running = Running::start(program, "ignored", &[]);
    running.signal(libc::SIGUSR2);
    assert!(running.end().status.success());
}

#[test]
fn a_program_that_blocks_all_signals_has_dumps() {
    let Some(program) = live_program() else {
        return;
    };
    let running = Running::start(program, "blocked", &[]);
    running.signal(libc::SIGUSR2);
    // Its registers cannot be read, and may have the address.
    let report = json(&running.dump(&["--json"]));
    assert_eq!(report["lost"]["bytes"], 0, "{report}");
    assert_eq!(report["unclassified"]["bytes"], 1 << 20, "{report}");
    assert!(running.end().status.success());
}

#[test]
fn a_forked_child_neither_serves_nor_reports() {
    let Some(program) = live_program() else {
        return;
    };
    let mut running = Running::start(program, "fork", &[]);
    // Printed before or after the parent's line.
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", running.process));
    let Ok(children) = children else {
        return not_run(Requirement::ProcChildren, "");
    };
    let child: u32 = children.trim().parse().expect("one child");
    let dumped = output(&mut running.cuguard(&["dump", &child.to_string()]));
    assert_eq!(dumped.status.code(), Some(1));
    let stderr = text(&dumped.stderr);
    assert!(
        stderr.contains("has no reports that can be requested"),
        "{stderr}"
    );
    // The default disposition, as without this.
    send(child, libc::SIGUSR2);
    let signal = running.line_with("child ended by ");
    assert_eq!(signal, libc::SIGUSR2.to_string());
    assert_eq!(json(&running.dump(&["--json"]))["process"], running.process);
    running.end();
}

#[test]
fn a_program_after_exec_is_served_anew() {
    let Some(program) = live_program() else {
        return;
    };
    let running = Running::start(program, "exec", &[]);
    let report = json(&running.dump(&["--json"]));
    assert!(report["command"].as_str().unwrap().ends_with("after exec"));
    assert_eq!(report["lost"]["bytes"], 1 << 20);
    assert_eq!(running.sockets().len(), 1);
    running.end();
}

#[test]
fn descriptors_that_a_program_closed_are_not_used() {
    let Some(program) = live_program() else {
        return;
    };
    let running = Running::start(program, "closes all", &[]);
    // Its files must stay empty.
    running.signal(libc::SIGUSR2);
    let dumped = running.dump(&[]);
    assert_eq!(dumped.status.code(), Some(1), "{}", text(&dumped.stdout));
    let ended = running.end();
    assert!(ended.status.success(), "{}", text(&ended.stderr));
}

#[test]
fn a_process_ends_with_its_last_thread() {
    let Some(program) = live_program() else {
        return;
    };
    let running = Running::start(program, "main thread ends", &[]);
    assert_eq!(json(&running.dump(&["--json"]))["reason"], "dump");
    let ended = running.end();
    assert!(ended.status.success(), "{}", text(&ended.stderr));
}

#[test]
fn a_thread_of_the_program_keeps_it_whatever_its_name() {
    let Some(program) = live_program() else {
        return;
    };
    let running = Running::start(program, "main thread ends, a thread has our name", &[]);
    for _ in 0..3 {
        assert_eq!(json(&running.dump(&["--json"]))["reason"], "dump");
    }
    let ended = running.end();
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    let stdout = text(&ended.stdout);
    assert!(stdout.contains("its thread ends"), "{stdout}");
}

#[test]
fn only_the_user_can_open_the_socket() {
    let Some(program) = live_program() else {
        return;
    };
    let running = Running::start(program, "", &[]);
    let folder = fs::metadata(running.runtime.join("cuguard")).unwrap();
    assert_eq!(folder.mode() & 0o777, 0o700);
    let sockets = running.sockets();
    assert_eq!(sockets.len(), 1);
    assert_eq!(fs::metadata(&sockets[0]).unwrap().mode() & 0o777, 0o600);
    // A folder that others can open is not used.
    let path = running.runtime.join("cuguard");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let dumped = running.dump(&[]);
    assert_eq!(dumped.status.code(), Some(1));
    let stderr = text(&dumped.stderr);
    assert!(stderr.contains("can be opened by other users"), "{stderr}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    // The socket ends with the process.
    let path = running.runtime.clone();
    running.end();
    assert_eq!(fs::read_dir(path.join("cuguard")).unwrap().count(), 0);
}

#[test]
fn a_process_of_another_user_is_refused() {
    let Some(program) = live_program() else {
        return;
    };
    // SAFETY: always succeeds.
    if unsafe { libc::geteuid() } != 0 {
        return not_run(Requirement::Root, "to become another user");
    }
    let running = Running::start(program, "", &[]);
    use std::os::unix::process::CommandExt;
    let process = running.process.to_string();
    let mut command = running.cuguard(&["dump", &process]);
    // The command itself may be in a folder that the other user cannot open.
    let copy = Path::new("/tmp").join(format!("cuguard-live-{process}"));
    // By another process: a program cannot be executed while a child that was forked meanwhile has it open for writing.
    let copied = Command::new("cp")
        .arg(command.get_program())
        .arg(&copy)
        .status();
    assert!(copied.unwrap().success());
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    command = Command::new(&copy);
    command
        .args(["dump", &process])
        .uid(65534)
        .gid(65534)
        .current_dir("/");
    let dumped = command.output();
    fs::remove_file(&copy).unwrap();
    let dumped = dumped.expect("it runs");
    assert_eq!(dumped.status.code(), Some(1));
    let stderr = text(&dumped.stderr);
    assert!(stderr.contains("belongs to another user"), "{stderr}");
    running.end();
}

#[test]
fn processes_without_reports_are_named() {
    let Some(program) = live_program() else {
        return;
    };
    let refused = |command: &mut Command| {
        let refused = output(command);
        assert_eq!(refused.status.code(), Some(1));
        text(&refused.stderr)
    };
    for command in ["dump", "watch"] {
        let option: &[&str] = if command == "watch" { &["--once"] } else { &[] };
        let run = |process: u32| {
            refused(
                cuguard("auto", &[command])
                    .args(option)
                    .arg(process.to_string()),
            )
        };
        let ending = format!("cuguard {command}: there is no process 99999999\n");
        assert_eq!(run(99_999_999), ending);
        // A process that has nothing to do with CUDA.
        let mut other = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let stderr = run(other.id());
        drop(other.stdin.take());
        other.wait().unwrap();
        assert!(
            stderr.contains("has no reports that can be requested"),
            "{stderr}"
        );
        assert!(stderr.contains("LEAK_REPORT=1"), "{stderr}");
    }
    for wrong in ["0", "-1", "x", "1.5", "99999999999"] {
        let refused = output(&mut cuguard("auto", &["dump", wrong]));
        assert_eq!(refused.status.code(), Some(2), "{wrong}");
    }
    let running = Running::start(program, "unused", &[]);
    assert_eq!(running.dump(&[]).status.code(), Some(1));
    running.end();
    let running = Running::start_with(program, "", |command| {
        command.env("LEAK_REPORT", "0");
    });
    assert_eq!(running.dump(&[]).status.code(), Some(1));
    running.end();
}

#[test]
fn watch_prints_one_frame() {
    let Some(program) = live_program() else {
        return;
    };
    let running = Running::start(program, "", &[]);
    let process = running.process.to_string();
    let arguments = [
        "watch",
        "--once",
        "--interval",
        "0.1",
        "--top",
        "1",
        &process,
    ];
    let watched = output(&mut running.cuguard(&arguments));
    assert!(watched.status.success(), "{}", text(&watched.stderr));
    let frame = text(&watched.stdout);
    let lines: Vec<_> = frame.lines().collect();
    assert!(
        lines[0].starts_with(&format!("process {process} (")),
        "{frame}"
    );
    let device = "device memory: 4 MiB in 2 allocations, +0 B/s, 0 allocations/s";
    assert_eq!(lines[1], device, "{frame}");
    assert!(
        frame.contains("  device: 4 MiB in 2, peak 4 MiB\n"),
        "{frame}"
    );
    assert!(
        frame.contains("3 MiB         1  device            hold at "),
        "{frame}"
    );
    assert!(frame.contains("live.c:"), "{frame}");
    assert!(
        frame.contains("\n  and 1 more\n") || frame.contains("\n  and 2 more\n"),
        "{frame}"
    );
    // Without a terminal there is no screen.
    let refused = output(&mut running.cuguard(&["watch", &process]));
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("--once"));
    running.end();
}
