//! Runs cases in child processes, and turns what they report into outcomes.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::case::{DEADLY, END, Entry, FAILED, HELD, On, REFUSED, STOPPED};

/// A driver that cases can run on.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// What `CUGUARD_DRIVER` is set to for the children.
    pub(crate) choice: String,
    pub(crate) on: On,
    /// For the summary.
    pub(crate) description: String,
}

/// Why cases cannot run on a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// There is no driver, or it has no GPU: not an error.
    Absent(String),
    /// A driver is installed and does not work.
    Broken(String),
}

impl Missing {
    pub(crate) fn reason(&self) -> &str {
        let (Missing::Absent(reason) | Missing::Broken(reason)) = self;
        reason
    }

    /// The exit code of a child that describes a driver.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Missing::Absent(_) => 3,
            Missing::Broken(_) => 1,
        }
    }
}

impl Target {
    /// Describes the driver selected by `choice`, in a child process.
    pub(crate) fn find(choice: &str) -> Result<Target, Missing> {
        let limit = Duration::from_secs(120);
        let ended = start(choice, &["--describe"], limit).map_err(Missing::Broken)?;
        Target::read(choice, &ended)
    }

    /// Parses a child's description of the driver selected by `choice`.
    pub(crate) fn read(choice: &str, ended: &Ended) -> Result<Target, Missing> {
        let mut lines = ended.out.lines();
        if !ended.status.success() {
            let absent = Missing::Absent(ended.out.trim().to_owned());
            return Err(if absent.reason().is_empty() {
                let how = ended.how();
                Missing::Broken(format!("the driver ended the process ({how})"))
            } else if ended.status.code() == Some(absent.exit_code().into()) {
                absent
            } else {
                Missing::Broken(absent.reason().to_owned())
            });
        }
        let on = On::from_word(lines.next().unwrap_or_default()).map_err(Missing::Broken)?;
        Ok(Target {
            choice: choice.to_owned(),
            on,
            description: lines.next().unwrap_or_default().to_owned(),
        })
    }
}

/// The outcome of a case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// What was observed, in order.
    pub(crate) observed: Vec<String>,
    /// Empty if the case passed.
    pub(crate) failures: Vec<String>,
    /// What the child wrote on standard error.
    pub(crate) errors: String,
    pub(crate) time: Duration,
}

/// Runs a case in a child process.
pub(crate) fn run_one(entry: &Entry, target: &Target) -> Outcome {
    let mut outcome = Outcome::default();
    let begin = Instant::now();
    let arguments = ["--case", entry.name, "--on", target.on.word()];
    match start(
        &target.choice,
        &arguments,
        Duration::from_secs(entry.seconds),
    ) {
        Ok(ended) => {
            outcome.judge(&ended, entry.seconds);
            outcome.errors = ended.errors;
        }
        Err(error) => outcome.failures.push(error),
    }
    outcome.time = begin.elapsed();
    outcome
}

impl Outcome {
    /// Parses what the child reported, and how it ended.
    pub(crate) fn judge(&mut self, ended: &Ended, seconds: u64) {
        let mut deadly = None;
        let mut at_end = false;
        for line in ended.out.lines() {
            let mut characters = line.chars();
            let kind = characters.next();
            let text = characters.as_str().trim_start();
            match kind {
                Some(HELD) => self.observed.push(text.to_owned()),
                Some(FAILED) => {
                    let (observed, expected) = text.split_once('\t').unwrap_or((text, ""));
                    self.observed.push(observed.to_owned());
                    self.failures.push(format!("{observed}, {expected}"));
                }
                Some(STOPPED) => {
                    self.failures.push(format!("cannot go on: {text}"));
                    return;
                }
                Some(DEADLY) => deadly = Some(text.to_owned()),
                Some(END) => at_end = true,
                // Other output is ignored.
                _ => continue,
            }
            if kind != Some(DEADLY) {
                deadly = None;
            }
        }
        if ended.timed_out {
            self.failures.push(format!("not done after {seconds} s"));
        } else if let Some(what) = deadly
            && ended.died()
        {
            // A crash is one way not to succeed.
            self.observed.push(format!("{what}: {REFUSED}"));
        } else if !at_end || !ended.status.success() {
            self.failures.push(format!("ended early: {}", ended.how()));
        } else if self.observed.is_empty() {
            self.failures.push("observed nothing".to_owned());
        }
    }
}

/// A child process that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) errors: String,
    pub(crate) timed_out: bool,
}

impl Ended {
    /// Whether it crashed. The kernel's out-of-memory killer sends another signal.
    fn died(&self) -> bool {
        let signal = self.status.signal();
        matches!(signal, Some(libc::SIGSEGV | libc::SIGABRT | libc::SIGBUS))
    }

    fn how(&self) -> String {
        let last = self.errors.lines().last().unwrap_or_default();
        format!("{} {last}", self.status).trim_end().to_owned()
    }
}

/// Runs this program with `arguments` on the driver that `choice` selects.
fn start(choice: &str, arguments: &[&str], limit: Duration) -> Result<Ended, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("CUGUARD_DRIVER", choice)
        // The expectations are those of the default configuration.
        .env_remove("CUGUARD_SIM");
    run_to_end(command, limit)
}

/// Runs `command` until it has ended and its output is closed. After `limit` its process group is
/// killed.
pub(crate) fn run_to_end(mut command: Command, limit: Duration) -> Result<Ended, String> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A process group that includes its children.
        .process_group(0);
    // The child is killed when this program is killed.
    // SAFETY: prctl is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        })
    };
    let end = Instant::now() + limit;
    let mut child = command
        .spawn()
        .map_err(|error| format!("cannot start a child process: {error}"))?;
    let out = reader(child.stdout.take());
    let errors = reader(child.stderr.take());
    let failed = |error| format!("cannot wait for a child process: {error}");
    let (status, timed_out) = loop {
        // A grandchild may outlive the child and hold the pipes.
        let read = out.is_finished() && errors.is_finished();
        if read && let Some(status) = child.try_wait().map_err(failed)? {
            break (status, false);
        }
        if Instant::now() >= end {
            kill_group(&child);
            break (child.wait().map_err(failed)?, true);
        }
        thread::sleep(Duration::from_millis(2));
    };
    Ok(Ended {
        status,
        out: out.join().unwrap_or_default(),
        errors: errors.join().unwrap_or_default(),
        timed_out,
    })
}

/// Kills the process group of a child that was not waited for yet.
fn kill_group(child: &Child) {
    let Ok(group) = i32::try_from(child.id()) else {
        return;
    };
    // It fails where all have ended.
    // SAFETY: takes no pointers. The child was not waited for, so its pid is not reused.
    let _ = unsafe { libc::kill(-group, libc::SIGKILL) };
}

/// Reads a pipe to its end on a thread, so that the child never blocks on it.
fn reader(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What was read before an error is kept.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
