//! The search is made when the exit begins: what exit handlers, destructors and the CUDA runtime destroy after that was
//! reachable.

use crate::support::{compile, json, simulated_driver_folder};
use serde_json::Value;

/// What the C programs have in common: one block that is lost, one MiB.
const COMMON: &str = r#"
#include <stddef.h>
#include <stdlib.h>
typedef int CUdevice;
typedef void *CUcontext;
typedef unsigned long long CUdeviceptr;
int cuInit(unsigned);
int cuDeviceGet(CUdevice *, int);
int cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
int cuDevicePrimaryCtxRelease_v2(CUdevice);
int cuCtxSetCurrent(CUcontext);
int cuMemAlloc_v2(CUdeviceptr *, size_t);
int cuMemFree_v2(CUdeviceptr);

CUdeviceptr kept;
CUdeviceptr *in_heap;

__attribute__((noinline, unused)) static void lose(void) {
    CUdeviceptr address;
    cuMemAlloc_v2(&address, 1 << 20);
    address = 0;
    __asm__ volatile("" : : "r"(&address) : "memory");
}

static void retain(void) {
    CUdevice device;
    CUcontext context;
    cuInit(0);
    cuDeviceGet(&device, 0);
    cuDevicePrimaryCtxRetain(&context, device);
    cuCtxSetCurrent(context);
}
"#;

/// The report of a program with this code after the common one.
fn report(code: &str) -> Option<Value> {
    let driver = simulated_driver_folder();
    let source = format!("{COMMON}{code}");
    let program = compile(&driver, "program", &source, &["-O1", "-l:libcuda.so.1"])?;
    Some(json(&program, &driver))
}

#[track_caller]
fn assert_memory(report: &Value, lost: u64, reachable: u64) {
    let bytes = |fate: &str| report[fate]["bytes"].as_u64();
    assert_eq!(
        (
            bytes("lost"),
            bytes("reachable"),
            bytes("destroyed_with_context")
        ),
        (Some(lost), Some(reachable), Some(0)),
        "{report:#}"
    );
}

/// As the CUDA runtime does, in a handler that it registers when it is loaded.
#[test]
fn a_context_that_is_released_at_exit_takes_nothing_with_it() {
    let Some(report) = report(
        r"
        static void teardown(void) { cuDevicePrimaryCtxRelease_v2(0); }
        int main(void) {
            atexit(teardown);
            retain();
            lose();
            cuMemAlloc_v2(&kept, 2 << 20);
            return 0;
        }",
    ) else {
        return;
    };
    assert_memory(&report, 1 << 20, 2 << 20);
}

/// Also handlers that are registered after the first call of the driver, as those of C++ variables inside of functions are;
/// and those of thread-local variables, which run first.
#[test]
fn what_exit_handlers_destroy_was_reachable() {
    for end in ["return 0;", "exit(0);"] {
        let code = r"
            extern int __cxa_thread_atexit_impl(void (*)(void *), void *, void *);
            extern void *__dso_handle;
            static void forget(void) { kept = 0; }
            static void release(void *list) { *in_heap = 0; free(list); }
            int main(void) {
                retain();
                atexit(forget);
                in_heap = malloc(64);
                __cxa_thread_atexit_impl(release, in_heap, &__dso_handle);
                lose();
                cuMemAlloc_v2(&kept, 2 << 20);
                cuMemAlloc_v2(in_heap, 4 << 20);
                END
            }";
        let Some(report) = report(&code.replace("END", end)) else {
            return;
        };
        assert_memory(&report, 1 << 20, 6 << 20);
    }
}

/// It is freed, and not in the report.
#[test]
fn what_exit_handlers_free_is_not_reported() {
    let Some(report) = report(
        r"
        static void release(void) { cuMemFree_v2(kept); }
        int main(void) {
            retain();
            atexit(release);
            lose();
            cuMemAlloc_v2(&kept, 2 << 20);
            return 0;
        }",
    ) else {
        return;
    };
    assert_memory(&report, 1 << 20, 0);
}

/// Variables of `main` do not exist any more.
#[test]
fn what_a_variable_of_main_held_is_lost_when_main_returns() {
    let Some(report) = report(
        r"
        int main(void) {
            volatile CUdeviceptr local[64];
            retain();
            for (int i = 0; i < 64; i++) cuMemAlloc_v2((CUdeviceptr *)&local[i], 1 << 20);
            return 0;
        }",
    ) else {
        return;
    };
    assert_memory(&report, 64 << 20, 0);
}
