//! Which memory a scope can bind.

use std::ffi::c_void;
use std::sync::Arc;

use cuguard_driver::result::memory;
use cuguard_driver::sys::CUdeviceptr;
use cust_core::DeviceCopy;

use crate::core::{ContextState, Entered, OwnedResource, StreamState};
use crate::error::Result;
use crate::guards::{
    DeviceBox, DeviceBuffer, DeviceView, DeviceViewMut, ManagedBuffer, PinnedBuffer, RegisteredVec,
};

/// Memory that [`Scope::bind`](crate::Scope::bind) accepts: a reference to a [`DeviceBuffer`], a [`DeviceBox`], a
/// [`ManagedBuffer`], or to page-locked host memory: a [`PinnedBuffer`] or a [`RegisteredVec`]; or a [`DeviceView`], by value
/// or by reference.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, DeviceBox, Result, Stream};
/// use cuguard::scope::Bindable;
///
/// fn read(stream: &Stream, memory: impl Bindable<Value = u32>) -> Result<u32> {
///     let mut value = [0];
///     stream.scope(|s| s.download(&mut s.bind_host_mut(&mut value), &s.bind(memory)?))?;
///     Ok(value[0])
/// }
///
/// let context = Context::new(0)?;
/// let counter = DeviceBox::new(&context, &7)?;
/// assert_eq!(read(&Stream::new(&context)?, &counter)?, 7);
/// # Ok::<(), cuguard::Error>(())
/// ```
pub trait Bindable: sealed::Sealed {
    /// The type of the elements.
    type Value: DeviceCopy;

    /// A method with a lifetime, and not a trait with one, which would fix how long generic code borrows.
    #[doc(hidden)]
    fn into_memory<'env>(self) -> BindableMemory<'env>
    where
        Self: 'env;
}

/// Memory that [`Scope::bind_mut`](crate::Scope::bind_mut) accepts: a mutable reference to a [`DeviceBuffer`], a
/// [`DeviceBox`], a [`ManagedBuffer`], a [`PinnedBuffer`] or a [`RegisteredVec`]; or a [`DeviceViewMut`].
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, DeviceBox, Result, Stream};
/// use cuguard::scope::BindableMut;
///
/// fn clear(stream: &Stream, memory: impl BindableMut<Value = u32>) -> Result<()> {
///     stream.scope(|s| s.zero(&mut s.bind_mut(memory)?))
/// }
///
/// let context = Context::new(0)?;
/// let mut counter = DeviceBox::new(&context, &7)?;
/// clear(&Stream::new(&context)?, &mut counter)?;
/// assert_eq!(counter.get()?, 0);
/// # Ok::<(), cuguard::Error>(())
/// ```
pub trait BindableMut: sealed::Sealed {
    /// The type of the elements.
    type Value: DeviceCopy;

    /// A method with a lifetime, and not a trait with one, which would fix how long generic code borrows.
    #[doc(hidden)]
    fn into_memory<'env>(self) -> BindableMemory<'env>
    where
        Self: 'env;
}

/// The address, length and owner of bindable memory.
#[doc(hidden)]
#[derive(Debug)]
pub struct BindableMemory<'env> {
    pub(crate) address: Address,
    pub(crate) len: usize,
    /// `None` for empty host memory, which is not registered with the driver.
    pub(crate) state: Option<&'env Arc<ContextState>>,
    /// The stream that it was allocated on.
    pub(crate) home: Option<&'env Arc<StreamState>>,
    /// Whether it is a block of a [`Pool`](crate::Pool).
    pub(crate) is_pooled: bool,
}

impl BindableMemory<'_> {
    /// The memory's address on the device. `entered` is its context.
    pub(crate) fn device_address(&self, entered: &Entered<'_>) -> Result<CUdeviceptr> {
        match self.address {
            Address::Device(address) => Ok(address),
            Address::Host(start) => {
                // SAFETY: registered with the driver, and borrowed.
                let mapped = unsafe { memory::host_get_device_pointer(start) };
                entered.check(mapped)
            }
        }
    }
}

/// Where bindable memory is.
#[derive(Debug)]
pub(crate) enum Address {
    /// On the device, or managed; any address where the memory is empty.
    Device(CUdeviceptr),
    /// On the host, registered with the driver.
    Host(*mut c_void),
}

