//! Stops the other threads of the process and reads their registers.
//!
//! Each gets a real-time signal, whose handler stores the registers and waits. A thread that blocks all signals
//! cannot be stopped: its registers are not known, and an address may be there.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::alternate_stack;
use super::context::{SharedContext, ThreadContext};
use super::entry::{self, Entry, SAVED};
use super::interrupted;
use super::memory::Memory;
use super::restart::Waiting;
use super::stacks::RED_ZONE;
use super::task::{cannot_stop, status, waiting, would_receive};
use crate::heap::lock::{futex_wait, futex_wake};
use crate::heap::threads::{left_out, thread_id};

/// Further threads run on, and their whole stacks are searched.
const CAPACITY: usize = 4096;
/// How long no thread may have stopped before the rest is not waited for, but for those that only need a processor.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long all of them may take: on a busy machine each must be given a processor first, one after the other.
const MOST: Duration = Duration::from_secs(10);
/// After this time it is looked up which threads cannot stop.
const GLANCE: Duration = Duration::from_millis(50);
/// A thread runs on after this time, whatever became of the search.
const LONGEST: Duration = Duration::from_secs(60);

/// How long a thread of a process that ends stays stopped after the search. It may hold a lock that the report needs, and then
/// runs on.
const HELD: Duration = Duration::from_secs(5);

/// Bytes of frames in a call of the driver: a thread with more is on another stack than the one that it called from.
const MOST_OF_CALL: u64 = 1 << 20;

/// Where a stopped thread leaves what it stores.
struct Slot {
    /// Zero until the thread stopped, then the stop's number.
    stopped: AtomicU32,
    /// The number of the last stop that the thread could not take part in.
    skipped: AtomicU32,
    /// The number of the last stop after which the thread does not run on.
    held: AtomicU32,
    stack_pointer: AtomicU64,
    /// What the thread waited in when the signal was sent.
    waiting: Waiting,
    /// The thread that is in the handler; zero when there is none.
    inside: AtomicI32,
    context: SharedContext,
    /// Where the call of the driver began that the thread is in, or zero; and its registers then.
    call: AtomicU64,
    call_registers: [AtomicU64; SAVED],
}

static SLOTS: [Slot; CAPACITY] = [const {
    Slot {
        stopped: AtomicU32::new(0),
        skipped: AtomicU32::new(0),
        held: AtomicU32::new(0),
        waiting: Waiting::new(),
        stack_pointer: AtomicU64::new(0),
        inside: AtomicI32::new(0),
        context: SharedContext::new(),
        call: AtomicU64::new(0),
        call_registers: [const { AtomicU64::new(0) }; SAVED],
    }
}; CAPACITY];

/// The number of the stop that is in progress; zero when there is none.
static CURRENT: AtomicU32 = AtomicU32::new(0);
/// Threads that stopped, so that the searching thread can wait for them.
static STOPPED: AtomicU32 = AtomicU32::new(0);
/// The number of the last stop.
static LAST: AtomicU32 = AtomicU32::new(0);
/// The signal; zero before the handler was installed. It stays installed: a late signal must not end the process. The program
/// may replace the handler.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Whether the process ends by a signal.
static ENDS: AtomicBool = AtomicBool::new(false);

/// Whether the process ends by a signal: a thread whose system call the search interrupts stays stopped then. It would see
/// `EINTR` otherwise, of a signal that it would not have survived. Async-signal-safe.
pub(crate) fn process_ends(ends: bool) {
    ENDS.store(ends, Ordering::Relaxed);
}

/// A word that the frames of signals have; zero where it is not known.
static SIGNAL_FRAME: AtomicU64 = AtomicU64::new(0);

/// A thread of the program.
pub(super) struct Thread {
    pub(super) id: i32,
    /// `None` for a thread that could not be stopped, unless it is inside this library.
    pub(super) state: Option<State>,
    /// What the state is from, of a thread that could not be stopped.
    pub(super) entry: Option<Entry>,
    /// The stack pointer of a thread that could not be stopped and waits in the kernel.
    pub(super) waiting: Option<u64>,
}

/// What a stopped thread was at.
pub(super) struct State {
    pub(super) stack_pointer: u64,
    pub(super) pointer: u64,
    pub(super) registers: Vec<u64>,
    /// A part of an alternate signal stack that is not the program's.
    pub(super) alternate: Range<u64>,
    /// Whether the stack pointer is that of a handler on the alternate stack.
    pub(super) is_on_alternate: bool,
}

impl State {
    fn new(memory: &Memory, stack_pointer: u64, context: &ThreadContext) -> State {
        State {
            stack_pointer,
            pointer: context.pointer,
            registers: context.registers(memory),
            alternate: context.alternate.clone(),
            is_on_alternate: context.is_on_alternate,
        }
    }

