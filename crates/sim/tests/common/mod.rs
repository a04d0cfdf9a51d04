//! What the tests of the simulated driver share: a safe name for each of its functions, and a
//! context to work in.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard};

use cuguard_sim::entry;
use cuguard_sys::*;

pub const MIB: usize = 1 << 20;

/// The simulated machine is one per process, and tests of one file share it: they take turns.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|e| e.into_inner())
}

macro_rules! wrap {
    ($(fn $name:ident($($parameter:ident: $type:ty),*);)*) => {
        /// The functions under test. The tests pass pointers that are valid; everything else is
        /// what they are about.
        #[allow(non_snake_case, clippy::too_many_arguments)]
        pub mod cu {
            use super::*;
            $(
                pub fn $name($($parameter: $type),*) -> CUresult {
                    // SAFETY: see the module.
                    unsafe { entry::$name($($parameter),*) }
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

/// Runs one test of this binary in a process of its own, as `name` with the variable `CHILD` set.
pub fn child(name: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env("CHILD", "1")
        .env_remove("CUGUARD_SIM")
        .output()
        .unwrap()
}

pub fn is_child() -> bool {
    std::env::var_os("CHILD").is_some()
}
