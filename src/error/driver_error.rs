//! A failed driver call.

use std::fmt;

use cuguard_driver::sys::CUresult;
use cuguard_report::ByteSize;

/// A failed driver call.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, Event};
///
/// let context = Context::new(0)?;
/// let event = Event::new(&context)?;
/// let error = event.elapsed_since(&Event::new(&context)?).unwrap_err();
/// assert!(error.to_string().contains("returned CUDA_ERROR_INVALID_HANDLE (400)"), "{error}");
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriverError {
    /// The function of this crate, such as `DeviceBuffer::zeroed`.
    pub operation: &'static str,
    /// The driver's function, without its version suffix (`_v2`).
    pub function: &'static str,
    /// The code that it returned.
    pub code: CUresult,
    /// The size of the allocation or copy, if any.
    pub bytes: Option<u64>,
    /// The device, if known.
    pub device: Option<u32>,
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.operation)?;
        if let Some(bytes) = self.bytes {
            write!(f, " of {}", ByteSize(bytes))?;
        }
        if let Some(device) = self.device {
            write!(f, " on device {device}")?;
        }
        write!(f, ": {} returned {}", self.function, self.code)?;
        if let Some(text) = self.code.text() {
            write!(f, ": {text}")?;
        }
        match self.code {
            CUresult::STREAM_CAPTURE_UNSUPPORTED => {
                f.write_str("; work is being captured in this context, and the call would wait for it")?;
            }
            CUresult::STREAM_CAPTURE_INVALIDATED => f.write_str(
                "; a call that is not permitted during a capture, such as a wait for the whole context, has ended it",
            )?,
            _ => {}
        }
        if self.code == CUresult::NOT_PERMITTED {
            f.write_str("; inside a host function of a stream no CUDA call is permitted")?;
            // The call by which teardown finds that it is inside a host function.
            if (self.operation, self.function) == ("Context::close", "cuCtxGetCurrent") {
                f.write_str(", and the context is torn down later")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for DriverError {}
