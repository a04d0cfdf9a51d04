//! Safe asynchronous work: [`Stream::scope`], modelled on [`std::thread::scope`], and [`Stream::scope_over`] several streams.
//!
//! A scope ends only when its stream has finished all of the scope's work, whether the closure returns, fails or panics.
//! Until then everything that is bound stays borrowed: the borrow checker rejects a free or an access while the device
//! may use the memory. This folder must not know `chunked`.

mod argument;
mod bindable;
mod bound;
mod capture;
mod captured;
mod copies;
mod end;
mod fill;
mod graph;
#[cfg(doctest)]
mod graph_refusals;
mod host_call;
mod kernel;
#[cfg(doctest)]
mod kernel_refusals;
mod launch;
mod library_call;
mod over_streams;
#[cfg(doctest)]
mod over_streams_refusals;
mod parameter;
mod peer;
#[cfg(doctest)]
mod scope_refusals;
mod scratch;
mod signature;
mod uses;

use std::fmt;
use std::marker::PhantomData;

use cuguard_driver::result;
use cuguard_driver::sys::{CUdeviceptr, CUstream};
use cust_core::DeviceCopy;

use crate::core::{Failed, StreamState, same_context};
use crate::error::{Error, Result};
use crate::guards::{Event, GraphRange, Stream};
use bindable::BindableMemory;
use end::{ScopeEnd, conclude};

pub use argument::KernelArgument;
pub use bindable::{Bindable, BindableMut};
pub use bound::{DeviceMut, DeviceRef, HostMut, HostRef};
pub use graph::BoundGraph;
pub use kernel::{Kernel, UncheckedKernel};
pub use parameter::{Len, LenOf, Parameter, Value};
pub use peer::{PeerMut, PeerRef};
pub use signature::{Signature, SignatureArguments};

