//! What the tests of the guards share: they take turns, look at the driver's own figures, and say
//! so where they cannot run.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod json;

use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cuguard::driver::{self, DriverKind};
use cuguard::sim::{self, Counters};
use cuguard::{Context, DeviceBuffer, Event, PinnedBuffer, Result, Stream};

/// A turn at the device: tests of one file run one at a time, as they look at how much is free.
pub struct Turn {
    _lock: MutexGuard<'static, ()>,
    free_before: u64,
}

/// A context of its own, through which the tests look at the device.
static OBSERVER: LazyLock<Context> = LazyLock::new(|| {
    Context::builder()
        .dedicated()
        .build()
        .expect("a context for looking")
});

/// Bytes free on the device, in the driver's own figures.
pub fn free_bytes() -> u64 {
    OBSERVER.memory().expect("the driver tells its memory").free
}

pub fn turn() -> Turn {
    static LOCK: Mutex<()> = Mutex::new(());
    let lock = LOCK.lock().unwrap_or_else(|e| e.into_inner());
    Turn {
        _lock: lock,
        free_before: free_bytes(),
    }
}

impl Turn {
    /// Everything that was taken since the turn began has come back.
    #[track_caller]
    pub fn all_came_back(&self) {
        assert_eq!(free_bytes(), self.free_before, "bytes free on the device");
    }
}

/// What the driver has in hand, by its own figures and not by the registry's. To be compared before
/// the context goes: with the driver's context goes everything, freed or not.
pub struct InHand {
    free: u64,
    /// A real driver does not tell what is alive, only what is free.
    alive: Option<Counters>,
}

/// As much as the figure of free bytes may differ on a real GPU, where the driver takes pages for
/// itself: seen were 2 MiB for a second stream and 4 for several. So tests lose blocks that are larger.
const SLACK: u64 = 16 << 20;

/// Looks at what the driver has in hand, while the context is there.
pub fn in_hand(context: &Context) -> Result<InHand> {
    let kind = driver::load().expect("a driver").kind();
    if kind != DriverKind::Simulated {
        // What a driver takes for itself with the first thing of a sort, and keeps.
        drop(DeviceBuffer::<u8>::zeroed(context, 4 << 20)?);
        let stream = Stream::new(context)?;
        drop(DeviceBuffer::<u8>::zeroed_on(&stream, 4 << 20)?);
        stream.synchronize()?;
        drop((
            Event::new(context)?,
            PinnedBuffer::<u8>::zeroed(context, 4096)?,
        ));
    }
    Ok(InHand {
        free: free_bytes(),
        alive: (kind == DriverKind::Simulated).then(sim::live_counters),
    })
}

impl InHand {
    /// What was taken since is back in the driver's hands. What is freed on streams must have been
    /// waited for.
    #[track_caller]
    pub fn all_freed(&self) {
        if let Some(before) = &self.alive {
            assert_eq!(&sim::live_counters(), before, "alive in the driver");
        }
        let free = free_bytes();
        assert!(
            free + SLACK > self.free,
            "{free} bytes free, {} before",
            self.free
        );
    }
}

/// Whether the GPU is simulated; if not, says on standard error that a test was not run.
pub fn simulated(test: &str) -> bool {
    let simulated = driver::load().expect("a driver").kind() == DriverKind::Simulated;
    if !simulated {
        // Not `eprintln!`, which the test harness keeps to itself when a test passes.
        let _ = writeln!(std::io::stderr(), "NOT RUN: {test} needs the simulated GPU");
    }
    simulated
}

/// Whether there is a real GPU; if not, says on standard error that a test was not run.
pub fn real(test: &str) -> bool {
    let real = driver::load().expect("a driver").kind() == DriverKind::Real;
    if !real {
        let _ = writeln!(std::io::stderr(), "NOT RUN: {test} needs a real GPU");
    }
    real
}

/// Runs one test of this program again in a process of its own, with the variable `CHILD` set to
/// `part` and others as given.
pub fn child(test: &str, part: &str, variables: &[(&str, &str)]) -> Output {
    command(test, part, variables)
        .output()
        .expect("a child can be started")
}

fn command(test: &str, part: &str, variables: &[(&str, &str)]) -> Command {
    let program = std::env::current_exe().expect("this program has a file");
    let mut command = Command::new(program);
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("CHILD", part)
        .env_remove("LEAK_REPORT")
        .envs(variables.iter().copied());
    command
}

/// As [`child`], but one that may hang: after so long it is killed, and the test fails.
#[track_caller]
pub fn child_within(limit: Duration, test: &str, part: &str, variables: &[(&str, &str)]) -> Output {
    /// Reads all the while, as a pipe that nobody reads from holds the child up.
    fn read(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = pipe.read_to_end(&mut bytes);
            bytes
        })
    }
    let mut child = command(test, part, variables)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a child can be started");
    let out = read(child.stdout.take().expect("a pipe"));
    let err = read(child.stderr.take().expect("a pipe"));
    let begin = Instant::now();
    let mut late = false;
    let status = loop {
        match child.try_wait().expect("it can be waited for") {
            Some(status) => break status,
            None if begin.elapsed() > limit => {
                late = true;
                let _ = child.kill();
            }
            None => {}
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let (stdout, stderr) = (out.join().unwrap(), err.join().unwrap());
    let text = String::from_utf8_lossy(&stderr);
    assert!(!late, "{test} did not end within {limit:?}\n{text}");
    Output {
        status,
        stdout,
        stderr,
    }
}

/// The part that this process is to play, if it is a child.
pub fn part() -> Option<String> {
    std::env::var("CHILD").ok()
}

#[track_caller]
pub fn succeeded(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}\n{out}{err}", output.status);
    (out, err)
}

/// A context that is as silent as tests want it.
pub fn context() -> Result<Context> {
    Context::new(0)
}
