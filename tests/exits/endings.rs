//! What the children do.

use std::cell::RefCell;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{LazyLock, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use cuguard::{Context, DeviceBuffer, Event, PinnedBuffer, Stream, sim};

use super::{Case, End, Told, case, forks, plugin};

/// All cases.
pub fn all() -> Vec<Case> {
    use End::{AtOnce, Code, Signal};
    use Told::{AtDrop, AtExit, Nowhere};
    vec![
        case("main_returns", main_returns, Code(0), AtExit),
        case(
            "main_returns_a_failure",
            main_returns_a_failure,
            Code(4),
            AtExit,
        ),
        case(
            "main_returns_and_all_is_closed",
            all_is_closed,
            Code(0),
            Nowhere,
        ),
        case(
            "the_context_went_before",
            the_context_went_before,
            Code(0),
            AtDrop,
        ),
        case("process_exit", process_exit, Code(7), AtExit),
        case("exit_of_c", exit_of_c, Code(7), AtExit),
        case("main_panics", main_panics, Code(101), AtDrop),
        case(
            "main_panics_beside_a_static",
            main_panics_beside_a_static,
            Code(101),
            AtExit,
        ),
        case("a_thread_panics", a_thread_panics, Code(0), AtDrop),
        case(
            "a_panic_that_cannot_unwind",
            cannot_unwind,
            Signal(libc::SIGABRT),
            Nowhere,
        ),
        case(
            "a_panic_that_aborts",
            panic_aborts,
            Signal(libc::SIGABRT),
            Nowhere,
        ),
        case("abort", abort, Signal(libc::SIGABRT), Nowhere),
        case("terminated", terminated, Signal(libc::SIGTERM), Nowhere),
        case(
            "a_wrong_address",
            a_wrong_address,
            Signal(libc::SIGSEGV),
            Nowhere,
        ),
        case("exit_at_once", exit_at_once, AtOnce(7), Nowhere),
        case("a_thread_allocates", a_thread_allocates, Code(0), AtExit),
        case("guards_in_statics", guards_in_statics, Code(0), AtExit),
        case(
            "a_guard_dropped_by_a_late_handler",
            dropped_late,
            Code(0),
            AtExit,
        ),
        case(
            "locals_of_the_main_thread",
            locals_of_the_main_thread,
            Code(0),
            AtDrop,
        ),
        case(
            "locals_beside_a_static",
            locals_beside_a_static,
            Code(0),
            AtExit,
        ),
        case(
            "locals_of_a_thread_that_ended",
            locals_of_a_thread,
            Code(0),
            AtDrop,
        ),
        case(
            "locals_of_a_thread_that_runs",
            locals_of_a_running_thread,
            Code(0),
            AtExit,
        ),
        case("a_fork_that_exits", forks::exits, Code(0), AtExit),
        case(
            "a_fork_that_exits_at_once",
            forks::exits_at_once,
            Code(0),
            AtExit,
        ),
        case(
            "a_fork_that_returns_from_main",
            forks::returns,
            Code(0),
            AtExit,
        ),
        case("a_fork_that_panics", forks::panics, Code(0), AtExit),
        case("a_fork_that_drops_all", forks::drops_all, Code(0), AtExit),
        case("a_plugin_is_unloaded", plugin::unloaded, Code(0), AtExit),
        case(
            "a_plugin_of_a_thread_is_unloaded",
            plugin::unloaded_after_its_thread,
            Code(0),
            AtExit,
        ),
        case(
            "a_plugin_ends_and_is_unloaded",
            plugin::ended,
            Code(0),
            Nowhere,
        ),
    ]
}

static PROCESS: AtomicU32 = AtomicU32::new(0);

/// How often the driver had been called when the exit began, as far as one can tell.
static BEGAN: AtomicU64 = AtomicU64::new(u64::MAX);

/// Calls of the simulated driver. On a real one there are none to see.
fn calls() -> u64 {
    sim::counters().calls.values().sum()
}

/// What the last handler drops.
static LATE: Mutex<Option<DeviceBuffer<u8>>> = Mutex::new(None);

/// Registered before cuguard's own handler, so it runs after it.
extern "C" fn after() {
    if PROCESS.load(Ordering::Relaxed) != std::process::id() {
        return;
    }
    let began = BEGAN.load(Ordering::Relaxed).min(calls());
    drop(LATE.lock().unwrap_or_else(|e| e.into_inner()).take());
    thread::sleep(Duration::from_millis(40));
    let late = calls() - began;
    eprintln!("calls of the driver after the exit began: {late}");
}

/// Registered after cuguard's own, so it runs before.
extern "C" fn before() {
    BEGAN.store(calls(), Ordering::Relaxed);
}

/// What every child does first.
pub fn begin() {
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    // SAFETY: takes and answers nothing, and does not unwind.
    assert_eq!(unsafe { libc::atexit(after) }, 0);
}

/// A context with something forgotten in it.
fn leaky() -> Context {
    let context = Context::new(0).unwrap();
    let lost = DeviceBuffer::<u8>::zeroed(&context, 1000).unwrap();
    std::mem::forget(lost.with_label("left behind"));
    context
}

/// The same for a program with no other threads, where all calls from now on are late.
pub fn leaky_alone() -> Context {
    let context = leaky();
    // SAFETY: as above.
    assert_eq!(unsafe { libc::atexit(before) }, 0);
    context
}

fn main_returns() -> ExitCode {
    std::mem::forget(leaky_alone());
    ExitCode::SUCCESS
}

fn main_returns_a_failure() -> ExitCode {
    std::mem::forget(leaky_alone());
    ExitCode::from(4)
}

fn all_is_closed() -> ExitCode {
    let context = Context::new(0).unwrap();
    let buffer = DeviceBuffer::from_slice(&context, &[1, 2, 3]).unwrap();
    // SAFETY: as above.
    assert_eq!(unsafe { libc::atexit(before) }, 0);
    drop(buffer);
    context.close().unwrap();
    ExitCode::SUCCESS
}

fn the_context_went_before() -> ExitCode {
    drop(leaky_alone());
    ExitCode::SUCCESS
}

fn process_exit() -> ExitCode {
    let _context = leaky_alone();
    std::process::exit(7)
}

fn exit_of_c() -> ExitCode {
    let _context = leaky_alone();
    // SAFETY: no other thread exits.
    unsafe { libc::exit(7) }
}

fn main_panics() -> ExitCode {
    let _context = leaky_alone();
    panic!("on purpose")
}

static CONTEXT: OnceLock<Context> = OnceLock::new();

fn main_panics_beside_a_static() -> ExitCode {
    let context = CONTEXT.get_or_init(leaky_alone);
    let _goes = Stream::new(context).unwrap();
    panic!("on purpose")
}

fn a_thread_panics() -> ExitCode {
    let thread = thread::spawn(|| {
        let _context = leaky_alone();
        panic!("on purpose")
    });
    let panicked: Result<(), _> = thread.join();
    assert!(panicked.is_err());
    ExitCode::SUCCESS
}

fn cannot_unwind() -> ExitCode {
    extern "C" fn called_by_c() {
        panic!("on purpose");
    }
    let _context = leaky();
    called_by_c();
    ExitCode::SUCCESS
}

/// What `panic = "abort"` does: the message, and the end.
fn panic_aborts() -> ExitCode {
    std::panic::set_hook(Box::new(|_| std::process::abort()));
    let _context = leaky();
    panic!("on purpose")
}

fn abort() -> ExitCode {
    let _context = leaky();
    std::process::abort()
}

fn terminated() -> ExitCode {
    let _context = leaky();
    // SAFETY: may be called at any time.
    unsafe { libc::raise(libc::SIGTERM) };
    ExitCode::SUCCESS
}

fn a_wrong_address() -> ExitCode {
    let _context = leaky();
    // SAFETY: there is none, which is the point: the process is to end here.
    unsafe { std::ptr::without_provenance_mut::<u8>(64).write_volatile(1) };
    ExitCode::SUCCESS
}

fn exit_at_once() -> ExitCode {
    let _context = leaky();
    // SAFETY: may be called at any time.
    unsafe { libc::_exit(7) }
}

fn a_thread_allocates() -> ExitCode {
    let context = CONTEXT.get_or_init(leaky);
    let (begin, begun) = channel();
    thread::spawn(move || {
        let stream = Stream::new(context).unwrap();
        loop {
            // Refused from the exit on.
            let _ = DeviceBuffer::<u8>::zeroed(&stream, 5000);
            let _ = PinnedBuffer::<u8>::zeroed(context, 5000);
            let _ = begin.send(());
        }
    });
    begun.iter().take(20).for_each(drop);
    ExitCode::SUCCESS
}

fn guards_in_statics() -> ExitCode {
    static BUFFER: LazyLock<DeviceBuffer<u8>> =
        LazyLock::new(|| DeviceBuffer::zeroed(CONTEXT.get().unwrap(), 10).unwrap());
    static EVENT: OnceLock<Event> = OnceLock::new();
    let context = CONTEXT.get_or_init(leaky_alone);
    EVENT.get_or_init(|| Event::new(context).unwrap());
    assert_eq!(BUFFER.to_vec().unwrap(), [0; 10]);
    BEGAN.store(calls(), Ordering::Relaxed);
    ExitCode::SUCCESS
}

fn dropped_late() -> ExitCode {
    let context = CONTEXT.get_or_init(leaky_alone);
    *LATE.lock().unwrap() = Some(DeviceBuffer::zeroed(context, 10).unwrap());
    ExitCode::SUCCESS
}

thread_local! {
    // What was made last goes first.
    static OWNER: RefCell<Option<Context>> = const { RefCell::new(None) };
    static GUARDS: RefCell<Vec<DeviceBuffer<u8>>> = const { RefCell::new(Vec::new()) };
    static LAST: RefCell<Option<Stream>> = const { RefCell::new(None) };
}

/// Guards on both sides of their context, in the order in which a thread's locals go.
fn fill_locals() {
    let context = leaky();
    let buffer = || DeviceBuffer::zeroed(&context, 100).unwrap();
    LAST.with(|last| *last.borrow_mut() = Some(Stream::new(&context).unwrap()));
    let (one, two) = (buffer(), buffer());
    OWNER.with(|owner| *owner.borrow_mut() = Some(context));
    GUARDS.with(|guards| guards.borrow_mut().extend([one, two]));
}

fn locals_of_the_main_thread() -> ExitCode {
    fill_locals();
    ExitCode::SUCCESS
}

/// The guards go with the main thread, before any handler; the context is told of as it is then.
fn locals_beside_a_static() -> ExitCode {
    let context = CONTEXT.get_or_init(leaky_alone);
    let buffer = DeviceBuffer::zeroed(context, 100).unwrap();
    GUARDS.with(|guards| guards.borrow_mut().push(buffer));
    ExitCode::SUCCESS
}

fn locals_of_a_thread() -> ExitCode {
    thread::spawn(fill_locals).join().unwrap();
    ExitCode::SUCCESS
}

fn locals_of_a_running_thread() -> ExitCode {
    let (begin, begun) = channel();
    thread::spawn(move || {
        fill_locals();
        begin.send(()).unwrap();
        loop {
            thread::park();
        }
    });
    begun.recv().unwrap();
    ExitCode::SUCCESS
}
