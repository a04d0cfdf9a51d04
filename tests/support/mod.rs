//! Shared by the tests of the guards: turns, the driver's own figures, child processes, and lines for
//! tests that cannot run.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod gate;
pub mod heap;
pub mod json;
pub mod pool_blocks;
pub mod room;
pub mod stderr_log;
mod temporary;

use std::cell::Cell;
use std::io::Read;
use std::process::{Command, Output, Stdio};
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cuguard::driver::{self, DriverKind};
use cuguard::sim::{self, Counters};
use cuguard::{Context, DeviceBuffer, Event, PinnedBuffer, Result, Stream};
use cuguard_testing::{Requirement, has_gpu, not_run, test_command};
#[allow(unused_imports, reason = "as above")]
pub use temporary::temporary;

/// A turn at the device: tests of one file run one at a time, as they compare free memory. Child processes have a
/// context of their own, so [`child`] takes a turn at a real GPU where its thread has none.
pub struct Turn {
    _alone: Alone,
    free_before: u64,
}

/// No other test of this file uses the device.
struct Alone {
    _lock: MutexGuard<'static, ()>,
}

thread_local! {
    /// This thread has [`Alone`].
    static IS_ALONE: Cell<bool> = const { Cell::new(false) };
}

impl Alone {
    fn wait() -> Self {
        static LOCK: Mutex<()> = Mutex::new(());
        let lock = LOCK.lock().unwrap_or_else(|e| e.into_inner());
        IS_ALONE.set(true);
        Self { _lock: lock }
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        IS_ALONE.set(false);
    }
}

/// A dedicated context that reads free memory.
static OBSERVER: LazyLock<Context> = LazyLock::new(|| {
    Context::builder()
        .dedicated()
        .build()
        .expect("a context that reads free memory")
});

/// Bytes free on the device, by the driver.
pub fn free_bytes() -> u64 {
    OBSERVER.memory().expect("free memory can be read").free
}

pub fn turn() -> Turn {
    let alone = Alone::wait();
    Turn {
        _alone: alone,
        free_before: free_bytes(),
    }
}

impl Turn {
    /// Everything that was allocated since the turn began is freed.
    #[track_caller]
    pub fn all_came_back(&self) {
        assert_eq!(free_bytes(), self.free_before, "bytes free on the device");
    }
}

/// What the driver has allocated, by its own figures and not by the registry's. To be compared before
/// the context is closed, which frees everything.
pub struct InHand {
    free: u64,
    /// Known of the simulated driver alone.
    alive: Option<Counters>,
}

/// How much free memory may differ on a real GPU, where the driver allocates pages for itself: 2 MiB
/// for a second stream and 4 for several were measured. So tests leak larger blocks.
const SLACK: u64 = 16 << 20;

/// Reads what the driver has allocated, while the context is open.
pub fn in_hand(context: &Context) -> Result<InHand> {
    let kind = driver::load().expect("a driver").kind();
    if kind != DriverKind::Simulated {
        // The driver allocates memory for itself with the first resource of each kind, and keeps it.
        drop(DeviceBuffer::<u8>::zeroed(context, 4 << 20)?);
        let stream = Stream::new(context)?;
        drop(DeviceBuffer::<u8>::zeroed(&stream, 4 << 20)?);
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
    /// Whether what was allocated since is freed.
    pub fn is_all_freed(&self) -> bool {
        let before = self.alive.as_ref();
        before.is_none_or(|before| sim::live_counters() == *before)
            && free_bytes() + SLACK > self.free
    }

    /// What was allocated since is freed. Streams with pending frees must be synchronized.
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

/// Whether the GPU is simulated; if not, prints to stderr that a test was not run.
pub fn simulated(test: &str) -> bool {
    let simulated = driver::load().expect("a driver").kind() == DriverKind::Simulated;
    if !simulated {
        not_run(Requirement::SimulatedGpu, test);
    }
    simulated
}

/// Whether there is a real GPU; if not, prints to stderr that a test was not run.
pub fn real(test: &str) -> bool {
    let real = driver::load().expect("a driver").kind() == DriverKind::Real;
    if !real {
        not_run(Requirement::RealGpu, test);
    }
    real
}

/// Runs one test of this program in a child process, with the variable `CHILD` set to `part` and others
/// as given.
pub fn child(test: &str, part: &str, variables: &[(&str, &str)]) -> Output {
    let _alone = alone_for_child();
    command(test, part, variables)
        .output()
        .expect("a child can be started")
}

/// Simulated GPUs are of one process, and children need no turn at them.
fn alone_for_child() -> Option<Alone> {
    (has_gpu() && !IS_ALONE.get()).then(Alone::wait)
}

fn command(test: &str, part: &str, variables: &[(&str, &str)]) -> Command {
    let mut command = test_command(test);
    command
        .env("CHILD", part)
        .env_remove("LEAK_REPORT")
        .envs(variables.iter().copied());
    command
}

/// As [`child`], with a time limit: after it the child is killed, and the test fails.
#[track_caller]
pub fn child_within(limit: Duration, test: &str, part: &str, variables: &[(&str, &str)]) -> Output {
    /// Reads on a thread, as a full pipe blocks the child.
    fn read(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = pipe.read_to_end(&mut bytes);
            bytes
        })
    }
    let _alone = alone_for_child();
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

/// Waits until something holds, and returns whether it did within a limit that is far beyond what it takes.
pub fn soon(holds: impl Fn() -> bool) -> bool {
    let begin = Instant::now();
    while !holds() && begin.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(1));
    }
    holds()
}

/// How often a function of the simulated driver was called. A real driver does not count.
pub struct CallsOf {
    function: &'static str,
    before: u64,
}

impl CallsOf {
    /// Counts from now on.
    pub fn new(function: &'static str) -> Self {
        let before = sim::counters().calls_of(function);
        Self { function, before }
    }

    /// Waits until another thread calls it. On a real GPU, waits long enough for a thread that is not held up.
    #[track_caller]
    pub fn wait(&self) {
        if driver::load().expect("a driver").kind() != DriverKind::Simulated {
            return std::thread::sleep(Duration::from_millis(100));
        }
        let is_called = || sim::counters().calls_of(self.function) > self.before;
        assert!(soon(is_called), "{} is not called", self.function);
    }
}

/// The value of `CHILD`, in a child process.
pub fn part() -> Option<String> {
    std::env::var("CHILD").ok()
}

#[track_caller]
pub fn succeeded(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}\n{out}{err}", output.status);
    // A child that is named wrongly runs no test, and succeeds.
    let ran_none = out.contains("running 0 tests");
    assert!(!ran_none, "the child ran no test\n{out}{err}");
    (out, err)
}

/// A context of the first device.
pub fn context() -> Result<Context> {
    Context::new(0)
}
