//! Programs that run under `cuguard run`, and the commands that reach them.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::audited::{cuguard_run, output, subfolder, text};
use crate::support::cuguard;

/// Longer than anything takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A program under `cuguard run` that waits.
pub struct Running {
    pub command: Child,
    stdout: BufReader<ChildStdout>,
    /// The program's own process.
    pub process: u32,
    /// The folder for sockets.
    pub runtime: PathBuf,
}

impl Running {
    /// Starts it with further arguments of `cuguard run`, in a folder of its own for sockets.
    pub fn start(program: &Path, what: &str, arguments: &[&str]) -> Self {
        Self::start_with(program, what, |command| {
            command.args(arguments);
        })
    }

    pub fn start_with(program: &Path, what: &str, set: impl FnOnce(&mut Command)) -> Self {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let runtime = subfolder(&format!("runtime-{number}"));
        let mut command = cuguard_run(&[]);
        command.env("XDG_RUNTIME_DIR", &runtime);
        set(&mut command);
        let mut command = command
            .arg("--")
            .arg(program)
            .arg(what)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it can be started");
        let stdout = command.stdout.take().expect("a pipe");
        let mut running = Self {
            command,
            stdout: BufReader::new(stdout),
            process: 0,
            runtime,
        };
        running.process = running.line_with("ready ").parse().expect("a process id");
        running
    }

    /// The rest of the next line that starts with these characters.
    pub fn line_with(&mut self, start: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.stdout.read_line(&mut line).expect("a line");
            if read == 0 {
                let mut stderr = String::new();
                let pipe = self.command.stderr.take();
                let _ = pipe.map(|mut pipe| pipe.read_to_string(&mut stderr));
                panic!("the program ended: {stderr}");
            }
            if let Some(rest) = line.strip_prefix(start) {
                return rest.trim_end().to_owned();
            }
        }
    }

    /// A command that finds the program's sockets.
    pub fn cuguard(&self, arguments: &[&str]) -> Command {
        let mut command = cuguard("auto", arguments);
        command
            .env_remove("LEAK_REPORT")
            .env("XDG_RUNTIME_DIR", &self.runtime);
        command
    }

    pub fn dump(&self, arguments: &[&str]) -> Output {
        let process = self.process.to_string();
        output(self.cuguard(&["dump"]).args(arguments).arg(process))
    }

    pub fn signal(&self, signal: i32) {
        send(self.process, signal);
    }

    pub fn sockets(&self) -> Vec<PathBuf> {
        let folder = fs::read_dir(self.runtime.join("cuguard"));
        let entries = folder.into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }

    /// Writes to its input.
    pub fn write(&mut self, text: &str) {
        let input = self.command.stdin.as_mut().expect("a pipe");
        let written = input
            .write_all(text.as_bytes())
            .and_then(|()| input.flush());
        written.expect("it reads its input");
    }

    /// Ends its input, and returns what it wrote.
    pub fn end(mut self) -> Output {
        drop(self.command.stdin.take());
        let mut stdout = Vec::new();
        self.stdout.read_to_end(&mut stdout).expect("its output");
        let mut ended = self.command.wait_with_output().expect("it ends");
        ended.stdout = stdout;
        ended
    }
}

pub fn send(process: u32, signal: i32) {
    // SAFETY: a process of this test.
    assert_eq!(unsafe { libc::kill(process.cast_signed(), signal) }, 0);
}

/// Waits until something holds.
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LIMIT, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[track_caller]
pub fn json(output: &Output) -> serde_json::Value {
    let stdout = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    match serde_json::from_str(&stdout) {
        Ok(json) => json,
        Err(error) => panic!("{error}: {stdout}"),
    }
}
