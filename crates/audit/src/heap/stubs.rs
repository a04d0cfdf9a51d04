//! The exported `malloc` family on x86-64: naked functions that pass most calls on by a jump.
//!
//! A jump leaves the return address, which some allocators look at, and costs a nanosecond. A stub uses `rax` and one
//! argument register behind the function's own arguments; a function may change both.

use std::arch::naked_asm;

use super::driver::{LOW, SPAN};
use super::range::{LENGTH, START};
use super::{family, next, threads};

/// Goes on at `2:` for calls by code between the driver's first and last range.
macro_rules! caller_is_driver {
    () => {
        "endbr64
         mov rax, [rsp]
         sub rax, [rip + {low}]
         cmp rax, [rip + {span}]
         jb 2f
        "
    };
}

/// Goes on at `2:` for a block of the arena.
macro_rules! block_is_ours {
    () => {
        "mov rax, rdi
         sub rax, [rip + {start}]
         cmp rax, [rip + {length}]
         jb 2f
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
                    "jmp [rip + {next}]
                     2: mov ", $caller, ", [rsp]
                     jmp {family}"
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
                    "jmp [rip + {next}]
                     2: mov ", $caller, ", [rsp]
                     jmp {family}"
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
                    "endbr64
                    ",
                    block_is_ours!(),
                    "jmp [rip + {next}]
                     2: jmp {family}"
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

    allocating!(malloc MALLOC "rsi");
    allocating!(calloc CALLOC "rdx");
    allocating!(posix_memalign POSIX_MEMALIGN "rcx");
    allocating!(aligned_alloc ALIGNED_ALLOC "rdx");
    allocating!(memalign MEMALIGN "rdx");
    allocating!(valloc VALLOC "rsi");
    allocating!(pvalloc PVALLOC "rsi");
    reallocating!(realloc REALLOC "rdx");
    reallocating!(reallocarray REALLOCARRAY "rcx");
    of_block!(free FREE);
    of_block!(malloc_usable_size MALLOC_USABLE_SIZE);

    /// Passes the caller's address on, so that threads of the driver are known as such.
    #[cfg_attr(not(test), unsafe(no_mangle))]
    #[unsafe(naked)]
    pub(super) unsafe extern "C" fn pthread_create() {
        naked_asm!(
            "endbr64
             mov r8, [rsp]
             jmp {create}",
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
                        "endbr64
                         push rdi
                         push rsi
                         push rdx
                         push rcx
                         push r8
                         call {resolve}
                         pop r8
                         pop rcx
                         pop rdx
                         pop rsi
                         pop rdi
                         jmp [rip + {next}]",
                        resolve = sym next::resolve,
                        next = sym next::$next,
                    )
                }
            )*
        };
    }

    next::functions!(first);
}
