//! The return addresses of the calling thread, fast enough to take them on every allocation.
//!
//! An unwinder works out for each frame, again and again, how to get from it to its caller. The
//! answer depends on nothing but the return address. So this crate works it out once for each
//! return address, packs it into one word, and keeps it in a table that all threads read without a
//! lock. From then on a frame costs two loads and a few additions.
//!
//! - [`capture`] is that way.
//! - [`capture_with_rules`] and [`capture_with_backtrace`] are its two halves.
//! - [`method()`] says which of the two [`capture`] starts with in this process.
//!
//! # When the short way is not taken
//!
//! On Linux with glibc on x86-64 or AArch64, the first capture goes both ways and compares. Where
//! the two differ, and on all other systems, every capture is left to `backtrace`.
//!
//! Single stacks are left to `backtrace` as well: those with a frame whose rule is no plain offset
//! (signal frames, expressions), with code that belongs to no loaded module (code made at run time),
//! and those that do not lie on the stack the thread was started with (coroutines, signal stacks).
//!
//! # Libraries that come and go
//!
//! A library can be unloaded, and another one loaded at the same addresses. The program, this
//! library and libc stay for as long as the table does, and their rules are used without a
//! question. A rule from another module is used only after the loader was asked, once per capture,
//! how many modules it has unloaded so far; when the number has changed, all such rules are thrown
//! away.

// Where the unwinder is libgcc's, and the registers are known.
#[cfg_attr(
    not(all(
        target_os = "linux",
        target_env = "gnu",
        target_pointer_width = "64",
        any(target_arch = "x86_64", target_arch = "aarch64"),
    )),
    path = "other.rs"
)]
mod fast;
mod loaded;
mod method;
mod slow;

pub use loaded::{Module, modules};
pub use method::{Method, method};

/// Fills `frames` with the return addresses of the calling thread, innermost first, and answers how
/// many there are. What lies behind that number in `frames` is not touched.
///
/// The first address is the one at which the caller of `capture` goes on after the call. From there
/// on the addresses are those of `frame.ip()` in `backtrace::trace`, up to the outermost frame or
/// the end of `frames`. The null address that `backtrace` gives at the end of some stacks is left
/// out.
///
/// On systems that this crate has no rules for, some frames of the capturing functions come before
/// those.
///
/// Nothing is allocated and no lock is taken for a stack whose return addresses are known. The
/// first capture of a thread asks libc for the bounds of its stack, and a return address that is
/// new is looked up with the unwinder's means.
///
/// ```
/// let mut frames = [0; 32];
/// let count = cuguard_stack::capture(&mut frames);
/// assert!(count > 1);
/// assert!(frames[..count].iter().all(|&address| address != 0));
///
/// // A short buffer gets the innermost ones.
/// assert_eq!(cuguard_stack::capture(&mut [0; 1]), 1);
/// assert_eq!(cuguard_stack::capture(&mut []), 0);
/// ```
// Inlined, so that the function that calls it is the innermost one.
#[inline(always)]
pub fn capture(frames: &mut [usize]) -> usize {
    fast::capture(frames)
}

/// The same as [`capture`], always by `backtrace::trace`: to compare with, and to measure against.
///
/// ```
/// let (mut a, mut b) = ([0; 64], [0; 64]);
/// let count = cuguard_stack::capture(&mut a);
/// let other = cuguard_stack::capture_with_backtrace(&mut b);
/// // The frame of this function is at two places of it. Those of its callers are the same.
/// assert_eq!(count, other);
/// assert_eq!(a[count - 1], b[other - 1]);
/// ```
#[inline(always)]
pub fn capture_with_backtrace(frames: &mut [usize]) -> usize {
    fast::capture_with_backtrace(frames)
}

/// The same as [`capture`], or `None` where [`capture`] would ask `backtrace`. `frames` may be
/// filled in part then.
///
/// ```
/// let mut frames = [0; 16];
/// match cuguard_stack::capture_with_rules(&mut frames) {
///     Some(count) => assert!(count > 1),
///     None => println!("not covered by rules"),
/// }
/// ```
#[inline(always)]
pub fn capture_with_rules(frames: &mut [usize]) -> Option<usize> {
    fast::capture_with_rules(frames)
}
