//! Host memory of the program's own, registered with the driver.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use cuguard_driver::result::memory;
use cust::memory::DeviceCopy;

use crate::core::host_memory::release;
use crate::core::{HostMemory, OwnedResource, Released};
use crate::error::{Error, Result};
use crate::guards::Context;
use cuguard_registry::{Entry, Key, Kind};
use cuguard_sync::process;

/// Registers host memory with the driver.
///
/// # Safety
///
/// The memory must stay allocated until the claim is gone and the driver has let go of it.
#[track_caller]
pub(crate) unsafe fn register<T>(
    operation: &'static str,
    kind: Kind,
    context: &Context,
    start: *mut T,
    bytes: usize,
) -> Result<Option<OwnedResource>> {
    let state = context.state();
    let entered = state.enter_to_wait(operation)?;
    if bytes == 0 {
        return Ok(None);
    }
    // Every context may use it, as it is with memory.
    const PORTABLE: u32 = 1;
    // SAFETY: the caller vouches for the memory.
    let registered = unsafe { memory::host_register(start.cast(), bytes, PORTABLE) };
    entered.check_bytes(registered, bytes)?;
    let entry = Entry {
        bytes: bytes as u64,
        type_name: std::any::type_name::<T>(),
        stream: 0,
    };
    let address = start.expose_provenance() as u64;
    let owner = context.open().into();
    Ok(Some(OwnedResource::new(
        owner,
        Key::new(kind, address),
        entry,
    )))
}

/// A vector that is registered with the driver, so that the device copies from and to it without a
/// detour. It derefs to a slice; [`into_vec`](Self::into_vec) gives the vector back.
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
#[must_use = "what is not kept is freed at once"]
pub struct RegisteredVec<T: DeviceCopy> {
    /// Freed by hand, after the driver has let go of it.
    values: ManuallyDrop<Vec<T>>,
    owned: Option<OwnedResource>,
}

impl<T: DeviceCopy> RegisteredVec<T> {
    /// Registers the values of a vector.
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
    /// What the driver says; the vector is dropped then.
    #[track_caller]
    pub fn new(context: &Context, mut values: Vec<T>) -> Result<Self> {
        let bytes = size_of_val(values.as_slice());
        let start = values.as_mut_ptr();
        // SAFETY: the vector is not touched as such, and outlives the claim, see `drop`.
        let owned = unsafe {
            register(
                "RegisteredVec::new",
                Kind::Registered,
                context,
                start,
                bytes,
            )?
        };
        Ok(Self {
            values: ManuallyDrop::new(values),
            owned,
        })
    }

    /// Gives the registration a name that reports show.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let numbers = cuguard::RegisteredVec::new(&context, vec![1, 2, 3])?.named("input");
    /// assert_eq!(context.snapshot().live[0].label.as_deref(), Some("input"));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use = "it is handed back"]
    pub fn named(self, label: &str) -> Self {
        if let Some(owned) = &self.owned {
            owned.name(label);
        }
        self
    }

    /// Has the driver let go of the vector, and gives it back.
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
    /// Any driver error; the vector is leaked then, as the driver may still use it. Inside a host
    /// function, `CUDA_ERROR_NOT_PERMITTED`, and the vector is freed later.
    /// [`Error::ContextClosed`] where the context was closed without unregistering the vector, or
    /// is being closed and that does not end within five seconds: the vector is leaked.
    pub fn into_vec(mut self) -> Result<Vec<T>> {
        let owned = self.owned.take();
        let mut this = ManuallyDrop::new(self);
        // SAFETY: taken once, as `self` is not dropped.
        let values = unsafe { ManuallyDrop::take(&mut this.values) };
        let Some(mut owned) = owned else {
            return Ok(values);
        };
        match owned.release("RegisteredVec::into_vec") {
            Released::Done(Ok(())) => Ok(values),
            Released::Done(Err(Error::ContextClosed { .. }))
                if !process::is_exiting() && owned.state().is_unregistered(owned.address()) =>
            {
                Ok(values)
            }
            Released::Done(Err(error)) => {
                // The driver may still use it.
                std::mem::forget(values);
                Err(error)
            }
            Released::NotNow(error) => {
                owned.defer(HostMemory::of(values));
                Err(error)
            }
        }
    }
}

impl<T: DeviceCopy> Drop for RegisteredVec<T> {
    fn drop(&mut self) {
        // SAFETY: taken once, here.
        let values = unsafe { ManuallyDrop::take(&mut self.values) };
        if let Some(owned) = self.owned.take() {
            // What the driver refused has been filed.
            let _ = release(owned, HostMemory::of(values), "drop");
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
