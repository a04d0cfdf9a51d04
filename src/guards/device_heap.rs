//! The device heap: what `malloc` inside a kernel takes from.

use cuguard_driver::result::context;
use cuguard_driver::sys::limit;

use crate::core::{Entered, log_error};
use crate::error::{Error, Result};
use crate::guards::Context;

/// The limit of a context's device heap, put back when this goes.
///
/// A kernel that calls `malloc` takes memory from a heap of its context, whose size is fixed: 8 MiB
/// unless another was set. Where a request does not fit, `malloc` answers null, and neither the
/// launch nor anything after it fails. So kernels should count what they were refused, and the host
/// should look: the example `device_heap` does.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, DeviceHeap};
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
/// # What the driver asks for
///
/// - The limit is to be set **before** a module whose kernels use `malloc` or `free` is loaded, at
///   the latest before such a kernel is launched. Afterwards the heap has its size for as long as
///   the context lives, and the driver answers `CUDA_ERROR_INVALID_VALUE`. That can also happen to
///   what this guard puts back: where the context goes afterwards, or the limit shall stay,
///   [`keep`](Self::keep) it. A different limit later takes a context of its own
///   ([`ContextBuilder::dedicated`](crate::ContextBuilder::dedicated)).
/// - The driver rounds up what it is asked for, and has a least size (an H200 has 4 MiB, and steps
///   of 64 KiB); [`bytes`](Self::bytes) tells what it made of it. Not all of the heap can be had by
///   kernels: each block takes some for itself.
/// - The heap is device memory beside everything else, for the whole of its size, whether kernels
///   use it or not; it is taken when such a module is loaded or launched, and comes back with the
///   context. Where it cannot be had, that load or launch fails. What kernels allocate in it, and
///   forget, no host-side function sees or frees, and no report of this crate lists.
///
/// # One at a time
///
/// A context has one limit. Guards within each other put it back from the inside out. One that
/// goes while the limit is no longer what it had set (another guard is still there, or other code
/// has changed it) leaves it alone: [`close`](Self::close) is an [`Error::LimitChanged`] then, and
/// drop logs that. Two [`Context`]s on the primary context of one device share it.
///
/// It borrows the context, which so cannot go before it:
///
/// ```compile_fail,E0505
/// # use cuguard::{Context, DeviceHeap};
/// let context = Context::new(0)?;
/// let heap = DeviceHeap::limit(&context, 64 << 20)?;
/// context.close()?;
/// heap.close()?;
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the limit is put back when this goes"]
pub struct DeviceHeap<'a> {
    context: &'a Context,
    bytes: u64,
    previous: u64,
    /// Whether the former limit is still to be put back.
    held: bool,
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
    /// Sets the limit of the context's device heap to at least so many bytes, until the answer goes.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, DeviceHeap};
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
    /// What the driver says, and then the limit is as before: `CUDA_ERROR_INVALID_VALUE` where a
    /// kernel that uses the heap has been launched in this context.
    pub fn limit(context: &'a Context, bytes: u64) -> Result<Self> {
        let entered = context.state().enter("DeviceHeap::limit")?;
        let previous = get(&entered)?;
        set(&entered, bytes)?;
        match get(&entered) {
            Ok(bytes) => Ok(Self {
                context,
                bytes,
                previous,
                held: true,
            }),
            Err(error) => {
                if let Err(later) = set(&entered, previous) {
                    log_error(&later);
                }
                Err(error)
            }
        }
    }

    /// The limit of a context's device heap.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// assert_eq!(cuguard::DeviceHeap::current(&context)?, 8 << 20);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any driver error.
    pub fn current(context: &Context) -> Result<u64> {
        get(&context.state().enter("DeviceHeap::current")?)
    }

    /// The limit that was set, as the driver rounded it.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, DeviceHeap};
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

    /// The limit that is put back.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, DeviceHeap};
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

    /// Leaves the limit as it is, for as long as the context lives.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, DeviceHeap};
    ///
    /// let context = Context::builder().dedicated().build()?;
    /// DeviceHeap::limit(&context, 64 << 20)?.keep();
    /// assert_eq!(DeviceHeap::current(&context)?, 64 << 20);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn keep(mut self) {
        self.held = false;
    }

    /// Puts the former limit back and tells whether the driver took it. Drop does the same and logs
    /// what was refused.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, DeviceHeap, Error};
    ///
    /// let context = Context::builder().dedicated().build()?;
    /// let outer = DeviceHeap::limit(&context, 32 << 20)?;
    /// let inner = DeviceHeap::limit(&context, 64 << 20)?;
    /// // The inner one goes first:
    /// assert!(matches!(outer.close(), Err(Error::LimitChanged { .. })));
    /// inner.close()?;
    /// assert_eq!(DeviceHeap::current(&context)?, 32 << 20);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LimitChanged`] where the limit is not what this had set, or any other driver error:
    /// `CUDA_ERROR_INVALID_VALUE` where a kernel that uses the heap has been launched. The limit
    /// stays as it is then.
    pub fn close(mut self) -> Result<()> {
        self.put_back("DeviceHeap::close")
    }

    fn put_back(&mut self, operation: &'static str) -> Result<()> {
        if !std::mem::take(&mut self.held) {
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
        match self.put_back("DeviceHeap::drop") {
            // Nobody needs a limit any more.
            Ok(()) | Err(Error::ProcessEnding { .. }) => {}
            Err(error) => log_error(&error),
        }
    }
}