pub(crate) mod sealed {
    /// Only this crate implements [`Bindable`](super::Bindable) and [`BindableMut`](super::BindableMut).
    pub trait Sealed {}
}

fn of_buffer<T: DeviceCopy>(buffer: &DeviceBuffer<T>) -> BindableMemory<'_> {
    BindableMemory {
        address: Address::Device(buffer.address()),
        len: buffer.len(),
        state: Some(buffer.state()),
        home: buffer.home(),
        is_pooled: buffer.memory().is_pooled(),
    }
}

fn of_box<T: DeviceCopy>(boxed: &DeviceBox<T>) -> BindableMemory<'_> {
    of_buffer(boxed.as_buffer())
}

fn of_managed<T: DeviceCopy>(managed: &ManagedBuffer<T>) -> BindableMemory<'_> {
    BindableMemory {
        address: Address::Device(managed.as_device_ptr().as_raw()),
        len: managed.len(),
        state: Some(managed.state()),
        home: None,
        is_pooled: false,
    }
}

/// Page-locked memory belongs to one context although every context can reach it: when that context is closed, the
/// memory is unregistered.
fn of_host(owned: Option<&OwnedResource>, start: *mut c_void, len: usize) -> BindableMemory<'_> {
    BindableMemory {
        address: match owned {
            Some(_) => Address::Host(start),
            None => Address::Device(0),
        },
        len,
        state: owned.map(OwnedResource::state),
        home: None,
        is_pooled: false,
    }
}

fn of_pinned<T: DeviceCopy>(pinned: &PinnedBuffer<T>) -> BindableMemory<'_> {
    of_host(
        pinned.owned(),
        pinned.as_ptr().cast_mut().cast(),
        pinned.len(),
    )
}

fn of_registered<T: DeviceCopy>(registered: &RegisteredVec<T>) -> BindableMemory<'_> {
    let start = registered.as_ptr().cast_mut().cast();
    of_host(registered.owned(), start, registered.len())
}

macro_rules! bindable {
    ($($guard:ident, $memory:path;)*) => {$(
        impl<T: DeviceCopy> sealed::Sealed for &$guard<T> {}

        impl<T: DeviceCopy> Bindable for &$guard<T> {
            type Value = T;

            fn into_memory<'env>(self) -> BindableMemory<'env>
            where
                Self: 'env,
            {
                $memory(self)
            }
        }

        impl<T: DeviceCopy> sealed::Sealed for &mut $guard<T> {}

        impl<T: DeviceCopy> BindableMut for &mut $guard<T> {
            type Value = T;

            fn into_memory<'env>(self) -> BindableMemory<'env>
            where
                Self: 'env,
            {
                $memory(self)
            }
        }
    )*};
}

bindable! {
    DeviceBuffer, of_buffer;
    DeviceBox, of_box;
    ManagedBuffer, of_managed;
    PinnedBuffer, of_pinned;
    RegisteredVec, of_registered;
}

fn of_view<'env, T>(view: DeviceView<'env, T>) -> BindableMemory<'env> {
    let memory = view.memory();
    BindableMemory {
        address: Address::Device(memory.address()),
        len: view.len(),
        state: Some(memory.state()),
        home: memory.home(),
        is_pooled: memory.is_pooled(),
    }
}

impl<T: DeviceCopy> sealed::Sealed for DeviceView<'_, T> {}

impl<T: DeviceCopy> Bindable for DeviceView<'_, T> {
    type Value = T;

    fn into_memory<'env>(self) -> BindableMemory<'env>
    where
        Self: 'env,
    {
        of_view(self)
    }
}

impl<T: DeviceCopy> sealed::Sealed for &DeviceView<'_, T> {}

impl<T: DeviceCopy> Bindable for &DeviceView<'_, T> {
    type Value = T;

    fn into_memory<'env>(self) -> BindableMemory<'env>
    where
        Self: 'env,
    {
        of_view(*self)
    }
}

impl<T: DeviceCopy> sealed::Sealed for DeviceViewMut<'_, T> {}

impl<T: DeviceCopy> BindableMut for DeviceViewMut<'_, T> {
    type Value = T;

    fn into_memory<'env>(self) -> BindableMemory<'env>
    where
        Self: 'env,
    {
        of_view(self.into_view())
    }
}
