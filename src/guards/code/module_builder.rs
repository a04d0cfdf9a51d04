//! Loading a module with options for the driver's compiler.

use std::path::Path;

use super::Module;
use super::jit::JitOptions;
use super::module::{ptx_to_c, read_ptx};
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
