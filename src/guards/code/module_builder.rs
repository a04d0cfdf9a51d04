//! Loading a module with options for the driver's compiler.

use std::path::Path;

use super::Module;
use super::jit::JitOptions;
use super::module::{file_error, ptx_to_c, read_ptx};
use crate::error::{Error, Result};
use crate::guards::Context;

/// Loads a [`Module`] with options for the driver's compiler; see [`Module::builder`].
///
/// The options apply where the driver compiles: to PTX, not to code that is already compiled for the device.
///
/// ```standalone_crate
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # use cuguard::{Context, Module};
/// # let context = Context::new(0)?;
/// let module = Module::builder(&context)
///     .max_registers(32)
///     .line_info()
///     .keep_info_log()
///     .from_ptx(include_str!("../../../kernels/saxpy.ptx"))?;
/// println!("{}", module.info_log().unwrap_or_default());
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "loads nothing until from_ptx or another of its last methods is called"]
pub struct ModuleBuilder<'context> {
    context: &'context Context,
    options: JitOptions,
}

impl<'context> ModuleBuilder<'context> {
    pub(super) fn new(context: &'context Context) -> Self {
        Self {
            context,
            options: JitOptions::default(),
        }
    }

    /// The most registers that a thread may use. The driver rounds the number up, to its minimum at least.
    pub fn max_registers(mut self, registers: u32) -> Self {
        self.options.max_registers = Some(registers);
        self
    }

    /// How much the compiler optimizes, from 0 to 4. The default is 4.
    pub fn optimization_level(mut self, level: u32) -> Self {
        self.options.optimization = Some(level);
        self
    }

    /// Generates line numbers, for profilers and `compute-sanitizer`.
    pub fn line_info(mut self) -> Self {
        self.options.line_info = true;
        self
    }

    /// Generates debug information, for `cuda-gdb`.
    pub fn debug_info(mut self) -> Self {
        self.options.debug_info = true;
        self
    }

    /// Keeps what the compiler reports about code that compiles, such as registers and spills: [`Module::info_log`].
    pub fn keep_info_log(mut self) -> Self {
        self.options.info_log = true;
        self
    }

    /// Compiles and loads PTX, as [`Module::from_ptx`].
    ///
    /// # Errors
    ///
    /// As [`Module::from_ptx`]; [`Error::OutsideLimits`] for an optimization level above 4.
    #[track_caller]
    #[allow(
        clippy::wrong_self_convention,
        reason = "named as the function of Module that it stands for"
    )]
    pub fn from_ptx(self, text: &str) -> Result<Module> {
        const OPERATION: &str = "ModuleBuilder::from_ptx";
        let image = ptx_to_c(OPERATION, text)?;
        // SAFETY: NUL-terminated text that does not start like a binary.
        unsafe { self.load(OPERATION, image.as_bytes_with_nul()) }
    }

    /// Compiles and loads a file of PTX, as [`Module::from_ptx_file`].
    ///
    /// # Errors
    ///
    /// As [`Module::from_ptx_file`]; [`Error::OutsideLimits`] for an optimization level above 4.
    #[track_caller]
    #[allow(
        clippy::wrong_self_convention,
        reason = "named as the function of Module that it stands for"
    )]
    pub fn from_ptx_file(self, path: impl AsRef<Path>) -> Result<Module> {
        const OPERATION: &str = "ModuleBuilder::from_ptx_file";
        let text = read_ptx(OPERATION, path.as_ref())?;
        let image = ptx_to_c(OPERATION, &text)?;
        // SAFETY: NUL-terminated text that does not start like a binary.
        unsafe { self.load(OPERATION, image.as_bytes_with_nul()) }
    }

    /// Loads a cubin, a fatbin, or NUL-terminated PTX, as [`Module::from_image`].
    ///
    /// # Errors
    ///
    /// As [`from_ptx`](Self::from_ptx).
    ///
    /// # Safety
    ///
    /// The bytes must be a complete and valid image: the driver trusts the sizes in it.
    #[track_caller]
    #[allow(
        clippy::wrong_self_convention,
        reason = "named as the function of Module that it stands for"
    )]
    pub unsafe fn from_image(self, image: &[u8]) -> Result<Module> {
        // SAFETY: the caller passes a valid image.
        unsafe { self.load("ModuleBuilder::from_image", image) }
    }

    /// # Safety
    ///
    /// The bytes are a complete and valid image.
    #[track_caller]
    pub(super) unsafe fn load(self, operation: &'static str, image: &[u8]) -> Result<Module> {
        self.options.check(operation)?;
        if image.is_empty() {
            // No image is empty, and the driver would read beyond it.
            return Err(Error::EmptyImage { operation });
        }
        // SAFETY: as the caller ensures.
        unsafe { Module::load(operation, self.context, image, &self.options) }
    }
}

