//! The functions behind the exported ones: those that the program would call without this library.
//!
//! As `dlsym(RTLD_NEXT, …)`: the first definition behind this library in the order of lookup, so that another
//! allocator in the process stays in use.

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::objects;

/// Where the next function is. The stubs jump through it; before the lookup it leads to a function that looks up.
pub(super) struct Next(pub(super) AtomicPtr<c_void>);

/// The functions, and the variables with their addresses, as the arguments of a macro.
macro_rules! functions {
    ($macro:ident) => {
        $macro! {
            malloc MALLOC
            calloc CALLOC
            realloc REALLOC
            free FREE
            posix_memalign POSIX_MEMALIGN
            aligned_alloc ALIGNED_ALLOC
            memalign MEMALIGN
            valloc VALLOC
            pvalloc PVALLOC
            malloc_usable_size MALLOC_USABLE_SIZE
            reallocarray REALLOCARRAY
            pthread_create PTHREAD_CREATE
        }
    };
}
pub(super) use functions;

macro_rules! next {
    ($($name:ident $variable:ident)*) => {
        $(
            pub(super) static $variable: Next = Next(AtomicPtr::new(super::stubs::first::$name as *mut c_void));
        )*

        const ALL: &[(&[u8], &Next)] = &[$((stringify!($name).as_bytes(), &$variable)),*];
    };
}

functions!(next);

static FIRST_IS_OURS: AtomicBool = AtomicBool::new(false);
static IS_GLIBC: AtomicBool = AtomicBool::new(false);

/// Which allocator serves the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NextMalloc {
    /// The C library's own.
    Glibc,
    /// Another one, preloaded or linked.
    Other,
}

pub(super) fn next_malloc() -> NextMalloc {
    match IS_GLIBC.load(Ordering::Relaxed) && FIRST_IS_OURS.load(Ordering::Relaxed) {
        true => NextMalloc::Glibc,
        false => NextMalloc::Other,
    }
}

pub(super) fn first_malloc_is_ours() -> bool {
    FIRST_IS_OURS.load(Ordering::Relaxed)
}

/// Looks all functions up. Threads may do so at once: they find the same.
pub(super) extern "C" fn resolve() {
    let own = objects::own_address();
    let mut missing = ALL.len();
    let mut found = [ptr::null_mut::<c_void>(); ALL.len()];
    let (mut is_behind, mut first_is_ours, mut malloc_seen) = (false, false, false);
    objects::for_each(|object| {
        let is_own = object.contains(own);
        if !malloc_seen && object.symbol(b"malloc").is_some() {
            malloc_seen = true;
            first_is_ours = is_own;
        }
        if is_own {
            is_behind = true;
            return true;
        }
        if !is_behind {
            return true;
        }
        for ((name, _), found) in ALL.iter().zip(&mut found) {
            if found.is_null()
                && let Some(address) = object.symbol(name)
            {
                *found = ptr::with_exposed_provenance_mut(address);
                missing -= 1;
                if *name == b"malloc" {
                    let glibc = object.file_name() == b"libc.so.6";
                    IS_GLIBC.store(glibc, Ordering::Relaxed);
                }
            }
        }
        missing > 0
    });
    FIRST_IS_OURS.store(first_is_ours, Ordering::Relaxed);
    for ((_, next), found) in ALL.iter().zip(found) {
        let found = if found.is_null() {
            refuse as *mut c_void
        } else {
            found
        };
        next.0.store(found, Ordering::Release);
    }
}

/// Stands for a function that the process does not have. Its callers treat null as a lack of memory.
extern "C" fn refuse() -> *mut c_void {
    set_errno(libc::ENOMEM);
    ptr::null_mut()
}

pub(super) fn set_errno(code: c_int) {
    // SAFETY: the thread's own variable.
    unsafe { *libc::__errno_location() = code };
}

impl Next {
    fn get(&self) -> *mut c_void {
        self.0.load(Ordering::Acquire)
    }
}

/// A block of the next allocator, or null.
pub(super) fn memory(size: usize, align: usize) -> *mut c_void {
    // SAFETY: the function has this type; it has no requirements but a power of two.
    unsafe {
        if align <= 16 {
            transmute::<*mut c_void, extern "C" fn(usize) -> *mut c_void>(MALLOC.get())(size)
        } else {
            transmute::<*mut c_void, extern "C" fn(usize, usize) -> *mut c_void>(MEMALIGN.get())(
                align, size,
            )
        }
    }
}

/// Frees a block of the next allocator.
///
/// # Safety
/// The caller owns the block, or it is null.
pub(super) unsafe fn free(block: *mut c_void) {
    // SAFETY: the function has this type; see above.
    unsafe { transmute::<*mut c_void, extern "C" fn(*mut c_void)>(FREE.get())(block) }
}

/// The usable size of a block of the next allocator.
///
/// # Safety
/// The caller owns the block.
pub(super) unsafe fn usable_size(block: *mut c_void) -> usize {
    // SAFETY: the function has this type; see above. `refuse` returns zero.
    unsafe {
        transmute::<*mut c_void, extern "C" fn(*mut c_void) -> usize>(MALLOC_USABLE_SIZE.get())(
            block,
        )
    }
}

pub(super) type Start = extern "C" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(
    *mut libc::pthread_t,
    *const libc::pthread_attr_t,
    Start,
    *mut c_void,
) -> c_int;

/// The next `pthread_create`.
///
/// # Safety
/// As `pthread_create`.
pub(super) unsafe fn create_thread(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the function has this type; see above.
    unsafe {
        transmute::<*mut c_void, Create>(PTHREAD_CREATE.get())(thread, attributes, start, argument)
    }
}
