//! Arguments of launches.

use std::ffi::c_void;
use std::ptr;

use cust::memory::DeviceCopy;

use super::bound::{DeviceMut, DeviceRef};
use super::peer::{PeerMut, PeerRef};

/// An argument of a kernel: a value that can be copied to the device, or memory that the scope has bound, which is
/// passed as a device pointer.
///
/// ```no_run
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
/// `parameter` returns a pointer to the value that the driver copies as the kernel's parameter.
pub unsafe trait KernelArgument<'scope> {
    #[doc(hidden)]
    fn parameter(&self) -> *const c_void;
}

// SAFETY: a plain value is its own parameter.
unsafe impl<T: DeviceCopy> KernelArgument<'_> for T {
    fn parameter(&self) -> *const c_void {
        ptr::from_ref(self).cast()
    }
}

// SAFETY: a device address is a pointer parameter.
unsafe impl<'scope, T> KernelArgument<'scope> for DeviceRef<'scope, T> {
    fn parameter(&self) -> *const c_void {
        ptr::from_ref(self.address()).cast()
    }
}

// SAFETY: a device address is a pointer parameter.
unsafe impl<'scope, T> KernelArgument<'scope> for DeviceMut<'scope, T> {
    fn parameter(&self) -> *const c_void {
        ptr::from_ref(self.address()).cast()
    }
}

// SAFETY: a device address is a pointer parameter.
unsafe impl<'scope, T> KernelArgument<'scope> for PeerRef<'scope, T> {
    fn parameter(&self) -> *const c_void {
        ptr::from_ref(self.address()).cast()
    }
}

// SAFETY: a device address is a pointer parameter.
unsafe impl<'scope, T> KernelArgument<'scope> for PeerMut<'scope, T> {
    fn parameter(&self) -> *const c_void {
        ptr::from_ref(self.address()).cast()
    }
}
