//! Stack traces of the calling thread, as return addresses, fast enough to capture one on every
//! allocation.
//!
//! For each frame, an unwinder computes how to get from it to its caller. The result depends on nothing but
//! the return address. So this crate computes it once for each return address, packs it into one word, and
//! caches it in a table that all threads read without a lock. From then on a frame costs two loads and a few
//! additions.
//!
//! - [`capture`] uses that table, and `backtrace` where it must.
//! - [`capture_frames`] returns frames that stay valid when libraries are unloaded; [`locate`] has their module.
//! - [`Remembered`] recognizes stacks that the thread has captured before.
//! - [`capture_with_rules`] and [`capture_with_backtrace`] use one of the two alone.
//! - [`method()`] returns which of the two [`capture`] tries first in this process.
//! - [`modules`] lists the program and its libraries, to find names for addresses elsewhere, and [`module_changes`] counts how
//!   often they changed.
//!
//! The crate knows no symbols, no CUDA and no reports.
//!
//! # When `backtrace` is used
//!
//! On Linux with glibc on x86-64 or AArch64, the first capture is made with both and compared. If they
//! differ, and on all other systems, every capture uses `backtrace`.
//!
//! So does every stack with a frame whose rule is not a plain offset (signal frames, DWARF expressions), with
//! code that belongs to no module (generated at run time), or outside the stack that the thread was started
//! with (coroutines, signal stacks).
//!
//! # Unloaded libraries
//!
//! A library can be unloaded, and another one loaded at the same addresses. The program with the libraries that
//! it needs, this library and libc stay loaded for as long as the table does, and their rules are used unchecked. A rule of another
//! module is used only after checking, once per capture, how many modules the dynamic linker has unloaded so
//! far; when the number has changed, all such rules are discarded.
//!
//! A return address in such a library means something only for as long as the library is loaded. [`capture_frames`] and
//! [`Remembered`] replace it by a number that stands for the module and the offset in it.

#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod elf;
mod fallback;
// The systems where the unwinder is libgcc's and the registers are known.
#[cfg_attr(
    not(all(
        target_os = "linux",
        target_env = "gnu",
        target_pointer_width = "64",
        any(target_arch = "x86_64", target_arch = "aarch64"),
    )),
    path = "portable.rs"
)]
mod fast;
mod method;
mod module;
mod remembered;

pub use method::Method;
pub use module::{Module, module_changes, modules};
pub use remembered::Remembered;

/// Fills `frames` with the return addresses of the calling thread, innermost first, and returns how many
/// there are. The rest of `frames` is not written.
///
/// The first address is that of the instruction after the call of `capture`. From there on the addresses are
/// those of `frame.ip()` in `backtrace::trace`, up to the outermost frame or the end of `frames`, without the
/// null address at which `backtrace` ends some stacks.
///
/// On systems without rules, some frames of the capturing functions come first.
///
/// Allocates nothing and takes no lock if all return addresses are in the table. The first capture of a
/// thread queries libc for the bounds of its stack, and a new return address is looked up in the unwind
/// tables.
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

/// Like [`capture`], for stacks that are kept: a return address in a library that can be unloaded is replaced by a number that
/// stands for the library and the offset in it, and has no other meaning later. The second highest bit of such a number is set,
/// which no address has, and the highest is not. [`locate`] is its inverse.
///
/// All loads of one file are one library: those with the same path and build id, or without a build id one that was not written
/// in between. Systems without rules have no such numbers.
///
/// Allocates and takes locks only where libraries that can be unloaded are on the stack.
///
/// ```
/// let mut frames = [0; 32];
/// let count = cuguard_stack::capture_frames(&mut frames);
/// // No library that the program loaded itself is on the stack.
/// assert!(frames[..count].iter().all(|frame| cuguard_stack::locate(*frame).is_none()));
/// ```
#[inline(always)]
pub fn capture_frames(frames: &mut [usize]) -> usize {
    fast::capture_frames(frames)
}

/// The frame of a return address: what [`capture_frames`] has in its place. The library must stay loaded during the call.
///
/// ```
/// assert_eq!(cuguard_stack::frame_at(0x1000), 0x1000); // in no library
/// ```
#[must_use]
pub fn frame_at(address: usize) -> usize {
    let mut frame = [address];
    fast::number(&mut frame);
    frame[0]
}

/// The library of a frame that [`capture_frames`] has numbered, as it was loaded first, and the offset of the return address in
/// it. `None` for a frame that is an address.
///
/// ```
/// assert_eq!(cuguard_stack::locate(0x1000), None);
/// ```
#[must_use]
pub fn locate(frame: usize) -> Option<(&'static Module, usize)> {
    fast::locate(frame)
}

/// The return address of a frame, as it was when its library was loaded first.
///
/// ```
/// assert_eq!(cuguard_stack::address(0x1000), 0x1000);
/// ```
#[must_use]
pub fn address(frame: usize) -> usize {
    locate(frame).map_or(frame, |(module, offset)| module.address(offset))
}

/// Whether the program may unload a module. `false` for the program, the libraries that it needs, libc and the module that this
/// crate is linked into; for all modules on systems without rules.
///
/// ```
/// let modules = cuguard_stack::modules();
/// assert!(!modules.first().is_some_and(cuguard_stack::is_unloadable)); // the program
/// ```
#[must_use]
pub fn is_unloadable(module: &Module) -> bool {
    fast::is_unloadable(module)
}

/// Like [`capture`], but always by `backtrace::trace`: for comparison.
///
/// ```
/// let (mut a, mut b) = ([0; 64], [0; 64]);
/// let count = cuguard_stack::capture(&mut a);
/// let other = cuguard_stack::capture_with_backtrace(&mut b);
/// // The two calls have different return addresses. Those of the callers are the same.
/// assert_eq!(count, other);
/// assert_eq!(a[count - 1], b[other - 1]);
/// ```
#[inline(always)]
pub fn capture_with_backtrace(frames: &mut [usize]) -> usize {
    fast::capture_with_backtrace(frames)
}

/// Like [`capture`], or `None` where [`capture`] would use `backtrace`; `frames` may be filled in part then.
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

/// Returns the method of this process. The first capture decides it; this one, if there was none yet.
///
/// ```
/// println!("stacks are captured by {}", cuguard_stack::method());
/// ```
#[must_use]
pub fn method() -> Method {
    fast::method()
}
