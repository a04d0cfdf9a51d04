//! What the stubs do not pass on: calls by the driver, and blocks of the arena.
//!
//! Each function has the arguments of the exported one and the return address of the call.

use std::ffi::{c_int, c_void};
use std::ptr;

use super::arena;
use super::driver;
use super::next::{self, set_errno};
use super::user::User;

const PAGE: usize = 4096;

fn allocate(size: usize, align: usize, caller: usize) -> *mut c_void {
    let block = if driver::contains(caller) {
        arena::allocate(User::Driver, size, align)
    } else {
        next::memory(size, align)
    };
    if block.is_null() {
        set_errno(libc::ENOMEM);
    }
    block
}

pub(super) extern "C" fn malloc(size: usize, caller: usize) -> *mut c_void {
    allocate(size, 16, caller)
}

pub(super) extern "C" fn calloc(count: usize, size: usize, caller: usize) -> *mut c_void {
    let Some(bytes) = count.checked_mul(size) else {
        set_errno(libc::ENOMEM);
        return ptr::null_mut();
    };
    if driver::contains(caller) {
        let block = arena::allocate_zeroed(User::Driver, bytes, 16);
        if block.is_null() {
            set_errno(libc::ENOMEM);
        }
        return block;
    }
    let block = next::memory(bytes, 16);
    if !block.is_null() {
        // SAFETY: the block has at least this size.
        unsafe { ptr::write_bytes(block.cast::<u8>(), 0, bytes) };
    }
    block
}

/// Memory moves to the allocator of its new user: the driver's into the arena, the program's out of it.
pub(super) extern "C" fn realloc(block: *mut c_void, size: usize, caller: usize) -> *mut c_void {
    if block.is_null() {
        return allocate(size, 16, caller);
    }
    if size == 0 {
        // As glibc does.
        free(block);
        return ptr::null_mut();
    }
    // SAFETY: the caller owns the block, as `realloc` requires.
    let old = unsafe {
        if arena::owns(block) {
            if driver::contains(caller) {
                let new = arena::reallocate(User::Driver, block, size, 16);
                if new.is_null() {
                    set_errno(libc::ENOMEM);
                }
                return new;
            }
            arena::usable_size(block)
        } else {
            next::usable_size(block)
        }
    };
    let new = allocate(size, 16, caller);
    if !new.is_null() {
        // SAFETY: both blocks have at least this size, and are different.
        unsafe {
            ptr::copy_nonoverlapping(block.cast::<u8>(), new.cast::<u8>(), old.min(size));
        }
        free(block);
    }
    new
}

pub(super) extern "C" fn reallocarray(
    block: *mut c_void,
    count: usize,
    size: usize,
    caller: usize,
) -> *mut c_void {
    match count.checked_mul(size) {
        Some(bytes) => realloc(block, bytes, caller),
        None => {
            set_errno(libc::ENOMEM);
            ptr::null_mut()
        }
    }
}

/// Only for blocks of the arena.
pub(super) extern "C" fn free(block: *mut c_void) {
    // SAFETY: the caller owns the block, as `free` requires.
    unsafe { arena::free(block) };
}

/// Only for blocks of the arena.
pub(super) extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    // SAFETY: the caller owns the block, as the function requires.
    unsafe { arena::usable_size(block) }
}

/// # Safety
/// `result` can be written.
pub(super) unsafe extern "C" fn posix_memalign(
    result: *mut *mut c_void,
    align: usize,
    size: usize,
    caller: usize,
) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<usize>()) {
        return libc::EINVAL;
    }
    // SAFETY: the thread's own variable. The function leaves it alone.
    let code = unsafe { *libc::__errno_location() };
    let block = allocate(size, align, caller);
    set_errno(code);
    if block.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: see the function's own requirement.
    unsafe { *result = block };
    0
}

pub(super) extern "C" fn memalign(align: usize, size: usize, caller: usize) -> *mut c_void {
    match align.checked_next_power_of_two() {
        Some(align) => allocate(size, align, caller),
        None => {
            set_errno(libc::EINVAL);
            ptr::null_mut()
        }
    }
}

pub(super) extern "C" fn aligned_alloc(align: usize, size: usize, caller: usize) -> *mut c_void {
    if !align.is_power_of_two() {
        set_errno(libc::EINVAL);
        return ptr::null_mut();
    }
    allocate(size, align, caller)
}

pub(super) extern "C" fn valloc(size: usize, caller: usize) -> *mut c_void {
    allocate(size, PAGE, caller)
}

pub(super) extern "C" fn pvalloc(size: usize, caller: usize) -> *mut c_void {
    match size.checked_next_multiple_of(PAGE) {
        Some(size) => allocate(size, PAGE, caller),
        None => {
            set_errno(libc::ENOMEM);
            ptr::null_mut()
        }
    }
}
