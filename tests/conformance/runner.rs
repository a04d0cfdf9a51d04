//! Runs cases as child processes, and makes outcomes of what the children report.

use std::ffi::{c_int, c_ulong};
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::case::{DEADLY, END, Entry, FAILED, HELD, On, REFUSED, STOPPED};

/// A driver that cases can run on.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// What `CUGUARD_DRIVER` is set to for the children.
    pub(crate) choice: String,
    pub(crate) on: On,
    /// In words, for the summary.
    pub(crate) description: String,
}

/// Why cases cannot run on a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// There is no driver, or it says that there is no GPU: nothing is wrong.
    Absent(String),
    /// There is a driver, and it does not work.
    Broken(String),
}

impl Missing {
    /// In words.
    pub(crate) fn reason(&self) -> &str {
        let (Missing::Absent(reason) | Missing::Broken(reason)) = self;
        reason
    }

    /// How a child tells its parent which of the two it is.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Missing::Absent(_) => 3,
            Missing::Broken(_) => 1,
        }
    }
}

impl Target {
    /// Asks a child what the driver chosen by `choice` is. The error tells why there is none.
    pub(crate) fn find(choice: &str) -> Result<Target, Missing> {
        let limit = Duration::from_secs(120);
        let ended = start(choice, &["--describe"], limit).map_err(Missing::Broken)?;
        Target::read(choice, &ended)
    }

    /// Reads what a child told about the driver chosen by `choice`.
    pub(crate) fn read(choice: &str, ended: &Ended) -> Result<Target, Missing> {
        let mut lines = ended.out.lines();
        if !ended.success() {
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

/// What came of a case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) name: &'static str,
    /// What was observed, in order.
    pub(crate) observed: Vec<String>,
    /// What is wrong; empty if the case passed.
    pub(crate) failures: Vec<String>,
    /// Why it was not run.
    pub(crate) ignored: Option<&'static str>,
    /// What the child wrote on standard error.
    pub(crate) errors: String,
    pub(crate) time: Duration,
}

/// Runs the cases and hands each outcome to `done` as soon as it is there, in no fixed order.
/// Answers all outcomes in the order of the cases.
pub(crate) fn run_all(
    cases: &[Entry],
    target: &Target,
    threads: usize,
    done: impl Fn(&Outcome) + Sync,
) -> Vec<Outcome> {
    // A real GPU runs one case at a time: the cases measure its memory.
    let threads = if target.on.simulated() { threads } else { 1 };
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(vec![Outcome::default(); cases.len()]);
    thread::scope(|scope| {
        for _ in 0..threads.min(cases.len()) {
            scope.spawn(|| {
                while let Some(index) = Some(next.fetch_add(1, Ordering::Relaxed))
                    && let Some(entry) = cases.get(index)
                {
                    let outcome = run_one(entry, target);
                    done(&outcome);
                    outcomes.lock().expect("no runner panics")[index] = outcome;
                }
            });
        }
    });
    outcomes.into_inner().expect("no runner panics")
}

fn run_one(entry: &Entry, target: &Target) -> Outcome {
    let mut outcome = Outcome {
        name: entry.name,
        ..Outcome::default()
    };
    if entry.corrupts && target.on == On::SimulationLibrary {
        outcome.ignored = Some("a simulated GPU inside a library cannot be told to break");
        return outcome;
    }
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
    /// Reads what the child reported, and how it ended.
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
                // Something else wrote to standard output; it is no part of the report.
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
            // To end the process is one way not to succeed.
            self.observed.push(format!("{what}: {REFUSED}"));
        } else if !at_end || !ended.success() {
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
    fn success(&self) -> bool {
        self.status.success()
    }

    /// Whether it died of what it did itself, and was not ended by somebody else (who, short of
    /// memory, sends another signal).
    fn died(&self) -> bool {
        matches!(self.status.signal(), Some(SIGSEGV | SIGABRT | SIGBUS))
    }

    fn how(&self) -> String {
        let last = self.errors.lines().last().unwrap_or_default();
        format!("{} {last}", self.status).trim_end().to_owned()
    }
}

/// Starts this program again with `arguments`, on the driver that `choice` names, and waits.
fn start(choice: &str, arguments: &[&str], limit: Duration) -> Result<Ended, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("CUGUARD_DRIVER", choice)
        // The expectations are about the simulated GPU as it is by default.
        .env_remove("CUGUARD_SIM");
    run_to_end(command, limit)
}

/// Runs `command` and waits for its end and the end of all its output. After `limit` it is killed,
/// with the processes that it has started.
pub(crate) fn run_to_end(mut command: Command, limit: Duration) -> Result<Ended, String> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A group of its own, of which its children are too.
        .process_group(0);
    // Nobody else ends it then, should this program be ended from outside.
    // SAFETY: between fork and exec, this makes one call that is allowed there.
    unsafe {
        command.pre_exec(|| {
            prctl(PR_SET_PDEATHSIG, SIGKILL as c_ulong);
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
        // A child of the child may live longer than it and hold the pipes.
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

/// Kills a child that was not waited for yet, and the rest of its group.
fn kill_group(child: &Child) {
    let Ok(group) = i32::try_from(child.id()) else {
        return;
    };
    // All may have ended in between; then there is nothing to kill.
    // SAFETY: no conditions. Nobody has waited for the child, so its number is still its own.
    let _ = unsafe { kill(-group, SIGKILL) };
}

// Signals have these numbers on both kinds of processor that this project runs on.
const SIGABRT: i32 = 6;
const SIGBUS: i32 = 7;
const SIGKILL: i32 = 9;
const SIGSEGV: i32 = 11;
const PR_SET_PDEATHSIG: c_int = 1;

unsafe extern "C" {
    fn kill(process: i32, signal: c_int) -> c_int;
    fn prctl(operation: c_int, ...) -> c_int;
}

/// Reads a pipe to its end, on a thread of its own so that the child never waits for it.
fn reader(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What was read until an error is still worth showing.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