impl Module {
    /// Compiles and loads PTX. One NUL character at its end is accepted.
    ///
    /// ```no_run
    /// # let context = cuguard::Context::new(0)?;
    /// let text = std::fs::read_to_string("kernels/saxpy.ptx").expect("a file with PTX");
    /// let module = cuguard::Module::from_ptx(&context, &text)?.with_label("saxpy");
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InteriorNul`], [`Error::Compile`] with the log of the PTX compiler, [`Error::OutOfMemory`], or any other
    /// driver error. The simulated GPU does not check instructions.
    #[track_caller]
    #[doc(alias("load_module", "cuModuleLoadData"))]
    pub fn from_ptx(context: &Context, text: &str) -> Result<Self> {
        const OPERATION: &str = "Module::from_ptx";
        let image = ptx_to_c(OPERATION, text)?;
        // SAFETY: NUL-terminated text that does not start like a binary.
        unsafe { Self::builder(context).load(OPERATION, image.as_bytes_with_nul()) }
    }

    /// Compiles and loads a file of PTX.
    ///
    /// ```standalone_crate
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, Error, Module};
    /// # let context = Context::new(0)?;
    /// # let path = std::env::temp_dir().join(format!("cuguard-doc-{}.ptx", std::process::id()));
    /// # std::fs::write(&path, include_str!("../../../kernels/saxpy.ptx")).unwrap();
    /// let module = Module::from_ptx_file(&context, &path)?;
    /// # std::fs::remove_file(&path).unwrap();
    /// let error = Module::from_ptx_file(&context, "no/such.ptx").unwrap_err();
    /// assert!(matches!(error, Error::File { .. }), "{error}");
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::File`] if the file cannot be read or is not text; else as [`from_ptx`](Self::from_ptx).
    #[track_caller]
    pub fn from_ptx_file(context: &Context, path: impl AsRef<Path>) -> Result<Self> {
        const OPERATION: &str = "Module::from_ptx_file";
        let text = read_ptx(OPERATION, path.as_ref())?;
        let image = ptx_to_c(OPERATION, &text)?;
        // SAFETY: NUL-terminated text that does not start like a binary.
        unsafe { Self::builder(context).load(OPERATION, image.as_bytes_with_nul()) }
    }

    /// Options for the driver's compiler: registers, optimization, line numbers, the log.
    ///
    /// ```standalone_crate
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, Module};
    /// # let context = Context::new(0)?;
    /// let text = include_str!("../../../kernels/saxpy.ptx");
    /// let module = Module::builder(&context).max_registers(64).from_ptx(text)?;
    /// let error = Module::builder(&context).optimization_level(5).from_ptx(text).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "ModuleBuilder::from_ptx: the optimization level is 5, which is not within 0 to 4"
    /// );
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn builder(context: &Context) -> ModuleBuilder<'_> {
        ModuleBuilder::new(context)
    }

    /// Loads a cubin, a fatbin, or NUL-terminated PTX.
    ///
    /// # Errors
    ///
    /// As [`from_ptx`](Self::from_ptx).
    ///
    /// # Safety
    ///
    /// The bytes must be a complete and valid image: the driver trusts the sizes in it.
    ///
    /// ```no_run
    /// # let context = cuguard::Context::new(0)?;
    /// let image = std::fs::read("kernels/saxpy.cubin").expect("output of nvcc -cubin");
    /// // SAFETY: complete, as the compiler wrote it.
    /// let module = unsafe { cuguard::Module::from_image(&context, &image)? };
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[track_caller]
    #[doc(alias("from_cubin", "from_fatbin", "cuModuleLoadFatBinary"))]
    pub unsafe fn from_image(context: &Context, image: &[u8]) -> Result<Self> {
        // SAFETY: the caller passes a valid image.
        unsafe { Self::builder(context).load("Module::from_image", image) }
    }

    /// Loads a file: a cubin, a fatbin, or PTX.
    ///
    /// # Errors
    ///
    /// [`Error::File`] if the file cannot be read; else as [`from_ptx`](Self::from_ptx).
    ///
    /// # Safety
    ///
    /// The file must be a complete and valid image: the driver trusts the sizes in it.
    ///
    /// ```no_run
    /// # let context = cuguard::Context::new(0)?;
    /// // SAFETY: complete, as the compiler wrote it.
    /// let module = unsafe { cuguard::Module::from_image_file(&context, "kernels/saxpy.cubin")? };
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[track_caller]
    pub unsafe fn from_image_file(context: &Context, path: impl AsRef<Path>) -> Result<Self> {
        const OPERATION: &str = "Module::from_image_file";
        let path = path.as_ref();
        let mut image = std::fs::read(path).map_err(|error| file_error(OPERATION, path, &error))?;
        // For PTX, which a file does not end in a NUL.
        image.push(0);
        // SAFETY: the caller names a file with a valid image.
        unsafe { Self::builder(context).load(OPERATION, &image) }
    }
}
