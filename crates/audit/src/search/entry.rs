//! Where threads entered this library: what is below on their stacks are this library's own frames.
//!
//! In a table by the kernel's numbers of threads, not in thread-local variables: the handler that stops a thread reads it, and
//! the first use of a thread-local variable of a library may allocate, with `malloc`, which the thread may be inside of.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use crate::heap::threads::thread_id;

/// Callee-saved registers of x86-64 and aarch64.
const SAVED: usize = 12;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// An address in the frame of the function that entered.
    pub(super) frame: u64,
    /// `pthread_self()`
    pub(super) pointer: u64,
    /// Registers that functions preserve: a deeper frame of this library may hold them, where nothing looks.
    pub(super) registers: [u64; SAVED],
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
    pointer: AtomicU64,
    registers: [AtomicU64; SAVED],
}

static SLOTS: [Slot; CAPACITY] = [const {
    Slot {
        frame: AtomicU64::new(FREE),
        thread: AtomicI32::new(0),
        pointer: AtomicU64::new(0),
        registers: [const { AtomicU64::new(0) }; SAVED],
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

    fn write(&self, thread: i32, entry: &Entry) {
        self.thread.store(thread, Ordering::Relaxed);
        self.pointer.store(entry.pointer, Ordering::Relaxed);
        for (register, value) in self.registers.iter().zip(entry.registers) {
            register.store(value, Ordering::Relaxed);
        }
        self.frame.store(entry.frame, Ordering::Release);
    }
}

/// The thread is inside this library while this exists.
pub(crate) struct Entered(());

impl Entered {
    /// Call it first in each function that the program or the C library calls and that may search: an exit handler, a
    /// signal handler, an exported function. A search then leaves out the frames below, which hold addresses of the
    /// registry. The outermost call counts.
    #[inline(always)]
    pub(crate) fn here() -> Entered {
        let mark = 0_u8;
        record(&Entry {
            frame: (&raw const mark).addr() as u64,
            // SAFETY: no requirements.
            pointer: unsafe { libc::pthread_self() },
            registers: saved_registers(),
        });
        Entered(())
    }
}

/// Whether this call set the entry is known by its frame being the outermost: stacks grow down.
fn record(entry: &Entry) {
    let thread = thread_id();
    let slot = match Slot::of(thread) {
        Some(slot) if slot.frame.load(Ordering::Relaxed) >= entry.frame => return,
        Some(slot) => {
            slot.frame.store(CLAIMED, Ordering::Relaxed);
            Some(slot)
        }
        None => Slot::claim(),
    };
    if let Some(slot) = slot {
        slot.write(thread, entry);
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(slot) = Slot::of(thread_id()) {
            slot.frame.store(FREE, Ordering::Release);
        }
    }
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
        pointer: slot.pointer.load(Ordering::Acquire),
        registers: std::array::from_fn(|at| slot.registers[at].load(Ordering::Acquire)),
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
            at = in(reg) values.as_mut_ptr(),
            options(nostack, preserves_flags),
        );
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outermost_entry_counts_until_it_is_dropped() {
        assert!(current().is_none());
        let outer = Entered::here();
        let entry = current().expect("an entry");
        // SAFETY: no requirements.
        assert_eq!(entry.pointer, unsafe { libc::pthread_self() });
        let deeper = || {
            let _space = std::hint::black_box([0_u8; 4096]);
            let inner = Entered::here();
            let frame = current().map(|entry| entry.frame);
            std::mem::forget(inner);
            frame
        };
        assert_eq!(std::hint::black_box(deeper)(), Some(entry.frame));
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
