//! The tables: one slot for each driver function, the exported functions that jump through their slot
//! (trampolines), and the functions that fill the table when they are first called.
//!
//! A trampoline is a jump and what the processor needs for it, see `jump!`. It touches neither arguments
//! nor stack, so it works for any signature, and it leaves no frame that a debugger or a stack trace
//! would show.
//!
//! There are two tables: one for calls of guards, by [`result`](crate::result), and one for all others, which `cuguard run` records.

use std::arch::naked_asm;
use std::ffi::c_void;
use std::io::Write;
use std::mem::transmute;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use cuguard_sys::CUresult;

use crate::audit::Caller;
use crate::driver::Driver;
use crate::error::LoadError;
use crate::fallback;
use crate::load::load_with;
use crate::slot::{COUNT, Slot};
use crate::version;

/// The code of a trampoline: reads a slot with an acquire load and jumps there.
///
/// [`point_slots`] says why the load must acquire. On this processor every load does.
// Not `target_arch = "x86_64"`: a target that is neither stops in `lib.rs`, with that message alone.
#[cfg(not(target_arch = "aarch64"))]
macro_rules! jump {
    () => {
        "jmp qword ptr [rip + {slots} + {offset}]"
    };
}

/// The code of a trampoline: reads a slot with an acquire load and jumps there.
///
/// [`point_slots`] says why the load must acquire. A plain `ldr` does not; `ldar` does, and takes no
/// offset, hence the `add`.
///
/// `x16` is the register that the calling convention reserves for code between caller and callee. A
/// jump through it may land where a call may, so the target needs no special landing instruction.
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        concat!(
            // `bti c`, by the number that older processors and assemblers treat as a no-op: in a
            // program with branch protection, a call through a pointer must land on it.
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
    // A guard loads the driver by this one alone.
    (cuInit, guards) => {
        loading::guards_init as *const c_void
    };
    ($name:ident, guards) => {
        initial!($name)
    };
    // Legal before `cuInit`: these load the driver, then call it.
    (cuInit) => {
        loading::cuInit as *const c_void
    };
    (cuDriverGetVersion) => {
        loading::cuDriverGetVersion as *const c_void
    };
    (cuGetProcAddress) => {
        loading::cuGetProcAddress as *const c_void
    };
    (cuGetProcAddress_v2) => {
        loading::cuGetProcAddress_v2 as *const c_void
    };
    // Legal before `cuInit`, and needed to print why there is no driver.
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
        /// Where calls go. A slot is never null, so trampolines do not check.
        static SLOTS: [AtomicPtr<c_void>; COUNT] =
            [$(AtomicPtr::new(initial!($name).cast_mut())),*];

        /// Where calls of guards go.
        pub(crate) static FOR_GUARDS: [AtomicPtr<c_void>; COUNT] =
            [$(AtomicPtr::new(initial!($name, guards).cast_mut())),*];

        /// The functions of the driver's header, under the driver's names.
        mod trampolines {
            use super::{SLOTS, Slot, naked_asm};

            $(
                // Hidden: were it visible, a program that exports its symbols would export this
                // function to the driver library itself, whose own calls would then come back here,
                // and a shared library would export it to every other.
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

        /// Names every trampoline, so that the linker keeps them all, whichever of them the program
        /// calls.
        #[used]
        static TRAMPOLINES: [unsafe extern "C" fn(); COUNT] = [$(trampolines::$name),*];
    };
}

cuguard_sys::with_names!(table);

/// Points at `driver` those slots whose functions load a driver, or all others.
///
/// The others come first, then the driver is published, then those that load. A thread that calls
/// `cuInit` meanwhile either still finds [`loading::cuInit`], waits for the load to end and is forwarded;
/// or it finds the driver's own `cuInit`, and then all other slots are the driver's already. Release stores
/// here and acquire loads in the trampolines keep that true on a processor that reorders.
fn point_slots(driver: &Driver, that_load: bool) {
    // See `TRAMPOLINES`: the loader must refer to it.
    std::hint::black_box(&TRAMPOLINES);
    // SAFETY: the driver's function of this name has the signature, and a loaded driver stays.
    unsafe { version::set_loaded(driver.symbol(Slot::cuDriverGetVersion.name())) };
    for slot in Slot::ALL {
        if slot.loads() == that_load {
            for (table, caller) in [(&SLOTS, Caller::Other), (&FOR_GUARDS, Caller::Guard)] {
                let target = driver.target(slot, caller).cast_mut();
                // A call would jump there.
                assert!(!target.is_null(), "{} has no function", slot.name());
                table[slot as usize].store(target, Ordering::Release);
            }
        }
    }
}

/// Loads the selected driver, or returns the loaded one. From any thread, any number of times.
///
/// A program need not call this: `cuInit` does. It serves to find out which driver is in use, and why
/// there is none. Unlike `cuInit` it writes nothing to stderr when it fails.
///
/// ```
/// match cuguard_driver::load() {
///     Ok(driver) => println!("in use: {driver}"),
///     Err(error) => eprintln!("{error}"),
/// }
/// ```
///
/// # Errors
///
/// See [`LoadError`]. A later call tries again.
pub fn load() -> Result<&'static Driver, LoadError> {
    load_with(point_slots)
}

