//! The beginning and the end of a thread or a process, many threads, and a program without symbols.

#![cfg(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64"),
))]

use std::cell::Cell;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use crate::common::{By, check, child, rules};
use cuguard_testing::{Requirement, not_run};

#[test]
fn on_spawned_threads() {
    let found = thread::spawn(|| {
        let inner = thread::Builder::new()
            .stack_size(256 << 10)
            .spawn(|| check(rules()))
            .expect("a thread");
        check(rules()) + inner.join().expect("no panic")
    });
    assert!(found.join().expect("no panic") > 6);
}

extern "C" fn plain_thread(found: *mut std::ffi::c_void) -> *mut std::ffi::c_void {
    // SAFETY: it is the pointer that was passed below.
    unsafe { &*found.cast::<AtomicUsize>() }.store(check(rules()), Ordering::Relaxed);
    std::ptr::null_mut()
}

#[test]
fn on_a_thread_that_rust_did_not_start() {
    let found = AtomicUsize::new(0);
    let mut id = 0 as libc::pthread_t;
    // SAFETY: the thread is joined before `found` is dropped.
    unsafe {
        let pointer = (&raw const found).cast_mut().cast();
        assert_eq!(
            libc::pthread_create(&mut id, std::ptr::null(), plain_thread, pointer),
            0
        );
        assert_eq!(libc::pthread_join(id, std::ptr::null_mut()), 0);
    }
    assert!(found.into_inner() > 1);
}

#[test]
fn in_destructors_of_thread_locals() {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    struct Last;
    impl Drop for Last {
        fn drop(&mut self) {
            FOUND.fetch_add(check(rules()), Ordering::Relaxed);
        }
    }
    thread_local! {
        static FIRST: Last = const { Last };
        static SECOND: Cell<Option<Box<Last>>> = const { Cell::new(None) };
    }
    // One thread has captured before, the other has not.
    for warm in [true, false] {
        let before = FOUND.load(Ordering::Relaxed);
        let ended = thread::spawn(move || {
            FIRST.with(|_| ());
            SECOND.set(Some(Box::new(Last)));
            if warm {
                check(rules());
            }
        });
        ended.join().expect("no panic");
        assert!(FOUND.load(Ordering::Relaxed) > before + 4);
    }
}

#[test]
fn in_a_panic_hook() {
    const VARIABLE: &str = "CUGUARD_STACK_HOOK";
    if std::env::var_os(VARIABLE).is_none() {
        let output = child("in_a_panic_hook", VARIABLE);
        assert!(output.status.success(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("checked in the hook"));
        return;
    }
    std::panic::set_hook(Box::new(|_| {
        if check(rules()) > 6 {
            println!("checked in the hook");
        }
    }));
    let none: Option<usize> = std::hint::black_box(None);
    let panic = std::panic::catch_unwind(|| none.expect("a panic on purpose"));
    let _ = std::panic::take_hook();
    assert!(panic.is_err());
}

extern "C" fn at_exit() {
    // A panic here ends the process with a signal.
    assert!(check(rules()) > 2);
    println!("checked at exit");
}

#[test]
fn in_a_handler_at_exit() {
    const VARIABLE: &str = "CUGUARD_STACK_EXIT";
    if std::env::var_os(VARIABLE).is_some() {
        // SAFETY: the handler has neither parameters nor a result.
        assert_eq!(unsafe { libc::atexit(at_exit) }, 0);
        return;
    }
    let output = child("in_a_handler_at_exit", VARIABLE);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("checked at exit"));
}

#[test]
fn in_a_forked_child() {
    check(rules());
    // SAFETY: the child captures, and ends without running anything else.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let mut frames = [0; 64];
            let covered = cuguard_stack::capture_with_rules(&mut frames).is_some();
            let count = cuguard_stack::capture(&mut frames);
            let other = cuguard_stack::capture_with_backtrace(&mut frames);
            libc::_exit(i32::from(!(covered && count == other)));
        }
        let mut status = -1;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert_eq!(status, 0);
    }
}

#[test]
fn many_threads_at_once() {
    #[inline(never)]
    fn branch(path: usize, depth: usize) {
        // Two return addresses at each level, so that all threads have different stacks.
        if depth == 0 {
            check(rules());
        } else if path & 1 == 0 {
            branch(path >> 1, depth - 1);
            std::hint::black_box(1);
        } else {
            branch(path >> 1, depth - 1);
            std::hint::black_box(2);
        }
    }
    let barrier = Arc::new(Barrier::new(16));
    let threads: Vec<_> = (0..16)
        .map(|number: usize| {
            let barrier = Arc::clone(&barrier);
            thread::spawn(move || {
                barrier.wait();
                for round in 0..200 {
                    branch(number.wrapping_mul(round).wrapping_mul(0x9E37), 12);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("equal stacks");
    }
}

#[test]
fn in_a_program_without_symbols() {
    const VARIABLE: &str = "CUGUARD_STACK_STRIPPED";
    if std::env::var_os(VARIABLE).is_some() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("cuguard-stack-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let copy = folder.join("stripped");
    std::fs::copy(std::env::current_exe().expect("a path"), &copy).expect("a copy");
    match Command::new("strip").arg(&copy).status() {
        Ok(status) if status.success() => {
            let output = Command::new(&copy)
                .args([&cuguard_testing::test_path(""), "--test-threads=1"])
                .env(VARIABLE, "1")
                .output()
                .expect("a child");
            assert!(output.status.success(), "{output:?}");
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains("many_threads_at_once ... ok"), "{text}");
        }
        _ => not_run(Requirement::Binutils, "strip"),
    }
    let _ = std::fs::remove_dir_all(&folder);
    check(By::Either);
}
