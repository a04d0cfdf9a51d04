//! Attributes of kernels.

use cuguard_driver::result::function;
use cuguard_driver::sys::function_attribute as names;

use super::Function;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;

/// What the compiler and the driver know about a kernel; see [`Function::attributes`].
///
/// ```standalone_crate
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # let context = cuguard::Context::new(0)?;
/// # let module = cuguard::Module::from_ptx(&context, include_str!("../../../kernels/saxpy.ptx"))?;
/// let attributes = module.function("saxpy")?.attributes()?;
/// assert_eq!(attributes.max_threads_per_block, 1024);
/// assert_eq!(attributes.ptx_version, (5, 2));
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FunctionAttributes {
    /// The most threads that a block can have, by the kernel's registers and its launch bounds.
    pub max_threads_per_block: u32,
    /// The static shared memory of a block.
    pub shared_bytes: u32,
    /// The constant memory that the kernel's module allocates for the program.
    pub const_bytes: u32,
    /// The local memory of a thread: spilled registers, arrays, the stack.
    pub local_bytes: u32,
    /// The registers of a thread.
    pub registers: u32,
    /// The virtual architecture that the PTX was written for, as major and minor number.
    pub ptx_version: (u32, u32),
    /// The architecture that the code was compiled for.
    pub binary_version: (u32, u32),
    /// The dynamic shared memory that launches may have now. A [launch](crate::Scope::launch) raises it where it needs more.
    pub max_dynamic_shared_bytes: u32,
    /// The part of a multiprocessor's memory that is preferred as shared memory, in percent; see
    /// [`Function::prefer_shared_memory`].
    pub preferred_shared_percent: Option<u32>,
}

impl Function<'_> {
    /// Registers, memory and limits of this kernel.
    ///
    /// ```standalone_crate
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let module = cuguard::Module::from_ptx(&context, include_str!("../../../kernels/saxpy.ptx"))?;
    /// let saxpy = module.function("saxpy")?;
    /// assert_eq!(saxpy.attributes()?.shared_bytes, 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], or any other driver error. The driver may have to load the kernel's code.
    #[doc(alias = "cuFuncGetAttribute")]
    pub fn attributes(&self) -> Result<FunctionAttributes> {
        let entered = self.state().enter("Function::attributes")?;
        let get = |attribute| {
            // SAFETY: the module is borrowed, and its context is open.
            entered.check(unsafe { function::attribute(attribute, *self.handle()) })
        };
        let number = |attribute| get(attribute).map(|value| value.max(0) as u32);
        let version = |attribute| number(attribute).map(|value| (value / 10, value % 10));
        Ok(FunctionAttributes {
            max_threads_per_block: number(names::MAX_THREADS_PER_BLOCK)?,
            shared_bytes: number(names::SHARED_SIZE_BYTES)?,
            const_bytes: number(names::CONST_SIZE_BYTES)?,
            local_bytes: number(names::LOCAL_SIZE_BYTES)?,
            registers: number(names::NUM_REGS)?,
            ptx_version: version(names::PTX_VERSION)?,
            binary_version: version(names::BINARY_VERSION)?,
            max_dynamic_shared_bytes: number(names::MAX_DYNAMIC_SHARED_SIZE_BYTES)?,
            preferred_shared_percent: u32::try_from(get(names::PREFERRED_SHARED_MEMORY_CARVEOUT)?)
                .ok(),
        })
    }
}
