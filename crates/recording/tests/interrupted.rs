//! The recording of a process that forks, and whose signal handlers record or exit, in real processes.
//!
//! Each test runs itself again as a child, which records.

#![allow(unsafe_code, reason = "forks, and handles signals")]

use std::io::Read;
use std::os::fd::AsRawFd;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use cuguard_recording::{
    Embedded, End, Event, What, addresses, embed_symbols, is_on, note_exit, path,
};
use cuguard_sync::clock;

use crate::support::{FILE, Scratch, allocate, free, started};

#[test]
fn a_forked_child_records_nothing() {
    const TEST: &str = "a_forked_child_records_nothing";
    if started() {
        allocate(1, 0x1000);
        // SAFETY: the child calls nothing that needs other threads, and ends by `_exit`.
        match unsafe { libc::fork() } {
            0 => {
                let was_on = is_on();
                free(1, 0x1000);
                allocate(1, 0x2000);
                // SAFETY: ends the process at once.
                unsafe { libc::_exit(i32::from(was_on)) };
            }
            child => {
                let mut status = 0;
                // SAFETY: a child of this process, and a variable to write to.
                unsafe { libc::waitpid(child, &raw mut status, 0) };
                assert_eq!(status, 0, "it was on in the child");
            }
        }
        allocate(1, 0x3000);
        return note_exit(clock::nanoseconds());
    }
    let scratch = Scratch::new();
    scratch.run(TEST);
    let recording = scratch.read();
    let address = |event: &Event| match event.what {
        What::Allocated { address, .. } => address,
        other => panic!("{other:?}"),
    };
    let addresses: Vec<u64> = recording.events.iter().map(address).collect();
    assert_eq!(addresses, [0x1000, 0x3000]);
}

/// A child lives longer than the process, which ends without the end of its recording, or with it where the child was
/// created without the handlers of `fork`.
#[test]
fn a_child_that_lives_longer_does_not_keep_the_file() {
    const TEST: &str = "a_child_that_lives_longer_does_not_keep_the_file";
    const CHILD: &str = "CHILD";
    let wait_and_end = || {
        let mut byte = 0_u8;
        // SAFETY: reads to the end of the standard input, and ends the process.
        unsafe {
            libc::read(0, (&raw mut byte).cast(), 1);
            libc::_exit(0);
        }
    };
    if started() {
        allocate(1, 0x1000);
        match std::env::var(CHILD).as_deref() {
            Ok("fork") => {
                let (mut running, child_end) = std::io::pipe().unwrap();
                // SAFETY: the child calls nothing that needs other threads.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    // SAFETY: a descriptor and a byte to write.
                    unsafe { libc::write(child_end.as_raw_fd(), b"1".as_ptr().cast(), 1) };
                    wait_and_end();
                }
                assert!(child > 0, "fork failed");
                // A child that ends early closes its end.
                drop(child_end);
                // The handlers of `fork` run in the child: until then the child has the lock of the file too.
                running.read_exact(&mut [0]).unwrap();
                // SAFETY: ends the process at once.
                unsafe { libc::_exit(0) };
            }
            Ok("clone") => {
                // SAFETY: as `fork`, without its handlers; the child uses a copy of this stack.
                let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
                match child {
                    0 => wait_and_end(),
                    _ => note_exit(clock::nanoseconds()),
                }
            }
            _ => assert_eq!(path().unwrap().as_os_str(), std::env::var_os(FILE).unwrap()),
        }
        return;
    }
    for way in ["fork", "clone"] {
        let scratch = Scratch::new();
        let mut command = scratch.command(TEST);
        command.env(CHILD, way).stdin(Stdio::piped());
        let mut first = command.stdout(Stdio::null()).spawn().unwrap();
        let input = first.stdin.take();
        assert!(first.wait().unwrap().success());
        assert_eq!(scratch.read().events.len(), 1, "{way}");
        let output = scratch.run(TEST);
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(!err.contains("cuguard: "), "{err}");
        // Ends the child.
        drop(input);
    }
}

/// Ends this process by a signal, where it hangs.
fn end_if_it_hangs() {
    // SAFETY: sets the timer of the process; SIGALRM ends it.
    unsafe { libc::alarm(100) };
}

