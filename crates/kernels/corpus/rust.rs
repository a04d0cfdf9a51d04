//! Kernels in Rust, compiled by rustc. Without the core library, which rustc has for this target only in a toolchain with
//! its sources: what the language needs of it is here.
#![feature(no_core, lang_items, intrinsics, abi_ptx, rustc_attrs, link_llvm_intrinsics)]
#![allow(internal_features, dead_code)]
#![no_core]

#[lang = "pointee_sized"]
trait PointeeSized {}
#[lang = "meta_sized"]
trait MetaSized: PointeeSized {}
#[lang = "sized"]
trait Sized: MetaSized {}
#[lang = "copy"]
trait Copy {}
impl Copy for u32 {}
impl Copy for u64 {}
impl Copy for i32 {}
impl Copy for usize {}
impl Copy for isize {}
impl Copy for f32 {}
impl Copy for f64 {}
impl Copy for bool {}
impl<T: PointeeSized> Copy for *mut T {}
impl<T: PointeeSized> Copy for *const T {}
#[lang = "legacy_receiver"]
trait Receiver {}
impl<T: PointeeSized> Receiver for &T {}

#[lang = "eq"]
trait PartialEq<Other = Self> {
    fn eq(&self, other: &Other) -> bool;
    fn ne(&self, other: &Other) -> bool;
}
#[lang = "partial_ord"]
trait PartialOrd<Other = Self> {
    fn lt(&self, other: &Other) -> bool;
    fn le(&self, other: &Other) -> bool;
    fn gt(&self, other: &Other) -> bool;
    fn ge(&self, other: &Other) -> bool;
}
impl PartialEq for u32 {
    fn eq(&self, other: &u32) -> bool {
        *self == *other
    }
    fn ne(&self, other: &u32) -> bool {
        *self != *other
    }
}
impl PartialEq for u64 {
    fn eq(&self, other: &u64) -> bool {
        *self == *other
    }
    fn ne(&self, other: &u64) -> bool {
        *self != *other
    }
}
impl PartialOrd for u32 {
    fn lt(&self, other: &u32) -> bool {
        *self < *other
    }
    fn le(&self, other: &u32) -> bool {
        *self <= *other
    }
    fn gt(&self, other: &u32) -> bool {
        *self > *other
    }
    fn ge(&self, other: &u32) -> bool {
        *self >= *other
    }
}

#[rustc_intrinsic]
unsafe fn offset<P, D>(pointer: P, by: D) -> P;
#[rustc_intrinsic]
fn wrapping_add<T: Copy>(a: T, b: T) -> T;
#[rustc_intrinsic]
fn wrapping_sub<T: Copy>(a: T, b: T) -> T;
#[rustc_intrinsic]
fn wrapping_mul<T: Copy>(a: T, b: T) -> T;
#[rustc_intrinsic]
unsafe fn unchecked_shr<T: Copy, U: Copy>(a: T, b: U) -> T;
#[rustc_intrinsic]
unsafe fn unchecked_div<T: Copy>(a: T, b: T) -> T;
#[rustc_intrinsic]
unsafe fn unchecked_rem<T: Copy>(a: T, b: T) -> T;
#[rustc_intrinsic]
fn ctpop<T: Copy>(a: T) -> u32;
#[rustc_intrinsic]
fn bitreverse<T: Copy>(a: T) -> T;

unsafe extern "C" {
    #[link_name = "llvm.nvvm.read.ptx.sreg.tid.x"]
    safe fn thread() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.ntid.x"]
    safe fn threads() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.ctaid.x"]
    safe fn block() -> u32;
    #[link_name = "llvm.nvvm.barrier0"]
    safe fn barrier();
}

fn index() -> u32 {
    wrapping_add(wrapping_mul(block(), threads()), thread())
}

unsafe fn get<T: Copy>(from: *const T, at: u32) -> T {
    unsafe { *offset(from, at as usize) }
}

unsafe fn set<T: Copy>(to: *mut T, at: u32, value: T) {
    unsafe { *offset(to, at as usize) = value }
}

/// A linear congruence and shifts.
#[unsafe(no_mangle)]
unsafe extern "ptx-kernel" fn rust_mix(from: *const u32, to: *mut u32) {
    unsafe {
        let mut own = get(from, index());
        let mut round = 0u32;
        while round != 16 {
            own = wrapping_add(wrapping_mul(own, 1664525), 1013904223);
            own = wrapping_add(own, unchecked_shr(own, 7u32));
            round = wrapping_add(round, 1);
        }
        set(to, index(), own);
    }
}

#[unsafe(no_mangle)]
unsafe extern "ptx-kernel" fn rust_bits(from: *const u64, to: *mut u64) {
    unsafe {
        let own = get(from, index());
        set(to, index(), wrapping_add(bitreverse(own), ctpop(own) as u64));
    }
}

/// Euclid's algorithm.
#[unsafe(no_mangle)]
unsafe extern "ptx-kernel" fn rust_gcd(a: *const u32, b: *const u32, to: *mut u32) {
    unsafe {
        let (mut x, mut y) = (get(a, index()), get(b, index()));
        while y != 0 {
            let rest = unchecked_rem(x, y);
            x = y;
            y = rest;
        }
        set(to, index(), x);
    }
}

/// Steps of Collatz's sequence.
#[unsafe(no_mangle)]
unsafe extern "ptx-kernel" fn rust_collatz(to: *mut u32) {
    unsafe {
        let (mut own, mut steps) = (wrapping_add(index() as u64, 1), 0u32);
        while own != 1 {
            own = if unchecked_rem(own, 2) == 0 { unchecked_div(own, 2) } else { wrapping_add(wrapping_mul(own, 3), 1) };
            steps = wrapping_add(steps, 1);
        }
        set(to, index(), steps);
    }
}

/// Odd-even transposition of one block's values, in global memory.
#[unsafe(no_mangle)]
unsafe extern "ptx-kernel" fn rust_sort(values: *mut u32) {
    unsafe {
        let mut round = 0u32;
        while round != threads() {
            let at = wrapping_add(wrapping_mul(thread(), 2), unchecked_rem(round, 2));
            if wrapping_add(at, 1) < threads() {
                let (a, b) = (get(values, at), get(values, wrapping_add(at, 1)));
                if a > b {
                    set(values, at, b);
                    set(values, wrapping_add(at, 1), a);
                }
            }
            barrier();
            round = wrapping_add(round, 1);
        }
    }
}