    /// That of a thread that is inside this library: its registers and the frames below are this library's.
    pub(super) fn of(memory: &Memory, entry: &Entry) -> State {
        // The red zone belongs to functions that call nothing; this one called this library.
        State::new(memory, entry.frame + RED_ZONE, &entry.context)
    }
}

fn values(registers: &[AtomicU64]) -> Vec<u64> {
    let registers = registers.iter();
    registers
        .map(|register| register.load(Ordering::Relaxed))
        .collect()
}

impl Slot {
    /// What the stopped thread was at.
    fn state(&self, memory: &Memory) -> State {
        let stack_pointer = self.stack_pointer.load(Ordering::Relaxed);
        let context = self.context.load();
        let call = self.call.load(Ordering::Relaxed);
        // In a call of the driver, it may hold a lock of the records.
        if ENDS.load(Ordering::Relaxed) && call == 0 && context.sees_interruption(memory) {
            let number = self.stopped.load(Ordering::Relaxed);
            self.held.store(number, Ordering::Relaxed);
        }
        let state = State::new(memory, stack_pointer, &context);
        match is_of_call(memory, state.stack_pointer..call) {
            true => State {
                stack_pointer: call + RED_ZONE,
                registers: values(&self.call_registers),
                ..state
            },
            false => state,
        }
    }
}

/// Whether these are frames of this library and the driver: from the stack pointer of a thread to where it called the driver. Not
/// if a handler of the program has interrupted the call, whose frames are there then, below a signal frame.
fn is_of_call(memory: &Memory, frames: Range<u64>) -> bool {
    let frame = SIGNAL_FRAME.load(Ordering::Relaxed);
    if frames.is_empty() || frames.end - frames.start > MOST_OF_CALL || frame == 0 {
        return false;
    }
    let mut words = vec![0; ((frames.end - frames.start) / 8) as usize];
    let bytes = super::memory::bytes_of(&mut words);
    memory.read(frames.start, bytes) == bytes.len() && !words.contains(&frame)
}

/// The other threads of the program stand still while this exists.
pub(super) struct Stopped {
    ids: Vec<i32>,
    number: u32,
    /// Whether all threads are known.
    pub(super) all_listed: bool,
}

impl Stopped {
    /// What the threads were at, without those that ended. The main thread stays as a zombie.
    pub(super) fn threads(&self, memory: &Memory) -> Vec<Thread> {
        let slots = SLOTS.iter().map(Some).chain(std::iter::repeat(None));
        self.ids
            .iter()
            .zip(slots)
            .filter_map(|(id, slot)| {
                let stopped = |slot: &&Slot| slot.stopped.load(Ordering::Acquire) == self.number;
                let state = slot.filter(stopped).map(|slot| slot.state(memory));
                let entry = match state {
                    None => entry::of(*id),
                    Some(_) => None,
                };
                let state = state.or_else(|| Some(State::of(memory, entry.as_ref()?)));
                if state.is_none() && status(*id).is_some_and(|status| status.has_ended) {
                    return None;
                }
                Some(Thread {
                    id: *id,
                    waiting: state.is_none().then(|| waiting(*id)).flatten(),
                    state,
                    entry,
                })
            })
            .collect()
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        CURRENT.store(0, Ordering::Release);
        futex_wake(&CURRENT, i32::MAX);
    }
}

/// Stops the other threads of the program, one search at a time. Allocates nothing once the first has stopped.
pub(super) fn stop(memory: &Memory) -> Stopped {
    let mut stopped = Stopped {
        ids: Vec::with_capacity(CAPACITY * 2),
        number: LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1),
        all_listed: true,
    };
    let Some(signal) = install() else {
        stopped.all_listed = list(&mut stopped.ids);
        return stopped;
    };
    // No thread may be stopped inside the arena: the search allocates.
    let frozen = crate::heap::freeze();
    STOPPED.store(0, Ordering::Relaxed);
    CURRENT.store(stopped.number, Ordering::Release);
    // Those that are held leave the handler, to be stopped again.
    futex_wake(&CURRENT, i32::MAX);
    let deadline = Instant::now() + MOST;
    let patient = Instant::now() + PATIENCE;
    wait_for_handlers(patient);
    let mut sent = 0;
    // Again until no new threads appear: those that run may create some.
    loop {
        stopped.all_listed &= list(&mut stopped.ids);
        let all = stopped.ids.len().min(CAPACITY);
        if sent == all {
            break;
        }
        let new = SLOTS.iter().zip(&stopped.ids).enumerate().skip(sent);
        for (number, (slot, thread)) in new {
            let is_starting = || status(*thread).is_some_and(|status| status.is_starting(signal));
            while is_starting() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
            match would_receive(memory, *thread, signal) {
                true => slot.skipped.store(stopped.number, Ordering::Relaxed),
                false => {
                    slot.waiting.note(*thread);
                    send(signal, *thread, number, stopped.number);
                }
            }
        }
        sent = all;
        // A thread that cannot be stopped may create others without end.
        if !wait(&stopped, all, signal, deadline) || Instant::now() >= deadline {
            break;
        }
    }
    drop(frozen);
    stopped
}

