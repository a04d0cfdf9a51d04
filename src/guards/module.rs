//! Modules: device code with its kernels and global variables.

use std::ffi::{CStr, CString, c_void};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

use bytemuck::Pod;
use cuguard_driver::result::{self, copy, module, stream};
use cuguard_driver::sys::{CUdeviceptr, CUfunction, CUmodule, CUresult, CUstream};

use crate::core::{self, ContextState, Entered, Failed, OwnedResource, Request};
use crate::error::{Error, Result};
use crate::guards::{Context, check_len};
use crate::recovery;
use cuguard_registry::Kind;

/// A module of device code, unloaded on drop.
///
/// ```no_run
/// use cuguard::{Context, Module};
///
/// let context = Context::new(0)?;
/// let module = Module::from_ptx(&context, include_str!("../../kernels/saxpy.ptx"))?;
/// let saxpy = module.function("saxpy")?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// The simulated GPU loads modules and runs no kernels: a launch fails with
/// [`Error::NoKernels`](crate::Error::NoKernels), or with `CUGUARD_SIM=kernels=skip` is checked and skipped.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # use cuguard::{Context, Module};
/// # let context = Context::new(0)?;
/// let module = Module::from_ptx(&context, include_str!("../../kernels/saxpy.ptx"))?;
/// assert!(module.function("saxpy").is_ok() && module.function("saxpi").is_err());
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropped at once if unused"]
pub struct Module {
    pub(super) owned: OwnedResource,
}

/// Converts to a C string.
fn to_c(operation: &'static str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|error| {
        // The error shows only the line with the NUL: the text may be long.
        let (before, after) = text.split_at(error.nul_position());
        let begin = before.rfind('\n').map_or(0, |newline| newline + 1);
        let end = after.find('\n').unwrap_or(after.len());
        Error::InteriorNul {
            operation,
            text: format!("{}{}", &before[begin..], &after[..end]),
        }
    })
}

