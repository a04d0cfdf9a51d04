//! The child of these tests: a program that uses the crate, in one of several roles.

use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::{fs, thread};

use cuguard::prelude::*;

fn wait_for_end() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

fn say_ready() {
    println!("\nready {}", std::process::id());
}

static HANDLED: AtomicBool = AtomicBool::new(false);

extern "C" fn handle(_: i32) {
    HANDLED.store(true, Ordering::Relaxed);
}

extern "C" fn end_thread(_: i32) {
    // SAFETY: ends this thread alone, without unwinding.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

/// Ends the main thread, which waits for this test, as `pthread_exit` does.
fn end_main_thread() {
    let process = std::process::id().cast_signed();
    // SAFETY: the handler does nothing but end the thread.
    unsafe {
        libc::signal(libc::SIGUSR1, end_thread as *const () as usize);
        libc::syscall(libc::SYS_tgkill, process, process, libc::SIGUSR1);
    }
}

/// What the child does in a role.
pub fn run(role: &str) {
    if role == "own handler" {
        // SAFETY: the handler only stores a flag.
        unsafe { libc::signal(libc::SIGUSR2, handle as *const () as usize) };
    }
    let context = Context::new(0).unwrap();
    let labelled = DeviceBuffer::<u8>::zeroed(&context, 3 << 20).unwrap();
    let labelled = labelled.with_label("weights");
    let _other = DeviceBuffer::<u32>::zeroed(&context, 1 << 18).unwrap();
    if role == "fork" {
        // SAFETY: the child calls only functions that are async-signal-safe.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe {
                libc::pause();
                libc::_exit(97);
            }
        }
        println!("\nchild {child}");
        say_ready();
        let mut status = 0;
        // SAFETY: the status can be written to.
        unsafe { libc::waitpid(child, &mut status, 0) };
        println!("\nended by {}", libc::WTERMSIG(status));
        wait_for_end();
        return;
    }
    if role == "main thread ends" {
        // Of the program, whatever its name.
        let named = thread::Builder::new().name("cuguard-live".to_owned());
        let waits = named.spawn(move || {
            wait_for_end();
            println!("\nits thread ends with {} bytes", context.live_bytes());
            drop((labelled, _other));
        });
        waits.unwrap();
        end_main_thread();
        say_ready();
        return;
    }
    if role == "served" {
        return served(&context);
    }
    if role == "limited" {
        limit_descriptors(1);
    }
    let busy = AtomicBool::new(role == "busy");
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while busy.load(Ordering::Relaxed) {
                    drop(DeviceBuffer::<u8>::zeroed(&context, 4096).unwrap());
                }
            });
        }
        say_ready();
        wait_for_end();
        busy.store(false, Ordering::Relaxed);
    });
    if HANDLED.load(Ordering::Relaxed) {
        println!("\nhandled");
    }
    drop(labelled);
}

/// The soft limit of descriptors of the child `served`.
pub const DESCRIPTORS: usize = 128;

fn limit_descriptors(count: usize) {
    let limit = libc::rlimit {
        rlim_cur: count as u64,
        rlim_max: count as u64,
    };
    // SAFETY: a structure that is read.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
}

/// A program that works while its socket is asked: its own files open, and its allocations succeed. Each line on standard input is a
/// command.
fn served(context: &Context) {
    limit_descriptors(DESCRIPTORS);
    // As in a program that is not written in Rust: a closed connection must not end it.
    // SAFETY: the default disposition.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    // A report of half a megabyte: more than a connection buffers.
    let many: Vec<_> = (0..400)
        .map(|number| {
            let buffer = DeviceBuffer::<u8>::zeroed(context, 16).unwrap();
            buffer.with_label(&format!("{number:08} {}", "x".repeat(1000)))
        })
        .collect();
    let (works, ended) = (AtomicU32::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                drop(DeviceBuffer::<u8>::zeroed(context, 4096).unwrap());
                works.fetch_add(1, Ordering::Relaxed);
                thread::yield_now();
            }
        });
        let open = || fs::File::open("/dev/null");
        say_ready();
        let mut files = Vec::new();
        for command in std::io::stdin().lines() {
            match &*command.unwrap() {
                // All descriptors.
                "exhaust" => files.extend(std::iter::from_fn(|| open().ok())),
                // All but two, of which it uses one.
                "nearly" => {
                    files.extend(std::iter::from_fn(|| open().ok()));
                    files.truncate(files.len() - 2);
                }
                "open" => (0..20_000).for_each(|_| drop(open().unwrap())),
                _ => files.clear(),
            }
            println!("\ndone {}", works.load(Ordering::Relaxed));
        }
        ended.store(true, Ordering::Relaxed);
    });
    drop(many);
}