/// The loaded driver's function for `slot`, after loading a driver if there is none.
///
/// Without a driver the code is `CUDA_ERROR_NO_DEVICE`: among the codes that `cust` has, the one that
/// fits best. `cuGetErrorString` returns the reason for it, and as many programs never call that, the
/// reason also goes to stderr.
fn driver_function(slot: Slot, caller: Caller) -> Result<*const c_void, CUresult> {
    match load() {
        Ok(driver) => Ok(driver.target(slot, caller)),
        Err(error) => {
            if is_new(&error) {
                // One write, so that other threads' output does not split it. Without a stderr there is
                // no other place for it.
                let _ = std::io::stderr().write_all(format!("cuguard: {error}\n").as_bytes());
            }
            Err(CUresult::NO_DEVICE)
        }
    }
}

/// Whether this error occurs for the first time: a program that retries prints it once.
fn is_new(error: &LoadError) -> bool {
    static PRINTED: Mutex<Vec<LoadError>> = Mutex::new(Vec::new());
    let mut printed = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
    let new = !printed.contains(error);
    if new {
        printed.push(error.clone());
    }
    new
}

/// What the functions that load a driver do before there is one: load it, then call its function.
#[allow(non_snake_case, reason = "the driver's own names")]
mod loading {
    use cuguard_sys::*;

    use super::{Caller, Slot, driver_function, transmute};

    macro_rules! load_then_call {
        (fn $name:ident($($parameter:ident: $type:ty),*);) => {
            load_then_call!(Other, $name, fn $name($($parameter: $type),*););
        };
        ($caller:ident, $own:ident, fn $name:ident($($parameter:ident: $type:ty),*);) => {
            /// # Safety
            ///
            /// That of the driver's function.
            pub(super) unsafe extern "C" fn $own($($parameter: $type),*) -> CUresult {
                match driver_function(Slot::$name, Caller::$caller) {
                    Ok(target) => {
                        type Function = unsafe extern "C" fn($($type),*) -> CUresult;
                        // SAFETY: the target of this slot is a function with this signature.
                        let target = unsafe { transmute::<*const c_void, Function>(target) };
                        // SAFETY: as the caller ensures.
                        unsafe { target($($parameter),*) }
                    }
                    Err(code) => code,
                }
            }
        };
    }
    load_then_call!(Guard, guards_init, fn cuInit(flags: u32););
    cuguard_sys::signature!(cuInit, load_then_call);
    cuguard_sys::signature!(cuDriverGetVersion, load_then_call);
    cuguard_sys::signature!(cuGetProcAddress, load_then_call);
    cuguard_sys::signature!(cuGetProcAddress_v2, load_then_call);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_new_once() {
        let error = |path: &str| LoadError::NotADriver { path: path.into() };
        assert!(is_new(&error("/a")));
        assert!(!is_new(&error("/a")));
        assert!(is_new(&error("/b")));
        assert!(!is_new(&error("/a")));
    }

    /// The address of the slot that the trampoline at `code` jumps through, decoded from its
    /// instructions. An error holds instructions that are not a trampoline's.
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

    /// The address of the slot that the trampoline at `code` jumps through, decoded from its
    /// instructions. An error holds instructions that are not a trampoline's.
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
