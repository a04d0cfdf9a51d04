//! Shared by the tests of the simulated driver: a safe wrapper of each function, and a context.

#![allow(dead_code, reason = "each test uses a part")]

pub mod kernels;

use std::ffi::c_void;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use cuguard_sim::entry_points;
use cuguard_sys::*;

pub const MIB: usize = 1 << 20;

/// There is one simulated GPU per process, which the tests of one file share: they take turns.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|e| e.into_inner())
}

macro_rules! wrap {
    ($(fn $name:ident($($parameter:ident: $type:ty),*);)*) => {
        /// The functions under test. The tests pass valid pointers.
        #[allow(
            non_snake_case,
            clippy::too_many_arguments,
            reason = "the driver's own functions"
        )]
        pub mod cu {
            use super::*;
            $(
                pub fn $name($($parameter: $type),*) -> CUresult {
                    // SAFETY: see the module.
                    unsafe { entry_points::$name($($parameter),*) }
                }
            )*
        }
    };
}
with_functions!(wrap);

#[track_caller]
pub fn ok(result: CUresult) {
    assert_eq!(result, CUresult::SUCCESS);
}

/// Starts the driver and makes the primary context of device 0 current.
pub fn context() -> CUcontext {
    ok(cu::cuInit(0));
    let mut context = CUcontext::NULL;
    ok(cu::cuDevicePrimaryCtxRetain(&mut context, 0));
    ok(cu::cuCtxSetCurrent(context));
    context
}

pub fn release() {
    ok(cu::cuDevicePrimaryCtxRelease_v2(0));
}

#[track_caller]
pub fn alloc(bytes: usize) -> CUdeviceptr {
    let mut ptr = 0;
    ok(cu::cuMemAlloc_v2(&mut ptr, bytes));
    ptr
}

pub fn free_bytes() -> usize {
    let (mut free, mut total) = (0, 0);
    ok(cu::cuMemGetInfo_v2(&mut free, &mut total));
    free
}

pub fn stream() -> CUstream {
    let mut stream = CUstream::NULL;
    ok(cu::cuStreamCreate(&mut stream, flags::STREAM_NON_BLOCKING));
    stream
}

/// A context of its own, current on this thread.
pub fn create() -> CUcontext {
    ok(cu::cuInit(0));
    let mut context = CUcontext::NULL;
    ok(cu::cuCtxCreate_v2(&mut context, 0, 0));
    context
}

#[track_caller]
pub fn alloc_async(bytes: usize, stream: CUstream) -> CUdeviceptr {
    let mut ptr = 0;
    ok(cu::cuMemAllocAsync(&mut ptr, bytes, stream));
    ptr
}

pub fn pinned(bytes: usize) -> *mut c_void {
    let mut out = std::ptr::null_mut();
    ok(cu::cuMemHostAlloc(&mut out, bytes, 0));
    out
}

pub fn event() -> CUevent {
    let mut event = CUevent::NULL;
    ok(cu::cuEventCreate(&mut event, 0));
    event
}

/// Blocks a stream until it is opened or dropped.
pub struct Gate(&'static AtomicBool);

impl Gate {
    pub fn close(stream: CUstream) -> Self {
        unsafe extern "C" fn wait(open: *mut c_void) {
            // SAFETY: a flag that is never freed.
            let open = unsafe { &*open.cast::<AtomicBool>() };
            while !open.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let open: &'static AtomicBool = Box::leak(Box::default());
        let data = std::ptr::from_ref(open).cast_mut().cast();
        ok(cu::cuLaunchHostFunc(stream, Some(wait), data));
        Self(open)
    }

    pub fn open(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

/// Waits until a condition holds, for ten seconds at most.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < end, "not within ten seconds: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The number of threads of this process.
pub fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Runs a test in a process of its own, which must succeed.
#[track_caller]
pub fn lives(name: &str) {
    let output = child(name);
    let text = String::from_utf8_lossy(&output.stderr);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}: {said}{text}", output.status);
}

/// Runs one test of this binary in a process of its own, as `name` with the variable `CHILD` set.
pub fn child(name: &str) -> Output {
    child_with(name, None)
}

/// Does the same with the variable `CUGUARD_SIM` set to `setting`, or not set.
pub fn child_with(name: &str, setting: Option<&str>) -> Output {
    let mut command = child_command(name);
    if let Some(setting) = setting {
        command.env("CUGUARD_SIM", setting);
    }
    command.output().unwrap()
}

/// The command that runs the test `name` alone in a process of its own, without settings.
pub fn child_command(name: &str) -> Command {
    let mut command = cuguard_testing::test_command(name);
    command.env("CHILD", "1").env_remove("CUGUARD_SIM");
    command
}

pub fn is_child() -> bool {
    std::env::var_os("CHILD").is_some()
}
