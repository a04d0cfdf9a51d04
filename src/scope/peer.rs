//! Memory of other contexts in a scope: copies between devices.

use std::fmt;
use std::mem;
use std::ops::Deref;
use std::sync::Arc;

use cuguard_driver::result::copy;
use cuguard_driver::sys::CUdeviceptr;
use cust_core::DeviceCopy;

use super::bindable::BindableMemory;
use super::end::PeerMemory;
use super::uses::{Used, Uses};
use super::{Bindable, BindableMut, DeviceMut, DeviceRef, Scope};
use crate::core::ContextState;
use crate::error::{Error, Result};
use crate::guards::{DevicePointer, check_len};

/// Device memory of another context that the work of a scope reads; see [`Scope::bind_peer`].
///
/// It is a type of its own, because kernels of the scope cannot access it without [`PeerAccess`](crate::device::PeerAccess). It is
/// an argument of an (unsafe) launch, whose caller ensures that there is such access until the scope has ended, and that
/// the memory's context is not closed before the launch.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, DeviceBuffer, Stream};
///
/// let (first, second) = (Context::new(0)?, Context::builder().dedicated().build()?);
/// let from = DeviceBuffer::from_slice(&second, &[1, 2, 3])?;
/// let mut to = DeviceBuffer::zeroed(&first, 3)?;
/// Stream::new(&first)?.scope(|s| {
///     let from: cuguard::scope::PeerRef<'_, i32> = s.bind_peer(&from)?;
///     s.copy_from_peer(&mut s.bind_mut(&mut to)?, &from)
/// })?;
/// assert_eq!(to.to_vec()?, [1, 2, 3]);
/// # Ok::<(), cuguard::Error>(())
/// ```
pub struct PeerRef<'scope, T> {
    /// Not a target of `Deref`: kernels and copies of this context must not get it.
    memory: DeviceRef<'scope, T>,
    state: Arc<ContextState>,
}

/// Device memory of another context that the work of a scope reads and writes; see [`Scope::bind_peer_mut`].
/// Dereferences to [`PeerRef`].
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, DeviceBuffer, Stream};
///
/// let (first, second) = (Context::new(0)?, Context::builder().dedicated().build()?);
/// let from = DeviceBuffer::from_slice(&first, &[1, 2, 3])?;
/// let mut to = DeviceBuffer::zeroed(&second, 3)?;
/// Stream::new(&first)?.scope(|s| {
///     let mut to: cuguard::scope::PeerMut<'_, i32> = s.bind_peer_mut(&mut to)?;
///     s.copy_to_peer(&mut to, &s.bind(&from)?)
/// })?;
/// assert_eq!(to.to_vec()?, [1, 2, 3]);
/// # Ok::<(), cuguard::Error>(())
/// ```
pub struct PeerMut<'scope, T> {
    inner: PeerRef<'scope, T>,
}

// SAFETY: stands for a `&mut [T]`. (`Sync` comes from `PeerRef`, which has the bounds of a `&[T]`.)
unsafe impl<T: Send> Send for PeerMut<'_, T> {}

impl<T> PeerRef<'_, T> {
    fn new(address: CUdeviceptr, len: usize, state: &Arc<ContextState>) -> Self {
        Self {
            memory: DeviceRef::new(address, len),
            state: state.clone(),
        }
    }

    pub(super) fn uses(&self) -> &Uses {
        self.memory.uses()
    }

    pub(super) fn address(&self) -> &CUdeviceptr {
        self.memory.address()
    }

    /// The number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// The device address.
    #[must_use]
    pub fn as_device_ptr(&self) -> DevicePointer<T>
    where
        T: DeviceCopy,
    {
        self.memory.as_device_ptr()
    }
}

impl<'scope, T> Deref for PeerMut<'scope, T> {
    type Target = PeerRef<'scope, T>;

    fn deref(&self) -> &PeerRef<'scope, T> {
        &self.inner
    }
}

impl<T> fmt::Debug for PeerRef<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = std::any::type_name::<T>();
        write!(f, "PeerRef({} x {name} of {:?})", self.len(), self.state)
    }
}

