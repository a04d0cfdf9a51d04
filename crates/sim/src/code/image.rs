//! What a module contains.

use std::ffi::CString;
use std::sync::Arc;

use cuguard_sys::CUresult;

/// Why an image cannot be loaded: the driver's result code and, for PTX, the compiler's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImageError {
    pub(crate) code: CUresult,
    pub(crate) log: String,
}

impl ImageError {
    /// An error without a message.
    pub(crate) fn new(code: CUresult) -> Self {
        Self {
            code,
            log: String::new(),
        }
    }
}

/// A parameter of a kernel, in bytes from the start of the parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) offset: usize,
    pub(crate) size: usize,
    /// Whether its type may be that of a pointer. Compiled code has only the size.
    pub(crate) may_be_address: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kernel {
    /// For C, since the driver returns a pointer to it.
    pub(crate) name: CString,
    pub(crate) parameters: Vec<Parameter>,
    /// `.maxntid`: the greatest number of threads in a block, if it is limited.
    pub(crate) max_threads: Option<u32>,
    /// `.reqntid`: the only size of a block.
    pub(crate) block: Option<[u32; 3]>,
    /// `.reqnctapercluster`: the only size of a cluster. Known once the text is compiled.
    pub(crate) cluster: Option<[u32; 3]>,
    /// Bytes of shared memory that every block has.
    pub(crate) shared: usize,
    /// The registers of a thread, if known. Only compiled code has a number.
    pub(crate) registers: Option<u32>,
    /// Bytes of local memory of a thread. Only compiled code has a number.
    pub(crate) local: u32,
}

impl Kernel {
    /// The bytes of all parameters.
    pub(crate) fn parameter_bytes(&self) -> usize {
        let ends = self.parameters.iter().map(|one| one.offset + one.size);
        ends.max().unwrap_or(0)
    }
}

/// More shared memory than any device has: what an image says is cut off here, so that sums do not overflow.
pub(super) const MAX_SHARED: usize = 1 << 30;
/// The most registers of a thread.
pub(super) const MAX_REGISTERS: u32 = 255;
/// The most bytes of local memory of a thread.
pub(super) const MAX_LOCAL: u32 = 512 << 10;

/// A variable in device memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) size: usize,
    pub(crate) align: usize,
    /// Its first value; zeros follow.
    pub(crate) value: Vec<u8>,
    pub(crate) is_const: bool,
    pub(crate) is_managed: bool,
}

/// The kernels and variables of a module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Image {
    pub(crate) kernels: Vec<Kernel>,
    pub(crate) variables: Vec<Variable>,
    /// The architecture that the code is compiled for, as `major * 10 + minor`.
    pub(crate) architecture: u32,
    /// The architecture that it was written for.
    pub(crate) ptx_architecture: u32,
    /// The PTX, until it is compiled. Without any, there is only code of a real device.
    pub(crate) text: Option<Arc<str>>,
    /// Whether there is code of a real device, which a driver would use.
    pub(crate) has_binary: bool,
    /// What the simulated device executes.
    pub(crate) program: Option<Arc<cuguard_ptx::Module>>,
}

/// A name for C. Names in images end at a NUL, so none contains one.
pub(super) fn c_name(name: &str) -> CString {
    CString::new(name).unwrap_or_default()
}