impl Module {
    /// Compiles and loads PTX.
    ///
    /// ```no_run
    /// # let context = cuguard::Context::new(0)?;
    /// let text = std::fs::read_to_string("kernels/saxpy.ptx").expect("a file with PTX");
    /// let module = cuguard::Module::from_ptx(&context, &text)?.named("saxpy");
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InteriorNul`], [`Error::Compile`] with the log of the PTX compiler, [`Error::OutOfMemory`], or any other
    /// driver error. The simulated GPU does not check instructions.
    #[track_caller]
    pub fn from_ptx(context: &Context, text: &str) -> Result<Self> {
        const OPERATION: &str = "Module::from_ptx";
        // The driver would parse text that starts with the ELF magic as a binary, and trust the sizes in it.
        let prefix = if text.starts_with('\x7f') { "\n" } else { "" };
        let image = to_c(OPERATION, &format!("{prefix}{text}"))?;
        // SAFETY: NUL-terminated text that does not start like a binary.
        unsafe { Self::load(OPERATION, context, image.as_ptr().cast()) }
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
    pub unsafe fn from_image(context: &Context, image: &[u8]) -> Result<Self> {
        // SAFETY: the caller passes a valid image.
        unsafe { Self::load("Module::from_image", context, image.as_ptr().cast()) }
    }

    /// # Safety
    ///
    /// `image` must point to a complete and valid image.
    #[track_caller]
    unsafe fn load(
        operation: &'static str,
        context: &Context,
        image: *const c_void,
    ) -> Result<Self> {
        let state = context.state();
        let request = Request::of_unknown_size(operation, Some(Kind::Module));
        let owned = recovery::with_recovery(state, &request, || {
            let entered = state.enter(operation)?;
            let mut log = vec![0_u8; 16 << 10];
            let owner = context.open().into();
            // SAFETY: the caller passes a valid image.
            let loaded = unsafe { module::load_data_ex(image, &mut log) };
            let loaded = check_load(&entered, loaded, &log)?;
            core::allocate(
                state,
                &request,
                Kind::Module,
                "",
                || owner,
                || Ok(loaded.0 as u64),
            )
        })?;
        Ok(Self { owned })
    }

    fn state(&self) -> &Arc<ContextState> {
        self.owned.state()
    }

    /// The driver's handle, for code that calls the driver directly. Valid until this guard is dropped or its
    /// context is closed.
    #[must_use]
    pub fn as_raw(&self) -> CUmodule {
        CUmodule(self.owned.address() as usize)
    }

    /// Names the module in reports.
    #[must_use = "returns the guard"]
    pub fn named(self, label: &str) -> Self {
        self.owned.name(label);
        self
    }

    /// Looks up a symbol.
    fn look_up<R>(
        &self,
        operation: &'static str,
        name: &str,
        call: impl FnOnce(CUmodule, &CStr) -> result::Result<R>,
    ) -> Result<R> {
        let text = to_c(operation, name)?;
        let entered = self.state().enter(operation)?;
        match call(self.as_raw(), &text) {
            Err(error) if error.code == CUresult::NOT_FOUND => Err(Error::NoSuchSymbol {
                operation,
                name: name.to_owned(),
            }),
            found => entered.check(found),
        }
    }

    /// Looks up a kernel by its symbol name: mangled, unless it was declared `extern "C"`.
    ///
    /// ```no_run
    /// # let context = cuguard::Context::new(0)?;
    /// # let module = cuguard::Module::from_ptx(&context, "")?;
    /// let saxpy = module.function("saxpy")?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchSymbol`], [`Error::InteriorNul`], [`Error::ContextClosed`], or any other driver error.
    pub fn function(&self, name: &str) -> Result<Function<'_>> {
        let handle = self.look_up("Module::function", name, |module, name| {
            // SAFETY: the module is alive.
            unsafe { module::function(module, name) }
        })?;
        Ok(Function {
            handle,
            module: self,
        })
    }

    /// Looks up a global variable, as a slice of `T`.
    ///
    /// ```no_run
    /// # use cuguard::{Context, Module};
    /// # let context = Context::new(0)?;
    /// # let text = "";
    /// let module = Module::from_ptx(&context, text)?;
    /// let table = module.global::<f32>("table")?;
    /// let mut values = table.to_vec()?;
    /// values[0] = 1.5;
    /// table.copy_from_slice(&values)?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`], in bytes, if the variable's size is not a multiple of `T`'s; else as
    /// [`function`](Self::function).
    pub fn global<T: Pod>(&self, name: &str) -> Result<Global<'_, T>> {
        let module::Global { address, bytes } =
            self.look_up("Module::global", name, |module, name| {
                // SAFETY: the module is alive.
                unsafe { module::global(module, name) }
            })?;
        let size = size_of::<T>();
        if size == 0 || !bytes.is_multiple_of(size) {
            return Err(Error::LengthMismatch {
                operation: "Module::global",
                unit: "byte",
                argument: "the type",
                actual: size,
                resource: "the variable",
                expected: bytes,
            });
        }
        Ok(Global {
            address,
            len: bytes / size,
            module: self,
            values: PhantomData,
        })
    }

    /// Unloads the module and returns the driver's error, if any. A failed free is in the report, by `close` or by drop.
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`] if the context was closed first, or any other driver error.
    pub fn close(self) -> Result<()> {
        self.owned.close("Module::close")
    }
}

/// Converts the error of a module load, with the log of the PTX compiler.
fn check_load(
    entered: &Entered<'_>,
    result: result::Result<CUmodule>,
    log: &[u8],
) -> Result<CUmodule, Failed> {
    let log = log.split(|byte| *byte == 0).next().unwrap_or_default();
    let log = String::from_utf8_lossy(log).trim().to_owned();
    if log.is_empty() {
        return Failed::check(entered, result);
    }
    // Even if the code is out-of-memory: the compiler runs on the host, and its log has the cause.
    match entered.check(result) {
        Err(Error::Driver(error)) => Err(Error::Compile { error, log }.into()),
        result => Ok(result?),
    }
}

/// A kernel of a [`Module`], which it borrows. Launch it with [`Scope::launch`](crate::Scope::launch).
///
/// ```no_run
/// use cuguard::{Function, Module, Result};
///
/// fn saxpy(module: &Module) -> Result<Function<'_>> {
///     module.function("saxpy")
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Function<'module> {
    handle: CUfunction,
    module: &'module Module,
}

