//! What the process had when it started, and whose memory this is.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// What the process had when it started. The program may change its environment, its folder and its descriptors.
#[derive(Debug, Default)]
pub(crate) struct Start {
    /// `LEAK_REPORT`.
    pub(crate) words: Option<OsString>,
    /// The current folder, if a word names a file relative to it.
    pub(crate) folder: Option<PathBuf>,
    /// The folder in which `cuguard run` collects records.
    pub(crate) run_folder: Option<PathBuf>,
    /// Whether `LEAK_REPORT` is that of `cuguard run`, which applies the exit code in it. Other words, of a script perhaps, ask for
    /// an exit code of this process.
    pub(crate) has_run_words: bool,
    /// How long a report may take, in seconds.
    pub(crate) limit: Option<u64>,
}

static START: OnceLock<Start> = OnceLock::new();

/// The process that this memory belongs to: another one with the same memory is a child of `vfork` or `clone`.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// What the process had when it started.
pub(crate) fn start() -> &'static Start {
    START.get_or_init(Start::default)
}

/// Whether this process is the one that the constructor, or the handler of `fork`, ran in. Async-signal-safe.
pub(crate) fn is_own_process() -> bool {
    OWNER.load(Ordering::Relaxed) == process()
}

/// Whether the constructor has run, in this process or in one that it was forked of.
pub(crate) fn is_started() -> bool {
    OWNER.load(Ordering::Relaxed) != 0
}

/// The process id.
pub(crate) fn process() -> i32 {
    // SAFETY: always succeeds.
    unsafe { libc::getpid() }
}

/// The main thread, by its C library's name: the one that the constructor ran on.
static MAIN_THREAD: AtomicU64 = AtomicU64::new(0);

/// Whether this is the main thread.
pub(crate) fn is_main_thread(thread: libc::pthread_t) -> bool {
    MAIN_THREAD.load(Ordering::Relaxed) == thread
}

/// This process owns the memory from now on.
pub(crate) fn own() {
    OWNER.store(process(), Ordering::Relaxed);
    crate::cancel::own(process());
}

/// Notes what the process had, and that this is its main thread. For the constructor.
pub(crate) fn note(start: Start) {
    // SAFETY: always succeeds.
    MAIN_THREAD.store(unsafe { libc::pthread_self() }, Ordering::Relaxed);
    let _ = START.set(start);
}