/// The child has the cursor of the forking thread, and the locks of threads that it does not have.
#[test]
fn a_forked_child_exits_whatever_other_threads_do() {
    const TEST: &str = "a_forked_child_exits_whatever_other_threads_do";
    if started() {
        allocate(1, 0x1000);
        let stop = AtomicBool::new(false);
        let mut hanging = 0;
        std::thread::scope(|scope| {
            let busy = || {
                // Each new chunk is mapped under the lock of the file.
                while !stop.load(Ordering::Relaxed) {
                    allocate(2, 0x2000);
                }
            };
            (0..3).for_each(|_| drop(scope.spawn(busy)));
            for _ in 0..300 {
                // SAFETY: the child drops what belongs to its thread, and ends.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    // SAFETY: a child that hangs ends by the signal.
                    unsafe { libc::alarm(20) };
                    // SAFETY: drops the locals of this thread, and ends the process.
                    unsafe { libc::exit(0) };
                }
                let mut status = 0;
                // SAFETY: a child of this process, and a variable to write to.
                unsafe { libc::waitpid(child, &raw mut status, 0) };
                if status != 0 {
                    hanging += 1;
                    break;
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(hanging, 0, "a child hangs");
        return note_exit(clock::nanoseconds());
    }
    Scratch::new().run(TEST);
}

/// A signal handler records, also where it interrupts the recording of an event on its own thread.
#[test]
fn signal_handlers_do_not_wait_for_their_own_thread() {
    const TEST: &str = "signal_handlers_do_not_wait_for_their_own_thread";
    static BEGUN: AtomicU32 = AtomicU32::new(0);
    // Counted when all is recorded: the handler may run on another thread, while this one ends the recording.
    static HANDLED: AtomicU32 = AtomicU32::new(0);
    extern "C" fn handler(_: libc::c_int) {
        let number = BEGUN.fetch_add(1, Ordering::Relaxed);
        // A new name each time.
        allocate(1_000_000 + number, u64::from(number) << 9);
        HANDLED.fetch_add(1, Ordering::Release);
    }
    if started() {
        end_if_it_hangs();
        let interval = libc::timeval {
            tv_sec: 0,
            tv_usec: 100,
        };
        let timer = libc::itimerval {
            it_interval: interval,
            it_value: interval,
        };
        let handler: extern "C" fn(libc::c_int) = handler;
        // SAFETY: the handler uses what the interrupted thread uses within `record` alone; the structure is valid.
        unsafe {
            libc::signal(libc::SIGVTALRM, handler as libc::sighandler_t);
            libc::setitimer(libc::ITIMER_VIRTUAL, &raw const timer, std::ptr::null_mut());
        }
        let mut number = 1;
        while HANDLED.load(Ordering::Acquire) < 200 {
            allocate(number, u64::from(number) << 9);
            number = number % 900_000 + 1;
        }
        // SAFETY: the signal is ignored from now on.
        unsafe { libc::signal(libc::SIGVTALRM, libc::SIG_IGN) };
        return note_exit(clock::nanoseconds());
    }
    let scratch = Scratch::new();
    scratch.run(TEST);
    let recording = scratch.read();
    // Each is recorded or counted.
    let is_of_handler = |event: &&Event| {
        recording.names[event.thread as usize]
            .strip_prefix("thread ")
            .and_then(|number| number.parse().ok())
            .is_some_and(|number: u32| number >= 1_000_000)
    };
    let recorded = recording.events.iter().filter(is_of_handler).count() as u64;
    assert!(
        recorded + recording.lost >= 200,
        "{recorded}, {}",
        recording.lost
    );
    assert_eq!(recording.dropped, 0);
}

/// Whether the next growth of the file is interrupted by a signal.
static INTERRUPT: AtomicBool = AtomicBool::new(false);

/// In place of the C library's: the recording calls it while it holds its locks.
///
/// # Safety
/// As the C library's: no memory is passed.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_fallocate(
    file: libc::c_int,
    offset: libc::off_t,
    length: libc::off_t,
) -> libc::c_int {
    if INTERRUPT.swap(false, Ordering::Relaxed) {
        // SAFETY: the handler that is installed runs on this thread, before this returns.
        unsafe { libc::raise(libc::SIGUSR1) };
    }
    // SAFETY: no memory is passed.
    match unsafe { libc::fallocate(file, 0, offset, length) } {
        0 => 0,
        _ => std::io::Error::last_os_error().raw_os_error().unwrap_or(-1),
    }
}

/// A signal handler calls `exit` while its thread holds the locks of the recording.
#[test]
fn a_signal_handler_may_exit_within_the_recording() {
    const TEST: &str = "a_signal_handler_may_exit_within_the_recording";
    extern "C" fn handler(_: libc::c_int) {
        // SAFETY: ends the process. No lock but those of the recording is held where the signal is raised.
        unsafe { libc::exit(0) };
    }
    extern "C" fn at_exit() {
        assert_eq!(addresses(), []);
        embed_symbols([Embedded::default()]);
        note_exit(clock::nanoseconds());
    }
    if started() {
        end_if_it_hangs();
        let handler: extern "C" fn(libc::c_int) = handler;
        // SAFETY: both are functions of this program.
        unsafe {
            libc::signal(libc::SIGUSR1, handler as libc::sighandler_t);
            libc::atexit(at_exit);
        }
        INTERRUPT.store(true, Ordering::Relaxed);
        for number in 0..1 << 20 {
            allocate(1, number << 9);
        }
        unreachable!("the handler ends the process");
    }
    let scratch = Scratch::new();
    scratch.run(TEST);
    let recording = scratch.read();
    // The end cannot be written.
    assert_eq!((recording.end, &recording.problems), (End::Open, &vec![]));
    assert!(recording.events.len() > 10_000);
}
