//! The exported `malloc` family on aarch64: naked functions that pass most calls on by a jump.
//!
//! A jump leaves the return address, which some allocators look at, and costs a nanosecond. A stub uses `x16`, `x17` and one
//! argument register behind the function's own arguments; a function may change all of them. The return address is in `x30`: it is
//! signed by the functions that store it, not by their callers.

use std::arch::naked_asm;

use super::driver::{LOW, SPAN};
use super::range::{LENGTH, START};
use super::{family, next, threads};

/// Goes on at `2:` for calls by code between the driver's first and last range.
macro_rules! caller_is_driver {
    () => {
        "hint #34
         adrp x16, {low}
         ldr x16, [x16, :lo12:{low}]
         adrp x17, {span}
         ldr x17, [x17, :lo12:{span}]
         sub x16, x30, x16
         cmp x16, x17
         b.lo 2f
        "
    };
}

/// Goes on at `2:` for a block of the arena.
macro_rules! block_is_ours {
    () => {
        "adrp x16, {start}
         ldr x16, [x16, :lo12:{start}]
         adrp x17, {length}
         ldr x17, [x17, :lo12:{length}]
         sub x16, x0, x16
         cmp x16, x17
         b.lo 2f
        "
    };
}

/// Jumps to the next function.
macro_rules! jump {
    () => {
        "adrp x16, {next}
         ldr x16, [x16, :lo12:{next}]
         br x16
        "
    };
}

/// An allocating function: `$caller` is the register of the argument behind its own.
macro_rules! allocating {
    ($name:ident $next:ident $caller:literal) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub(super) unsafe extern "C" fn $name() {
            naked_asm!(
                concat!(
                    caller_is_driver!(),
                    jump!(),
                    "2: mov ", $caller, ", x30
                     b {family}"
                ),
                low = sym LOW,
                span = sym SPAN,
                next = sym next::$next,
                family = sym family::$name,
            )
        }
    };
}

/// A function that changes a block's size.
macro_rules! reallocating {
    ($name:ident $next:ident $caller:literal) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub(super) unsafe extern "C" fn $name() {
            naked_asm!(
                concat!(
                    caller_is_driver!(),
                    block_is_ours!(),
                    jump!(),
                    "2: mov ", $caller, ", x30
                     b {family}"
                ),
                low = sym LOW,
                span = sym SPAN,
                start = sym START,
                length = sym LENGTH,
                next = sym next::$next,
                family = sym family::$name,
            )
        }
    };
}

/// A function of a block alone.
macro_rules! of_block {
    ($name:ident $next:ident) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub(super) unsafe extern "C" fn $name() {
            naked_asm!(
                concat!(
                    "hint #34
                    ",
                    block_is_ours!(),
                    jump!(),
                    "2: b {family}"
                ),
                start = sym START,
                length = sym LENGTH,
                next = sym next::$next,
                family = sym family::$name,
            )
        }
    };
}

/// The functions under the names of the C library.
#[cfg_attr(
    test,
    allow(dead_code, reason = "a test program keeps its own `malloc`")
)]
mod exported {
    use super::*;

    allocating!(malloc MALLOC "x1");
    allocating!(calloc CALLOC "x2");
    allocating!(posix_memalign POSIX_MEMALIGN "x3");
    allocating!(aligned_alloc ALIGNED_ALLOC "x2");
    allocating!(memalign MEMALIGN "x2");
    allocating!(valloc VALLOC "x1");
    allocating!(pvalloc PVALLOC "x1");
    reallocating!(realloc REALLOC "x2");
    reallocating!(reallocarray REALLOCARRAY "x3");
    of_block!(free FREE);
    of_block!(malloc_usable_size MALLOC_USABLE_SIZE);

    /// Passes the caller's address on, so that threads of the driver are known as such.
    #[cfg_attr(not(test), unsafe(no_mangle))]
    #[unsafe(naked)]
    pub(super) unsafe extern "C" fn pthread_create() {
        naked_asm!(
            "hint #34
             mov x4, x30
             b {create}",
            create = sym threads::create,
        )
    }
}

/// Where the jumps lead before the next functions were looked up: looks them up and jumps again.
pub(super) mod first {
    use super::{naked_asm, next};

    macro_rules! first {
        ($($name:ident $next:ident)*) => {
            $(
                #[unsafe(naked)]
                pub(in crate::heap) unsafe extern "C" fn $name() {
                    naked_asm!(
                        "hint #34
                         stp x29, x30, [sp, #-64]!
                         mov x29, sp
                         stp x0, x1, [sp, #16]
                         stp x2, x3, [sp, #32]
                         str x4, [sp, #48]
                         bl {resolve}
                         ldp x0, x1, [sp, #16]
                         ldp x2, x3, [sp, #32]
                         ldr x4, [sp, #48]
                         ldp x29, x30, [sp], #64
                         adrp x16, {next}
                         ldr x16, [x16, :lo12:{next}]
                         br x16",
                        resolve = sym next::resolve,
                        next = sym next::$next,
                    )
                }
            )*
        };
    }

    next::functions!(first);
}
