//! Starts the program, forwards signals to it, and ends as it ended.

use std::env;
use std::ffi::{OsStr, OsString, c_int, c_void};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use super::failure::Failure;

/// What is started, and with what.
#[derive(Debug)]
pub(super) struct Start<'a> {
    pub(super) file: &'a Path,
    /// The name that the user gave it.
    pub(super) name: &'a OsStr,
    pub(super) arguments: &'a [OsString],
    pub(super) environment: Vec<Variable>,
}

/// A variable of the environment, which is removed without a value.
pub(super) type Variable = (String, Option<OsString>);

/// What makes a program audited.
#[derive(Debug)]
pub(super) struct Audit<'a> {
    pub(super) library: &'a Path,
    /// The folder of the simulated GPU, if the program runs on it.
    pub(super) simulation: Option<&'a Path>,
    pub(super) folder: &'a Path,
    pub(super) words: &'a str,
}

impl Audit<'_> {
    /// The environment of the program.
    pub(super) fn environment(&self) -> Vec<Variable> {
        let mut variables = vec![
            (
                "LD_PRELOAD",
                Some(before_others(self.library, "LD_PRELOAD")),
            ),
            // By this the audit library knows that another driver is a mistake. One of an outer `cuguard run` does not count.
            (
                "CUGUARD_RUN_SIMULATION",
                self.simulation.map(|folder| folder.as_os_str().to_owned()),
            ),
            ("LEAK_REPORT", Some(self.words.into())),
            // A process that has other words applies the exit code in them itself.
            ("CUGUARD_RUN_REPORT", Some(self.words.into())),
            ("CUGUARD_RUN", Some(self.folder.as_os_str().to_owned())),
        ];
        if let Some(folder) = self.simulation {
            let libraries = before_others(folder, "LD_LIBRARY_PATH");
            variables.push(("LD_LIBRARY_PATH", Some(libraries)));
        }
        let variables = variables.into_iter();
        variables
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

/// Sets and removes variables for a program.
pub(super) fn set_environment(command: &mut Command, variables: &[Variable]) {
    for (name, value) in variables {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
}

/// Runs files of unknown format.
pub(super) const SHELL: &str = "/bin/sh";

/// The child while it runs; 0 before and -1 after.
static CHILD: AtomicI32 = AtomicI32::new(0);

/// A signal that came before the child was started.
static EARLY: AtomicI32 = AtomicI32::new(0);

/// The signals that are forwarded. After any of them this command still waits for the program, for its summary and exit code.
const SIGNALS: [c_int; 6] = [
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

/// Whether this command was started with `SIGPIPE` ignored.
static IGNORES_PIPE: AtomicBool = AtomicBool::new(false);

/// Runs before the Rust runtime, which ignores `SIGPIPE`.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_PIPE: extern "C" fn() = {
    extern "C" fn note() {
        // SAFETY: plain data, for which zero is valid; written by the call.
        let old = unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut old);
            old
        };
        IGNORES_PIPE.store(old.sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
    }
    note
};

/// Has the program ignore `SIGPIPE`, as without this command. The standard library would restore the default.
fn ignore_pipe(command: &mut Command) {
    let ignore = || {
        // SAFETY: async-signal-safe, and ignoring has no requirements.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        Ok(())
    };
    // SAFETY: the closure is async-signal-safe.
    unsafe { command.pre_exec(ignore) };
}

/// Runs the program, and returns how it ended.
pub(super) fn run(start: &Start<'_>) -> Result<ExitStatus, Failure> {
    let failed = |error| Failure::Start {
        path: start.file.to_owned(),
        error,
    };
    forward_signals();
    let spawn = |mut command: Command| {
        let command = command.args(start.arguments);
        if IGNORES_PIPE.load(Ordering::Relaxed) {
            ignore_pipe(command);
        }
        set_environment(command, &start.environment);
        command.spawn()
    };
    let mut program = Command::new(start.file);
    program.arg0(start.name);
    let spawned = spawn(program).or_else(|error| match error.raw_os_error() {
        // A script without a first line that names its interpreter: `execvp` does the same.
        Some(libc::ENOEXEC) => {
            let mut shell = Command::new(SHELL);
            shell.arg(start.file);
            spawn(shell)
        }
        _ => Err(error),
    });
    let mut child = spawned.map_err(failed)?;
    let process = child.id().cast_signed();
    CHILD.store(process, Ordering::SeqCst);
    let early = EARLY.swap(0, Ordering::SeqCst);
    if early != 0 {
        // SAFETY: the child has not been waited for.
        unsafe { libc::kill(process, early) };
    }
    wait_without_reaping(process);
    // Its number may belong to another process from now on.
    CHILD.store(-1, Ordering::SeqCst);
    child.wait().map_err(failed)
}

/// A path before those that a variable has.
fn before_others(path: &Path, variable: &str) -> OsString {
    let mut all = path.as_os_str().to_owned();
    if let Some(others) = env::var_os(variable).filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}

fn wait_without_reaping(process: c_int) {
    // SAFETY: plain data, for which zero is valid; written by the call.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = libc::WEXITED | libc::WNOWAIT;
        while libc::waitid(libc::P_PID, process.unsigned_abs(), &mut info, flags) < 0
            && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
        {}
    }
}

fn forward_signals() {
    for signal in SIGNALS {
        // SAFETY: plain data, for which zero is valid, and a handler that is async-signal-safe.
        unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut old);
            // Under `nohup` the program ignores it too, which a handler here would undo.
            if old.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let mut new: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = forward as *const () as usize;
            new.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(signal, &new, std::ptr::null_mut());
        }
    }
}

/// Forwards a signal that a process sent to this one. One from the terminal (Ctrl-C) reaches the program by itself.
extern "C" fn forward(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the system passes a valid structure.
    let is_from_process = unsafe { info.as_ref() }.is_some_and(|info| info.si_code <= 0);
    match CHILD.load(Ordering::SeqCst) {
        0 => EARLY.store(signal, Ordering::SeqCst),
        child @ 1.. if is_from_process => {
            // SAFETY: async-signal-safe; the child has not been waited for. `errno` is kept.
            unsafe {
                let errno = *libc::__errno_location();
                libc::kill(child, signal);
                *libc::__errno_location() = errno;
            }
        }
        _ => {}
    }
}

/// Ends this process as the program ended: with its exit code, or by its signal.
pub(super) fn end_like(status: &ExitStatus) -> ExitCode {
    if let Some(code) = status.code() {
        return ExitCode::from(u8::try_from(code & 0xff).unwrap_or(1));
    }
    let signal = status.signal().unwrap_or(libc::SIGKILL);
    // SAFETY: plain data, for which zero is valid; the default disposition has no requirements.
    unsafe {
        // One core dump is enough.
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &action, std::ptr::null_mut());
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        libc::raise(signal);
    }
    // The first process of a container does not end by its own signals.
    ExitCode::from(u8::try_from(128 + signal).unwrap_or(255))
}
