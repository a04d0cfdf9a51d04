//! The error type. This folder must not know what fails.

mod driver_error;
mod methods;
mod words;

use cuguard_driver::LoadError;

use cuguard_report::ByteSize;
use cuguard_report::oom::OutOfMemory;

pub use driver_error::DriverError;
use words::{cast_fault, counted, devices, host_limit, of, range_fault, update_reason};

/// The crate's result type.
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

/// The crate's error type. It names the operation; for a failed driver call also the driver's function, the result code
/// by name and number, and the size and the device where they are known.
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
/// `{:?}` prints the same text as `{}`, for `unwrap` and for a `main` that returns it; for [`Error::OutOfMemory`] with the
/// whole diagnosis.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A driver call failed.
    #[error(transparent)]
    Driver(DriverError),

    /// The device has too little memory, or the context's [limit](crate::context::ContextBuilder::memory_limit) is exceeded: for an
    /// allocation, a context, a stream, an event, a module, a memory pool or a launch. `{:#}` and
    /// [`OutOfMemory::to_text`] print the diagnosis.
    #[error(transparent)]
    OutOfMemory(Box<OutOfMemory>),

    /// No driver could be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),

    /// The context of this resource was closed. (A context that is dropped stays open for its resources.)
    #[error("{operation}: the context was closed")]
    ContextClosed {
        /// The function that was called.
        operation: &'static str,
    },

    /// Page-locked host memory belongs to another context, which was closed, or is being closed. Contexts are numbered from
    /// 1, as in reports.
    #[error(
        "{operation}: the page-locked host memory belongs to context {context}, which was closed"
    )]
    HostContextClosed {
        /// The function that was called.
        operation: &'static str,
        /// The number of the context that the memory belongs to.
        context: u64,
    },

    /// The process is exiting, or is a fork of one that uses the driver: the driver is no longer called.
    #[error("{operation}: the process is ending, or was forked from one that uses the driver")]
    ProcessEnding {
        /// The function that was called.
        operation: &'static str,
    },

    /// The host has too little memory.
    #[error(
        "{operation}: cannot allocate {} of host memory{}", ByteSize(*.bytes), host_limit(*.limit)
    )]
    OutOfHostMemory {
        /// The function that was called.
        operation: &'static str,
        /// The size of the allocation.
        bytes: u64,
        /// The physical memory or the limit of the process's cgroup, if that is less than `bytes` (swap is not counted).
        /// `None` if the limit is higher and the allocation failed all the same.
        limit: Option<u64>,
    },

    /// Two resources of one operation belong to different contexts. Contexts are numbered from 1, as in reports.
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

    /// A [`Pool`](crate::Pool) cannot be compacted now, or cannot map memory that live blocks are in.
    #[error("{operation}: {reason}")]
    Pool {
        /// The function that was called.
        operation: &'static str,
        /// Why not.
        reason: String,
    },

    /// A device that does not exist.
    #[error("{operation}: there is no device {ordinal}; {}", devices(*.count))]
    NoSuchDevice {
        /// The function that was called.
        operation: &'static str,
        /// The device.
        ordinal: u32,
        /// How many devices there are.
        count: u32,
    },

    /// A handle of other code that is null, or that of a default stream where one is to be owned.
    #[error("{operation}: {argument} {reason}")]
    NullHandle {
        /// The function that was called.
        operation: &'static str,
        /// The argument, such as "the event".
        argument: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },

    /// A handle of other code belongs to another context of the driver.
    #[error("{operation}: {argument} does not belong to context {context} on device {device}")]
    ForeignHandle {
        /// The function that was called.
        operation: &'static str,
        /// The argument, such as "the stream".
        argument: &'static str,
        /// The number of the context, as in reports.
        context: u64,
        /// Its device.
        device: u32,
    },

    /// A number that must not be 0.
    #[error("{operation}: {argument} is 0; it must be at least 1")]
    ZeroSize {
        /// The function that was called.
        operation: &'static str,
        /// What is 0.
        argument: &'static str,
    },

    /// Peer access between contexts of one device.
    #[error(
        "{operation}: both contexts are on device {device}; peer access is between two devices"
    )]
    SameDevice {
        /// The function that was called.
        operation: &'static str,
        /// The device.
        device: u32,
    },

    /// A device that cannot access the memory of another.
    #[error(
        "{operation}: device {device} cannot access the memory of device {peer}; copies between them are possible"
    )]
    NoPeerAccess {
        /// The function that was called.
        operation: &'static str,
        /// The device.
        device: u32,
        /// The other device.
        peer: u32,
    },

    /// An attribute that this driver does not know: it is older than the attribute.
    #[error("{operation}: this driver has no attribute {attribute}")]
    UnsupportedAttribute {
        /// The function that was called.
        operation: &'static str,
        /// The driver's name of the attribute.
        attribute: &'static str,
    },

    /// The size in bytes exceeds `isize::MAX`.
    #[error("{operation}: {count} elements of {size} bytes each exceed the address space")]
    SizeOverflow {
        /// The function that was called.
        operation: &'static str,
        /// The number of elements.
        count: usize,
        /// The size of one.
        size: usize,
    },

    /// The size of a matrix in bytes exceeds `isize::MAX`; see [`PitchedBuffer`](crate::memory::PitchedBuffer).
    #[error(
        "{operation}: {} of {} of {size} bytes each exceed the address space",
        counted(*.rows, "row"), counted(*.columns, "column")
    )]
    MatrixOverflow {
        /// The function that was called.
        operation: &'static str,
        /// The number of rows.
        rows: usize,
        /// The number of columns.
        columns: usize,
        /// The size of one value.
        size: usize,
    },

    /// The driver's allocation is not aligned for the type: drivers align to some hundred bytes. The allocation is freed.
    #[error("{operation}: {type_name} needs alignment {align}; the driver returned {address:#x}")]
    Misaligned {
        /// The function that was called.
        operation: &'static str,
        /// The type of the elements.
        type_name: &'static str,
        /// Its alignment.
        align: usize,
        /// The address of the allocation.
        address: u64,
    },

    /// Two lengths do not match.
    #[error("{operation}: {argument} has {}, {resource} {expected}", counted(*.actual, .unit))]
    LengthMismatch {
        /// The function that was called.
        operation: &'static str,
        /// What is counted: "element" or "byte".
        unit: &'static str,
        /// The argument, such as "the source".
        argument: &'static str,
        /// Its length.
        actual: usize,
        /// What the argument must match, such as "the buffer".
        resource: &'static str,
        /// Its length.
        expected: usize,
    },

    /// A range that is not within the resource.
    #[error("{operation}: the range {start}..{end} {}", range_fault(*.start, *.end, .resource, *.len))]
    RangeOutOfBounds {
        /// The function that was called.
        operation: &'static str,
        /// The first element of the range.
        start: usize,
        /// The end of the range, which is not part of it.
        end: usize,
        /// What the range is to be a part of, such as "the buffer".
        resource: &'static str,
        /// Its length.
        len: usize,
    },

    /// A row that the matrix does not have; see [`PitchedBuffer`](crate::memory::PitchedBuffer).
    #[error("{operation}: there is no row {row}; the matrix has {}", counted(*.rows, "row"))]
    NoSuchRow {
        /// The function that was called.
        operation: &'static str,
        /// The row, counted from 0.
        row: usize,
        /// How many rows there are.
        rows: usize,
    },

    /// Memory that is not a whole number of aligned values of another type.
    #[error("{operation}: {}", cast_fault(*.bytes, *.address, .type_name, *.size, *.align))]
    Cast {
        /// The function that was called.
        operation: &'static str,
        /// The size of the memory.
        bytes: usize,
        /// Its device address.
        address: u64,
        /// The other type.
        type_name: &'static str,
        /// Its size.
        size: usize,
        /// Its alignment.
        align: usize,
    },

    /// What is not possible in a [capture](crate::Stream::capture), or only there, or not with what was captured.
    #[error("{operation}: {reason}")]
    Capture {
        /// The function that was called.
        operation: &'static str,
        /// Why it is not possible.
        reason: &'static str,
    },

    /// An executable graph was not updated, because the graphs differ in more than parameters. It is unchanged.
    #[error("{operation}: {}", update_reason(*.result))]
    GraphUpdate {
        /// The function that was called.
        operation: &'static str,
        /// The driver's reason, a value of [`graph_exec_update_result`](crate::driver::sys::graph_exec_update_result).
        result: u32,
    },

    /// Memory of another graph than that of the executable; see [`Scope::export`](crate::Scope::export).
    #[error(
        "{operation}: the memory was exported by another capture, and not by one of this graph"
    )]
    WrongGraph {
        /// The function that was called.
        operation: &'static str,
    },

    /// The module has no symbol of this name.
    #[error("{operation}: the module has no symbol {name:?}")]
    NoSuchSymbol {
        /// The function that was called.
        operation: &'static str,
        /// The name.
        name: String,
    },

    /// The symbol is not of the kind that was looked up.
    #[error("{operation}: {name:?} is a {found}, not a {expected}")]
    WrongSymbolKind {
        /// The function that was called.
        operation: &'static str,
        /// The name.
        name: String,
        /// What was looked up: "kernel" or "variable".
        expected: &'static str,
        /// What the symbol is.
        found: &'static str,
    },

    /// A number outside of its limits: a dimension of a launch, its shared memory, an option of the compiler.
    #[error("{operation}{}: {what} is {value}, which is not within {least} to {most}", of(.subject))]
    OutsideLimits {
        /// The function that was called.
        operation: &'static str,
        /// The kernel, if any.
        subject: String,
        /// The number, such as "grid.x" or "the number of threads per block".
        what: &'static str,
        /// Its value.
        value: u64,
        /// The least value that is accepted.
        least: u64,
        /// The largest.
        most: u64,
    },

    /// The device cannot run this kind of launch.
    #[error("{operation} of {kernel}: {reason}")]
    UnsupportedLaunch {
        /// The function that was called.
        operation: &'static str,
        /// The kernel.
        kernel: String,
        /// What is not supported, or does not fit.
        reason: String,
    },

    /// The parameters of a typed kernel are not those of the kernel in the module.
    #[error("{operation}: {kernel} is declared with {declared}; in the module it has {found}")]
    SignatureMismatch {
        /// The function that was called.
        operation: &'static str,
        /// The kernel.
        kernel: String,
        /// The declared parameters with their sizes.
        declared: String,
        /// The sizes of the parameters in the module.
        found: String,
    },

    /// The arguments of a launch do not have the number or the sizes of the kernel's parameters.
    #[error("{operation} of {kernel}: it was passed {passed}, and has {found}")]
    ArgumentMismatch {
        /// The function that was called.
        operation: &'static str,
        /// The kernel.
        kernel: String,
        /// The arguments of the launch with their sizes.
        passed: String,
        /// The parameters of the kernel with their sizes.
        found: String,
    },

    /// A file cannot be read.
    #[error("{operation}: cannot read {path}: {reason}")]
    File {
        /// The function that was called.
        operation: &'static str,
        /// The path.
        path: String,
        /// The system's message.
        reason: String,
    },

    /// An image of device code without any bytes, or a linker without input.
    #[error("{operation}: there is no device code")]
    EmptyImage {
        /// The function that was called.
        operation: &'static str,
    },

    /// The driver could not load or link a module; the log of its compiler says why.
    #[error("{error}\n{log}")]
    Compile {
        /// The error of the driver.
        error: DriverError,
        /// The log of its compiler.
        log: String,
    },

    /// CUDA C++ could not be compiled: there is no NVRTC, or the source has errors.
    #[cfg(feature = "nvrtc")]
    #[error(transparent)]
    Nvrtc(#[from] cuguard_nvrtc::Error),

    /// The simulated GPU runs kernels of PTX, and this one is compiled code; see the
    /// [guide](crate::guide::testing_without_a_gpu).
    #[error(
        "{operation}: the simulated GPU runs kernels of PTX, and the module is compiled code; CUGUARD_SIM=kernels=skip checks \
         and skips launches"
    )]
    NoKernels {
        /// The function that was called.
        operation: &'static str,
    },

    /// A piece size that is too small; see [`Chunked`](crate::Chunked).
    #[error(
        "{operation}: a piece of {} is too small: {reason} takes {}", ByteSize(*.bytes), ByteSize(*.least)
    )]
    PieceTooSmall {
        /// The function that was called.
        operation: &'static str,
        /// The size of a piece.
        bytes: u64,
        /// The minimum.
        least: u64,
        /// What the minimum is the size of.
        reason: &'static str,
    },

    /// Other code has changed a limit, so it is not restored; see [`DeviceHeap`](crate::context::DeviceHeap).
    #[error(
        "{operation}: the limit is {} now, and was set to {}: it is left as it is",
        ByteSize(*.actual), ByteSize(*.expected)
    )]
    LimitChanged {
        /// The function that was called.
        operation: &'static str,
        /// The value that was set.
        expected: u64,
        /// The value that it has.
        actual: u64,
    },

    /// A name or text for the driver contains a NUL character.
    #[error("{operation}: {text:?} has a NUL character in it, at byte {position} of the text")]
    InteriorNul {
        /// The function that was called.
        operation: &'static str,
        /// The line with the character.
        text: String,
        /// Its position in the whole text, in bytes from 0.
        position: usize,
    },
}
