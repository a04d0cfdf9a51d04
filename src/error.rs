//! What can go wrong, with the words that help.

use std::fmt;

use cuguard_driver::LoadError;
use cuguard_driver::sys::CUresult;

use cuguard_report::ByteSize;
use cuguard_report::oom::OutOfMemory;

/// What every function of this crate answers.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, DeviceBuffer, Result};
///
/// fn sum(values: &[u32]) -> Result<u32> {
///     let context = Context::new(0)?;
///     let buffer = DeviceBuffer::from_slice(&context, values)?;
///     Ok(buffer.to_vec()?.iter().sum())
/// }
///
/// assert_eq!(sum(&[1, 2, 3])?, 6);
/// # Ok::<(), cuguard::Error>(())
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. It names the operation, and for what the driver refused the driver's function,
/// its code by number and name, the size and the device.
///
/// ```
/// use cuguard::{Context, Error};
///
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// let error = Context::new(99).unwrap_err();
/// assert_eq!(error.to_string(), "Context::new: there is no device 99; there is 1 device");
/// assert!(matches!(error, Error::NoSuchDevice { ordinal: 99, .. }));
/// ```
///
/// It prints the same with `{:?}`, so that a `main` that returns it, and an `unwrap`, say what
/// happened; where memory ran out, with the whole report.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The driver refused a call.
    #[error(transparent)]
    Driver(DriverError),

    /// There is not so much memory on the device, or not so much of the context's
    /// [budget](crate::ContextBuilder::memory_limit): for an allocation, a context, a stream, an event, a
    /// module, a memory pool or a launch. The report says why: with `{:#}`, or
    /// [`OutOfMemory::to_text`].
    #[error(transparent)]
    OutOfMemory(Box<OutOfMemory>),

    /// No driver could be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),

    /// The context that this belongs to was closed. (One that is dropped stays open for its guards.)
    #[error("{operation}: its context was closed")]
    ContextClosed {
        /// What was asked for.
        operation: &'static str,
    },

    /// The process is ending, or is a fork of one that uses the driver: the driver is not called any
    /// more. Whatever would call it answers this then.
    #[error("{operation}: the process is ending, or was forked from one that uses the driver")]
    ProcessEnding {
        /// What was asked for.
        operation: &'static str,
    },

    /// There is not so much memory on the host.
    #[error(
        "{operation}: {} of host memory cannot be had{}", ByteSize(*.bytes), host_limit(*.limit)
    )]
    OutOfHostMemory {
        /// What was asked for.
        operation: &'static str,
        /// How many bytes were asked for.
        bytes: u64,
        /// All memory that the host has, or that the process's control group allows, where that is
        /// less than `bytes`. `None` where the host has as much and did not allocate it.
        limit: Option<u64>,
    },

    /// Two resources of one operation belong to different contexts. Contexts are numbered as in
    /// reports, from 1.
    #[error(
        "{operation}: {one} belongs to context {one_context}, {other} to context {other_context}"
    )]
    WrongContext {
        /// The function that was called.
        operation: &'static str,
        /// One of the two, such as "the stream".
        one: &'static str,
        /// The number of its context.
        one_context: u64,
        /// The other, such as "the event".
        other: &'static str,
        /// The number of its context.
        other_context: u64,
    },

    /// A device that does not exist.
    #[error("{operation}: there is no device {ordinal}; {}", devices(*.count))]
    NoSuchDevice {
        /// What was asked for.
        operation: &'static str,
        /// The device that was asked for.
        ordinal: u32,
        /// How many there are.
        count: u32,
    },

    /// More bytes than there are addresses.
    #[error(
        "{operation}: {count} elements of {size} bytes each are more than memory has addresses"
    )]
    SizeOverflow {
        /// What was asked for.
        operation: &'static str,
        /// The number of elements.
        count: usize,
        /// The size of one.
        size: usize,
    },

    /// Memory that begins at an address which no value of the type may have. Drivers promise no
    /// more than some hundred bytes of alignment; what was taken is freed.
    #[error(
        "{operation}: {type_name} must lie at a multiple of {align}, and the driver gave {address:#x}"
    )]
    Misaligned {
        /// What was asked for.
        operation: &'static str,
        /// The type of the elements.
        type_name: &'static str,
        /// Its alignment.
        align: usize,
        /// What the driver gave.
        address: u64,
    },

    /// Two lengths that must be equal are not.
    #[error("{operation}: {actual} elements given, {expected} expected")]
    LengthMismatch {
        /// What was asked for.
        operation: &'static str,
        /// The length that is needed.
        expected: usize,
        /// The length that was given.
        actual: usize,
    },

    /// A name that the module does not have.
    #[error("{operation}: the module has nothing called {name:?}")]
    NoSuchSymbol {
        /// What was asked for.
        operation: &'static str,
        /// The name.
        name: String,
    },

    /// The driver could not make a module of the code; its compiler says why.
    #[error("{error}\n{log}")]
    Compile {
        /// What the driver answered.
        error: DriverError,
        /// What its compiler said.
        log: String,
    },

    /// The simulated GPU runs no kernels.
    #[error("{operation}: the simulated GPU runs no kernels")]
    NoKernels {
        /// What was asked for.
        operation: &'static str,
    },

    /// Pieces that are too small to work on; see [`Chunked`](crate::Chunked).
    #[error(
        "{operation}: a piece of {} is too small: {reason} takes {}", ByteSize(*.bytes), ByteSize(*.least)
    )]
    PieceTooSmall {
        /// What was asked for.
        operation: &'static str,
        /// The size of a piece that was set.
        bytes: u64,
        /// The least that it can be.
        least: u64,
        /// What is as large as that.
        reason: &'static str,
    },

    /// A limit is not what it was set to, so it is not put back; see
    /// [`DeviceHeap`](crate::DeviceHeap).
    #[error(
        "{operation}: the limit is {} now, and was set to {}: it is left as it is",
        ByteSize(*.actual), ByteSize(*.expected)
    )]
    LimitChanged {
        /// What was asked for.
        operation: &'static str,
        /// What it had been set to.
        expected: u64,
        /// What it is.
        actual: u64,
    },

    /// A name or text for the driver with a NUL character in it.
    #[error("{operation}: {text:?} has a NUL character in it")]
    InteriorNul {
        /// What was asked for.
        operation: &'static str,
        /// The text.
        text: String,
    },
}

