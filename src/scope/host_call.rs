//! Host functions: closures that a stream calls between the scope's other work.

use cuguard_driver::result::stream;
use cust_core::DeviceCopy;

use super::Scope;
use super::bound::HostRef;
use super::uses::Used;
use crate::core::host_call::{run_each, run_once};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Calls `f` on a thread of the driver when all work enqueued on this stream so far is done. Work enqueued later on it
    /// waits for the call.
    ///
    /// `f` may borrow what lives longer than the scope. No CUDA call is permitted in it: operations fail with
    /// `CUDA_ERROR_NOT_PERMITTED`, and guards that are dropped there are freed later. If it panics, later work goes on,
    /// and the panic continues at the end of the scope. After a fault on the device it may not be called at all; it is
    /// dropped at the end of the scope then.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?;
    /// let (sender, progress) = std::sync::mpsc::channel();
    /// stream.scope(|s| {
    ///     let mut data = s.bind_mut(&mut buffer)?;
    ///     for step in 0..3_u8 {
    ///         s.fill(&mut data, step)?;
    ///         let sender = &sender;
    ///         s.call(move || sender.send(step).unwrap())?;
    ///     }
    ///     Ok(())
    /// })?;
    /// assert_eq!(progress.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], [`Error::Capture`] in a capture, or any other driver error.
    #[doc(alias("add_callback", "cuLaunchHostFunc"))]
    pub fn call(&self, f: impl FnOnce() + Send + 'env) -> Result<()> {
        self.call_once("Scope::call", f)
    }

    /// As [`call`](Self::call), with values on the host, such as those of a [`download`](Self::download) that is enqueued
    /// before.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use std::sync::atomic::{AtomicU32, Ordering};
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// let buffer = DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// let (mut values, sum) = ([0; 3], AtomicU32::new(0));
    /// stream.scope(|s| {
    ///     let mut values = s.bind_host_mut(&mut values);
    ///     s.download(&mut values, &s.bind(&buffer)?)?;
    ///     s.call_with(&values, |values| sum.store(values.iter().sum(), Ordering::Relaxed))
    /// })?;
    /// assert_eq!(sum.into_inner(), 6);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call).
    pub fn call_with<T: DeviceCopy + Sync + 'env>(
        &self,
        values: &HostRef<'scope, T>,
        f: impl FnOnce(&[T]) + Send + 'env,
    ) -> Result<()> {
        const OPERATION: &str = "Scope::call_with";
        let used = [Used::Read(values.uses())];
        let values = SharedSlice(values.as_slice_ptr());
        let call = move || {
            // The whole, which is `Send`, and not its field.
            let values = values;
            // SAFETY: the values are borrowed for longer than the scope, which drops this closure before it ends. All other
            // work on them is of this scope and so ordered before or after this call, on whichever of its streams: a copy
            // from memory that is not page-locked may read them while it is enqueued, but only reads; a copy to them
            // returns, or is ordered, after this call.
            f(unsafe { &*values.0 });
        };
        self.end
            .using(OPERATION, &used, || self.call_once(OPERATION, call))
    }

    /// As [`call`](Self::call), for a closure that can be called more than once: in a [capture](crate::Stream::capture) it
    /// becomes a part of the graph, and is called at each launch. A panic continues at the end of the scope that launched
    /// the graph.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// let mut count = 0;
    /// let (graph, ()) = stream.capture(|c| c.call_each(|| count += 1))?;
    /// let mut exec = graph.instantiate()?;
    /// exec.launch(&stream)?;
    /// exec.launch(&stream)?;
    /// drop(exec);
    /// assert_eq!(count, 2);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], or any other driver error.
    pub fn call_each(&self, f: impl FnMut() + Send + 'env) -> Result<()> {
        const OPERATION: &str = "Scope::call_each";
        if self.end.capture.is_none() {
            return self.call_once(OPERATION, f);
        }
        let core = self.core();
        let entered = core.state().enter(OPERATION)?;
        // SAFETY: what it borrows lives for `'env`, longer than the graph.
        let call = unsafe { self.end.keep_call(Box::new(f)) };
        // SAFETY: the stream is alive. The argument is a number, which is valid forever.
        let enqueued =
            unsafe { stream::launch_host_func(core.handle(), run_each, call.each_argument()) };
        entered.check(enqueued)
    }

    fn call_once(&self, operation: &'static str, f: impl FnOnce() + Send + 'env) -> Result<()> {
        let reason = "a closure that is called once cannot be captured; see Scope::call_each";
        self.check_not_captured(operation, reason)?;
        let core = self.core();
        let entered = core.state().enter(operation)?;
        let mut f = Some(f);
        let once = Box::new(move || {
            if let Some(f) = f.take() {
                f();
            }
        });
        // SAFETY: what it borrows lives longer than the scope.
        let call = unsafe { self.end.keep_call(once) };
        // As in `enqueue`.
        self.end.expect_work();
        // SAFETY: the stream is alive. The argument is for this function and used once; the end of the scope waits for the
        // call, or ensures that it does nothing.
        let enqueued =
            unsafe { stream::launch_host_func(core.handle(), run_once, call.once_argument()) };
        entered.check(enqueued)
    }
}

/// Values that another thread reads.
struct SharedSlice<T>(*const [T]);

// SAFETY: stands for a `&[T]`.
unsafe impl<T: Sync> Send for SharedSlice<T> {}
