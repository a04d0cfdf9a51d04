//! Where threads entered this library: what is below on their stacks are this library's own frames.
//!
//! In a table by the kernel's numbers of threads, not in thread-local variables: the handler that stops a thread reads it, and
//! the first use of a thread-local variable of a library may allocate, with `malloc`, which the thread may be inside of.

use std::cell::Cell;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering, compiler_fence, fence};

use super::caller::Caller;
use super::context::{SharedContext, ThreadContext};
use super::interrupted;
use super::stacks::RED_ZONE;
use crate::heap::threads::thread_id;

/// Registers that functions preserve.
#[cfg(target_arch = "x86_64")]
pub(super) const SAVED: usize = 6;
/// Registers that functions preserve: general ones, and the lower halves of eight vector registers.
#[cfg(target_arch = "aarch64")]
pub(super) const SAVED: usize = 11 + 8;

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Where the program's part of the stack begins.
    pub(super) frame: u64,
    /// With registers of the program: a deeper frame of this library may hold them, where nothing looks.
    pub(super) context: ThreadContext,
}

/// More threads than wait for a report at a time. The frames of further ones are searched.
const CAPACITY: usize = 256;

const FREE: u64 = 0;
/// The thread writes the slot.
const CLAIMED: u64 = 1;

struct Slot {
    /// The frame, [`FREE`] or [`CLAIMED`].
    frame: AtomicU64,
    thread: AtomicI32,
    context: SharedContext,
}

static SLOTS: [Slot; CAPACITY] = [const {
    Slot {
        frame: AtomicU64::new(FREE),
        thread: AtomicI32::new(0),
        context: SharedContext::new(),
    }
}; CAPACITY];

impl Slot {
    /// The slot of a thread that is inside this library.
    fn of(thread: i32) -> Option<&'static Slot> {
        SLOTS.iter().find(|slot| {
            slot.frame.load(Ordering::Acquire) > CLAIMED
                && slot.thread.load(Ordering::Relaxed) == thread
        })
    }

    fn claim() -> Option<&'static Slot> {
        SLOTS.iter().find(|slot| {
            let claimed =
                slot.frame
                    .compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed);
            claimed.is_ok()
        })
    }
}

/// The thread is inside this library while this exists. `None` where an outer one counts.
pub(crate) struct Entered(Option<&'static Slot>);

/// A place on the stack, for [`Entered::behind`].
#[derive(Clone, Copy)]
pub(crate) struct Mark(u64);

impl Mark {
    /// In the frame of the function that calls this.
    #[inline(always)]
    pub(crate) fn here() -> Mark {
        let mark = 0_u8;
        Mark((&raw const mark).addr() as u64)
    }
}

/// Create one first in each function that the program or the C library calls and that may search: an exit handler, a signal
/// handler, an exported function. A search then leaves out the frames below, which hold addresses of the registry, and remains
/// of earlier calls. The outermost counts.
impl Entered {
    /// The function that calls this was entered by an [`entry_point`](super::entry_point).
    pub(crate) fn by(caller: &Caller) -> Entered {
        let frame = caller.stack_pointer();
        record(frame, |context| {
            context.store_call(frame, caller.registers());
        })
    }

    /// The function that calls this is the handler of a signal. Async-signal-safe.
    #[inline(always)]
    pub(crate) fn by_signal(context: &libc::ucontext_t) -> Entered {
        let mark = Mark::here();
        let frame = interrupted::stack_pointer(context).saturating_sub(RED_ZONE);
        record(frame, |to| to.store_interrupted(context, mark.0))
    }

    /// The function that made the mark called functions of the program, which have returned.
    #[inline(always)]
    pub(crate) fn behind(mark: Mark) -> Entered {
        let registers = saved_registers();
        record(mark.0, |context| context.store_call(mark.0, registers))
    }

    /// For other functions: a part of the frame of the function that calls this counts as the program's.
    #[inline(always)]
    pub(crate) fn here() -> Entered {
        Entered::behind(Mark::here())
    }
}

/// Whether this call set the entry is known by its frame being the outermost: stacks grow down.
#[inline(never)]
fn record(frame: u64, store: impl FnOnce(&SharedContext)) -> Entered {
    let thread = thread_id();
    let slot = match Slot::of(thread) {
        Some(slot) if slot.frame.load(Ordering::Relaxed) >= frame => return Entered(None),
        Some(slot) => {
            // A handler that stops the thread must not read it half written.
            slot.frame.swap(CLAIMED, Ordering::Acquire);
            Some(slot)
        }
        None => Slot::claim(),
    };
    if let Some(slot) = slot {
        // Who reads what follows also sees that the slot is claimed, and does not take it for the entry before.
        fence(Ordering::Release);
        slot.thread.store(thread, Ordering::Relaxed);
        store(&slot.context);
        slot.frame.store(frame, Ordering::Release);
    }
    Entered(slot)
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(slot) = self.0 {
            slot.frame.store(FREE, Ordering::Release);
        }
    }
}

