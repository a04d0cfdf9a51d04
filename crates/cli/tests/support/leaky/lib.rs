//! A crate that looks up the functions of the driver by itself.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Once;

extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

fn function(name: &CStr) -> *mut c_void {
    let found = unsafe { dlsym(dlopen(c"libcuda.so.1".as_ptr(), 2), name.as_ptr()) };
    assert!(!found.is_null());
    found
}

/// Makes the primary context current, which stays open.
pub fn set_up() {
    static ONCE: Once = Once::new();
    static CONTEXT: AtomicUsize = AtomicUsize::new(0);
    unsafe {
        ONCE.call_once(|| {
            let init: extern "C" fn(u32) -> i32 = std::mem::transmute(function(c"cuInit"));
            let retain: extern "C" fn(*mut usize, i32) -> i32 =
                std::mem::transmute(function(c"cuDevicePrimaryCtxRetain"));
            let mut context = 0;
            assert_eq!((init(0), retain(&mut context, 0)), (0, 0));
            CONTEXT.store(context, Ordering::Relaxed);
        });
        let set: extern "C" fn(usize) -> i32 = std::mem::transmute(function(c"cuCtxSetCurrent"));
        assert_eq!(set(CONTEXT.load(Ordering::Relaxed)), 0);
    }
}

/// Allocates in the current context.
pub fn allocate_here(bytes: usize) -> u64 {
    let mut address = 0;
    unsafe {
        let allocate: extern "C" fn(*mut u64, usize) -> i32 =
            std::mem::transmute(function(c"cuMemAlloc_v2"));
        assert_eq!(allocate(&mut address, bytes), 0);
    }
    address
}

/// Allocates.
///
/// ```
/// leaky_crate::free(leaky_crate::allocate(1 << 20));
/// ```
pub fn allocate(bytes: usize) -> u64 {
    set_up();
    allocate_here(bytes)
}

/// Frees.
///
/// ```
/// leaky_crate::allocate(6 << 20);
/// ```
pub fn free(address: u64) {
    unsafe {
        let free: extern "C" fn(u64) -> i32 = std::mem::transmute(function(c"cuMemFree_v2"));
        assert_eq!(free(address), 0);
    }
}

/// Forgets memory on a thread of a name.
pub fn leak_in_a_pool() {
    let thread = std::thread::Builder::new().name("worker".to_owned());
    let job = || {
        allocate(8 << 20);
    };
    thread.spawn(job).unwrap().join().unwrap();
}

/// Forgets memory. Tests of this name test it.
#[inline(never)]
pub fn load() {
    allocate(7 << 20);
    std::hint::black_box(());
}

#[cfg(test)]
mod tests {
    use super::{allocate, allocate_here, free, function, set_up};

    #[test]
    fn clean() {
        free(allocate(1 << 20));
    }

    #[test]
    fn leaks() {
        for megabytes in [1, 2] {
            allocate(megabytes << 20);
        }
    }

    #[test]
    fn leaks_on_a_thread() {
        std::thread::spawn(|| {
            allocate(1 << 20);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn leaks_in_a_pool() {
        super::leak_in_a_pool();
    }

    #[test]
    fn keeps() {
        static KEPT: std::sync::Mutex<u64> = std::sync::Mutex::new(0);
        *KEPT.lock().unwrap() = allocate(8 << 20);
    }

    #[test]
    fn has_a_context_of_its_own() {
        set_up();
        unsafe {
            let create: extern "C" fn(*mut usize, u32, i32) -> i32 =
                std::mem::transmute(function(c"cuCtxCreate_v2"));
            let destroy: extern "C" fn(usize) -> i32 =
                std::mem::transmute(function(c"cuCtxDestroy_v2"));
            let mut context = 0;
            assert_eq!(create(&mut context, 0, 0), 0);
            allocate_here(32 << 10);
            assert_eq!(destroy(context), 0);
        }
    }

    #[test]
    fn is_killed() {
        extern "C" {
            fn getpid() -> i32;
            fn kill(process: i32, signal: i32) -> i32;
        }
        allocate(1 << 20);
        unsafe { kill(getpid(), 9) };
    }

    mod inner {
        #[test]
        fn fails() {
            super::allocate(4 << 20);
            panic!("as it should");
        }
    }
}
