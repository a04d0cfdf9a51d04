//! The table: one slot for each driver function, and the functions of that name that jump through
//! their slot.
//!
//! A trampoline is a jump and what the processor needs for it, see `jump!`. It touches no argument
//! and no stack, so it needs to know neither how many arguments there are nor of which type, and it
//! leaves no frame behind that a debugger or a stack capture would show.

use std::arch::naked_asm;
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::fallback;

/// The code of a trampoline: takes a slot's content with an acquiring load and jumps there.
///
/// The load must acquire, as [`fill`] says: who finds the driver's own function in a slot must also
/// find what the loading thread wrote before. On this processor every load does.
// Not `target_arch = "x86_64"`: a target that is neither stops in `lib.rs`, with that message alone.
#[cfg(not(target_arch = "aarch64"))]
macro_rules! jump {
    () => {
        "jmp qword ptr [rip + {slots} + {offset}]"
    };
}

/// The code of a trampoline: takes a slot's content with an acquiring load and jumps there.
///
/// The load must acquire, as [`fill`] says: who finds the driver's own function in a slot must also
/// find what the loading thread wrote before. A plain `ldr` does not see to that; `ldar` does, and
/// takes no offset, hence the `add`.
///
/// `x16` is the register that the calling convention leaves to code between caller and callee. A
/// jump through it may land where a call may, so the target needs nothing special.
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        concat!(
            // `bti c`, by the number that older processors and assemblers know as "do nothing":
            // in a program with branch protection, a call through a pointer must land on it.
            "hint #34\n",
            "adrp x16, {slots} + {offset}\n",
            "add x16, x16, :lo12:{slots} + {offset}\n",
            "ldar x16, [x16]\n",
            "br x16",
        )
    };
}

/// What a slot holds before a driver is loaded.
macro_rules! initial {
    // Legal before `cuInit`: these load the driver, then call it.
    (cuInit) => {
        fallback::init as *const c_void
    };
    (cuDriverGetVersion) => {
        fallback::driver_get_version as *const c_void
    };
    (cuGetProcAddress) => {
        fallback::get_proc_address as *const c_void
    };
    // Legal before `cuInit`, and needed to say why there is no driver: answered here.
    (cuGetErrorName) => {
        fallback::get_error_name as *const c_void
    };
    (cuGetErrorString) => {
        fallback::get_error_string as *const c_void
    };
    ($other:ident) => {
        fallback::not_initialized as *const c_void
    };
}

macro_rules! table {
    ($($name:ident)*) => {
        /// The number of a function in the table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub(crate) enum Slot {
            $($name),*
        }

        impl Slot {
            /// All slots, in the order of the table.
            pub(crate) const ALL: [Slot; COUNT] = [$(Slot::$name),*];
        }

        /// Where calls go. A slot never holds null, so a trampoline need not look.
        static SLOTS: [AtomicPtr<c_void>; COUNT] =
            [$(AtomicPtr::new(initial!($name).cast_mut())),*];

        /// The functions that `cust_raw` declares, under the driver's names.
        mod trampolines {
            use super::{SLOTS, Slot, naked_asm};

            $(
                // Hidden: were it visible, a program that exports its symbols would offer this
                // function to the driver library itself, whose own calls would then come back
                // here, and a shared library would offer it to everybody.
                #[unsafe(no_mangle)]
                #[unsafe(naked)]
                pub(super) unsafe extern "C" fn $name() {
                    naked_asm!(
                        concat!(".hidden ", stringify!($name)),
                        jump!(),
                        slots = sym SLOTS,
                        offset = const Slot::$name as usize * size_of::<usize>(),
                    )
                }
            )*
        }

        /// Names every trampoline, so that the linker takes and keeps them all, whichever of them
        /// the program happens to mention.
        #[used]
        static TRAMPOLINES: [unsafe extern "C" fn(); COUNT] = [$(trampolines::$name),*];
    };
}

/// How many functions there are.
pub(crate) const COUNT: usize = cuguard_sys::NAMES.len();

cuguard_sys::with_names!(table);

impl Slot {
    /// The function's name.
    pub(crate) const fn name(self) -> &'static str {
        cuguard_sys::NAMES[self as usize]
    }

    /// Whether the function loads a driver when it is called before there is one.
    const fn loads(self) -> bool {
        matches!(
            self,
            Slot::cuInit | Slot::cuDriverGetVersion | Slot::cuGetProcAddress
        )
    }

    /// Whether the door can answer this function by itself, driver or not.
    pub(crate) const fn answered_here(self) -> bool {
        matches!(self, Slot::cuGetErrorName | Slot::cuGetErrorString)
    }

    /// Where calls of this function go now.
    fn target(self) -> *const c_void {
        SLOTS[self as usize].load(Ordering::Acquire)
    }

    /// What the slot holds when a driver is loaded that lacks the function: the door's own answer
    /// where it has one, otherwise "not supported".
    pub(crate) fn substitute(self) -> *const c_void {
        if self.answered_here() {
            self.target()
        } else {
            fallback::not_supported as *const c_void
        }
    }
}