/// Enqueues work on the stream of a [`Stream::scope`].
///
/// Memory is bound once, shared or exclusively, and can then be used in any number of operations. They execute in stream
/// order, and the calls do not wait. (A download to pageable host memory may: the driver copies it synchronously. Use a
/// [`PinnedBuffer`](crate::PinnedBuffer) to avoid that.)
///
/// The borrow checker rejects access to what the device may still use:
///
/// ```compile_fail,E0502
/// # use cuguard::{Context, DeviceBuffer, Stream};
/// # let context = Context::new(0)?;
/// # let stream = Stream::new(&context)?;
/// # let (mut buffer, input) = (DeviceBuffer::<u8>::zeroed(&context, 3)?, [1, 2, 3]);
/// stream.scope(|s| {
///     let mut data = s.bind_mut(&mut buffer)?;
///     s.upload(&mut data, &s.bind_host(&input))?;
///     println!("{:?}", buffer.to_vec()?); // the copy is in flight
///     s.zero(&mut data)
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// After the scope the work is done:
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # use cuguard::{Context, DeviceBuffer, Stream};
/// # let context = Context::new(0)?;
/// # let stream = Stream::new(&context)?;
/// # let (mut buffer, input) = (DeviceBuffer::<u8>::zeroed(&context, 3)?, [1, 2, 3]);
/// stream.scope(|s| {
///     let mut data = s.bind_mut(&mut buffer)?;
///     s.upload(&mut data, &s.bind_host(&input))
/// })?;
/// println!("{:?}", buffer.to_vec()?);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope> {
    stream: &'env Stream,
    end: &'scope ScopeEnd,
    /// Invariant in both lifetimes, as in the standard library: `'scope` brands the bindings, so that none leaves the
    /// closure or is used in another scope; `'env` is how long that which they stand for is borrowed, at least until the
    /// scope has ended.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl Stream {
    /// Runs `f` with a [`Scope`] that enqueues work on this stream, and waits until the stream has finished it. Memory
    /// that the work uses stays borrowed until then.
    ///
    /// It also waits when `f` panics or fails. If the context is closed within the scope, the work so far is finished,
    /// and further work fails with [`Error::ContextClosed`]. If the driver fails for 20 seconds to report whether the
    /// work is done, and does not report an unusable context either, the process is aborted: the device might write to
    /// memory that is used for other things.
    ///
    /// An upload, a kernel, a download:
    ///
    /// ```no_run,standalone_crate
    /// use cuguard::{Context, DeviceBuffer, Module, Stream};
    ///
    /// let context = Context::new(0)?;
    /// let stream = Stream::new(&context)?;
    /// let module = Module::from_ptx(&context, include_str!("../../kernels/saxpy.ptx"))?;
    /// let saxpy = module.function("saxpy")?;
    ///
    /// let (input, mut output) = (vec![1.0_f32; 1000], vec![0.0; 1000]);
    /// let x = DeviceBuffer::from_slice(&context, &input)?;
    /// let mut y = DeviceBuffer::zeroed(&context, 1000)?;
    /// stream.scope(|s| {
    ///     let (input, mut output) = (s.bind_host(&input), s.bind_host_mut(&mut output));
    ///     let (x, mut y) = (s.bind(&x)?, s.bind_mut(&mut y)?);
    ///     s.upload(&mut y, &input)?;
    ///     // SAFETY: saxpy(a, x, y, count) reads `count` values of x and writes as many of y.
    ///     unsafe { s.launch(&saxpy, (4, 256), &[&2.0_f32, &x, &y, &1000_u64])? };
    ///     s.download(&mut output, &y)
    /// })?;
    /// assert_eq!(output, [3.0; 1000]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// Scopes on several streams, nested or on several threads, run concurrently; [events](Scope::wait) order their work
    /// where needed. For work on several streams with the same memory there is [`scope_over`](Self::scope_over).
    ///
    /// # Errors
    ///
    /// The error of `f`, else a driver error from the wait, which may come from earlier work.
    ///
    /// # Panics
    ///
    /// If a [host function](Scope::call) of the scope panicked, with its panic, when all work is done. An error of `f`, or of
    /// the wait, is logged then; without a logger it is printed to stderr.
    pub fn scope<'env, F, R>(&'env self, f: F) -> Result<R>
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Result<R>,
    {
        self.run_scope(f, Error::to_string)
    }

    /// As [`scope`](Self::scope), with an error type of the caller's: `?` in the closure converts the errors of this crate
    /// and others into it.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// # let mut buffer = DeviceBuffer::<f32>::zeroed(&context, 3)?;
    /// fn fill(stream: &Stream, buffer: &mut DeviceBuffer<f32>, text: &str) -> Result<(), Box<dyn std::error::Error>> {
    ///     stream.try_scope(|s| {
    ///         let value: f32 = text.parse()?;
    ///         Ok(s.fill(&mut s.bind_mut(buffer)?, value)?)
    ///     })
    /// }
    ///
    /// fill(&stream, &mut buffer, "1.5")?;
    /// assert!(fill(&stream, &mut buffer, "three").is_err());
    /// assert_eq!(buffer.to_vec()?, [1.5; 3]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`scope`](Self::scope).
    ///
    /// # Panics
    ///
    /// As [`scope`](Self::scope).
    pub fn try_scope<'env, F, R, E>(&'env self, f: F) -> Result<R, E>
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Result<R, E>,
        E: From<Error> + fmt::Debug,
    {
        self.run_scope(f, |error| format!("Stream::try_scope: {error:?}"))
    }

    /// `describe` is the text of an error that cannot be returned.
    fn run_scope<'env, F, R, E>(&'env self, f: F, describe: fn(&E) -> String) -> Result<R, E>
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Result<R, E>,
        E: From<Error>,
    {
        let mut end = ScopeEnd::new(self.stream_state());
        let result = f(&Scope {
            stream: self,
            end: &end,
            scope: PhantomData,
            env: PhantomData,
        });
        conclude(end.finish(), result, describe)
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// The stream of this scope; in a [capture](Stream::capture), the stream that `capture` was called on, on which work is
    /// executed and not captured.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// stream.scope(|s| {
    ///     assert_eq!(s.stream().as_raw(), stream.as_raw());
    ///     Ok(())
    /// })?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn stream(&self) -> &'env Stream {
        self.stream
    }

    /// The stream on which work is enqueued.
    pub(crate) fn core(&self) -> &'scope StreamState {
        self.end.core()
    }

    /// The same scope without the stream's lifetime, for `chunked`: with two lifetimes above `'scope`, the compiler would
    /// not infer the one of what the closure borrows.
    pub(crate) fn without_env(&self) -> Scope<'scope, 'scope> {
        Scope {
            stream: self.stream,
            end: self.end,
            scope: PhantomData,
            env: PhantomData,
        }
    }

    /// Checks that memory is of the stream's context, and orders this stream after the memory's allocation. Returns its
    /// address on the device.
    fn bind_memory(
        &self,
        operation: &'static str,
        memory: &BindableMemory<'env>,
        (size, exclusive): (usize, bool),
    ) -> Result<CUdeviceptr> {
        let core = self.core();
        if let Some(state) = memory.state {
            let memory_of = ("the memory", state);
            same_context::check(operation, ("the scope's stream", core.state()), memory_of)?;
        }
        if let Some(home) = memory.home
            && self.end.capture.is_none()
        {
            // It must be allocated, and cleared, before it is used here. It cannot be freed too early: it is borrowed
            // until this stream is idle.
            self.end.order_after(operation, home)?;
        }
        let entered = core.state().enter(operation)?;
        let address = memory.device_address(&entered)?;
        if let Some(capture) = &self.end.capture {
            let range = GraphRange {
                addresses: address..address + (memory.len * size) as u64,
                exclusive,
                // Ordered when the graph is launched.
                home: memory.home,
                is_pooled: memory.is_pooled,
            };
            // SAFETY: borrowed for `'env`, as the graph says that it is.
            unsafe { capture.add_memory(&range) };
        }
        Ok(address)
    }

    /// Binds device memory that this scope's work reads; also page-locked host memory, which the device accesses in place
    /// (zero copy).
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// let buffer = DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// let mut output = [0; 3];
    /// stream.scope(|s| {
    ///     let data = s.bind(&buffer)?;
    ///     s.download(&mut s.bind_host_mut(&mut output), &data)
    /// })?;
    /// assert_eq!(output, [1, 2, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::WrongContext`], [`Error::ContextClosed`]; for memory that was allocated on another stream, any driver
    /// error when this stream is ordered after it.
    pub fn bind<M: Bindable + 'env>(&self, memory: M) -> Result<DeviceRef<'scope, M::Value>> {
        let memory = memory.into_memory();
        let address = self.bind_memory("Scope::bind", &memory, (size_of::<M::Value>(), false))?;
        Ok(DeviceRef::new(address, memory.len))
    }

    /// Binds device memory that this scope's work reads and writes.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// let mut buffer = DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// stream.scope(|s| {
    ///     let mut data = s.bind_mut(&mut buffer)?;
    ///     s.fill(&mut data, 7)
    /// })?;
    /// assert_eq!(buffer.to_vec()?, [7; 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`bind`](Self::bind).
    pub fn bind_mut<M: BindableMut + 'env>(
        &self,
        memory: M,
    ) -> Result<DeviceMut<'scope, M::Value>> {
        let memory = memory.into_memory();
        let address =
            self.bind_memory("Scope::bind_mut", &memory, (size_of::<M::Value>(), true))?;
        Ok(DeviceMut::new(address, memory.len))
    }

    /// Binds host memory that this scope's work reads: pageable memory, or page-locked memory such as a
    /// [`PinnedBuffer`](crate::PinnedBuffer).
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// let (input, mut buffer) = (vec![1, 2, 3], DeviceBuffer::zeroed(&context, 3)?);
    /// stream.scope(|s| {
    ///     let input = s.bind_host(&input);
    ///     s.upload(&mut s.bind_mut(&mut buffer)?, &input)
    /// })?;
    /// assert_eq!(buffer.to_vec()?, input);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn bind_host<T: DeviceCopy>(&self, values: &'env [T]) -> HostRef<'scope, T> {
        HostRef::new(values)
    }

    /// Binds host memory that this scope's work reads and writes.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// let (mut host, mut buffer) = ([1, 2, 3], DeviceBuffer::zeroed(&context, 3)?);
    /// stream.scope(|s| {
    ///     let (mut host, mut data) = (s.bind_host_mut(&mut host), s.bind_mut(&mut buffer)?);
    ///     s.upload(&mut data, &host)?;
    ///     s.fill(&mut data, 7)?;
    ///     s.download(&mut host, &data)
    /// })?;
    /// assert_eq!(host, [7; 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn bind_host_mut<T: DeviceCopy>(&self, values: &'env mut [T]) -> HostMut<'scope, T> {
        HostMut::new(values)
    }

    /// Enqueues a copy or a fill of `bytes` bytes; nothing if there are none.
    pub(crate) fn enqueue(
        &self,
        operation: &'static str,
        bytes: usize,
        call: impl FnOnce(CUstream) -> result::Result,
    ) -> Result<()> {
        let core = self.core();
        let entered = core.state().enter(operation)?;
        if bytes == 0 {
            return Ok(());
        }
        // Before the call, even if it fails: the error may come from earlier work, with this work begun.
        self.end.expect_work();
        entered.check_bytes(call(core.handle()), bytes)
    }

    /// Enqueues work that may fail for lack of memory. It can be retried then: nothing has begun.
    pub(crate) fn try_enqueue(
        &self,
        operation: &'static str,
        call: impl FnOnce(CUstream) -> result::Result,
    ) -> Result<(), Failed> {
        let core = self.core();
        let entered = core.state().enter(operation)?;
        // As in `enqueue`.
        self.end.expect_work();
        Failed::check(&entered, call(core.handle()))
    }

    /// Records an event after all work enqueued so far.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// let mut buffer = cuguard::DeviceBuffer::<u8>::zeroed(&context, 3)?;
    /// let cleared = cuguard::Event::new(&context)?;
    /// stream.scope(|s| {
    ///     s.zero(&mut s.bind_mut(&mut buffer)?)?;
    ///     s.record(&cleared)
    /// })?;
    /// assert!(cleared.is_complete()?);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::WrongContext`], [`Error::ContextClosed`], [`Error::Capture`] in a capture, or any other driver error.
    #[doc(alias = "cuEventRecord")]
    pub fn record(&self, event: &Event) -> Result<()> {
        const OPERATION: &str = "Scope::record";
        let reason =
            "an event cannot be recorded in a capture; record it after the launch of the graph";
        self.check_not_captured(OPERATION, reason)?;
        event.record_on(OPERATION, self.core())
    }

    /// Work enqueued from now on waits until the event is complete. The calling thread does not wait.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Event, Stream};
    /// # let context = Context::new(0)?;
    /// let (first, second) = (Stream::new(&context)?, Stream::new(&context)?);
    /// let uploaded = Event::without_timing(&context)?;
    /// first.scope(|s1| {
    ///     // ... s1.upload(...) ...
    ///     s1.record(&uploaded)?;
    ///     second.scope(|s2| {
    ///         s2.wait(&uploaded)
    ///         // ... work that needs the upload ...
    ///     })
    /// })?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::WrongContext`], [`Error::ContextClosed`], [`Error::Capture`] in a capture, or any other driver error.
    #[doc(alias = "cuStreamWaitEvent")]
    pub fn wait(&self, event: &Event) -> Result<()> {
        const OPERATION: &str = "Scope::wait";
        let reason =
            "an event cannot be waited for in a capture; wait before the launch of the graph";
        self.check_not_captured(OPERATION, reason)?;
        event.enqueue_wait(OPERATION, self.core())
    }
}
