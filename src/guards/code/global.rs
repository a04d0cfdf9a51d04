//! Global variables of modules.

use std::marker::PhantomData;
use std::sync::Mutex;

use bytemuck::Pod;
use cuguard_driver::result::{copy, module, stream};
use cuguard_driver::sys::{CUdeviceptr, CUstream};

use super::Module;
use super::module::SymbolKind;
use crate::error::{Error, Result};
use crate::guards::check_len;

impl Module {
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
    /// [`Error::LengthMismatch`], in bytes, if the variable's size is not a multiple of `T`'s;
    /// [`Error::WrongSymbolKind`] if it is a kernel; else as [`function`](Self::function).
    pub fn global<T: Pod>(&self, name: &str) -> Result<Global<'_, T>> {
        let module::Global { address, bytes } = self.look_up(
            "Module::global",
            SymbolKind::Variable,
            name,
            |module, name| {
                // SAFETY: the module is alive.
                unsafe { module::global(module, name) }
            },
        )?;
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
