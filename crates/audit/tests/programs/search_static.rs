//! Holds the address of a block in a Rust `static`, and prints where it is found.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const MASK: u64 = 0x5a5a_5a5a_5a5a_5a5a;
const SIZE: usize = 4096;

static CACHE: AtomicU64 = AtomicU64::new(0);
static TABLE: Mutex<Vec<u64>> = Mutex::new(Vec::new());

unsafe extern "C" {
    fn cuInit(flags: u32) -> c_int;
    fn cuCtxCreate_v2(context: *mut *mut c_void, flags: u32, device: c_int) -> c_int;
    fn cuMemAlloc_v2(address: *mut u64, size: usize) -> c_int;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

type Search = extern "C" fn(*const u64, usize, u64, u32, *mut c_char, usize) -> c_int;

#[inline(never)]
fn allocate() -> u64 {
    let mut address = 0;
    // SAFETY: the variable is valid during the call.
    assert_eq!(unsafe { cuMemAlloc_v2(&mut address, SIZE) }, 0);
    let masked = address ^ MASK;
    // SAFETY: the program's own variable.
    unsafe { std::ptr::write_volatile(&mut address, 0) };
    masked
}

#[inline(never)]
fn hold(shape: &str, masked: u64) {
    match shape {
        "static" => CACHE.store(masked ^ MASK, Ordering::Relaxed),
        "vector" => TABLE.lock().unwrap().push(masked ^ MASK),
        "dropped vector" => {
            let mut table = TABLE.lock().unwrap();
            table.extend([1, 2, 3, masked ^ MASK]);
            *table = Vec::new();
        }
        "nothing" => {}
        _ => panic!("no such shape: {shape}"),
    }
}

#[inline(never)]
fn wipe() {
    std::hint::black_box([0_u8; 32768]);
}

fn main() {
    let shape = std::env::args().nth(1).expect("a shape");
    let mut context = std::ptr::null_mut();
    // SAFETY: the calls are in the driver's order; `dlsym` finds the audit library's function, which has this type.
    let search = unsafe {
        assert_eq!((cuInit(0), cuCtxCreate_v2(&mut context, 0, 0)), (0, 0));
        let search = dlsym(std::ptr::null_mut(), c"cuguard_audit_search".as_ptr());
        assert!(!search.is_null(), "the audit library is not loaded");
        std::mem::transmute::<*mut c_void, Search>(search)
    };
    let masked = allocate();
    hold(&shape, masked);
    wipe();
    let mut text = [0; 4096];
    let words = [masked, SIZE as u64];
    assert!(search(words.as_ptr(), 1, MASK, 60, text.as_mut_ptr(), text.len()) >= 0);
    // SAFETY: the text is terminated.
    print!("{}", unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().unwrap());
}
