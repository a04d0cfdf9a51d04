//! The search is made when the exit begins: what exit handlers, destructors and the CUDA runtime destroy after that was
//! reachable.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;

use cuguard_testing::{Requirement, not_run};
use serde_json::Value;

use crate::support::{Folder, assert_success, compile, json, run, simulated_driver_folder};

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

/// A program with this code after the common one, in a folder with the driver.
fn program(code: &str) -> Option<(PathBuf, Folder)> {
    let driver = simulated_driver_folder();
    let source = format!("{COMMON}{code}");
    let arguments = ["-O1", "-Wl,-z,now", "-l:libcuda.so.1"];
    let program = compile(&driver, "program", &source, &arguments)?;
    Some((program, driver))
}

/// The report of a program with this code after the common one.
fn report(code: &str) -> Option<Value> {
    let (program, driver) = program(code)?;
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

/// The exit on a thread other than the main one, which waits and has an alternate stack. As the standard library of Rust does, the
/// thread that ends the process unmaps that stack, of which the kernel still has the address.
const ASIDE: &str = r"
    #include <pthread.h>
    #include <signal.h>
    #include <sys/mman.h>
    #include <unistd.h>
    enum { SIZE = 64 << 10 };
    static void *alternate;
    static void end(void);

    static void *aside(void *unused) {
        retain();
        cuMemAlloc_v2(&kept, 2 << 20);
        lose();
        usleep(20000);
        end();
        return unused;
    }

    /* What is left in frames of functions that have returned is dead. */
    __attribute__((noinline)) static void leave_behind(void) {
        volatile CUdeviceptr dead[4096];
        cuMemAlloc_v2((CUdeviceptr *)&dead[100], 8 << 20);
    }

    static void set_alternate(void) {
        alternate = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        stack_t stack = {.ss_sp = alternate, .ss_size = SIZE};
        if (sigaltstack(&stack, NULL) != 0) _exit(3);
    }

    int main(void) {
        volatile CUdeviceptr local;
        pthread_t thread;
        retain();
        set_alternate();
        leave_behind();
        cuMemAlloc_v2((CUdeviceptr *)&local, 4 << 20);
        pthread_create(&thread, NULL, aside, NULL);
        pthread_join(thread, NULL);
        return (int)local;
    }";

#[test]
fn an_exit_aside_that_unmaps_the_alternate_stack_of_the_main_thread() {
    let end = "static void end(void) { munmap(alternate, SIZE); exit(0); }";
    let Some(report) = report(&format!("{ASIDE}{end}")) else {
        return;
    };
    assert_memory(&report, 9 << 20, 6 << 20);
}

/// The main thread is the one that receives it.
#[test]
fn a_signal_during_an_exit_aside_ends_the_process() {
    let end = r"
        static void kill_process(void) {
            kill(getpid(), SIGTERM);
            for (;;) pause();
        }
        static void end(void) {
            sigset_t set;
            sigemptyset(&set);
            sigaddset(&set, SIGTERM);
            pthread_sigmask(SIG_BLOCK, &set, NULL);
            atexit(kill_process);
            munmap(alternate, SIZE);
            exit(0);
        }";
    let Some((program, driver)) = program(&format!("{ASIDE}{end}")) else {
        return;
    };
    let output = run(&program, &driver, &[("LEAK_REPORT", "1")]);
    assert_eq!(output.status.signal(), Some(libc::SIGTERM), "{output:?}");
}

/// As with the runtime of Go, whose own stacks have no room for a signal.
#[test]
fn an_exit_aside_uses_alternate_stacks_where_the_program_requires_it() {
    let Some(report) = report(
        r"
        #include <pthread.h>
        #include <signal.h>
        #include <sys/mman.h>
        #include <ucontext.h>
        #include <unistd.h>
        enum { PAGE = 64 << 10, ROOM = 1 << 10 };
        static char alternate[PAGE];
        static ucontext_t before, inside;
        static volatile int is_inside;

        static void ignore(int signal) { (void)signal; }

        static void wait_with_little_room(void) {
            char here;
            char *end = (char *)((unsigned long)&here / PAGE * PAGE);
            volatile char *used = __builtin_alloca(&here - end - ROOM);
            used[0] = 1;
            is_inside = 1;
            for (;;) pause();
        }

        static void *aside(void *unused) {
            (void)unused;
            retain();
            cuMemAlloc_v2(&kept, 2 << 20);
            lose();
            while (!is_inside) usleep(1000);
            usleep(20000);
            exit(0);
        }

        int main(void) {
            pthread_t thread;
            retain();
            struct sigaction action = {.sa_handler = ignore, .sa_flags = SA_ONSTACK};
            stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
            char *memory = mmap(NULL, 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            memory = (char *)(((unsigned long)memory + PAGE - 1) / PAGE * PAGE);
            if (sigaction(SIGURG, &action, NULL) || sigaltstack(&stack, NULL)) return 3;
            if (mprotect(memory + PAGE, PAGE, PROT_READ | PROT_WRITE) || getcontext(&inside)) return 4;
            inside.uc_stack.ss_sp = memory + PAGE;
            inside.uc_stack.ss_size = PAGE;
            makecontext(&inside, wait_with_little_room, 0);
            pthread_create(&thread, NULL, aside, NULL);
            swapcontext(&before, &inside);
            return 5;
        }",
    ) else {
        return;
    };
    assert_memory(&report, 1 << 20, 2 << 20);
}

/// A program in Rust that ends on a thread of its own.
const RUST: &str = r#"
    use std::ffi::{c_int, c_void};
    use std::sync::atomic::AtomicU64;

    static KEPT: AtomicU64 = AtomicU64::new(0);

    unsafe extern "C" {
        fn cuInit(flags: u32) -> c_int;
        fn cuCtxCreate_v2(context: *mut *mut c_void, flags: u32, device: c_int) -> c_int;
        fn cuMemAlloc_v2(address: *mut u64, size: usize) -> c_int;
    }

    fn main() {
        let thread = std::thread::spawn(|| {
            let mut context = std::ptr::null_mut();
            // SAFETY: the variables are valid.
            unsafe {
                assert_eq!(cuInit(0), 0);
                assert_eq!(cuCtxCreate_v2(&mut context, 0, 0), 0);
                assert_eq!(cuMemAlloc_v2(KEPT.as_ptr(), 2 << 20), 0);
            }
            std::process::exit(0)
        });
        let _: Result<(), _> = thread.join();
    }"#;

#[test]
fn a_program_in_rust_that_exits_aside() {
    let driver = simulated_driver_folder();
    let (source, program) = (driver.join("aside.rs"), driver.join("aside"));
    std::fs::write(&source, RUST).expect("a file can be written");
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(compiler)
        .args(["--edition=2024", "-L"])
        .args([
            driver.path(),
            "-Clink-arg=-l:libcuda.so.1".as_ref(),
            "-o".as_ref(),
        ])
        .args([&program, &source])
        .output();
    let Ok(output) = output else {
        return not_run(Requirement::Rustc, "");
    };
    assert_success(&output);
    assert_memory(&json(&program, &driver), 0, 2 << 20);
}