impl Function<'_> {
    pub(crate) fn state(&self) -> &Arc<ContextState> {
        self.module.state()
    }

    pub(crate) fn handle(&self) -> &CUfunction {
        &self.handle
    }

    /// The driver's handle, for code that calls the driver directly. Valid until the module is dropped or its
    /// context is closed.
    #[must_use]
    pub fn as_raw(&self) -> CUfunction {
        self.handle
    }
}

/// A global variable of a [`Module`], which it borrows; see [`Module::global`].
///
/// Copies are synchronous. The caller must not run kernels that access the variable at the same time.
///
/// ```no_run
/// use cuguard::{Global, Result};
///
/// fn clear(table: &Global<'_, f32>) -> Result<()> {
///     assert!(table.address() != 0 && !table.is_empty());
///     table.copy_from_slice(&vec![0.0; table.len()])
/// }
/// ```
#[derive(Debug)]
pub struct Global<'module, T> {
    address: CUdeviceptr,
    len: usize,
    module: &'module Module,
    /// `Send` and `Sync` as for a shared slice with interior mutability. (Memory safety does not depend on it: any bytes
    /// are a valid `T: Pod`.)
    values: PhantomData<(&'module [T], &'module Mutex<T>)>,
}

impl<T: Pod> Global<'_, T> {
    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device address.
    #[must_use]
    pub fn address(&self) -> CUdeviceptr {
        self.address
    }

    /// Copies `values` to the variable, which must have the same length. Synchronous.
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`], [`Error::ContextClosed`], or any other driver error.
    pub fn copy_from_slice(&self, values: &[T]) -> Result<()> {
        const OPERATION: &str = "Global::copy_from_slice";
        check_len(
            OPERATION,
            ("the source", values.len()),
            ("the variable", self.len),
        )?;
        let entered = self.module.state().enter(OPERATION)?;
        let bytes = size_of_val(values);
        // SAFETY: both sides have this many bytes; the source is read before the call returns.
        let copied = unsafe { copy::htod(self.address, values.as_ptr().cast(), bytes) };
        entered.check_bytes(copied, bytes)?;
        // The copy may still be pending on the device, and non-blocking streams do not wait for the default stream.
        // SAFETY: the default stream of the current context.
        entered.check(unsafe { stream::synchronize(CUstream::NULL) })
    }

    /// Copies the variable to `values`, which must have the same length. Synchronous.
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`], [`Error::ContextClosed`], or any other driver error.
    pub fn copy_to_slice(&self, values: &mut [T]) -> Result<()> {
        const OPERATION: &str = "Global::copy_to_slice";
        check_len(
            OPERATION,
            ("the destination", values.len()),
            ("the variable", self.len),
        )?;
        let entered = self.module.state().enter(OPERATION)?;
        let bytes = size_of_val(values);
        // SAFETY: both sides have this many bytes, and any bytes are a valid `T`; the call returns when the copy is done.
        let copied = unsafe { copy::dtoh(values.as_mut_ptr().cast(), self.address, bytes) };
        entered.check_bytes(copied, bytes)
    }

    /// Copies the elements to a new vector. Synchronous.
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], or any other driver error.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut values = vec![T::zeroed(); self.len];
        self.copy_to_slice(&mut values)?;
        Ok(values)
    }
}
