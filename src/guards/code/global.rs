//! Global variables of modules.

use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Mutex;

use bytemuck::Pod;
use cuguard_driver::result::module;
use cuguard_driver::sys::CUdeviceptr;
use cust_core::DeviceCopy;

use super::Module;
use super::module::SymbolKind;
use crate::error::{Error, Result};
use crate::guards::{DeviceMemory, DeviceView, DeviceViewMut, check_len, check_range, host_vec};

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
/// Copies are synchronous. The caller must not run kernels that access the variable at the same time. There is no
/// [`DeviceView`] of it: kernels may write to the variable, whatever borrows it.
///
/// ```no_run
/// use cuguard::code::Global;
/// use cuguard::Result;
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

    /// A part of the variable.
    ///
    /// ```no_run
    /// use cuguard::code::Global;
    /// use cuguard::Result;
    ///
    /// fn clear_first(table: &Global<'_, f32>) -> Result<()> {
    ///     table.slice(..1)?.copy_from_slice(&[0.0])
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::RangeOutOfBounds`].
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        let range = check_range("Global::slice", range, "the variable", self.len)?;
        Ok(Self {
            // Within the variable, so this does not overflow.
            address: self.address + (range.start * size_of::<T>()) as u64,
            len: range.len(),
            module: self.module,
            values: PhantomData,
        })
    }

    fn memory(&self) -> DeviceMemory<'_> {
        let bytes = self.len * size_of::<T>();
        DeviceMemory::of(&self.module.owned, self.address, bytes)
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
        let entered = self.module.state().enter_to_wait(OPERATION)?;
        // SAFETY: there are equally many values. Any bytes are a valid `T`, whatever else writes to the variable.
        unsafe { self.memory().write(&entered, values.as_ptr().cast()) }
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
        self.read(OPERATION, values)
    }

    /// The caller has checked that `values` has the same length.
    fn read(&self, operation: &'static str, values: &mut [T]) -> Result<()> {
        let entered = self.module.state().enter_to_wait(operation)?;
        // SAFETY: there are equally many values. Any bytes are a valid `T`, whatever else writes to the variable.
        unsafe { self.memory().read(&entered, values.as_mut_ptr().cast()) }
    }

    /// Copies from device memory of the same length. Synchronous.
    ///
    /// ```no_run
    /// use cuguard::code::Global;
    /// use cuguard::{DeviceBuffer, Result};
    ///
    /// fn load(table: &Global<'_, f32>, values: &DeviceBuffer<f32>) -> Result<()> {
    ///     table.copy_from(values.slice(..table.len())?)
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`], [`Error::ContextClosed`], or any other driver error.
    pub fn copy_from<'a>(&self, source: impl Into<DeviceView<'a, T>>) -> Result<()>
    where
        T: DeviceCopy,
    {
        let (operation, source) = ("Global::copy_from", source.into());
        let variable = ("the variable", self.len);
        check_len(operation, ("the source", source.len()), variable)?;
        // SAFETY: there are equally many values, and no view is of a variable. Any bytes are a valid `T`, whatever else
        // writes to the variable.
        unsafe { self.memory().copy_from(operation, source.memory()) }
    }

    /// Copies to device memory of the same length. Synchronous.
    ///
    /// ```no_run
    /// use cuguard::code::Global;
    /// use cuguard::{DeviceBuffer, Result};
    ///
    /// fn save(table: &Global<'_, f32>, values: &mut DeviceBuffer<f32>) -> Result<()> {
    ///     table.copy_to(values.slice_mut(..table.len())?)
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`], [`Error::ContextClosed`], or any other driver error.
    pub fn copy_to(&self, destination: DeviceViewMut<'_, T>) -> Result<()>
    where
        T: DeviceCopy,
    {
        let (operation, variable) = ("Global::copy_to", ("the variable", self.len));
        check_len(operation, ("the destination", destination.len()), variable)?;
        // SAFETY: there are equally many values, the destination is borrowed exclusively, and no view is of a variable.
        // Any bytes are a valid `T`, whatever else writes to the variable.
        unsafe { destination.memory().copy_from(operation, &self.memory()) }
    }

    /// Copies the elements to a new vector. Synchronous.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfHostMemory`], [`Error::ContextClosed`], or any other driver error.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        const OPERATION: &str = "Global::to_vec";
        let mut values = host_vec(OPERATION, self.len, self.len * size_of::<T>())?;
        values.resize(self.len, T::zeroed());
        self.read(OPERATION, &mut values)?;
        Ok(values)
    }
}
