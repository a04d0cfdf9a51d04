//! The destructors of this library's thread-local variables, without the dynamic linker's lock.
//!
//! The standard library registers each by `__cxa_thread_atexit_impl`. The C library's function of this name locks the dynamic
//! linker, to keep the caller's library loaded until the thread ends. A call of the driver must not wait for that lock: a
//! thread that loads a library has it, and may wait in a constructor for the thread that calls. This library is never
//! unloaded, so it has a function of its own, which is hidden: the program's thread-local variables keep the C library's.
//!
//! The destructors run when the thread ends, with those of `pthread_key_create`; for the thread that calls `exit`, they
//! do not run.

#![cfg_attr(
    test,
    allow(dead_code, reason = "a test program keeps the C library's function")
)]

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

type Destructor = unsafe extern "C" fn(*mut c_void);

/// A variable of the calling thread.
struct Registered {
    destructor: Destructor,
    variable: *mut c_void,
    /// The one that was registered before, or null.
    before: *mut Registered,
}

/// The key whose value is the last [`Registered`] of a thread. `None` if the process has no key left.
fn key() -> Option<libc::pthread_key_t> {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: the key can be written to, and the function has the right signature.
        let code = unsafe { libc::pthread_key_create(&mut key, Some(destroy)) };
        (code == 0).then_some(key)
    })
}

/// Creates the key: the C library has values of the first keys in a thread's own memory, and allocates for later ones.
pub(crate) fn prepare() {
    key();
}

#[cfg(all(not(test), target_arch = "x86_64"))]
std::arch::global_asm!(
    ".pushsection .text.__cxa_thread_atexit_impl, \"ax\", @progbits",
    ".globl __cxa_thread_atexit_impl",
    ".hidden __cxa_thread_atexit_impl",
    ".type __cxa_thread_atexit_impl, @function",
    "__cxa_thread_atexit_impl:",
    "endbr64",
    "jmp {register}",
    ".size __cxa_thread_atexit_impl, . - __cxa_thread_atexit_impl",
    ".popsection",
    register = sym register,
);

#[cfg(all(not(test), target_arch = "aarch64"))]
std::arch::global_asm!(
    ".pushsection .text.__cxa_thread_atexit_impl, \"ax\", %progbits",
    ".globl __cxa_thread_atexit_impl",
    ".hidden __cxa_thread_atexit_impl",
    ".type __cxa_thread_atexit_impl, %function",
    "__cxa_thread_atexit_impl:",
    "hint #34",
    "b {register}",
    ".size __cxa_thread_atexit_impl, . - __cxa_thread_atexit_impl",
    ".popsection",
    register = sym register,
);

/// Registers the destructor of a variable of the calling thread. Returns 0, or -1 where it will not run.
unsafe extern "C" fn register(
    destructor: Destructor,
    variable: *mut c_void,
    _library: *mut c_void,
) -> c_int {
    let Some(key) = key() else {
        return -1;
    };
    // SAFETY: the key exists; its values are pointers from here, or null.
    unsafe {
        let registered = Box::into_raw(Box::new(Registered {
            destructor,
            variable,
            before: libc::pthread_getspecific(key).cast(),
        }));
        if libc::pthread_setspecific(key, registered.cast()) != 0 {
            drop(Box::from_raw(registered));
            return -1;
        }
    }
    0
}

/// Runs the destructors of a thread, the last first. What they register themselves is a new value, with which the C library
/// calls this again.
unsafe extern "C" fn destroy(last: *mut c_void) {
    let mut next = last.cast::<Registered>();
    while !next.is_null() {
        // SAFETY: `register` made it, for this thread alone.
        let registered = unsafe { Box::from_raw(next) };
        // SAFETY: as the one who registered it guarantees.
        unsafe { (registered.destructor)(registered.variable) };
        next = registered.before;
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;
    use std::ptr;
    use std::sync::Mutex;

    use super::register;

    static ORDER: Mutex<Vec<usize>> = Mutex::new(Vec::new());

    unsafe extern "C" fn note(number: *mut c_void) {
        ORDER.lock().unwrap().push(number.addr());
        if number.addr() == 2 {
            add(3);
        }
    }

    fn add(number: usize) {
        // SAFETY: the function does not use its argument as a pointer.
        let code = unsafe { register(note, ptr::without_provenance_mut(number), ptr::null_mut()) };
        assert_eq!(code, 0);
    }

    #[test]
    fn destructors_run_at_the_end_of_the_thread_the_last_first() {
        std::thread::spawn(|| {
            add(1);
            add(2);
            assert!(ORDER.lock().unwrap().is_empty());
        })
        .join()
        .unwrap();
        assert_eq!(*ORDER.lock().unwrap(), [2, 1, 3]);
    }
}
