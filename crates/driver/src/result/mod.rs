//! The driver's functions as Rust functions that return [`Result`].
//!
//! Three layers, each of which calls only the one before it:
//!
//! 1. [`sys`](crate::sys) and [`api`](crate::api): the driver's types and its raw functions;
//! 2. `result`: the same functions, with out-parameters as return values and codes as [`CallError`];
//! 3. the guards of `cuguard`, which own what these functions create.
//!
//! A function here makes one driver call. It allocates nothing, takes no lock and remembers nothing:
//! the caller decides which context is current and owns what is returned. It knows neither guards nor
//! reports. Functions are grouped by what they act on and named after the driver's function;
//! arguments keep the driver's order.
//!
//! A function is safe if it takes no pointer and no handle and destroys nothing that other code may still
//! use. Everything else is `unsafe`, and its `# Safety` section states what the caller must ensure.
//!
#![cfg_attr(feature = "sim", doc = "```")]
#![cfg_attr(not(feature = "sim"), doc = "```no_run")]
//! use cuguard_driver::result::{self, context, device, memory};
//! # if cfg!(feature = "sim") {
//! # cuguard_driver::select(cuguard_driver::Choice::Sim)?;
//! # }
//!
//! result::init()?;
//! let context = device::primary_ctx_retain(0)?;
//! // SAFETY: the context is alive until it is released below.
//! unsafe { context::push_current(context)? };
//!
//! let address = memory::alloc(4096)?;
//! // SAFETY: allocated above, in use nowhere.
//! unsafe { memory::free(address)? };
//! let error = memory::alloc(1 << 50).unwrap_err();
//! assert_eq!(error.to_string(), "cuMemAlloc returned CUDA_ERROR_OUT_OF_MEMORY (2): out of memory");
//!
//! context::pop_current()?;
//! // SAFETY: nothing of this context is in use.
//! unsafe { device::primary_ctx_release(0)? };
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod context;
pub mod copy;
pub mod device;
pub mod event;
pub mod function;
pub mod graph;
pub mod link;
pub mod memory;
pub mod module;
pub mod peer;
pub mod pool;
pub mod stream;
pub mod virtual_memory;

use std::fmt;

use cuguard_sys::CUresult;

/// What the functions of this module return.
pub type Result<T = (), E = CallError> = std::result::Result<T, E>;

/// A driver call that failed.
///
/// ```
/// use cuguard_driver::result::CallError;
/// use cuguard_driver::sys::CUresult;
///
/// let error = CallError { function: "cuMemFree", code: CUresult::INVALID_VALUE };
/// assert_eq!(error.to_string(), "cuMemFree returned CUDA_ERROR_INVALID_VALUE (1): invalid argument");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallError {
    /// The driver's function, without `_v2`.
    pub function: &'static str,
    /// The code that it returned; never `CUDA_SUCCESS` in errors of this module.
    pub code: CUresult,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} returned {}", self.function, self.code)?;
        match self.code.text() {
            Some(text) => write!(f, ": {text}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for CallError {}

/// Turns a code into a result.
#[inline]
fn check(function: &'static str, code: CUresult) -> Result {
    if code.is_success() {
        Ok(())
    } else {
        Err(CallError { function, code })
    }
}

/// Turns the code of a query into whether the work is complete.
#[inline]
fn check_complete(function: &'static str, code: CUresult) -> Result<bool> {
    match code {
        CUresult::NOT_READY => Ok(false),
        code => check(function, code).map(|()| true),
    }
}

/// Makes a call that has an out-parameter, and returns what the driver wrote there.
#[inline]
fn out<T: Default>(call: impl FnOnce(&mut T) -> Result) -> Result<T> {
    let mut value = T::default();
    call(&mut value)?;
    Ok(value)
}

/// The name that NVIDIA's documentation and the header's macros use: without `_v2`.
const fn without_version(symbol: &'static str) -> &'static str {
    match symbol.as_bytes() {
        [name @ .., b'_', b'v', b'2'] => symbol.split_at(name.len()).0,
        _ => symbol,
    }
}

/// Calls a function of [`guard_calls`](crate::guard_calls) and checks its code, with `check` or the named function. To be used in an
/// `unsafe` block.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {
        call!(check, $function($($argument),*))
    };
    ($check:ident, $function:ident($($argument:expr),* $(,)?)) => {
        $crate::result::$check(
            const { $crate::result::without_version(stringify!($function)) },
            $crate::guard_calls::$function($($argument),*),
        )
    };
}
use call;

/// Initializes the driver; loads it first if none is loaded. May be called again.
///
/// # Errors
///
/// `CUDA_ERROR_NO_DEVICE` where there is no driver, with the reason on stderr (call
/// [`load`](crate::load()) first to have the reason as an error); any other driver error.
#[inline]
pub fn init() -> Result {
    // SAFETY: legal at any time; 0 is the only value that `flags` may have.
    unsafe { call!(cuInit(0)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_their_version() {
        assert_eq!(without_version("cuMemAlloc_v2"), "cuMemAlloc");
        assert_eq!(without_version("cuMemAllocAsync"), "cuMemAllocAsync");
        assert_eq!(without_version(""), "");
    }

    #[test]
    fn not_ready_is_no_error_of_a_query() {
        assert_eq!(check_complete("f", CUresult::SUCCESS), Ok(true));
        assert_eq!(check_complete("f", CUresult::NOT_READY), Ok(false));
        let code = CUresult::INVALID_HANDLE;
        let error = CallError {
            function: "f",
            code,
        };
        assert_eq!(check_complete("f", code), Err(error));
        let code = CUresult(54321);
        let error = CallError {
            function: "f",
            code,
        };
        assert_eq!(error.to_string(), "f returned CUDA error 54321");
    }
}