/// Points the slots at `targets`, and calls `publish` when all are set but those of the functions
/// that load a driver.
///
/// The order is the point. A thread that calls `cuInit` while another is loading either still
/// comes to the door, waits there for the load to end and is sent on, or it finds the driver's own
/// `cuInit` in the slot; then all other slots are the driver's already. Releasing stores here and
/// acquiring loads in the trampolines keep that true on a processor that reorders.
pub(crate) fn fill(targets: &[*const c_void; COUNT], publish: impl FnOnce()) {
    // See `TRAMPOLINES`: the loader must refer to it.
    std::hint::black_box(&TRAMPOLINES);
    let set = |slot: Slot| {
        let target = targets[slot as usize].cast_mut();
        // A call would jump there. Whoever made the table has put a function into each slot.
        assert!(!target.is_null(), "{} has no function", slot.name());
        SLOTS[slot as usize].store(target, Ordering::Release);
    };
    let (last, first): (Vec<Slot>, Vec<Slot>) = Slot::ALL.iter().partition(|slot| slot.loads());
    first.into_iter().for_each(set);
    publish();
    last.into_iter().for_each(set);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_numbered_in_the_order_of_the_names() {
        assert_eq!(Slot::cuGetErrorString as usize, 0);
        assert_eq!(Slot::cuProfilerStop as usize, COUNT - 1);
        for (number, slot) in Slot::ALL.iter().enumerate() {
            assert_eq!(*slot as usize, number);
            assert_eq!(format!("{slot:?}"), slot.name());
        }
    }

    /// The address that the trampoline at `code` takes its target from, read from the code. An
    /// error holds code that is not a trampoline's.
    #[cfg(target_arch = "x86_64")]
    fn source(code: *const ()) -> Result<usize, [u8; 6]> {
        // SAFETY: a trampoline is six bytes of code, and code can be read.
        let bytes = unsafe { code.cast::<[u8; 6]>().read() };
        let [0xff, 0x25, a, b, c, d] = bytes else {
            return Err(bytes);
        };
        let distance = i32::from_le_bytes([a, b, c, d]);
        Ok((code.addr() + 6).wrapping_add_signed(distance as isize))
    }

    /// The address that the trampoline at `code` takes its target from, read from the code. An
    /// error holds code that is not a trampoline's.
    #[cfg(target_arch = "aarch64")]
    fn source(code: *const ()) -> Result<usize, [u32; 5]> {
        const BTI_C: u32 = 0xd503_245f;
        const NOP: u32 = 0xd503_201f;
        const LDAR_X16_FROM_X16: u32 = 0xc8df_fe10;
        const BR_X16: u32 = 0xd61f_0200;
        /// An instruction without its immediate bits.
        const ADR: (u32, u32) = (0x9f00_001f, 0x1000_0010);
        const ADRP: (u32, u32) = (0x9f00_001f, 0x9000_0010);
        const ADD: (u32, u32) = (0xffc0_03ff, 0x9100_0210);
        let is = |instruction: u32, (mask, bits): (u32, u32)| instruction & mask == bits;
        // `adr` and `adrp` count bytes and pages from themselves, with 21 bits in two places.
        let distance = |instruction: u32| {
            let bits = (instruction >> 5 & 0x7_ffff) << 2 | instruction >> 29 & 3;
            ((bits << 11) as i32 >> 11) as isize
        };

        // SAFETY: a trampoline is five instructions, and code can be read.
        let all = unsafe { code.cast::<[u32; 5]>().read() };
        let [BTI_C, first, second, LDAR_X16_FROM_X16, BR_X16] = all else {
            return Err(all);
        };
        if is(first, ADRP) && is(second, ADD) {
            let page = (code.addr() + 4) & !0xfff;
            let low = (second >> 10 & 0xfff) as usize;
            Ok(page.wrapping_add_signed(distance(first) << 12) + low)
        } else if first == NOP && is(second, ADR) {
            // What a linker may make of the two when the slot is near.
            Ok((code.addr() + 8).wrapping_add_signed(distance(second)))
        } else {
            Err(all)
        }
    }

    #[test]
    fn every_trampoline_is_a_jump_through_its_own_slot() {
        let slots = SLOTS.as_ptr().addr();
        for slot in Slot::ALL {
            match source(TRAMPOLINES[slot as usize] as *const ()) {
                Ok(address) => assert_eq!(address, slots + 8 * slot as usize, "{}", slot.name()),
                Err(code) => panic!("{} is no jump through memory: {code:x?}", slot.name()),
            }
        }
    }
}
