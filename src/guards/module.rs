//! Modules: code for the device, with its functions and variables.

use std::ffi::{CStr, CString, c_void};
use std::marker::PhantomData;
use std::mem;
use std::sync::{Arc, Mutex};

use bytemuck::Pod;
use cuguard_driver::result::{self, copy, module, stream};
use cuguard_driver::sys::{CUdeviceptr, CUfunction, CUmodule, CUresult, CUstream};
use cuguard_driver::{DriverKind, loaded};

use crate::core::{self, ContextState, Entered, Failed, OwnedResource, Request};
use crate::error::{Error, Result};
use crate::guards::Context;
use crate::recovery;
use cuguard_registry::Kind;

/// Code that is loaded to the device, unloaded when this goes.
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
/// The simulated GPU runs no kernels, and says so:
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # use cuguard::{Context, Module};
/// # let context = Context::new(0)?;
/// let error = Module::from_ptx(&context, ".version 6.4").unwrap_err();
/// assert!(error.to_string().contains("the simulated GPU runs no kernels"), "{error}");
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "what is not kept is freed at once"]
pub struct Module {
    owned: OwnedResource,
}

/// The text as the driver takes it.
fn to_c(operation: &'static str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|error| {
        // The line with the NUL tells enough of a long text.
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
    /// Compiles and loads a text in PTX, the driver's assembly language.
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
    /// [`Error::InteriorNul`]; [`Error::NoKernels`] on the simulated GPU; [`Error::Compile`], with
    /// the compiler's own words, where it wrote any; [`Error::OutOfMemory`]; or what the driver says.
    #[track_caller]
    pub fn from_ptx(context: &Context, text: &str) -> Result<Self> {
        const OPERATION: &str = "Module::from_ptx";
        // What begins like a binary would be taken for one, and read by the sizes it tells.
        let binary = text.starts_with('\x7f');
        let text = if binary {
            format!("\n{text}")
        } else {
            text.to_owned()
        };
        let image = to_c(OPERATION, &text)?;
        // SAFETY: text that ends in a NUL, and does not begin like a binary.
        unsafe { Self::load(OPERATION, context, image.as_ptr().cast()) }
    }

    /// Loads what a compiler made: a cubin, a fatbin, or PTX with a NUL at its end.
    ///
    /// # Errors
    ///
    /// As [`from_ptx`](Self::from_ptx).
    ///
    /// # Safety
    ///
    /// The bytes must be a whole and sound image: the driver believes the sizes that it finds in
    /// them.
    ///
    /// ```no_run
    /// # let context = cuguard::Context::new(0)?;
    /// let image = std::fs::read("kernels/saxpy.cubin").expect("what nvcc -cubin made");
    /// // SAFETY: whole, as the compiler wrote it.
    /// let module = unsafe { cuguard::Module::from_image(&context, &image)? };
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[track_caller]
    pub unsafe fn from_image(context: &Context, image: &[u8]) -> Result<Self> {
        // SAFETY: the caller vouches for the image.
        unsafe { Self::load("Module::from_image", context, image.as_ptr().cast()) }
    }

    /// # Safety
    ///
    /// `image` must lead to a whole and sound image.
    #[track_caller]
    unsafe fn load(
        operation: &'static str,
        context: &Context,
        image: *const c_void,
    ) -> Result<Self> {
        let state = context.state();
        let request = Request::of_unknown_size(operation, Some(Kind::Module));
        let owned = recovery::satisfy(state, &request, || {
            let entered = state.enter(operation)?;
            let mut log = vec![0_u8; 16 << 10];
            let owner = context.open().into();
            // SAFETY: the caller vouches for the image.
            let loaded = unsafe { module::load_data_ex(image, &mut log) };
            let loaded = check_load(&entered, loaded, &log)?;
            core::allocate(owner, &request, Kind::Module, "", || Ok(loaded.0 as u64))
        })?;
        Ok(Self { owned })
    }

    fn state(&self) -> &Arc<ContextState> {
        self.owned.state()
    }

    /// The driver's handle, for code that calls the driver itself. It is valid until this guard or
    /// the context goes.
    ///
    /// ```no_run
    /// # fn example(module: cuguard::Module) {
    /// assert_ne!(module.as_raw(), cuguard::driver::sys::CUmodule::NULL);
    /// # }
    /// ```
    #[must_use]
    pub fn as_raw(&self) -> CUmodule {
        CUmodule(self.owned.address() as usize)
    }

    /// Gives the module a name that reports show.
    ///
    /// ```no_run
    /// # fn example(module: cuguard::Module) {
    /// let module = module.named("filters");
    /// # }
    /// ```
    #[must_use = "the module is handed back"]
    pub fn named(self, label: &str) -> Self {
        self.owned.name(label);
        self
    }

    /// Looks a name up in the module.
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

    /// A kernel of the module, by the name that it has there: that of the source where it was
    /// declared `extern "C"`.
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
    /// [`Error::NoSuchSymbol`], [`Error::InteriorNul`], [`Error::ContextClosed`], or what the
    /// driver says.
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

    /// A variable of the module, seen as a run of `T`.
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
    /// [`Error::LengthMismatch`], counted in bytes, where the variable's size is no multiple of
    /// `T`'s; else as [`function`](Self::function).
    pub fn global<T: Pod>(&self, name: &str) -> Result<Global<'_, T>> {
        let module::Global { address, bytes } =
            self.look_up("Module::global", name, |module, name| {
                // SAFETY: the module is alive.
                unsafe { module::global(module, name) }
            })?;
        let size = mem::size_of::<T>();
        if size == 0 || !bytes.is_multiple_of(size) {
            return Err(Error::LengthMismatch {
                operation: "Module::global (in bytes)",
                expected: bytes,
                actual: size,
            });
        }
        Ok(Global {
            address,
            len: bytes / size,
            module: self,
            values: PhantomData,
        })
    }

    /// Unloads the module and tells whether the driver did it. Drop does the same and files what
    /// the driver refused for the report.
    ///
    /// ```no_run
    /// # fn example(module: cuguard::Module) -> cuguard::Result<()> {
    /// module.close()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`] where the context went first (and unloaded it), or what the driver
    /// says.
    pub fn close(self) -> Result<()> {
        self.owned.close("Module::close")
    }
}