/// Where a thread called the driver, through this library.
struct Calling {
    /// Zero outside of calls.
    frame: Cell<u64>,
    registers: [Cell<u64>; SAVED],
}

thread_local! {
    // Each call writes it, so it is not in the table. Nothing but the handler that stops the thread reads it.
    static CALLING: Calling = const {
        Calling {
            frame: Cell::new(0),
            registers: [const { Cell::new(0) }; SAVED],
        }
    };
}

/// A call of the driver begins, in a function that the program calls: frames below are this library's and the driver's, which
/// hold addresses of others.
#[inline(always)]
pub(crate) fn call_begins() {
    let mark = Mark::here();
    let registers = saved_registers();
    CALLING.with(|calling| {
        for (to, from) in calling.registers.iter().zip(registers) {
            to.set(from);
        }
        compiler_fence(Ordering::SeqCst);
        calling.frame.set(mark.0);
    });
}

/// The call has ended.
#[inline]
pub(crate) fn call_ends() {
    CALLING.with(|calling| calling.frame.set(0));
}

/// Stores the call of the driver that the calling thread is in: where it began, or zero, and the registers then.
/// Async-signal-safe.
pub(super) fn store_call(frame: &AtomicU64, registers: &[AtomicU64; SAVED]) {
    CALLING.with(|calling| {
        frame.store(calling.frame.get(), Ordering::Relaxed);
        for (to, from) in registers.iter().zip(&calling.registers) {
            to.store(from.get(), Ordering::Relaxed);
        }
    });
}

/// Stores the calling thread's entry, if one was recorded. Returns its frame. Async-signal-safe.
pub(super) fn store_current(context: &SharedContext) -> Option<u64> {
    let slot = Slot::of(thread_id())?;
    context.copy(&slot.context);
    Some(slot.frame.load(Ordering::Relaxed))
}

/// The calling thread's entry, if one was recorded.
pub(super) fn current() -> Option<Entry> {
    of(thread_id())
}

/// A thread's entry, if it is inside this library. It may leave, unless it is stopped.
pub(super) fn of(thread: i32) -> Option<Entry> {
    let slot = Slot::of(thread)?;
    let frame = slot.frame.load(Ordering::Acquire);
    let entry = Entry {
        frame,
        context: slot.context.load(),
    };
    let is_same = frame > CLAIMED
        && slot.thread.load(Ordering::Acquire) == thread
        && slot.frame.load(Ordering::Acquire) == frame;
    is_same.then_some(entry)
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn saved_registers() -> [u64; SAVED] {
    let mut values = [0; SAVED];
    // SAFETY: stores registers to the array, and changes nothing else.
    unsafe {
        std::arch::asm!(
            "mov [{at}], rbx",
            "mov [{at} + 8], rbp",
            "mov [{at} + 16], r12",
            "mov [{at} + 24], r13",
            "mov [{at} + 32], r14",
            "mov [{at} + 40], r15",
            at = in(reg) values.as_mut_ptr(),
            options(nostack, preserves_flags),
        );
    }
    values
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn saved_registers() -> [u64; SAVED] {
    let mut values = [0; SAVED];
    // SAFETY: stores registers to the array, and changes nothing else.
    unsafe {
        std::arch::asm!(
            "stp x19, x20, [{at}]",
            "stp x21, x22, [{at}, 16]",
            "stp x23, x24, [{at}, 32]",
            "stp x25, x26, [{at}, 48]",
            "stp x27, x28, [{at}, 64]",
            "str x29, [{at}, 80]",
            "stp d8, d9, [{at}, 88]",
            "stp d10, d11, [{at}, 104]",
            "stp d12, d13, [{at}, 120]",
            "stp d14, d15, [{at}, 136]",
            at = in(reg) values.as_mut_ptr(),
            options(nostack, preserves_flags),
        );
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The frame that counts in a function that the caller's frame lies above.
    #[inline(never)]
    fn deeper() -> Option<u64> {
        let _space = std::hint::black_box([0_u8; 4096]);
        let _inner = Entered::here();
        current().map(|entry| entry.frame)
    }

    #[test]
    fn the_outermost_entry_counts_until_it_is_dropped() {
        assert!(current().is_none());
        let outer = Entered::here();
        let entry = current().expect("an entry");
        // SAFETY: no requirements.
        assert_eq!(entry.context.pointer, unsafe { libc::pthread_self() });
        assert_eq!(std::hint::black_box(deeper)(), Some(entry.frame));
        assert!(current().is_some(), "the inner one has not ended the outer");
        let own = thread_id();
        std::thread::spawn(move || {
            assert!(current().is_none());
            assert!(of(own).is_some());
        })
        .join()
        .expect("no panic");
        drop(outer);
        assert!(current().is_none());
    }
}