impl<T> fmt::Debug for PeerMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = std::any::type_name::<T>();
        write!(f, "PeerMut({} x {name} of {:?})", self.len(), self.state)
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Orders this stream after the allocation of the memory, and lets the teardown of its context wait for this scope.
    fn bind_peer_memory<T>(
        &self,
        operation: &'static str,
        memory: &BindableMemory<'_>,
    ) -> Result<PeerRef<'scope, T>> {
        // A graph would not notice that the other context is closed.
        let reason = "memory of another context cannot be bound in a capture";
        self.check_not_captured(operation, reason)?;
        let core = self.stream.stream_state();
        core.state().enter(operation)?;
        // Empty host memory has no context, and is never copied.
        let state = memory.state.unwrap_or(core.state());
        if memory.is_pooled && state.device != core.state().device {
            return Err(Error::Pool {
                operation,
                reason: format!(
                    "memory of a pool can only be accessed by its own device, {}, not by device {}",
                    state.device,
                    core.state().device
                ),
            });
        }
        let entered = state.enter(operation)?;
        self.end.keep_peer(state, PeerMemory::Device);
        if let Some(home) = memory.home {
            // It must be allocated, and cleared, before it is used here.
            for stream in self.end.streams() {
                stream.order_after_peer(operation, home)?;
            }
        }
        let address = memory.device_address(&entered)?;
        Ok(PeerRef::new(address, memory.len, state))
    }

    /// Binds device memory of another context, on this or another device, that this scope's work reads.
    ///
    /// If that context is closed within the scope, its teardown waits for the copies so far, and further ones fail with
    /// [`Error::ContextClosed`].
    ///
    /// ```
    /// # cuguard::sim::configure(cuguard::sim::Config::new().devices(2)).unwrap();
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, DeviceBuffer, Stream};
    ///
    /// let (first, second) = (Context::new(0)?, Context::new(1)?);
    /// let stream = Stream::new(&first)?;
    /// let from = DeviceBuffer::from_slice(&second, &[1, 2, 3])?;
    /// let mut to = DeviceBuffer::zeroed(&first, 3)?;
    /// stream.scope(|s| {
    ///     let from = s.bind_peer(&from)?;
    ///     s.copy_from_peer(&mut s.bind_mut(&mut to)?, &from)
    /// })?;
    /// assert_eq!(to.to_vec()?, [1, 2, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`]; [`Error::Pool`] for memory of a [`Pool`](crate::Pool) of another device; [`Error::Capture`]
    /// in a [capture](crate::Stream::capture); for memory that was allocated on a stream, any driver error when this stream
    /// is ordered after it.
    pub fn bind_peer<M: Bindable + 'env>(&self, memory: M) -> Result<PeerRef<'scope, M::Value>> {
        let memory = memory.into_memory();
        self.bind_peer_memory("Scope::bind_peer", &memory)
    }

    /// Binds device memory of another context, on this or another device, that this scope's work reads and writes.
    ///
    /// ```
    /// # cuguard::sim::configure(cuguard::sim::Config::new().devices(2)).unwrap();
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, DeviceBuffer, Stream};
    ///
    /// let (first, second) = (Context::new(0)?, Context::new(1)?);
    /// let stream = Stream::new(&first)?;
    /// let from = DeviceBuffer::from_slice(&first, &[1, 2, 3])?;
    /// let mut to = DeviceBuffer::zeroed(&second, 3)?;
    /// stream.scope(|s| {
    ///     let mut to = s.bind_peer_mut(&mut to)?;
    ///     assert_eq!(to.len(), 3);
    ///     s.copy_to_peer(&mut to, &s.bind(&from)?)
    /// })?;
    /// assert_eq!(to.to_vec()?, [1, 2, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`bind_peer`](Self::bind_peer).
    pub fn bind_peer_mut<M: BindableMut + 'env>(
        &self,
        memory: M,
    ) -> Result<PeerMut<'scope, M::Value>> {
        let memory = memory.into_memory();
        let inner = self.bind_peer_memory("Scope::bind_peer_mut", &memory)?;
        Ok(PeerMut { inner })
    }

    /// Copies from the memory of another context to that of this one (`cuMemcpyPeerAsync`).
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let (first, second) = (Context::new(0)?, Context::builder().dedicated().build()?);
    /// # let from = DeviceBuffer::from_slice(&second, &[1, 2, 3])?;
    /// # let mut to = DeviceBuffer::zeroed(&first, 2)?;
    /// Stream::new(&first)?.scope(|s| {
    ///     let part = s.bind_peer(from.slice(1..)?)?;
    ///     s.copy_from_peer(&mut s.bind_mut(&mut to)?, &part)
    /// })?;
    /// assert_eq!(to.to_vec()?, [2, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`], [`Error::ContextClosed`], or any other driver error.
    #[doc(alias = "cuMemcpyPeerAsync")]
    pub fn copy_from_peer<T: DeviceCopy>(
        &self,
        to: &mut DeviceMut<'scope, T>,
        from: &PeerRef<'scope, T>,
    ) -> Result<()> {
        const OPERATION: &str = "Scope::copy_from_peer";
        let used = [Used::Read(from.uses()), Used::Written(to.uses())];
        let (to, len) = (*to.address(), to.len());
        check_len(
            OPERATION,
            ("the source", from.len()),
            ("the destination", len),
        )?;
        let to = (to, self.core().state().context);
        self.copy_between::<T>(
            (OPERATION, used),
            len,
            &from.state,
            to,
            (*from.address(), from.state.context),
        )
    }

    /// Copies from the memory of this context to that of another one (`cuMemcpyPeerAsync`).
    ///
    /// ```
    /// # cuguard::sim::configure(cuguard::sim::Config::new().devices(2)).unwrap();
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let (first, second) = (Context::new(0)?, Context::new(1)?);
    /// # let stream = Stream::new(&first)?;
    /// let mut replica = DeviceBuffer::<u8>::zeroed(&second, 1000)?;
    /// stream.scope(|s| {
    ///     let mut scratch = s.zeroed(1000)?;
    ///     s.fill(&mut scratch, 7)?; // or a kernel
    ///     s.copy_to_peer(&mut s.bind_peer_mut(&mut replica)?, &scratch)
    /// })?;
    /// assert_eq!(replica.to_vec()?, [7; 1000]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`], [`Error::ContextClosed`], or any other driver error.
    #[doc(alias = "cuMemcpyPeerAsync")]
    pub fn copy_to_peer<T: DeviceCopy>(
        &self,
        to: &mut PeerMut<'scope, T>,
        from: &DeviceRef<'scope, T>,
    ) -> Result<()> {
        const OPERATION: &str = "Scope::copy_to_peer";
        check_len(
            OPERATION,
            ("the source", from.len()),
            ("the destination", to.len()),
        )?;
        let used = [Used::Read(from.uses()), Used::Written(to.uses())];
        let to = &to.inner;
        let from = (*from.address(), self.core().state().context);
        self.copy_between::<T>(
            (OPERATION, used),
            to.len(),
            &to.state,
            (*to.address(), to.state.context),
            from,
        )
    }

    /// Both sides have `len` values and are bound to this scope; `peer` is the context of one of them, the other one is
    /// that of the stream.
    fn copy_between<T>(
        &self,
        (operation, used): (&'static str, [Used<'_>; 2]),
        len: usize,
        peer: &ContextState,
        to: (CUdeviceptr, cuguard_driver::sys::CUcontext),
        from: (CUdeviceptr, cuguard_driver::sys::CUcontext),
    ) -> Result<()> {
        // Its teardown waits for this, and then for the stream.
        let _inside = peer.enter(operation)?;
        let bytes = len * mem::size_of::<T>();
        self.end.using(operation, &used, || {
            self.enqueue(operation, bytes, |stream| {
                // SAFETY: both sides have this many bytes and are borrowed until the stream is idle, also where one of the
                // contexts is closed: its teardown waits for the stream. They do not overlap: `to` is exclusive.
                unsafe { copy::peer_async(to, from, bytes, stream) }
            })
        })
    }
}
