//! Contexts of other code: to take ownership of one, or to borrow one.

use cuguard_driver::sys::CUcontext;

use crate::error::Result;
use crate::guards::Context;
#[cfg(doc)]
use crate::{error::Error, guards::ContextBuilder};

impl Context {
    /// Takes ownership of a context of other code. Teardown destroys it (`cuCtxDestroy`), or, if it is the primary context
    /// of its device, releases it once (`cuDevicePrimaryCtxRelease`).
    ///
    /// What other code created in the context is not recorded, and is destroyed with it. To share the primary context with
    /// other code, `Context::new` is simpler: it retains the same context once more.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # cuguard::Device::count()?;
    /// use cuguard::driver::{api, sys::CUcontext};
    /// use cuguard::Context;
    ///
    /// let mut handle = CUcontext::NULL;
    /// // SAFETY: `handle` is valid for writes.
    /// let code = unsafe { api::cuCtxCreate_v2(&mut handle, 0, 0) };
    /// assert!(code.is_success());
    /// // SAFETY: created above, and destroyed by nothing else.
    /// let context = unsafe { Context::from_raw(handle)? };
    /// assert_eq!((context.as_raw(), context.device().ordinal()), (handle, 0));
    /// context.close()?; // destroys it
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// [`ContextBuilder::build_from_raw`] does the same with settings.
    ///
    /// # Safety
    ///
    /// The context is alive, and the caller owns it: a context of `cuCtxCreate` is destroyed by nothing else; of a primary
    /// context, one `cuDevicePrimaryCtxRetain` is released by nothing else, and the device is not reset. Other code uses
    /// nothing of the context after its teardown.
    ///
    /// # Errors
    ///
    /// [`Error::NullHandle`], [`Error::Load`], [`Error::ProcessEnding`], or any other driver error. The caller still owns
    /// the context then.
    pub unsafe fn from_raw(handle: CUcontext) -> Result<Self> {
        // SAFETY: as the caller ensures.
        unsafe { Self::builder().build_with("Context::from_raw", handle, true) }
    }

    /// Borrows a context of other code: it is never released or destroyed here.
    ///
    /// Resources that are created with this `Context` are recorded and owned as in any other. Teardown, by
    /// [`close`](Self::close) or when the last of them is dropped, waits for the device, reports and frees them, and leaves
    /// the driver's context as it is.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, DeviceBuffer};
    ///
    /// # cust::init(cust::CudaFlags::empty())?;
    /// # let device = cust::device::Device::get_device(0)?;
    /// # let _quick = cust::context::Context::new(device)?;
    /// # let mut handle = cuguard::driver::sys::CUcontext::NULL;
    /// # // SAFETY: valid for writes.
    /// # unsafe { cuguard::driver::api::cuCtxGetCurrent(&mut handle) };
    /// // `handle` is the current context, which other code created:
    /// // SAFETY: that code keeps it until `context` is closed.
    /// let context = unsafe { Context::borrow_raw(handle)? };
    /// let buffer = DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// assert_eq!(context.live_bytes(), 12);
    /// drop(buffer);
    /// context.close()?; // the driver's context stays
    /// # assert!(cust::memory::DeviceBox::new(&1).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// [`ContextBuilder::build_borrowed`] does the same with settings.
    ///
    /// # Safety
    ///
    /// The context is alive, and stays alive until this `Context` is torn down: until it is closed, or it and all of its
    /// resources are dropped. (So it is not destroyed, not released for the last time, and the device is not reset.)
    /// What is dropped in a host function of a stream is freed by a later operation, such as [`synchronize`](Self::synchronize):
    /// until then it counts as not dropped.
    ///
    /// # Errors
    ///
    /// [`Error::NullHandle`], [`Error::Load`], [`Error::ProcessEnding`], or any other driver error.
    pub unsafe fn borrow_raw(handle: CUcontext) -> Result<Self> {
        // SAFETY: as the caller ensures.
        unsafe { Self::builder().build_with("Context::borrow_raw", handle, false) }
    }
}
