//! Device memory whose ownership is released to the program as an address, and taken again.

use std::mem;

use cuguard_driver::sys::CUdeviceptr;
use cust::memory::DeviceCopy;

use crate::core::{OwnedResource, Owner};
use crate::guards::{Context, DeviceBuffer};
use cuguard_registry::{Entry, Key, Kind};

impl<T: DeviceCopy> DeviceBuffer<T> {
    /// Releases ownership of the memory, and returns its device address. 0 where there is none, and
    /// where its context is closed already, which has freed it (or was told to leave it to the driver).
    ///
    /// The registry lists it as escaped, and whoever has the address must free it, or pass it to
    /// [`from_raw`](Self::from_raw). It does not keep its context open, and is freed when the driver's
    /// context is destroyed: keep the [`Context`], or another guard of it, for as long as the address is
    /// used. (The primary context is destroyed when its last holder releases it; stream-ordered memory
    /// belongs to the device and lives on.) Memory of a [`MemoryPool`](crate::MemoryPool) keeps the pool
    /// until ownership is taken again; where it is not, the pool stays until the process exits.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// use cuguard::DeviceBuffer;
    ///
    /// let address = DeviceBuffer::from_slice(&context, &[1, 2, 3])?.into_raw();
    /// // SAFETY: the address and the length of a buffer of this context, given away above.
    /// let buffer = unsafe { DeviceBuffer::<i32>::from_raw(&context, address, 3) };
    /// assert_eq!(buffer.to_vec()?, [1, 2, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use = "the memory is lost without its address"]
    pub fn into_raw(self) -> CUdeviceptr {
        self.owned.into_raw()
    }

    #[track_caller]
    pub(super) fn adopt(owner: Owner, kind: Kind, address: CUdeviceptr, len: usize) -> Self {
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
        Self::assemble(len, owned)
    }

    /// Takes custody of device memory: of what [`into_raw`](Self::into_raw) gave away, with the
    /// record it had, or of what other code allocated.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// use cuguard::DeviceBuffer;
    /// use cuguard::driver::api;
    ///
    /// let _bound = context.make_current()?;
    /// let mut address = 0;
    /// // SAFETY: the variable can be written to.
    /// let code = unsafe { api::cuMemAlloc_v2(&mut address, 4096) };
    /// assert!(code.is_success());
    /// // SAFETY: it was given out above, any bytes are a `u8`, and nobody else frees it.
    /// let buffer = unsafe { DeviceBuffer::<u8>::from_raw(&context, address, 4096) };
    /// assert_eq!(context.live_bytes(), 4096);
    /// drop(buffer);
    /// assert_eq!(context.live_bytes(), 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// The address was given out by `cuMemAlloc` in this context (for stream-ordered memory there is
    /// [`from_raw_on`](Self::from_raw_on)), has `len` valid values of `T`, and nobody else frees it. An address of
    /// 0 goes with a `len` that needs no memory.
    #[track_caller]
    pub unsafe fn from_raw(context: &Context, address: CUdeviceptr, len: usize) -> Self {
        let owner = Owner::from(context.open());
        Self::adopt(owner, Kind::Device, address, len)
    }
}
