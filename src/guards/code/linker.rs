//! The driver's linker.

use std::ffi::CString;
use std::fmt;
use std::path::Path;

use cuguard_driver::result::link;
use cuguard_driver::sys::{CUjitInputType, CUlinkState, jit_input_type};

use super::Module;
use super::jit::{JitCall, JitOptions};
use super::module::{file_error, ptx_to_c, read_ptx, to_c};
use crate::core::{Failed, Request, free};
use crate::error::{Error, Result};
use crate::guards::Context;
use crate::recovery;
use cuguard_registry::ResourceKind;

/// Links device code of several sources into one image, for the device of a context.
///
/// Each input may use functions and variables that another defines.
///
/// ```standalone_crate
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::code::Linker;
/// use cuguard::Context;
///
/// # let context = Context::new(0)?;
/// let module = Linker::new(&context)
///     .ptx("saxpy.ptx", include_str!("../../../kernels/saxpy.ptx"))?
///     .ptx("pattern.ptx", include_str!("../../../kernels/pattern.ptx"))?
///     .link()?
///     .load(&context)?;
/// assert!(module.function("saxpy").is_ok() && module.function("fill_pattern").is_ok());
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "links nothing until link is called"]
#[doc(alias = "cuLinkCreate")]
pub struct Linker<'context> {
    context: &'context Context,
    options: JitOptions,
    inputs: Vec<Input>,
}

#[derive(Clone)]
struct Input {
    kind: CUjitInputType,
    name: CString,
    code: Vec<u8>,
}

impl fmt::Debug for Linker<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.inputs.iter().map(|input| &input.name);
        f.debug_list().entries(names).finish()
    }
}

/// The result of a [`Linker`]: code for one architecture.
///
/// ```standalone_crate
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # use cuguard::code::Linker;
/// # use cuguard::Context;
/// # let context = Context::new(0)?;
/// let linked = Linker::new(&context)
///     .ptx("saxpy.ptx", include_str!("../../../kernels/saxpy.ptx"))?
///     .link()?;
/// println!("{} bytes, to be stored or loaded", linked.as_bytes().len());
/// let module = linked.load(&context)?;
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone)]
pub struct LinkedImage {
    bytes: Vec<u8>,
    info_log: Option<String>,
}

impl fmt::Debug for LinkedImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LinkedImage({} bytes)", self.bytes.len())
    }
}

impl LinkedImage {
    /// The image, a cubin: [`Module::from_image`] loads it in another process.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What the linker reported; `None` unless it was [requested](Linker::keep_info_log).
    #[must_use]
    pub fn info_log(&self) -> Option<&str> {
        self.info_log.as_deref()
    }

    /// Loads the image.
    ///
    /// # Errors
    ///
    /// As [`Module::from_ptx`]. A device of another architecture does not accept the image.
    #[track_caller]
    pub fn load(&self, context: &Context) -> Result<Module> {
        let options = JitOptions::default();
        // SAFETY: the image is complete, as the driver's linker made it, and cannot be changed.
        unsafe { Module::load("LinkedImage::load", context, &self.bytes, &options) }
    }
}

/// Destroys a linker of the driver, also when an error or a panic leaves the function that made it.
struct LinkState(CUlinkState);

impl Drop for LinkState {
    fn drop(&mut self) {
        // SAFETY: created by `link` below, which uses neither it nor its image any more. The context is current: the
        // operation has entered it.
        let _ = unsafe { free::destroy_linker(self.0) };
    }
}

impl<'context> Linker<'context> {
    /// A linker without input.
    pub fn new(context: &'context Context) -> Self {
        Self {
            context,
            options: JitOptions::default(),
            inputs: Vec::new(),
        }
    }

    /// The most registers that a thread may use, as [`ModuleBuilder::max_registers`](crate::code::ModuleBuilder::max_registers).
    pub fn max_registers(mut self, registers: u32) -> Self {
        self.options.max_registers = Some(registers);
        self
    }

    /// How much the compiler optimizes, from 0 to 4. The default is 4.
    pub fn optimization_level(mut self, level: u32) -> Self {
        self.options.optimization = Some(level);
        self
    }

    /// Links for this compute capability, not for that of the device: the image is for other devices, and this one does not
    /// load it.
    pub fn target(mut self, major: u32, minor: u32) -> Self {
        self.options.target = Some((major, minor));
        self
    }

    /// Generates line numbers, for profilers and `compute-sanitizer`.
    pub fn line_info(mut self) -> Self {
        self.options.line_info = true;
        self
    }

