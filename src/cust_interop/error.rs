//! Errors of `cust`.

use cuguard_driver::sys::CUresult;

use crate::error::{DriverError, Error};

/// Converts an error of `cust`, for programs that use both.
impl From<cust::error::CudaError> for Error {
    fn from(error: cust::error::CudaError) -> Self {
        Error::Driver(DriverError {
            operation: "a call through cust",
            function: "the driver",
            code: CUresult(error as u32),
            bytes: None,
            device: None,
        })
    }
}
