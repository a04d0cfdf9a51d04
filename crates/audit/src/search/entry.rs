//! Where the calling thread entered this library: what is below on its stack are this library's own frames.

use std::cell::Cell;

/// Callee-saved registers of x86-64 and aarch64.
const SAVED: usize = 12;

#[derive(Clone, Copy)]
pub(super) struct Entry {
    /// An address in the frame of the function that entered.
    pub(super) frame: u64,
    /// Registers that functions preserve: a deeper frame of this library may hold them, where nothing looks.
    pub(super) registers: [u64; SAVED],
}

thread_local! {
    static ENTRY: Cell<Option<Entry>> = const { Cell::new(None) };
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
        let entry = Entry {
            frame: (&raw const mark).addr() as u64,
            registers: saved_registers(),
        };
        record(entry);
        Entered(())
    }
}

/// Whether this call set the entry is known by its frame being the outermost: stacks grow down.
fn record(entry: Entry) {
    let _ = ENTRY.try_with(|known| {
        if known.get().is_none_or(|known| known.frame < entry.frame) {
            known.set(Some(entry));
        }
    });
}

impl Drop for Entered {
    fn drop(&mut self) {
        let _ = ENTRY.try_with(|entry| entry.set(None));
    }
}

/// The calling thread's entry, if one was recorded.
pub(super) fn current() -> Option<Entry> {
    ENTRY.try_with(Cell::get).unwrap_or(None)
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
