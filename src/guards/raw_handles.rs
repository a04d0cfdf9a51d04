//! Streams, events and modules of other code: to take ownership of one (`from_raw`), to borrow one (`borrow_raw`), to
//! release ownership (`into_raw`); and the default stream.
//!
//! The registry records an owned handle, with the call site of `from_raw`, and no borrowed ones. Both keep the
//! [`Context`] open.

use std::sync::Arc;

use cuguard_driver::result::stream;
use cuguard_driver::sys::{CUevent, CUmodule, CUstream};

use crate::core::{ListedHandle, OwnedResource, Owner, StreamState};
use crate::error::{Error, Result};
use crate::guards::{Context, Event, Module, Stream};
use cuguard_registry::{Entry, Key, ResourceKind};

/// Owns or borrows a handle. No driver call is needed, so what `into_raw` released can be owned again whatever the driver
/// does.
#[track_caller]
fn resource(
    operation: &'static str,
    context: &Context,
    (kind, handle, argument): (ResourceKind, usize, &'static str),
    own: bool,
) -> Result<OwnedResource> {
    if handle == 0 {
        return Err(Error::NullHandle {
            operation,
            argument,
            reason: "is a null handle",
        });
    }
    let Some(_inside) = context.state().try_enter() else {
        // Not closed, because it is borrowed.
        return Err(Error::ProcessEnding { operation });
    };
    let owner = Owner::from(context.open());
    let key = Key::new(kind, handle as u64);
    Ok(match own {
        true => OwnedResource::from_raw(owner, key, Entry::of_handle("")),
        false => OwnedResource::borrowed(owner, key),
    })
}

impl Stream {
    /// # Safety
    ///
    /// The stream is alive, or a default stream.
    #[track_caller]
    unsafe fn of_handle(
        operation: &'static str,
        context: &Context,
        handle: CUstream,
        own: bool,
    ) -> Result<Self> {
        let state = context.state();
        let is_default = handle.0 <= CUstream::PER_THREAD.0;
        if own && is_default {
            return Err(Error::NullHandle {
                operation,
                argument: "the stream",
                reason: "is a default stream, which cannot be owned; see Stream::default_stream",
            });
        }
        if !is_default {
            let entered = state.enter(operation)?;
            // SAFETY: the stream is alive, as the caller ensures.
            let of = entered.check(unsafe { stream::context(handle) })?;
            if of != state.context {
                return Err(Error::ForeignHandle {
                    operation,
                    argument: "the stream",
                    context: state.number,
                    device: state.device,
                });
            }
        }
        // Handle 0 is the same stream as `LEGACY`, and means "no stream" in records.
        let handle = if handle.is_null() {
            CUstream::LEGACY
        } else {
            handle
        };
        let of = (ResourceKind::Stream, handle.0, "the stream");
        let owned = resource(operation, context, of, own)?;
        let listed = ListedHandle::new(state, |state| &state.streams, owned.key());
        Ok(Self::from_state(Arc::new(StreamState::new(listed, owned))))
    }

    /// The default stream of the context: the *legacy* one, with which all [blocking](crate::stream::StreamBuilder::blocking)
    /// streams synchronize implicitly. Nothing is created, recorded or destroyed.
    ///
    /// `cust`, the CUDA runtime and many libraries work on it unless another stream is selected.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// use cuguard::{DeviceBuffer, Stream};
    ///
    /// let stream = Stream::default_stream(&context)?;
    /// let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 3)?;
    /// stream.scope(|s| s.fill(&mut s.bind_mut(&mut buffer)?, 7))?;
    /// assert_eq!(buffer.to_vec()?, [7; 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// The *per-thread* default stream is a different stream on every thread, so no guard that can be sent to another
    /// thread can stand for it: create a stream for each thread instead, or see [`borrow_raw`](Self::borrow_raw).
    ///
    /// # Errors
    ///
    /// [`Error::ProcessEnding`], or any other driver error.
    pub fn default_stream(context: &Context) -> Result<Self> {
        // SAFETY: it lives as long as its context.
        unsafe { Self::of_handle("Stream::default_stream", context, CUstream::LEGACY, false) }
    }

    /// Takes ownership of a stream that [`into_raw`](Self::into_raw) released or that other code created.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// use cuguard::Stream;
    ///
    /// let handle = Stream::new(&context)?.into_raw().expect("no buffer shares it");
    /// // SAFETY: released above, in the same context.
    /// let stream = unsafe { Stream::from_raw(&context, handle)? };
    /// assert_eq!(context.live_count(), 1);
    /// drop(stream); // destroys it
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// The stream is alive, and nothing else destroys it or uses it after this guard, all buffers that were allocated on it
    /// and all graphs that captured such a buffer are dropped.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignHandle`] if it is a stream of another context, [`Error::NullHandle`] for a default stream, which
    /// cannot be owned; [`Error::ProcessEnding`], or any other driver error. The caller still owns the stream then.
    #[track_caller]
    pub unsafe fn from_raw(context: &Context, handle: CUstream) -> Result<Self> {
        // SAFETY: as the caller ensures.
        unsafe { Self::of_handle("Stream::from_raw", context, handle, true) }
    }

    /// Borrows a stream of other code, such as that of a library: it is never destroyed here.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let owner = cuguard::Stream::new(&context)?;
    /// # let handle = owner.as_raw();
    /// let mut buffer = cuguard::DeviceBuffer::<u8>::zeroed(&context, 3)?;
    /// // SAFETY: the stream of the library outlives the guard.
    /// let stream = unsafe { cuguard::Stream::borrow_raw(&context, handle)? };
    /// stream.scope(|s| s.fill(&mut s.bind_mut(&mut buffer)?, 7))?;
    /// drop(stream); // the library's stream stays
    /// # owner.synchronize()?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// The stream stays alive until this guard, all buffers that were allocated on it and all graphs that captured such a
    /// buffer are dropped (for ever, if one of them is forgotten), and freed where they are dropped in a host function (see
    /// [`Context::borrow_raw`]). (`CUstream::NULL` and `CUstream::LEGACY` are the
    /// [default stream](Self::default_stream), which lives as long as its context.)
    ///
    /// `CUstream::PER_THREAD` is another stream on every thread: the guard, its scopes and the buffers that were
    /// allocated on it are then used and dropped on this thread alone.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignHandle`] if it is a stream of another context; [`Error::ProcessEnding`], or any other driver error.
    pub unsafe fn borrow_raw(context: &Context, handle: CUstream) -> Result<Self> {
        // SAFETY: as the caller ensures.
        unsafe { Self::of_handle("Stream::borrow_raw", context, handle, false) }
    }

    /// Releases ownership of the stream and returns its handle; null, which is also the handle of the default stream, if the
    /// context is closed. The record stays in the registry, marked as escaped. The caller must destroy the stream, or pass it
    /// to [`from_raw`](Self::from_raw).
    ///
    /// A borrowed stream and the default stream have no record: this returns the handle, which the caller does not own.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// use cuguard::driver::api;
    ///
    /// let handle = cuguard::Stream::new(&context)?.into_raw().expect("no buffer shares it");
    /// // SAFETY: released above.
    /// assert!(unsafe { api::cuStreamDestroy_v2(handle) }.is_success());
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The guard itself, if buffers that were allocated on the stream are alive: they are freed on it.
    pub fn into_raw(self) -> std::result::Result<CUstream, Self> {
        self.into_state().map(StreamState::into_raw)
    }
}

impl Event {
    /// Takes ownership of an event that [`into_raw`](Self::into_raw) released or that other code created.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// use cuguard::Event;
    ///
    /// let handle = Event::new(&context)?.into_raw();
    /// // SAFETY: released above, in the same context.
    /// let event = unsafe { Event::from_raw(&context, handle)? };
    /// assert!(event.is_complete()?);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// The event is alive and of this context, and nothing else destroys it, or uses it after this guard is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::NullHandle`], [`Error::ProcessEnding`]. The caller still owns the event then.
    #[track_caller]
    pub unsafe fn from_raw(context: &Context, handle: CUevent) -> Result<Self> {
        let of = (ResourceKind::Event, handle.0, "the event");
        resource("Event::from_raw", context, of, true).map(Self::foreign)
    }

    /// Borrows an event of other code: it is never destroyed here.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// # let owner = cuguard::Event::new(&context)?;
    /// # let handle = owner.as_raw();
    /// // SAFETY: the library's event outlives this guard, and is of this context.
    /// let ready = unsafe { cuguard::Event::borrow_raw(&context, handle)? };
    /// stream.wait_for(&ready)?; // work after this waits for the library's
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// The event is of this context, and stays alive until this guard is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::NullHandle`], [`Error::ProcessEnding`].
    pub unsafe fn borrow_raw(context: &Context, handle: CUevent) -> Result<Self> {
        let of = (ResourceKind::Event, handle.0, "the event");
        resource("Event::borrow_raw", context, of, false).map(Self::foreign)
    }

    /// Releases ownership of the event and returns its handle; null if the context is closed. The record stays in the
    /// registry, marked as escaped. The caller must destroy the event, or pass it to [`from_raw`](Self::from_raw).
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// use cuguard::driver::api;
    ///
    /// let handle = cuguard::Event::new(&context)?.into_raw();
    /// assert_eq!(context.snapshot().escaped.len(), 1);
    /// // SAFETY: released above.
    /// assert!(unsafe { api::cuEventDestroy_v2(handle) }.is_success());
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use = "the event leaks without its handle"]
    pub fn into_raw(self) -> CUevent {
        CUevent(self.owned.into_raw() as usize)
    }
}