    /// Keeps what the linker reports: [`LinkedImage::info_log`].
    pub fn keep_info_log(mut self) -> Self {
        self.options.info_log = true;
        self
    }

    /// Adds PTX. `name` is for messages.
    ///
    /// # Errors
    ///
    /// [`Error::InteriorNul`].
    pub fn ptx(self, name: &str, text: &str) -> Result<Self> {
        const OPERATION: &str = "Linker::ptx";
        let code = ptx_to_c(OPERATION, text)?.into_bytes_with_nul();
        self.add(OPERATION, jit_input_type::INPUT_PTX, name, code)
    }

    /// Adds a file of PTX.
    ///
    /// # Errors
    ///
    /// [`Error::File`] if the file cannot be read or is not text; [`Error::InteriorNul`].
    pub fn ptx_file(self, path: impl AsRef<Path>) -> Result<Self> {
        const OPERATION: &str = "Linker::ptx_file";
        let path = path.as_ref();
        let text = read_ptx(OPERATION, path)?;
        let code = ptx_to_c(OPERATION, &text)?.into_bytes_with_nul();
        let name = path.display().to_string();
        self.add(OPERATION, jit_input_type::INPUT_PTX, &name, code)
    }

    /// Adds a cubin with relocatable code (`nvcc -rdc=true -cubin`). `name` is for messages.
    ///
    /// # Errors
    ///
    /// [`Error::InteriorNul`] in the name.
    ///
    /// # Safety
    ///
    /// The bytes must be a complete and valid image: the driver trusts the sizes in it.
    pub unsafe fn cubin(self, name: &str, image: &[u8]) -> Result<Self> {
        let kind = jit_input_type::INPUT_CUBIN;
        self.add("Linker::cubin", kind, name, image.to_vec())
    }

    /// Adds a library of device code, such as `libcudadevrt.a`.
    ///
    /// # Errors
    ///
    /// [`Error::File`] if the file cannot be read.
    ///
    /// # Safety
    ///
    /// The file must be a complete and valid library: the driver trusts the sizes in it.
    pub unsafe fn library_file(self, path: impl AsRef<Path>) -> Result<Self> {
        const OPERATION: &str = "Linker::library_file";
        let path = path.as_ref();
        let code = std::fs::read(path).map_err(|error| file_error(OPERATION, path, &error))?;
        let name = path.display().to_string();
        self.add(OPERATION, jit_input_type::INPUT_LIBRARY, &name, code)
    }

    fn add(
        mut self,
        operation: &'static str,
        kind: CUjitInputType,
        name: &str,
        code: Vec<u8>,
    ) -> Result<Self> {
        let name = to_c(operation, name)?;
        self.inputs.push(Input { kind, name, code });
        Ok(self)
    }

    /// Links what was added.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyImage`] without input, [`Error::OutsideLimits`] for an optimization level above 4, [`Error::Compile`]
    /// with the log for bad PTX and for symbols that are missing or defined twice, [`Error::OutOfMemory`], or any other
    /// driver error. The simulated GPU does not look for symbols that are missing.
    #[track_caller]
    pub fn link(&self) -> Result<LinkedImage> {
        const OPERATION: &str = "Linker::link";
        self.options.check(OPERATION)?;
        if self.inputs.iter().all(|input| input.code.is_empty()) {
            return Err(Error::EmptyImage {
                operation: OPERATION,
            });
        }
        let state = self.context.state();
        let request = Request::of_unknown_size(OPERATION, Some(ResourceKind::Module));
        recovery::with_recovery(state, &request, || {
            let entered = state.enter(OPERATION)?;
            // Dropped last: the linker writes to the logs until it is destroyed.
            let mut jit = JitCall::new(&self.options);
            let (options, values) = jit.options();
            // SAFETY: the buffers of the logs live as long as `jit`, which outlives the linker.
            let created = unsafe { link::create(options, values) };
            let linker = LinkState(Failed::check(&entered, created)?);
            for Input { kind, name, code } in &self.inputs {
                // SAFETY: the linker is alive. PTX ends in a NUL; the caller ensured the rest when it was added.
                let added = unsafe { link::add_data(linker.0, *kind, code, name) };
                jit.check(&entered, added)?;
            }
            // SAFETY: the linker is alive.
            let image = jit.check(&entered, unsafe { link::complete(linker.0) })?;
            // SAFETY: the driver returned this many bytes, which are valid until the linker is destroyed.
            let bytes = unsafe { &*image }.to_vec();
            Ok(LinkedImage {
                bytes,
                info_log: jit.info_log(),
            })
        })
    }
}