/// Waits for threads that are still in the handler of the last stop. All signals are blocked there, as if the program did it.
fn wait_for_handlers(patient: Instant) {
    for slot in &SLOTS {
        loop {
            let thread = slot.inside.load(Ordering::Acquire);
            // A thread of the process that this one was forked of has ended here.
            let is_inside = thread != 0 && status(thread).is_some_and(|status| !status.has_ended);
            if !is_inside || Instant::now() >= patient {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Waits until all threads have stopped but those that cannot. Returns whether that is so: false where the time is over.
fn wait(stopped: &Stopped, all: usize, signal: c_int, deadline: Instant) -> bool {
    let skipped = |slot: &Slot| slot.skipped.load(Ordering::Relaxed) == stopped.number;
    let mut cannot = SLOTS[..all].iter().filter(|slot| skipped(slot)).count();
    let mut count = STOPPED.load(Ordering::Acquire);
    let mut patient = deadline.min(Instant::now() + PATIENCE);
    loop {
        if count as usize + cannot >= all {
            return true;
        }
        let now = Instant::now();
        if now >= patient {
            let mut threads = SLOTS.iter().zip(&stopped.ids[..all]);
            let only_waits = |(slot, id): (&Slot, &i32)| {
                slot.stopped.load(Ordering::Acquire) != stopped.number
                    && status(*id).is_some_and(|status| status.waits_for_processor(signal))
            };
            if now >= deadline || !threads.any(only_waits) {
                return false;
            }
            patient = deadline.min(now + PATIENCE);
        }
        futex_wait(&STOPPED, count, Some(GLANCE.min(patient - now)));
        let before = std::mem::replace(&mut count, STOPPED.load(Ordering::Acquire));
        if before != count {
            patient = deadline.min(Instant::now() + PATIENCE);
            continue;
        }
        let threads = SLOTS.iter().zip(&stopped.ids[..all]);
        cannot = threads
            .filter(|(slot, id)| {
                slot.stopped.load(Ordering::Acquire) != stopped.number
                    && (skipped(slot) || cannot_stop(**id, signal))
            })
            .count();
    }
}

/// Adds the threads that are not in the list yet, except this one and those of the driver and this library. Returns whether
/// all are in it. Without `opendir`, which allocates.
fn list(ids: &mut Vec<i32>) -> bool {
    let Ok(folder) = std::fs::File::open("/proc/self/task") else {
        return false;
    };
    let mut is_complete = true;
    let own = thread_id();
    let mut buffer = [0_u64; 512];
    loop {
        // SAFETY: the buffer is valid.
        let read = unsafe {
            libc::syscall(
                libc::SYS_getdents64,
                folder.as_raw_fd(),
                buffer.as_mut_ptr(),
                size_of_val(&buffer),
            )
        };
        let read = match usize::try_from(read) {
            Ok(0) => return is_complete,
            Ok(read) => read,
            Err(_) => return false,
        };
        let bytes = &super::memory::bytes_of(&mut buffer)[..read];
        let mut at = 0;
        // Entries: inode, offset (8 bytes each), length (2), kind (1), name.
        while at + 19 < read {
            let length = u16::from_ne_bytes([bytes[at + 16], bytes[at + 17]]) as usize;
            let name = &bytes[at + 19..(at + length).min(read)];
            let digits = name.iter().take_while(|byte| byte.is_ascii_digit());
            let id = digits.fold(0, |id: i32, digit| {
                id.wrapping_mul(10).wrapping_add(i32::from(digit - b'0'))
            });
            let is_new = id != 0 && id != own && !ids.contains(&id);
            if is_new && left_out(id).is_none() {
                match ids.len() < ids.capacity() {
                    true => ids.push(id),
                    false => is_complete = false,
                }
            }
            at += length.max(1);
        }
    }
}

/// Sends the signal to a thread, with the number of its slot. A thread that ended gets none.
fn send(signal: c_int, thread: i32, slot: usize, number: u32) {
    // SAFETY: no requirements.
    let process = unsafe { libc::getpid() };
    // `siginfo_t` of a queued signal: signal, error, code, padding; process, user; value.
    let mut info = [0_u64; 16];
    info[0] = u64::from(signal.cast_unsigned());
    info[1] = u64::from(libc::SI_QUEUE.cast_unsigned());
    info[2] = u64::from(process.cast_unsigned());
    info[3] = u64::from(number) << 32 | slot as u64;
    // SAFETY: the structure is valid.
    unsafe {
        libc::syscall(
            libc::SYS_rt_tgsigqueueinfo,
            process,
            thread,
            signal,
            info.as_ptr(),
        );
    }
}

/// Whether the handler is installed for this signal.
fn is_installed(signal: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: zero is a valid `sigaction`, which the call writes to.
    unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) == 0
            && (*action.as_ptr()).sa_sigaction == handler as *const () as usize
    }
}

/// Installs the handler, for a signal that the program does not use. Returns the signal.
fn install() -> Option<c_int> {
    let known = SIGNAL.load(Ordering::Relaxed);
    if known != 0 && is_installed(known) {
        // Again: the flags may be others by now.
        set_handler(known);
        return Some(known);
    }
    for signal in (libc::SIGRTMIN() + 1..libc::SIGRTMAX()).rev() {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: zero is a valid `sigaction`: the default disposition.
        unsafe {
            if libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) != 0
                || (*action.as_ptr()).sa_sigaction != libc::SIG_DFL
                || !set_handler(signal)
            {
                continue;
            }
        }
        SIGNAL.store(signal, Ordering::Relaxed);
        SIGNAL_FRAME.store(word_of_frames(signal), Ordering::Relaxed);
        return Some(signal);
    }
    None
}

/// Installs the handler for this signal. Returns whether it is.
fn set_handler(signal: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: zero is a valid `sigaction`, whose members are set; the handler is async-signal-safe.
    unsafe {
        (*action.as_mut_ptr()).sa_sigaction = handler as *const () as usize;
        (*action.as_mut_ptr()).sa_flags =
            libc::SA_SIGINFO | libc::SA_RESTART | alternate_stack::flag();
        libc::sigfillset(&raw mut (*action.as_mut_ptr()).sa_mask);
        libc::sigaction(signal, action.as_ptr(), ptr::null_mut()) == 0
    }
}

/// A word that the frames of signals have: the address that their handlers return to, or zero where it is not known.
#[cfg(target_arch = "x86_64")]
fn word_of_frames(signal: c_int) -> u64 {
    // The kernel's structure: handler, flags, restorer, mask.
    let mut action = [0_u64; 4];
    // SAFETY: the structure can be written to.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            ptr::null::<u64>(),
            action.as_mut_ptr(),
            size_of::<u64>(),
        )
    };
    action[2]
}

