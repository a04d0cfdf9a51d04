//! Kernel launches within a scope.

use std::ffi::c_void;
use std::ptr;

use cuguard_driver::api;
use cust::function::{BlockSize, GridSize};
use cust::memory::DeviceCopy;

use crate::bound::{DeviceMut, DeviceRef};
use crate::error::Result;
use crate::module::Function;
use crate::scope::Scope;

/// What a kernel can be given: a value that can be copied to the device, or memory that the scope
/// has bound, which the kernel gets as a pointer.
///
/// # Safety
///
/// The pointer leads to what the driver copies as the kernel's parameter.
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

// SAFETY: an address on the device is a pointer there.
unsafe impl<'scope, T> KernelArgument<'scope> for DeviceRef<'scope, T> {
    fn parameter(&self) -> *const c_void {
        ptr::from_ref(self.address()).cast()
    }
}

// SAFETY: an address on the device is a pointer there.
unsafe impl<'scope, T> KernelArgument<'scope> for DeviceMut<'scope, T> {
    fn parameter(&self) -> *const c_void {
        ptr::from_ref(self.address()).cast()
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Launches a kernel: `grid` blocks of `block` threads, each a number or a tuple of up to
    /// three, with `shared_bytes` of shared memory for each block beyond what the kernel has by
    /// itself.
    ///
    /// ```no_run
    /// # use cuguard::{Context, DeviceBuffer, Module, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// let module = Module::from_ptx(&context, include_str!("../kernels/pattern.ptx"))?;
    /// let fill = module.function("fill_pattern")?;
    /// let mut words = DeviceBuffer::<u32>::zeroed(&context, 1000)?;
    /// stream.scope(|s| {
    ///     let words = s.bind_mut(&mut words)?;
    ///     // SAFETY: fill_pattern(words, count, seed) writes `count` words.
    ///     unsafe { s.launch(&fill, 4, 256, 0, &[&words, &(words.len() as u64), &7_u32]) }
    /// })?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// The driver checks none of this:
    ///
    /// - The arguments are those that the kernel takes, in number, order and size.
    /// - The kernel stays within the memory that it is given. It only reads what is bound by
    ///   [`bind`](Scope::bind), and leaves only valid values in what is bound by
    ///   [`bind_mut`](Scope::bind_mut).
    /// - Memory that it reaches by other ways, such as addresses among the values and the module's
    ///   variables, is valid, and nobody else uses it in a way that conflicts, until the scope
    ///   ends.
    /// - It does not count on values in memory that nobody wrote.
    ///
    /// # Errors
    ///
    /// [`Error::WrongContext`](crate::Error::WrongContext),
    /// [`Error::ContextClosed`](crate::Error::ContextClosed), or what the driver says. What goes
    /// wrong within the kernel is told later, by whatever waits for it.
    pub unsafe fn launch(
        &self,
        function: &Function<'scope>,
        grid: impl Into<GridSize>,
        block: impl Into<BlockSize>,
        shared_bytes: u32,
        arguments: &[&dyn KernelArgument<'scope>],
    ) -> Result<()> {
        const OPERATION: &str = "Scope::launch";
        self.core().check_custody(OPERATION, function.custody())?;
        let (grid, block) = (grid.into(), block.into());
        let mut parameters: Vec<*mut c_void> = arguments
            .iter()
            .map(|argument| argument.parameter().cast_mut())
            .collect();
        self.submit(OPERATION, None, "cuLaunchKernel", |stream| {
            // SAFETY: the function's module is borrowed until the stream has been waited for. The
            // parameters are read, and only read, during the call; that they are the kernel's is
            // what the caller vouches for.
            unsafe {
                api::cuLaunchKernel(
                    function.as_raw(),
                    grid.x,
                    grid.y,
                    grid.z,
                    block.x,
                    block.y,
                    block.z,
                    shared_bytes,
                    stream,
                    parameters.as_mut_ptr(),
                    ptr::null_mut(),
                )
            }
        })
    }
}