fn host_limit(limit: Option<u64>) -> String {
    limit.map_or_else(String::new, |limit| {
        format!("; this process can have {} at most", ByteSize(limit))
    })
}

fn devices(count: u32) -> String {
    match count {
        0 => "there are no devices".to_owned(),
        1 => "there is 1 device".to_owned(),
        _ => format!("there are {count} devices"),
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Where a program ends with it, the whole report is wanted.
            Error::OutOfMemory(why) => write!(f, "{why:#}"),
            _ => fmt::Display::fmt(self, f),
        }
    }
}

impl Error {
    /// Whether there was too little memory, of the device or of the host. Mostly that is an
    /// [`Error::OutOfMemory`]. Where the driver says so of page-locked memory, or of work that is given
    /// to a stream and is no launch, it is an [`Error::Driver`], and where its compiler has words for it
    /// an [`Error::Compile`]; nothing is tried then before it fails.
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

    /// The driver's code, where the driver refused a call.
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
            Error::OutOfMemory(why) => Some(CUresult(why.asked.code)),
            _ => None,
        }
    }
}

/// A call that the driver refused.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, Event};
///
/// let context = Context::new(0)?;
/// let event = Event::new(&context)?;
/// let error = event.elapsed_since(&Event::new(&context)?).unwrap_err();
/// assert!(error.to_string().contains("answered CUDA_ERROR_INVALID_HANDLE (400)"), "{error}");
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriverError {
    /// What was asked of this crate, such as `DeviceBuffer::zeroed`.
    pub operation: &'static str,
    /// The driver's function, by its name without version.
    pub function: &'static str,
    /// What it answered.
    pub code: CUresult,
    /// The bytes in question, if any.
    pub bytes: Option<u64>,
    /// The device, where it is known.
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
        write!(f, ": {} answered {}", self.function, self.code)?;
        if let Some(text) = self.code.text() {
            write!(f, ": {text}")?;
        }
        if self.code == CUresult::NOT_PERMITTED {
            f.write_str("; inside a host function of a stream no CUDA call is permitted")?;
            // The call that finds out whether it is inside of one.
            if (self.operation, self.function) == ("Context::close", "cuCtxGetCurrent") {
                f.write_str(", and the context is torn down later")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for DriverError {}

/// The code of an error by `cust`, for programs that use both.
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