/// A word that the frames of signals have: the head of their vector registers.
#[cfg(target_arch = "aarch64")]
fn word_of_frames(_signal: c_int) -> u64 {
    interrupted::VECTORS_HEAD
}

/// Stores the thread's registers, and waits until the stop ends. Uses nothing that is not safe in a signal handler.
extern "C" fn handler(_signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the kernel's structure; see `send`. `errno` is the thread's own.
    let (value, errno) = unsafe { (*info.cast::<u64>().add(3), libc::__errno_location()) };
    let (number, slot) = ((value >> 32) as u32, value as u32 as usize);
    if number == 0 || CURRENT.load(Ordering::Acquire) != number {
        return;
    }
    let Some(slot) = SLOTS.get(slot) else {
        return;
    };
    // SAFETY: as above.
    let code = unsafe { *errno };
    slot.inside.store(thread_id(), Ordering::Relaxed);
    let stack_pointer = match entry::store_current(&slot.context) {
        // It waits for a report: its registers and the frames below are this library's.
        Some(frame) => {
            slot.call.store(0, Ordering::Relaxed);
            frame + RED_ZONE
        }
        None => {
            // SAFETY: the kernel's structure, which nothing changes meanwhile.
            let context = unsafe { &*context };
            slot.context
                .store_interrupted(context, (&raw const value).addr() as u64);
            entry::store_call(&slot.call, &slot.call_registers);
            interrupted::stack_pointer(context)
        }
    };
    slot.stack_pointer.store(stack_pointer, Ordering::Relaxed);
    slot.stopped.store(number, Ordering::Release);
    STOPPED.fetch_add(1, Ordering::Release);
    futex_wake(&STOPPED, 1);
    let mut waited = 0;
    while CURRENT.load(Ordering::Acquire) == number && waited < LONGEST.as_secs() {
        futex_wait(&CURRENT, number, Some(Duration::from_secs(1)));
        waited += 1;
    }
    waited = 0;
    while slot.held.load(Ordering::Relaxed) == number
        && CURRENT.load(Ordering::Acquire) == 0
        && waited < HELD.as_secs()
    {
        futex_wait(&CURRENT, 0, Some(Duration::from_secs(1)));
        waited += 1;
    }
    // SAFETY: the context is this handler's own, and `errno` as above. What the slot has is of this thread, until it leaves it.
    unsafe {
        slot.waiting.restart(context);
        *errno = code;
    }
    slot.inside.store(0, Ordering::Release);
}
