//! Host memory that the program allocated, registered with the driver.

use std::mem;
use std::ops::{Deref, DerefMut};

use cuguard_driver::result::memory;
use cust_core::DeviceCopy;

use crate::core::host_memory::release;
use crate::core::{HostMemory, OwnedResource, Released, page_locked};
use crate::error::{Error, Result};
use crate::guards::Context;
use cuguard_registry::{Entry, Key, ResourceKind};
use cuguard_sync::process;

/// Registers host memory with the driver. `None` for 0 bytes.
///
/// # Safety
///
/// The memory must stay allocated until the returned resource is released and the driver has unregistered it.
#[track_caller]
pub(crate) unsafe fn register<T>(
    operation: &'static str,
    kind: ResourceKind,
    context: &Context,
    values: *mut [T],
) -> Result<Option<OwnedResource>> {
    let state = context.state();
    let entered = state.enter_to_wait(operation)?;
    let (start, bytes) = (values.cast::<T>(), values.len() * size_of::<T>());
    if bytes == 0 {
        return Ok(None);
    }
    // As `cuMemHostAlloc` memory with `CU_MEMHOSTALLOC_PORTABLE`: pinned for every context.
    const PORTABLE: u32 = 1;
    // SAFETY: the caller keeps the memory allocated.
    let registered = unsafe { memory::host_register(start.cast(), bytes, PORTABLE) };
    entered.check_bytes(registered, bytes)?;
    let entry = Entry {
        bytes: bytes as u64,
        type_name: std::any::type_name::<T>(),
        stream: 0,
    };
    let address = start.expose_provenance() as u64;
    let owner = context.open().into();
    let owned = OwnedResource::new(owner, Key::new(kind, address), entry);
    page_locked::add(state, address, bytes);
    Ok(Some(owned))
}

/// A vector that is registered with the driver (pinned), so that copies need no staging buffer.
///
/// Unregistered and freed on drop; [`into_vec`](Self::into_vec) returns the vector. Dereferences to a slice.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, RegisteredVec};
///
/// let context = Context::new(0)?;
/// let mut numbers = RegisteredVec::new(&context, vec![1, 2, 3])?;
/// numbers[0] = 10;
/// assert_eq!(numbers.into_vec()?, [10, 2, 3]);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropped at once if unused"]
#[doc(alias("cuMemHostRegister", "cudaHostRegister"))]
pub struct RegisteredVec<T: DeviceCopy> {
    /// Never reallocated: the driver refers to this memory.
    values: Vec<T>,
    /// `None` if the values need no memory.
    owned: Option<OwnedResource>,
}

impl<T: DeviceCopy> RegisteredVec<T> {
    /// Registers the elements of a vector.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let numbers = cuguard::RegisteredVec::new(&context, vec![1, 2, 3])?;
    /// assert_eq!(*numbers, [1, 2, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any driver error. The vector is dropped.
    #[track_caller]
    pub fn new(context: &Context, mut values: Vec<T>) -> Result<Self> {
        const OPERATION: &str = "RegisteredVec::new";
        let slice = values.as_mut_slice();
        // SAFETY: the vector never reallocates, and is freed after the driver has unregistered it (`drop`, `into_vec`).
        let owned = unsafe { register(OPERATION, ResourceKind::Registered, context, slice)? };
        Ok(Self { values, owned })
    }

    /// `None` where there are no bytes.
    pub(crate) fn owned(&self) -> Option<&OwnedResource> {
        self.owned.as_ref()
    }

    /// Names the registration in reports.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let numbers = cuguard::RegisteredVec::new(&context, vec![1, 2, 3])?.with_label("input");
    /// assert_eq!(context.snapshot().live[0].label.as_deref(), Some("input"));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use = "returns the guard"]
    pub fn with_label(self, label: &str) -> Self {
        if let Some(owned) = &self.owned {
            owned.name(label);
        }
        self
    }

    /// Unregisters the vector and returns it.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let numbers = cuguard::RegisteredVec::new(&context, vec![1, 2, 3])?;
    /// let vector: Vec<i32> = numbers.into_vec()?;
    /// assert_eq!((vector.len(), context.live_count()), (3, 0));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`] if the context was closed without unregistering the vector, or if a close on another
    /// thread does not end within five seconds: the vector is leaked. `CUDA_ERROR_NOT_PERMITTED` inside a host
    /// function: the vector is freed later. Any other driver error: the vector is leaked, because the driver may still
    /// access it.
    pub fn into_vec(mut self) -> Result<Vec<T>> {
        let values = mem::take(&mut self.values);
        let Some(mut owned) = self.owned.take() else {
            return Ok(values);
        };
        page_locked::remove(owned.address());
        match owned.release("RegisteredVec::into_vec") {
            Released::Done(Ok(())) => Ok(values),
            Released::Done(Err(Error::ContextClosed { .. }))
                if !process::is_exiting() && owned.state().is_unregistered(owned.address()) =>
            {
                Ok(values)
            }
            Released::Done(Err(error)) => {
                // The driver may still access it.
                mem::forget(values);
                Err(error)
            }
            Released::NotPermitted(error) => {
                owned.defer(HostMemory::of(values));
                Err(error)
            }
        }
    }
}

impl<T: DeviceCopy> Drop for RegisteredVec<T> {
    fn drop(&mut self) {
        if let Some(owned) = self.owned.take() {
            let memory = HostMemory::of(mem::take(&mut self.values));
            // A failed free is already recorded.
            let _ = release(owned, memory, "drop");
        }
    }
}

impl<T: DeviceCopy> Deref for RegisteredVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.values
    }
}

impl<T: DeviceCopy> DerefMut for RegisteredVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.values
    }
}
