//! Host functions that streams call, and helpers that run on other threads or processes.

use std::io::{Read, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::driver::*;

/// How long [`sleeper`] sleeps.
pub(crate) const SLEEP: Duration = Duration::from_millis(300);

/// Blocks a stream until it is opened or dropped.
#[derive(Debug)]
pub(crate) struct Gate(&'static AtomicBool);

impl Gate {
    /// Makes `stream` wait until the gate opens.
    pub(crate) fn close(stream: CUstream) -> (Gate, CUresult) {
        let open: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let data = std::ptr::from_ref(open).cast_mut().cast();
        let result = cuLaunchHostFunc(stream, Some(wait_for_gate), data);
        (Gate(open), result)
    }

    /// Whether it has opened by itself, because nothing else opened it.
    pub(crate) fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Unblocks the stream.
    pub(crate) fn open(self) {}
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

extern "C" fn wait_for_gate(data: *mut c_void) {
    // SAFETY: `Gate::close` passes a flag that lives as long as the process.
    let open = unsafe { &*data.cast_const().cast::<AtomicBool>() };
    // A failing case must not hang.
    let limit = Instant::now() + Duration::from_secs(30);
    while !open.load(Ordering::Acquire) && Instant::now() < limit {
        std::thread::sleep(Duration::from_millis(1));
    }
    open.store(true, Ordering::Release);
}

/// A host function that takes [`SLEEP`].
pub(crate) extern "C" fn sleeper(number: *mut c_void) {
    std::thread::sleep(SLEEP);
    SLEPT.fetch_max(number.addr(), Ordering::AcqRel);
}

/// The last [`sleeper`] that [`put_sleeper`] put on a stream, and the last one that has ended.
static PUT: AtomicUsize = AtomicUsize::new(0);
static SLEPT: AtomicUsize = AtomicUsize::new(0);

/// Puts a [`sleeper`] on `stream`.
pub(crate) fn put_sleeper(stream: CUstream) -> CUresult {
    let number = number(PUT.fetch_add(1, Ordering::Relaxed) + 1);
    cuLaunchHostFunc(stream, Some(sleeper), number)
}

static MARKS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// A host function that records the number passed as its data.
pub(crate) extern "C" fn mark(data: *mut c_void) {
    MARKS
        .lock()
        .expect("no host function panics")
        .push(data.addr());
}

/// The number that [`mark`] takes, as data for a host function.
pub(crate) fn number(number: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(number)
}

/// The numbers that [`mark`] recorded, in order.
pub(crate) fn marks() -> Vec<usize> {
    MARKS.lock().expect("no host function panics").clone()
}

/// The number of results that [`call_driver`] leaves in [`RESULTS`].
pub(crate) const CALLS: usize = 5;

/// The results inside [`call_driver`]. The initial value is not a result code.
pub(crate) static RESULTS: [AtomicU32; CALLS] = [const { AtomicU32::new(u32::MAX) }; CALLS];

/// A host function that calls the driver: allocate, current context, query, free, version.
pub(crate) extern "C" fn call_driver(_: *mut c_void) {
    let (mut ptr, mut context, mut version) = (0, CUcontext::NULL, 0);
    let results = [
        cuMemAlloc_v2(&mut ptr, 16),
        cuCtxGetCurrent(&mut context),
        cuStreamQuery(CUstream::NULL),
        cuMemFree_v2(0),
        cuDriverGetVersion(&mut version),
    ];
    for (slot, result) in RESULTS.iter().zip(results) {
        slot.store(result.0, Ordering::Release);
    }
}

/// The result code that [`callback`] got. The initial value is not a result code.
pub(crate) static STATUS: AtomicU32 = AtomicU32::new(u32::MAX);

/// A stream callback that stores its status.
pub(crate) extern "C" fn callback(_: CUstream, status: CUresult, _: *mut c_void) {
    STATUS.store(status.0, Ordering::Release);
}

/// Whether the last [`sleeper`] of [`put_sleeper`] has ended when `call` returns.
pub(crate) fn waited<T>(call: impl FnOnce() -> T) -> (T, &'static str) {
    let result = call();
    let verdict = match SLEPT.load(Ordering::Acquire) >= PUT.load(Ordering::Relaxed) {
        true => "waits",
        false => "does not wait",
    };
    (result, verdict)
}

/// Runs `body` on another thread and returns its result.
pub(crate) fn on_another_thread<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| match scope.spawn(body).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Runs `body` in a forked child and returns the result codes, unless the child crashed.
pub(crate) fn in_forked_child<const N: usize>(
    body: impl FnOnce() -> [CUresult; N],
) -> Option<[CUresult; N]> {
    let (mut reader, mut writer) = std::io::pipe().ok()?;
    // SAFETY: the child only calls `body`, writes to a pipe and ends without running destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let bytes: Vec<u8> = body()
            .iter()
            .flat_map(|code| code.0.to_ne_bytes())
            .collect();
        let status = i32::from(writer.write_all(&bytes).is_err());
        // SAFETY: takes no pointers. The child must not run the parent's exit handlers.
        unsafe { libc::_exit(status) }
    }
    drop(writer);
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).ok()?;
    // SAFETY: the status may be null.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    let mut codes = bytes
        .chunks_exact(4)
        .map(|code| u32::from_ne_bytes([code[0], code[1], code[2], code[3]]));
    let codes = std::array::from_fn(|_| codes.next().map(CUresult));
    codes
        .iter()
        .all(Option::is_some)
        .then(|| codes.map(Option::unwrap_or_default))
}

/// Registers an exit handler.
pub(crate) fn at_exit(handler: extern "C" fn()) -> bool {
    // SAFETY: `atexit` takes any function that follows the C convention and takes nothing.
    unsafe { libc::atexit(handler) == 0 }
}
