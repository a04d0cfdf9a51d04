//! Safe asynchronous work: [`Stream::scope`], in the manner of [`std::thread::scope`].
//!
//! A scope ends only when its stream has done all its work, whether the closure returned, answered
//! an error or panicked. Until then everything that was bound stays borrowed, so the borrow checker
//! sees to it that nothing is freed or looked at that the device still works on.

mod bound;
mod end;
mod fill;
mod launch;
#[cfg(doctest)]
mod scope_refusals;

use std::marker::PhantomData;

use cuguard_driver::result::{self, copy};
use cuguard_driver::sys::CUstream;
use cust::memory::DeviceCopy;

use crate::core::{Failed, StreamState, log_error, same_context};
use crate::error::{Error, Result};
use crate::guards::{Event, Stream};
use bound::Place;
use end::End;

pub use bound::{Bindable, DeviceMut, DeviceRef, HostMut, HostRef};
pub use launch::KernelArgument;

/// The inside of a [`Stream::scope`]: work is given to the stream through it.
///
/// Memory is bound once, shared or exclusively, and can then be used in as many operations as one
/// likes. All of them happen in the order in which they are given to the stream; none of them waits.
/// (One may: a download to ordinary memory, which the driver does not do in passing. Memory of a
/// [`PinnedBuffer`](crate::PinnedBuffer) has no such detour.)
///
/// The borrow checker refuses what the device could still be working on:
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
/// After the scope it is done:
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
    end: &'scope End<'env>,
    /// Invariant in both, as in the standard library: what is bound lives exactly as long as this
    /// scope, and what it is bound from longer.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl Stream {
    /// Runs `f` with a [`Scope`] through which it gives work to this stream, and waits until the
    /// stream has done all of it. Memory that the work uses stays borrowed until then.
    ///
    /// It waits also when `f` panics or answers an error. When the context is closed or dropped
    /// within the scope, the work so far is done, and further work is an
    /// [`Error::ContextClosed`]. On a driver that refuses for long to say whether the work is done,
    /// and does not say either that the context is lost, the process is aborted: to go on would let
    /// the device write into memory that is used for other things.
    ///
    /// Up, through a kernel, and down again:
    ///
    /// ```no_run
    /// use cuguard::{Context, DeviceBuffer, Module, Stream};
    ///
    /// let context = Context::new(0)?;
    /// let stream = Stream::new(&context)?;
    /// let module = Module::from_ptx(&context, include_str!("../kernels/saxpy.ptx"))?;
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
    ///     unsafe { s.launch(&saxpy, 4, 256, 0, &[&2.0_f32, &x, &y, &1000_u64])? };
    ///     s.download(&mut output, &y)
    /// })?;
    /// assert_eq!(output, [3.0; 1000]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// Scopes on several streams at once, one within the other or on several threads, work side by
    /// side; [events](Scope::wait) put their work in order where it must be.
    ///
    /// # Errors
    ///
    /// What `f` answers, else what the driver says when the work is waited for: it may be about
    /// work that failed earlier.
    pub fn scope<'env, F, R>(&'env self, f: F) -> Result<R>
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Result<R>,
    {
        let end = End::new(self.core());
        let answer = f(&Scope {
            stream: self,
            end: &end,
            scope: PhantomData,
            env: PhantomData,
        });
        let waited = end.reach();
        match (answer, waited) {
            (Ok(answer), waited) => waited.map(|()| answer),
            (Err(error), Ok(())) => Err(error),
            (Err(error), Err(later)) => {
                log_error(&later);
                Err(error)
            }
        }
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// The stream of this scope.
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

    pub(crate) fn core(&self) -> &'env StreamState {
        self.stream.core()
    }

    /// The same scope for a closure that knows nothing of the stream's lifetime. With two lifetimes
    /// above `'scope`, the compiler would not find the one of what the closure borrows.
    pub(crate) fn by_itself(&self) -> Scope<'scope, 'scope> {
        Scope {
            stream: self.stream,
            end: self.end,
            scope: PhantomData,
            env: PhantomData,
        }
    }

    /// Memory of the stream's own context, whatever stream it was allocated on.
    fn admit(&self, operation: &'static str, place: &Place<'_>) -> Result<()> {
        let core = self.core();
        let memory_of = ("the memory", place.state);
        same_context::check(operation, ("the scope's stream", core.state()), memory_of)?;
        match place.home {
            // It must have been allocated, and cleared, before it is used here. It cannot be freed
            // too early: it is borrowed until this stream has been waited for.
            Some(home) => core.order_after(operation, home),
            None => core.state().enter(operation).map(drop),
        }
    }

    /// Binds memory on the device that this scope's work reads.
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
    /// [`Error::WrongContext`], [`Error::ContextClosed`]; for memory that was allocated on another
    /// stream, what the driver says when this one is put in order after it.
    pub fn bind<M: Bindable>(&self, memory: &'scope M) -> Result<DeviceRef<'scope, M::Value>> {
        let place = memory.place();
        self.admit("Scope::bind", &place)?;
        Ok(DeviceRef::new(place.address, place.len))
    }

    /// Binds memory on the device that this scope's work reads and writes.
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
    pub fn bind_mut<M: Bindable>(
        &self,
        memory: &'scope mut M,
    ) -> Result<DeviceMut<'scope, M::Value>> {
        let place = memory.place();
        self.admit("Scope::bind_mut", &place)?;
        Ok(DeviceMut::new(place.address, place.len))
    }

    /// Binds host memory that this scope's work reads: ordinary memory, or page-locked memory such
    /// as a [`PinnedBuffer`](crate::PinnedBuffer).
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
    pub fn bind_host<T: DeviceCopy>(&self, values: &'scope [T]) -> HostRef<'scope, T> {
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
    pub fn bind_host_mut<T: DeviceCopy>(&self, values: &'scope mut [T]) -> HostMut<'scope, T> {
        HostMut::new(values)
    }

    /// Gives work to the stream. For a copy or a fill, `bytes` says how much it is; there is
    /// nothing to do where there are none.
    pub(crate) fn submit(
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
        // Also when the call is refused: an error may come from earlier work, with this begun.
        self.end.expect_work();
        entered.check_bytes(call(core.handle()), bytes)
    }

    /// Gives work to the stream that may find too little memory. It can be asked for again then:
    /// nothing was begun.
    pub(crate) fn ask(
        &self,
        operation: &'static str,
        call: impl FnOnce(CUstream) -> result::Result,
    ) -> Result<(), Failed> {
        let core = self.core();
        let entered = core.state().enter(operation)?;
        // As in `submit`.
        self.end.expect_work();
        Failed::check(&entered, call(core.handle()))
    }

    /// Copies from the host to the device.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, PinnedBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// let input = PinnedBuffer::from_slice(&context, &[1.0, 2.0])?;
    /// let mut buffer = DeviceBuffer::zeroed(&context, 2)?;
    /// stream.scope(|s| s.upload(&mut s.bind_mut(&mut buffer)?, &s.bind_host(&input)))?;
    /// assert_eq!(buffer.to_vec()?, [1.0, 2.0]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`], [`Error::ContextClosed`], or what the driver says.
    pub fn upload<T: DeviceCopy>(
        &self,
        to: &mut DeviceMut<'scope, T>,
        from: &HostRef<'scope, T>,
    ) -> Result<()> {
        const OPERATION: &str = "Scope::upload";
        check_len(OPERATION, to.len(), from.len())?;
        let (to, from, bytes) = (*to.address(), from.as_ptr().cast(), to.bytes());
        self.submit(OPERATION, bytes, |stream| {
            // SAFETY: both sides have this many bytes and are borrowed until the stream has been
            // waited for.
            unsafe { copy::htod_async(to, from, bytes, stream) }
        })
    }

    /// Copies from the device to the host.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, PinnedBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// let buffer = DeviceBuffer::from_slice(&context, &[1.0, 2.0])?;
    /// let mut output = PinnedBuffer::zeroed(&context, 2)?;
    /// stream.scope(|s| s.download(&mut s.bind_host_mut(&mut output), &s.bind(&buffer)?))?;
    /// assert_eq!(*output, [1.0, 2.0]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`], [`Error::ContextClosed`], or what the driver says.
    pub fn download<T: DeviceCopy>(
        &self,
        to: &mut HostMut<'scope, T>,
        from: &DeviceRef<'scope, T>,
    ) -> Result<()> {
        const OPERATION: &str = "Scope::download";
        check_len(OPERATION, from.len(), to.len())?;
        let (from, to, bytes) = (*from.address(), to.as_mut_ptr().cast(), from.bytes());
        self.submit(OPERATION, bytes, |stream| {
            // SAFETY: both sides have this many bytes and are borrowed until the stream has been
            // waited for. What comes is valid: it was when it was put there.
            unsafe { copy::dtoh_async(to, from, bytes, stream) }
        })
    }

    /// Copies from one place on the device to another.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// let from = DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// let mut to = DeviceBuffer::zeroed(&context, 3)?;
    /// stream.scope(|s| s.copy(&mut s.bind_mut(&mut to)?, &s.bind(&from)?))?;
    /// assert_eq!(to.to_vec()?, [1, 2, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`], [`Error::ContextClosed`], or what the driver says.
    pub fn copy<T: DeviceCopy>(
        &self,
        to: &mut DeviceMut<'scope, T>,
        from: &DeviceRef<'scope, T>,
    ) -> Result<()> {
        const OPERATION: &str = "Scope::copy";
        check_len(OPERATION, to.len(), from.len())?;
        let (to, from, bytes) = (*to.address(), *from.address(), to.bytes());
        self.submit(OPERATION, bytes, |stream| {
            // SAFETY: both sides have this many bytes, and are borrowed until the stream has been
            // waited for. They do not overlap: `to` is exclusive.
            unsafe { copy::dtod_async(to, from, bytes, stream) }
        })
    }

    /// Puts an event behind all that was given to the stream so far.
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
    /// [`Error::WrongContext`], [`Error::ContextClosed`], or what the driver says.
    pub fn record(&self, event: &Event) -> Result<()> {
        event.record_on("Scope::record", self.core())
    }

    /// What is given to the stream from now on waits until the event has happened. The calling
    /// thread does not wait.
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
    ///         // ... what needs the upload to be done ...
    ///     })
    /// })?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::WrongContext`], [`Error::ContextClosed`], or what the driver says.
    pub fn wait(&self, event: &Event) -> Result<()> {
        event.enqueue_wait("Scope::wait", self.core())
    }
}

fn check_len(operation: &'static str, expected: usize, actual: usize) -> Result<()> {
    if actual == expected {
        return Ok(());
    }
    Err(Error::LengthMismatch {
        operation,
        expected,
        actual,
    })
}
