//! Host memory of the program's own, registered with the driver.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use cuguard_driver::api;
use cust::memory::DeviceCopy;

use crate::claim::Claim;
use crate::context::Context;
use crate::custody::key;
use crate::error::{Error, Result};
use crate::exit;
use crate::registry::{Entry, Kind};

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
) -> Result<Option<Claim>> {
    let custody = context.custody();
    let entered = custody.enter(operation)?;
    if bytes == 0 {
        return Ok(None);
    }
    // Every context may use it, as it is with memory.
    const PORTABLE: u32 = 1;
    // SAFETY: the caller vouches for the memory.
    let code = unsafe { api::cuMemHostRegister_v2(start.cast(), bytes, PORTABLE) };
    entered.check_bytes("cuMemHostRegister", code, bytes)?;
    let entry = Entry {
        bytes: bytes as u64,
        type_name: std::any::type_name::<T>(),
        stream: 0,
    };
    let address = start.expose_provenance() as u64;
    Ok(Some(Claim::new(custody.into(), key(kind, address), entry)))
}

/// Has the driver let go of memory that was registered. Tells whether it can be given back to the
/// heap: if the driver did not let go, it may still copy from or to it, and the memory is leaked.
pub(crate) fn may_free(claim: Option<Claim>, operation: &'static str) -> (bool, Result<()>) {
    let Some(claim) = claim else {
        return (true, Ok(()));
    };
    let (custody, address) = (claim.custody().clone(), claim.address());
    let released = claim.close(operation);
    let free = match &released {
        Ok(()) => true,
        // At exit nothing was done. Otherwise teardown has waited for the device, unless it waits for
        // this thread; whether it has also let go of the memory depends on its settings, and on the
        // driver.
        Err(Error::ContextClosed { .. }) => !exit::is_exiting() && custody.has_let_go(address),
        Err(_) => false,
    };
    (free, released)
}

/// A vector that is registered with the driver, so that the device copies from and to it without a
/// detour. It derefs to a slice; [`into_vec`](Self::into_vec) gives the vector back.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, Registered};
///
/// let context = Context::new(0)?;
/// let mut numbers = Registered::new(&context, vec![1, 2, 3])?;
/// numbers[0] = 10;
/// assert_eq!(numbers.into_vec()?, [10, 2, 3]);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "what is not kept is freed at once"]
pub struct Registered<T: DeviceCopy> {
    /// Freed by hand, after the driver has let go of it.
    values: ManuallyDrop<Vec<T>>,
    claim: Option<Claim>,
}

impl<T: DeviceCopy> Registered<T> {
    /// Registers the values of a vector.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let numbers = cuguard::Registered::new(&context, vec![1, 2, 3])?;
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
        let claim =
            unsafe { register("Registered::new", Kind::Registered, context, start, bytes)? };
        Ok(Self {
            values: ManuallyDrop::new(values),
            claim,
        })
    }

    /// Gives the registration a name that reports show.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let numbers = cuguard::Registered::new(&context, vec![1, 2, 3])?.named("input");
    /// assert_eq!(context.snapshot().leaks[0].label.as_deref(), Some("input"));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use = "it is handed back"]
    pub fn named(self, label: &str) -> Self {
        if let Some(claim) = &self.claim {
            claim.name(label);
        }
        self
    }

    /// Has the driver let go of the vector, and gives it back.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let numbers = cuguard::Registered::new(&context, vec![1, 2, 3])?;
    /// let vector: Vec<i32> = numbers.into_vec()?;
    /// assert_eq!((vector.len(), context.live_count()), (3, 0));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// What the driver says; the vector is leaked then, as the driver may still use it. The same
    /// where the context is just being torn down and that does not end within five seconds.
    pub fn into_vec(mut self) -> Result<Vec<T>> {
        let (free, released) = may_free(self.claim.take(), "Registered::into_vec");
        let mut this = ManuallyDrop::new(self);
        if !free {
            released?;
        }
        // SAFETY: taken once, as `self` is not dropped. The driver has let go of it.
        Ok(unsafe { ManuallyDrop::take(&mut this.values) })
    }
}

impl<T: DeviceCopy> Drop for Registered<T> {
    fn drop(&mut self) {
        let (free, _) = may_free(self.claim.take(), "drop");
        if free {
            // SAFETY: once, here. The driver has let go of it.
            unsafe { ManuallyDrop::drop(&mut self.values) };
        }
    }
}

impl<T: DeviceCopy> Deref for Registered<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.values
    }
}

impl<T: DeviceCopy> DerefMut for Registered<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.values
    }
}