impl Module {
    /// Takes ownership of a module that [`into_raw`](Self::into_raw) released or that other code loaded.
    ///
    /// ```standalone_crate
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// use cuguard::Module;
    ///
    /// let text = include_str!("../../kernels/saxpy.ptx");
    /// let handle = Module::from_ptx(&context, text)?.into_raw();
    /// // SAFETY: released above, in the same context.
    /// let module = unsafe { Module::from_raw(&context, handle)? };
    /// assert!(module.function("saxpy").is_ok());
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// The module is loaded in this context, and nothing else unloads it, or uses it after this guard is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::NullHandle`], [`Error::ProcessEnding`]. The caller still owns the module then.
    #[track_caller]
    pub unsafe fn from_raw(context: &Context, handle: CUmodule) -> Result<Self> {
        let of = (ResourceKind::Module, handle.0, "the module");
        let owned = resource("Module::from_raw", context, of, true)?;
        Ok(Self::from_owned(owned))
    }

    /// Borrows a module of other code: it is never unloaded here.
    ///
    /// ```standalone_crate
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let owner = cuguard::Module::from_ptx(&context, include_str!("../../kernels/saxpy.ptx"))?;
    /// # let handle = owner.as_raw();
    /// // SAFETY: the library's module outlives this guard, and is of this context.
    /// let module = unsafe { cuguard::Module::borrow_raw(&context, handle)? };
    /// let saxpy = module.function("saxpy")?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// The module is of this context, and stays loaded until this guard is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::NullHandle`], [`Error::ProcessEnding`].
    pub unsafe fn borrow_raw(context: &Context, handle: CUmodule) -> Result<Self> {
        let of = (ResourceKind::Module, handle.0, "the module");
        let owned = resource("Module::borrow_raw", context, of, false)?;
        Ok(Self::from_owned(owned))
    }

    /// Releases ownership of the module and returns its handle; null if the context is closed. The record stays in the
    /// registry, marked as escaped. The caller must unload the module, or pass it to [`from_raw`](Self::from_raw).
    ///
    /// ```standalone_crate
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let text = include_str!("../../kernels/saxpy.ptx");
    /// use cuguard::Module;
    ///
    /// let handle = Module::from_ptx(&context, text)?.into_raw();
    /// assert_eq!(context.snapshot().escaped.len(), 1);
    /// // SAFETY: released above.
    /// let module = unsafe { Module::from_raw(&context, handle)? };
    /// assert!(context.snapshot().escaped.is_empty());
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use = "the module leaks without its handle"]
    pub fn into_raw(self) -> CUmodule {
        CUmodule(self.owned.into_raw() as usize)
    }
}
