//! Arguments of launches.

use std::ffi::c_void;
use std::ptr;

use cust_core::DeviceCopy;

use super::bound::{DeviceMut, DeviceRef};
use super::peer::{PeerMut, PeerRef};
use super::uses::Used;
use crate::error::{Error, Result};
use crate::guards::Function;

/// An argument of a kernel: a value that can be copied to the device, or memory that the scope has bound, which is
/// passed as a device pointer.
///
/// ```no_run,standalone_crate
/// use cuguard::{Context, DeviceBuffer, Module, Stream};
/// use cuguard::scope::KernelArgument;
///
/// let context = Context::new(0)?;
/// let stream = Stream::new(&context)?;
/// let module = Module::from_ptx(&context, include_str!("../../kernels/pattern.ptx"))?;
/// let fill = module.function("fill_pattern")?;
/// let mut words = DeviceBuffer::<u32>::zeroed(&context, 1000)?;
/// stream.scope(|s| {
///     let words = s.bind_mut(&mut words)?;
///     let (count, seed) = (words.len() as u64, 7_u32);
///     let arguments: [&dyn KernelArgument<'_>; 3] = [&words, &count, &seed];
///     // SAFETY: fill_pattern(words, count, seed) writes `count` words.
///     unsafe { s.launch(&fill, (4, 256), &arguments) }
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// # Safety
///
/// `parameter` returns a pointer to the value that the driver copies as the kernel's parameter, and `size` its size in bytes. Other
/// types than those of this crate do not stand for memory that is bound: in a
/// [scope over several streams](crate::Stream::scope_over) the work with it would not be ordered.
pub unsafe trait KernelArgument<'scope> {
    #[doc(hidden)]
    fn parameter(&self) -> *const c_void;

    #[doc(hidden)]
    fn size(&self) -> usize;

    /// How the kernel uses memory that is bound.
    #[doc(hidden)]
    fn used(&self) -> Option<Used<'_>> {
        None
    }
}

// SAFETY: a plain value is its own parameter.
unsafe impl<T: DeviceCopy> KernelArgument<'_> for T {
    fn parameter(&self) -> *const c_void {
        ptr::from_ref(self).cast()
    }

    fn size(&self) -> usize {
        size_of::<T>()
    }
}

// SAFETY: a device address is a pointer parameter.
unsafe impl<'scope, T> KernelArgument<'scope> for DeviceRef<'scope, T> {
    fn parameter(&self) -> *const c_void {
        ptr::from_ref(self.address()).cast()
    }

    fn size(&self) -> usize {
        size_of_val(self.address())
    }

    fn used(&self) -> Option<Used<'_>> {
        Some(Used::Read(self.uses()))
    }
}

// SAFETY: a device address is a pointer parameter.
unsafe impl<'scope, T> KernelArgument<'scope> for DeviceMut<'scope, T> {
    fn parameter(&self) -> *const c_void {
        ptr::from_ref(self.address()).cast()
    }

    fn size(&self) -> usize {
        size_of_val(self.address())
    }

    fn used(&self) -> Option<Used<'_>> {
        Some(Used::Written(self.uses()))
    }
}

// SAFETY: a device address is a pointer parameter.
unsafe impl<'scope, T> KernelArgument<'scope> for PeerRef<'scope, T> {
    fn parameter(&self) -> *const c_void {
        ptr::from_ref(self.address()).cast()
    }

    fn size(&self) -> usize {
        size_of_val(self.address())
    }

    fn used(&self) -> Option<Used<'_>> {
        Some(Used::Read(self.uses()))
    }
}

// SAFETY: a device address is a pointer parameter.
unsafe impl<'scope, T> KernelArgument<'scope> for PeerMut<'scope, T> {
    fn parameter(&self) -> *const c_void {
        ptr::from_ref(self.address()).cast()
    }

    fn size(&self) -> usize {
        size_of_val(self.address())
    }

    fn used(&self) -> Option<Used<'_>> {
        Some(Used::Written(self.uses()))
    }
}

/// Fails unless the arguments of a launch have the number and the sizes of the kernel's parameters. The launch is prepared:
/// the sizes have been read, unless the driver does not know them.
#[inline]
pub(super) fn check(
    operation: &'static str,
    function: &Function<'_>,
    arguments: &[&dyn KernelArgument<'_>],
) -> Result<()> {
    let Some(sizes) = function.info().parameters() else {
        return Ok(());
    };
    let mut pairs = arguments.iter().zip(sizes);
    if arguments.len() == sizes.len() && pairs.all(|(argument, size)| argument.size() == *size) {
        return Ok(());
    }
    Err(mismatch(operation, function, arguments, sizes))
}

#[cold]
#[inline(never)]
fn mismatch(
    operation: &'static str,
    function: &Function<'_>,
    arguments: &[&dyn KernelArgument<'_>],
    sizes: &[usize],
) -> Error {
    let passed: Vec<_> = arguments.iter().map(|argument| argument.size()).collect();
    Error::ArgumentMismatch {
        operation,
        kernel: function.name().to_owned(),
        passed: list("argument", &passed),
        found: list("parameter", sizes),
    }
}

/// Sizes of arguments or parameters in a message.
pub(super) fn list(what: &str, sizes: &[usize]) -> String {
    let count = sizes.len();
    let sizes: Vec<_> = sizes.iter().map(usize::to_string).collect();
    match count {
        0 => format!("no {what}s"),
        1 => format!("1 {what} of size {}", sizes[0]),
        _ => format!("{count} {what}s of {} bytes", sizes.join(", ")),
    }
}
