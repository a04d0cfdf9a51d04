//! Work that other code enqueues on a scope's stream.

use cuguard_driver::sys::CUstream;

use super::Scope;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;

impl Scope<'_, '_> {
    /// Calls other code, such as cuBLAS, that enqueues work on this scope's stream. Meanwhile the context is current, and
    /// the end of the scope waits for the work.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::driver::api;
    /// use cuguard::{Context, DeviceBuffer, Stream};
    ///
    /// let context = Context::new(0)?;
    /// let stream = Stream::new(&context)?;
    /// let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 100)?;
    /// stream.scope(|s| {
    ///     let data = s.bind_mut(&mut buffer)?;
    ///     let address = data.as_device_ptr().as_raw();
    ///     // SAFETY: fills the 100 bytes of `data`, in the order of the stream.
    ///     let code = unsafe { s.call_library(|stream| api::cuMemsetD8Async(address, 7, 100, stream))? };
    ///     assert!(code.is_success());
    ///     Ok(())
    /// })?;
    /// assert_eq!(buffer.to_vec()?, [7; 100]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// `f` must not close the context, which waits for `f`.
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], or any other driver error when the context is made current: then `f` is not called. Errors
    /// of the other code are in what `f` returns.
    ///
    /// # Safety
    ///
    /// The work uses only memory that stays valid until the scope has ended, such as that of its bindings; in a
    /// [capture](crate::Stream::capture), while the graph or an executable of it exists. It does not
    /// write what is bound shared (by [`bind`](Self::bind)), and leaves valid values in what it writes. Work that `f`
    /// enqueues on other streams is complete when `f` returns, or this stream is ordered after it. In a
    /// [scope over several streams](crate::Stream::scope_over), events order it against the work of the other streams with the same
    /// memory, before and after: the scope does not know what it uses. `f` leaves the stream
    /// alive, and leaves current what was current.
    pub unsafe fn call_library<R>(&self, f: impl FnOnce(CUstream) -> R) -> Result<R> {
        let core = self.core();
        let _entered = core.state().enter("Scope::call_library")?;
        // Before the call, whether it succeeds or panics.
        self.end.expect_work();
        Ok(f(core.handle()))
    }
}
