//! The device heap, from which `malloc` in a kernel allocates.

use cuguard_driver::result::context;
use cuguard_driver::sys::limit;

use crate::core::{Entered, log_error};
use crate::error::{Error, Result};
use crate::guards::Context;

/// Sets the size of a context's device heap (`CU_LIMIT_MALLOC_HEAP_SIZE`) and restores the previous limit on drop.
///
/// `malloc` in a kernel allocates from a heap of the context, whose size is fixed: 8 MiB by default. If the heap is full,
/// `malloc` returns null, and neither the launch nor a later call fails. So kernels should count failed allocations, and
/// the host should check the count: the example `device_heap` does.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::context::DeviceHeap;
/// use cuguard::Context;
///
/// let context = Context::new(0)?;
/// let heap = DeviceHeap::limit(&context, 64 << 20)?;
/// assert_eq!(heap.bytes(), 64 << 20);
/// // ... load modules, launch kernels ...
/// heap.close()?;
/// assert_eq!(DeviceHeap::current(&context)?, 8 << 20);
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// # Driver rules
///
/// - Set the limit **before** a module whose kernels use `malloc` or `free` is loaded, at the latest before such a kernel
///   is launched. After that the size is fixed until the context is destroyed, and the driver returns
///   `CUDA_ERROR_INVALID_VALUE`. That also applies to the restore on drop: call [`keep`](Self::keep) if the context is
///   torn down next, or if the limit shall stay. For a different limit, create another context
///   ([`ContextBuilder::dedicated`](crate::context::ContextBuilder::dedicated)).
/// - The driver rounds the size up and has a minimum (on an H200, 4 MiB and steps of 64 KiB); [`bytes`](Self::bytes)
///   returns the result. The heap's own bookkeeping needs a part of it.
/// - The whole heap is allocated from device memory when such a module is loaded or launched, and freed with the context.
///   If there is too little memory, that load or launch fails. No host function sees or frees what kernels allocate in
///   the heap, and leaks in it are not reported.
///
/// # Nesting
///
/// A context has one limit; two [`Context`]s on the primary context of one device share it. Drop nested guards from the
/// inside out. A guard whose limit has been changed since (by another guard or other code) does not restore it:
/// [`close`](Self::close) fails with [`Error::LimitChanged`], and drop logs that.
///
/// It borrows the context, which cannot be closed before it:
///
/// ```compile_fail,E0505
/// # use cuguard::context::DeviceHeap;
/// # use cuguard::Context;
/// let context = Context::new(0)?;
/// let heap = DeviceHeap::limit(&context, 64 << 20)?;
/// context.close()?;
/// heap.close()?;
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the previous limit is restored at once if unused"]
pub struct DeviceHeap<'a> {
    context: &'a Context,
    bytes: u64,
    previous: u64,
    /// Whether drop restores the previous limit.
    restore: bool,
}

fn get(entered: &Entered<'_>) -> Result<u64> {
    let value = entered.check(context::limit(limit::MALLOC_HEAP_SIZE))?;
    Ok(value as u64)
}

fn set(entered: &Entered<'_>, bytes: u64) -> Result<()> {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    entered.check_bytes(context::set_limit(limit::MALLOC_HEAP_SIZE, bytes), bytes)
}

impl<'a> DeviceHeap<'a> {
    /// Sets the limit of the context's device heap to at least `bytes`, until the guard is dropped.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::context::DeviceHeap;
    /// use cuguard::Context;
    ///
    /// let context = Context::builder().dedicated().build()?;
    /// let heap = DeviceHeap::limit(&context, 32 << 20)?;
    /// assert_eq!(DeviceHeap::current(&context)?, 32 << 20);
    /// drop(heap);
    /// assert_eq!(DeviceHeap::current(&context)?, 8 << 20);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any driver error: `CUDA_ERROR_INVALID_VALUE` if a kernel that uses the heap has been launched in this context. The
    /// limit is unchanged.
    pub fn limit(context: &'a Context, bytes: u64) -> Result<Self> {
        let entered = context.state().enter("DeviceHeap::limit")?;
        let previous = get(&entered)?;
        set(&entered, bytes)?;
        match get(&entered) {
            Ok(bytes) => Ok(Self {
                context,
                bytes,
                previous,
                restore: true,
            }),
            Err(error) => {
                if let Err(later) = set(&entered, previous) {
                    log_error(&later);
                }
                Err(error)
            }
        }
    }

    /// The current limit of a context's device heap.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// assert_eq!(cuguard::context::DeviceHeap::current(&context)?, 8 << 20);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any driver error.
    pub fn current(context: &Context) -> Result<u64> {
        get(&context.state().enter("DeviceHeap::current")?)
    }

    /// The limit that was set, rounded by the driver.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::context::DeviceHeap;
    /// use cuguard::Context;
    ///
    /// let context = Context::builder().dedicated().build()?;
    /// let heap = DeviceHeap::limit(&context, 32 << 20)?;
    /// assert_eq!(heap.bytes(), DeviceHeap::current(&context)?);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The limit that is restored on drop.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::context::DeviceHeap;
    /// use cuguard::Context;
    ///
    /// let context = Context::builder().dedicated().build()?;
    /// let before = DeviceHeap::current(&context)?;
    /// let heap = DeviceHeap::limit(&context, 32 << 20)?;
    /// assert_eq!(heap.previous(), before);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn previous(&self) -> u64 {
        self.previous
    }

    /// Keeps the limit until the context is destroyed, instead of restoring the previous one.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::context::DeviceHeap;
    /// use cuguard::Context;
    ///
    /// let context = Context::builder().dedicated().build()?;
    /// DeviceHeap::limit(&context, 64 << 20)?.keep();
    /// assert_eq!(DeviceHeap::current(&context)?, 64 << 20);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn keep(mut self) {
        self.restore = false;
    }

    /// Restores the previous limit and returns the error. Drop does the same and logs the error.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::context::DeviceHeap;
    /// use cuguard::{Context, Error};
    ///
    /// let context = Context::builder().dedicated().build()?;
    /// let outer = DeviceHeap::limit(&context, 32 << 20)?;
    /// let inner = DeviceHeap::limit(&context, 64 << 20)?;
    /// // The inner guard must be closed first:
    /// assert!(matches!(outer.close(), Err(Error::LimitChanged { .. })));
    /// inner.close()?;
    /// assert_eq!(DeviceHeap::current(&context)?, 32 << 20);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LimitChanged`] if the limit was changed since, or any other driver error: `CUDA_ERROR_INVALID_VALUE` if a
    /// kernel that uses the heap has been launched. The limit is unchanged.
    pub fn close(mut self) -> Result<()> {
        self.restore_previous("DeviceHeap::close")
    }

    fn restore_previous(&mut self, operation: &'static str) -> Result<()> {
        if !std::mem::take(&mut self.restore) {
            return Ok(());
        }
        let entered = self.context.state().enter(operation)?;
        let actual = get(&entered)?;
        if actual != self.bytes {
            return Err(Error::LimitChanged {
                operation,
                expected: self.bytes,
                actual,
            });
        }
        set(&entered, self.previous)
    }
}

impl Drop for DeviceHeap<'_> {
    fn drop(&mut self) {
        match self.restore_previous("DeviceHeap::drop") {
            // At exit the limit does not matter.
            Ok(()) | Err(Error::ProcessEnding { .. }) => {}
            Err(error) => log_error(&error),
        }
    }
}
