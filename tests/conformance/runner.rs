//! Runs cases as child processes, and makes outcomes of what the children report.

use std::io::Read;
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

impl Target {
    /// Asks a child what the driver chosen by `choice` is. The error tells why there is none.
    pub(crate) fn find(choice: &str) -> Result<Target, String> {
        let ended = start(choice, &["--describe"], Duration::from_secs(120))?;
        let mut lines = ended.out.lines();
        if !ended.success() {
            let reason = ended.out.trim();
            return Err(if reason.is_empty() {
                format!("the driver ended the process ({})", ended.how())
            } else {
                reason.to_owned()
            });
        }
        let on = On::from_word(lines.next().unwrap_or_default())?;
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
    fn judge(&mut self, ended: &Ended, seconds: u64) {
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
        }
    }
}

/// A child process that has ended.
#[derive(Debug)]
struct Ended {
    status: ExitStatus,
    out: String,
    errors: String,
    timed_out: bool,
}

impl Ended {
    fn success(&self) -> bool {
        self.status.success()
    }

    fn died(&self) -> bool {
        use std::os::unix::process::ExitStatusExt;
        self.status.signal().is_some()
    }

    fn how(&self) -> String {
        let last = self.errors.lines().last().unwrap_or_default();
        format!("{} {last}", self.status).trim_end().to_owned()
    }
}

/// Starts this program again with `arguments`, on the driver that `choice` names, and waits.
fn start(choice: &str, arguments: &[&str], limit: Duration) -> Result<Ended, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let mut child = Command::new(program)
        .args(arguments)
        .env("CUGUARD_DRIVER", choice)
        // The expectations are about the simulated GPU as it is by default.
        .env_remove("CUGUARD_SIM")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start a child process: {error}"))?;
    let out = reader(child.stdout.take());
    let errors = reader(child.stderr.take());
    let (status, timed_out) = wait(&mut child, limit)?;
    Ok(Ended {
        status,
        out: out.join().unwrap_or_default(),
        errors: errors.join().unwrap_or_default(),
        timed_out,
    })
}

fn wait(child: &mut Child, limit: Duration) -> Result<(ExitStatus, bool), String> {
    let end = Instant::now() + limit;
    let failed = |error| format!("cannot wait for a child process: {error}");
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok((status, false));
        }
        if Instant::now() >= end {
            // The child may have ended in between; then there is nothing to kill.
            let _ = child.kill();
            return Ok((child.wait().map_err(failed)?, true));
        }
        thread::sleep(Duration::from_millis(2));
    }
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
