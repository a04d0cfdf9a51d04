//! `into_raw` releases ownership of device memory and returns its address; `from_raw` takes ownership of an address.

use std::mem;

use cuguard_driver::sys::CUdeviceptr;
use cust_core::DeviceCopy;

use crate::core::{OwnedResource, Owner};
use crate::guards::{Context, DeviceBuffer};
use cuguard_registry::{Entry, Key, ResourceKind};

impl<T: DeviceCopy> DeviceBuffer<T> {
    /// Releases ownership of the memory and returns its device address; 0 if the buffer has no memory, or if its
    /// context is closed.
    ///
    /// The record stays in the registry, marked as escaped. The caller must free the memory, or pass the address to
    /// [`from_raw`](Self::from_raw). Escaped memory does not keep its context open, and the driver frees it with the
    /// context: keep the [`Context`], or another guard of it, for as long as the address is in use. (A primary context
    /// is destroyed when its last holder releases it; stream-ordered memory belongs to the device and survives that.)
    /// Memory of a [`DriverPool`](crate::DriverPool) keeps the pool alive until `from_raw_on`, or until exit.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// use cuguard::DeviceBuffer;
    ///
    /// let address = DeviceBuffer::from_slice(&context, &[1, 2, 3])?.into_raw();
    /// // SAFETY: address and length of the buffer released above, of the same context.
    /// let buffer = unsafe { DeviceBuffer::<i32>::from_raw(&context, address, 3) };
    /// assert_eq!(buffer.to_vec()?, [1, 2, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use = "the memory leaks without its address"]
    pub fn into_raw(self) -> CUdeviceptr {
        self.owned.into_raw()
    }

    /// Borrows memory of other code, such as a tensor of PyTorch: it is neither recorded nor freed.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// use cuguard::DeviceBuffer;
    ///
    /// let _current = context.make_current()?;
    /// let tensor = cust::memory::DeviceBuffer::from_slice(&[1, 2, 3])?; // of other code
    /// // SAFETY: `tensor` is valid, has three elements, and outlives `view`; nothing else uses it meanwhile.
    /// let view = unsafe { DeviceBuffer::<i32>::borrow_raw(&context, tensor.as_device_ptr().as_raw(), 3) };
    /// assert_eq!((view.to_vec()?, context.live_count()), (vec![1, 2, 3], 0));
    /// drop(view); // does not free
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Safety
    ///
    /// Until the buffer is dropped, the address is that of `len` valid and aligned values of `T` that this context can access;
    /// other code does not free them, does not write them, and, if the buffer is written, does not read them, except where it
    /// synchronizes with the operations of the buffer. Work on them that other code enqueued is complete.
    pub unsafe fn borrow_raw(context: &Context, address: CUdeviceptr, len: usize) -> Self {
        let owner = Owner::from(context.open());
        let owned = OwnedResource::borrowed(owner, Key::new(ResourceKind::Device, address));
        Self::from_owned(len, owned)
    }

    /// Takes ownership of the memory at `address`. With address 0 the buffer owns nothing.
    #[track_caller]
    pub(super) fn from_address(
        owner: Owner,
        kind: ResourceKind,
        address: CUdeviceptr,
        len: usize,
    ) -> Self {
        let bytes = len.saturating_mul(mem::size_of::<T>());
        let owned = if address == 0 {
            OwnedResource::nothing(owner, kind)
        } else {
            let entry = Entry {
                bytes: bytes as u64,
                type_name: std::any::type_name::<T>(),
                stream: owner.stream(),
            };
            OwnedResource::from_raw(owner, Key::new(kind, address), entry)
        };
        Self::from_owned(len, owned)
    }

    /// Takes ownership of device memory that [`into_raw`](Self::into_raw) released or that other code allocated. Memory
    /// that `into_raw` released keeps its record.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// use cuguard::DeviceBuffer;
    /// use cuguard::driver::api;
    ///
    /// let _current = context.make_current()?;
    /// let mut address = 0;
    /// // SAFETY: `address` is valid for writes.
    /// let code = unsafe { api::cuMemAlloc_v2(&mut address, 4096) };
    /// assert!(code.is_success());
    /// // SAFETY: allocated above, any byte is a valid `u8`, and nothing else frees it.
    /// let buffer = unsafe { DeviceBuffer::<u8>::from_raw(&context, address, 4096) };
    /// assert_eq!(context.live_bytes(), 4096);
    /// drop(buffer);
    /// assert_eq!(context.live_bytes(), 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// The address was returned by `cuMemAlloc` in this context (use [`from_raw_on`](Self::from_raw_on) for
    /// stream-ordered memory), holds `len` valid and aligned values of `T`, and nothing else frees it. The address may be 0 only if
    /// `len` values of `T` need no memory: `into_raw` returns 0 for a buffer whose context is closed, and `from_raw` with
    /// that 0 and the old length returns a buffer that owns nothing; kernels would access address 0 through it.
    #[track_caller]
    pub unsafe fn from_raw(context: &Context, address: CUdeviceptr, len: usize) -> Self {
        // Memory of a pool is freed into the pool, in the order of the default stream.
        let is_pooled = context.state().pools_of_cuguard().is_escaped(address);
        let stream = is_pooled.then(|| context.default_stream());
        let owner = match stream {
            Some(Ok(stream)) => Owner::from(stream.stream_state()),
            _ => Owner::from(context.open()),
        };
        Self::from_address(owner, ResourceKind::Device, address, len)
    }
}
