//! What a long command does, on a terminal.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Shows on standard error, if it is a terminal, what is done and for how long. The first line comes after a second: short
/// work shows nothing.
#[derive(Debug)]
pub(crate) struct Progress {
    state: Arc<Mutex<State>>,
    /// Dropped to end the thread.
    end: Mutex<Option<(Sender<()>, JoinHandle<()>)>>,
}

#[derive(Debug, Default)]
struct State {
    stage: String,
    /// Whether there is a line on the terminal.
    shown: bool,
}

impl Progress {
    pub(crate) fn new(command: &'static str) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let (sender, receiver) = mpsc::channel();
        let shared = Arc::clone(&state);
        let show = move || {
            let begin = Instant::now();
            while receiver.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
                let mut state = cuguard_sync::lock(&shared);
                let seconds = begin.elapsed().as_secs();
                let stage: String = state.stage.chars().filter(|c| !c.is_control()).collect();
                let line = format!("\r\x1b[Kcuguard {command}: {stage}, {seconds} s");
                state.shown |= io::stderr().write_all(line.as_bytes()).is_ok();
            }
        };
        let is_terminal = io::stderr().is_terminal();
        // Without a thread there is no progress, and all else works.
        let thread = is_terminal
            .then(|| thread::Builder::new().spawn(show).ok())
            .flatten();
        Self {
            state,
            end: Mutex::new(thread.map(|thread| (sender, thread))),
        }
    }

    /// What is done now.
    pub(crate) fn stage(&self, stage: &str) {
        let mut state = cuguard_sync::lock(&self.state);
        stage.clone_into(&mut state.stage);
    }

    /// Writes something else to the terminal.
    pub(crate) fn interrupt(&self, write: impl FnOnce()) {
        let mut state = cuguard_sync::lock(&self.state);
        state.clear();
        write();
    }

    /// Removes the line.
    pub(crate) fn end(&self) {
        let thread = cuguard_sync::lock(&self.end).take();
        if let Some((sender, thread)) = thread {
            drop(sender);
            let _ = thread.join();
        }
        self.interrupt(|| ());
    }
}

impl State {
    fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = io::stderr().write_all(b"\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}