/// What the driver said to a module, with what its compiler said.
fn check_load(
    entered: &Entered<'_>,
    result: result::Result<CUmodule>,
    log: &[u8],
) -> Result<CUmodule, Failed> {
    let simulated = loaded().is_some_and(|driver| driver.kind() == DriverKind::Simulated);
    if simulated && result.is_err_and(|error| error.code == CUresult::NOT_SUPPORTED) {
        let operation = entered.operation();
        return Err(Error::NoKernels { operation }.into());
    }
    let log = log.split(|byte| *byte == 0).next().unwrap_or_default();
    let log = String::from_utf8_lossy(log).trim().to_owned();
    if log.is_empty() {
        return Failed::check(entered, result);
    }
    // Also where the compiler was out of memory: it ran on the host, and its words say more.
    match entered.check(result) {
        Err(Error::Driver(error)) => Err(Error::Compile { error, log }.into()),
        result => Ok(result?),
    }
}

/// A kernel of a [`Module`], which it borrows; see [`Scope::launch`](crate::Scope::launch).
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

    /// The driver's handle, for code that calls the driver itself. It is valid until the module or
    /// the context goes.
    ///
    /// ```no_run
    /// # fn example(saxpy: cuguard::Function<'_>) {
    /// assert_ne!(saxpy.as_raw(), cuguard::driver::sys::CUfunction::NULL);
    /// # }
    /// ```
    #[must_use]
    pub fn as_raw(&self) -> CUfunction {
        self.handle
    }
}

#[cfg(all(test, feature = "sim"))]
impl Module {
    /// A module that no driver knows, and owns nothing: the simulated GPU has no others.
    pub(crate) fn pretended(context: &Context) -> Self {
        Self {
            owned: OwnedResource::nothing(context.open().into(), Kind::Module),
        }
    }

    /// A kernel of it.
    pub(crate) fn pretended_function(&self) -> Function<'_> {
        Function {
            handle: CUfunction::default(),
            module: self,
        }
    }
}

/// A variable of a [`Module`], which it borrows; see [`Module::global`].
///
/// Copies are synchronous. Kernels that use the variable at the same time are for whoever launches
/// them to avoid.
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
    /// One may read and write through a shared reference, on any thread. (Memory safety does not
    /// rest on this: `T: Pod` can be made of any bytes.)
    values: PhantomData<(&'module [T], &'module Mutex<T>)>,
}

impl<T: Pod> Global<'_, T> {
    /// The number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address on the device.
    #[must_use]
    pub fn address(&self) -> CUdeviceptr {
        self.address
    }

    fn check_len(&self, operation: &'static str, actual: usize) -> Result<()> {
        if actual == self.len {
            return Ok(());
        }
        Err(Error::LengthMismatch {
            operation,
            expected: self.len,
            actual,
        })
    }

    /// Copies `values` to the variable. There must be as many as it holds.
    ///
    /// ```no_run
    /// # fn example(table: cuguard::Global<'_, f32>) -> cuguard::Result<()> {
    /// table.copy_from_slice(&vec![1.5; table.len()])?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`], [`Error::ContextClosed`], or what the driver says.
    pub fn copy_from_slice(&self, values: &[T]) -> Result<()> {
        const OPERATION: &str = "Global::copy_from_slice";
        self.check_len(OPERATION, values.len())?;
        let entered = self.module.state().enter(OPERATION)?;
        let bytes = mem::size_of_val(values);
        // SAFETY: both sides have this many bytes; the source is read when this returns.
        let copied = unsafe { copy::htod(self.address, values.as_ptr().cast(), bytes) };
        entered.check_bytes(copied, bytes)?;
        // The device may still be at it, and streams that do not block would not wait for it.
        // SAFETY: the default stream of the current context.
        entered.check(unsafe { stream::synchronize(CUstream::NULL) })
    }

    /// Copies the values of the variable. There must be room for as many as it holds.
    ///
    /// ```no_run
    /// # fn example(table: cuguard::Global<'_, f32>) -> cuguard::Result<()> {
    /// let mut values = vec![0.0; table.len()];
    /// table.copy_to_slice(&mut values)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`], [`Error::ContextClosed`], or what the driver says.
    pub fn copy_to_slice(&self, values: &mut [T]) -> Result<()> {
        const OPERATION: &str = "Global::copy_to_slice";
        self.check_len(OPERATION, values.len())?;
        let entered = self.module.state().enter(OPERATION)?;
        let bytes = mem::size_of_val(values);
        // SAFETY: both sides have this many bytes, and any bytes make a valid `T`; the call returns
        // when it is done.
        let copied = unsafe { copy::dtoh(values.as_mut_ptr().cast(), self.address, bytes) };
        entered.check_bytes(copied, bytes)
    }

    /// The values, copied to the host.
    ///
    /// ```no_run
    /// # fn example(table: cuguard::Global<'_, f32>) -> cuguard::Result<()> {
    /// assert_eq!(table.to_vec()?.len(), table.len());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], or what the driver says.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut values = vec![T::zeroed(); self.len];
        self.copy_to_slice(&mut values)?;
        Ok(values)
    }
}
