//! Queries of errors, and conversions.

use std::fmt;

use cuguard_driver::sys::CUresult;

use super::Error;

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A program that ends with it should print the diagnosis.
            Error::OutOfMemory(why) => write!(f, "{why:#}"),
            _ => fmt::Display::fmt(self, f),
        }
    }
}

impl Error {
    /// Whether memory ran out, on the device or on the host: [`Error::OutOfMemory`] or [`Error::OutOfHostMemory`]; for
    /// page-locked memory, and for work on a stream other than launches, an [`Error::Driver`]; and where the driver's
    /// compiler has a log, an [`Error::Compile`]. Recovery steps run only before an [`Error::OutOfMemory`].
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let error = cuguard::DeviceBuffer::<u8>::zeroed(&context, 1 << 50).unwrap_err();
    /// assert!(error.is_out_of_memory());
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Error::OutOfHostMemory { .. })
            || self.code() == Some(CUresult::OUT_OF_MEMORY)
    }

    /// The driver's code, if a driver call failed.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, DeviceBuffer};
    /// use cuguard::driver::sys::CUresult;
    ///
    /// let context = Context::new(0)?;
    /// let error = DeviceBuffer::<u8>::zeroed(&context, 1 << 50).unwrap_err();
    /// assert_eq!(error.code(), Some(CUresult::OUT_OF_MEMORY));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn code(&self) -> Option<CUresult> {
        match self {
            Error::Driver(error) | Error::Compile { error, .. } => Some(error.code),
            Error::OutOfMemory(why) => Some(CUresult(why.request.code)),
            _ => None,
        }
    }
}
