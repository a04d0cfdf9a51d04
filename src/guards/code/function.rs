//! Kernels of modules.

use std::fmt;
use std::sync::Arc;

use cuguard_driver::result::{function, module};
use cuguard_driver::sys::{CUfunction, function_attribute};

use super::function_info::{FunctionInfo, parameter_sizes};
use super::launch_config::LaunchConfig;
use super::module::{Module, SymbolKind};
use crate::core::{ContextState, Failed};
use crate::error::{Error, Result};

/// A kernel of a [`Module`], which it borrows. Launch it with [`Scope::launch`](crate::Scope::launch).
///
/// ```standalone_crate
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, Function, Module, Result};
///
/// fn saxpy(module: &Module) -> Result<Function<'_>> {
///     module.function("saxpy")
/// }
///
/// let context = Context::new(0)?;
/// let module = Module::from_ptx(&context, include_str!("../../../kernels/saxpy.ptx"))?;
/// let saxpy = saxpy(&module)?;
/// assert_eq!(saxpy.name(), "saxpy");
/// println!("{} registers a thread", saxpy.attributes()?.registers);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone, Copy)]
#[doc(alias("CudaFunction", "CUfunction"))]
pub struct Function<'module> {
    handle: CUfunction,
    info: &'module FunctionInfo,
    module: &'module Module,
}

impl fmt::Debug for Function<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Function({} of {:?})", self.name(), self.module)
    }
}

impl<'module> Function<'module> {
    pub(super) fn new(
        handle: CUfunction,
        info: &'module FunctionInfo,
        module: &'module Module,
    ) -> Self {
        Self {
            handle,
            info,
            module,
        }
    }

    #[inline]
    pub(crate) fn state(&self) -> &Arc<ContextState> {
        self.module.state()
    }

    pub(crate) fn handle(&self) -> &CUfunction {
        &self.handle
    }

    #[inline]
    pub(crate) fn info(&self) -> &'module FunctionInfo {
        self.info
    }

    /// The symbol name.
    #[must_use]
    pub fn name(&self) -> &'module str {
        self.info.name()
    }

    /// The module of this kernel.
    pub fn module(&self) -> &'module Module {
        self.module
    }

    /// The driver's handle, for code that calls the driver directly. Valid until the module is dropped or its
    /// context is closed.
    #[must_use]
    pub fn as_raw(&self) -> CUfunction {
        self.handle
    }

    /// Sets which part of a multiprocessor's memory is preferred as shared memory when this kernel runs, in percent; the
    /// rest is L1 cache. `None` is the driver's default.
    ///
    /// ```standalone_crate
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let module = cuguard::Module::from_ptx(&context, include_str!("../../../kernels/saxpy.ptx"))?;
    /// let saxpy = module.function("saxpy")?;
    /// saxpy.prefer_shared_memory(Some(50))?;
    /// assert_eq!(saxpy.attributes()?.preferred_shared_percent, Some(50));
    /// assert!(saxpy.prefer_shared_memory(Some(101)).is_err());
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::OutsideLimits`] above 100, [`Error::ContextClosed`], or any other driver error.
    pub fn prefer_shared_memory(&self, percent: Option<u32>) -> Result<()> {
        const OPERATION: &str = "Function::prefer_shared_memory";
        if let Some(percent @ 101..) = percent {
            return Err(Error::OutsideLimits {
                operation: OPERATION,
                subject: self.name().to_owned(),
                what: "the percentage",
                value: percent.into(),
                least: 0,
                most: 100,
            });
        }
        let value = percent.map_or(-1, |percent| percent as i32);
        self.set(
            OPERATION,
            function_attribute::PREFERRED_SHARED_MEMORY_CARVEOUT,
            value,
        )
    }

    /// Allows launches with [clusters](crate::LaunchConfig::cluster) of more than 8 blocks, which not every device of an
    /// architecture can run.
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], or any other driver error.
    pub fn allow_non_portable_clusters(&self) -> Result<()> {
        self.set(
            "Function::allow_non_portable_clusters",
            function_attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
            1,
        )
    }

    fn set(&self, operation: &'static str, attribute: u32, value: i32) -> Result<()> {
        let entered = self.state().enter(operation)?;
        // SAFETY: the module is borrowed, and its context is open.
        entered.check(unsafe { function::set_attribute(self.handle, attribute, value) })
    }
}

impl Function<'_> {
    /// Reads the sizes of the kernel's parameters; `None` if the driver is older than the query.
    pub(crate) fn read_parameter_sizes(
        &self,
        operation: &'static str,
    ) -> Result<Option<Box<[usize]>>> {
        let entered = self.state().enter(operation)?;
        // SAFETY: the module is borrowed, and its context is open.
        entered.check(unsafe { parameter_sizes(*self.handle()) })
    }

    /// Checks a launch against the limits of device and kernel, and allows it the shared memory that it needs. Calls the
    /// driver at the first launch of a kernel, and where it needs more shared memory than those before.
    #[inline]
    pub(crate) fn prepare(
        &self,
        operation: &'static str,
        config: &LaunchConfig,
    ) -> Result<(), Failed> {
        match self.info().is_prepared(operation, config)? {
            true => Ok(()),
            false => self.prepare_first(operation, config),
        }
    }

    #[cold]
    #[inline(never)]
    fn prepare_first(&self, operation: &'static str, config: &LaunchConfig) -> Result<(), Failed> {
        let (info, handle) = (self.info(), *self.handle());
        let entered = self.state().enter(operation)?;
        let limits = info.limits(&entered, self.state(), handle)?;
        limits.check(operation, info, config)?;
        Failed::check(&entered, info.allow_shared(handle, config.shared_bytes))
    }
}

impl Module {
    /// Looks up a kernel by its symbol name: mangled, unless it was declared `extern "C"`.
    ///
    /// ```standalone_crate
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let module = cuguard::Module::from_ptx(&context, include_str!("../../../kernels/saxpy.ptx"))?;
    /// let saxpy = module.function("saxpy")?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchSymbol`], [`Error::WrongSymbolKind`] if it is a variable, [`Error::InteriorNul`],
    /// [`Error::ContextClosed`], or any other driver error.
    #[doc(alias("get_function", "load_function", "cuModuleGetFunction"))]
    pub fn function(&self, name: &str) -> Result<Function<'_>> {
        self.function_for("Module::function", name)
    }

    /// The same for an operation that looks up a kernel.
    pub(crate) fn function_for(&self, operation: &'static str, name: &str) -> Result<Function<'_>> {
        let handle = self.look_up(operation, SymbolKind::Kernel, name, |module, name| {
            // SAFETY: the module is alive.
            unsafe { module::function(module, name) }
        })?;
        Ok(Function::new(
            handle,
            self.functions.get(handle, name),
            self,
        ))
    }
}
