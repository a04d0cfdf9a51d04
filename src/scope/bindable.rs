//! Which memory a scope can bind.

use std::sync::Arc;

use cuguard_driver::sys::CUdeviceptr;
use cust::memory::DeviceCopy;

use crate::core::{ContextState, StreamState};
use crate::guards::{DeviceBox, DeviceBuffer, DeviceView, DeviceViewMut, ManagedBuffer};

/// Memory that [`Scope::bind`](crate::Scope::bind) accepts: a reference to a [`DeviceBuffer`], a [`DeviceBox`] or a
/// [`ManagedBuffer`]; or a [`DeviceView`].
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
/// [`DeviceBox`] or a [`ManagedBuffer`]; or a [`DeviceViewMut`].
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
    pub(crate) address: CUdeviceptr,
    pub(crate) len: usize,
    pub(crate) state: &'env Arc<ContextState>,
    /// The stream that it was allocated on.
    pub(crate) home: Option<&'env Arc<StreamState>>,
}

pub(crate) mod sealed {
    /// Only this crate implements [`Bindable`](super::Bindable) and [`BindableMut`](super::BindableMut).
    pub trait Sealed {}
}

fn of_buffer<T: DeviceCopy>(buffer: &DeviceBuffer<T>) -> BindableMemory<'_> {
    BindableMemory {
        address: buffer.address(),
        len: buffer.len(),
        state: buffer.state(),
        home: buffer.home(),
    }
}

fn of_box<T: DeviceCopy>(boxed: &DeviceBox<T>) -> BindableMemory<'_> {
    of_buffer(boxed.as_buffer())
}

fn of_managed<T: DeviceCopy>(managed: &ManagedBuffer<T>) -> BindableMemory<'_> {
    BindableMemory {
        address: managed.as_device_ptr().as_raw(),
        len: managed.len(),
        state: managed.state(),
        home: None,
    }
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
}

fn of_view<'env, T>(view: DeviceView<'env, T>) -> BindableMemory<'env> {
    let memory = view.memory();
    BindableMemory {
        address: memory.address(),
        len: view.len(),
        state: memory.state(),
        home: memory.home(),
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
