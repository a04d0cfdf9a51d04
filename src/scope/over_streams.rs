//! Scopes over several streams: work on them overlaps, and uses the same bindings.

use std::array;
use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::sync::Arc;

use super::Scope;
use super::end::{ScopeEnd, conclude};
use super::uses::StreamGroup;
use crate::core::{log_error, same_context};
use crate::error::{Error, Result};
use crate::guards::Stream;

/// What the streams of a scope have in flight. Waits for all of them on drop, also by a panic, before any of them frees.
struct Ends<const N: usize>([ScopeEnd; N]);

impl<const N: usize> Ends<N> {
    fn new(operation: &'static str, streams: [&Stream; N]) -> Result<Self> {
        const { assert!(N != 0, "a scope has one stream at least") };
        let states = streams.map(Stream::stream_state);
        for other in &states[1..] {
            let first_of = ("the first stream", states[0].state());
            same_context::check(operation, first_of, ("another stream", other.state()))?;
        }
        let mut groups = StreamGroup::of_each(&states.map(Arc::clone).into());
        Ok(Self(states.map(|state| {
            let mut end = ScopeEnd::new(state);
            // One stream is in order by itself.
            end.beside = groups.next().filter(|_| N > 1);
            end
        })))
    }
}

impl<const N: usize> Drop for Ends<N> {
    fn drop(&mut self) {
        let (waited, panic) = ScopeEnd::finish_all(&mut self.0);
        if let Err(error) = waited {
            log_error(&error);
        }
        // The panic that drops this goes on; that of a host function was printed when it began.
        mem::forget(panic);
    }
}

impl Stream {
    /// Runs `f` with a [`Scope`] for each of several streams of one context, and waits until all of them have finished its
    /// work. What is bound by one of the scopes can be used by all of them.
    ///
    /// Work on different streams overlaps, but where it uses the same memory: work that writes what is bound runs after earlier
    /// work with it on the other streams, and work that reads it runs after what they have written. So the outcome is that of one
    /// stream, in the order of the calls. The program needs no events: the scope records one after each operation. (A closure of
    /// [`call`](Scope::call) uses nothing that is bound; it runs after the earlier work of its own stream.)
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, DeviceBuffer, PinnedBuffer, Stream};
    ///
    /// let context = Context::new(0)?;
    /// let (copies, kernels) = (Stream::new(&context)?, Stream::new(&context)?);
    /// let input = PinnedBuffer::from_slice(&context, &[1, 2, 3, 4])?;
    /// let mut output = PinnedBuffer::<u32>::zeroed(&context, 4)?;
    /// let (mut x, mut y) = (DeviceBuffer::zeroed(&context, 4)?, DeviceBuffer::zeroed(&context, 4)?);
    ///
    /// Stream::scope_over([&copies, &kernels], |[copies, kernels]| {
    ///     let (mut x, mut y) = (copies.bind_mut(&mut x)?, kernels.bind_mut(&mut y)?);
    ///     copies.upload(&mut x, &copies.bind_host(&input))?;
    ///     kernels.copy(&mut y, &x)?; // or a launch: it runs after the upload
    ///     copies.download(&mut copies.bind_host_mut(&mut output), &y)
    /// })?;
    /// assert_eq!(*output, [1, 2, 3, 4]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// A kernel counts as writing what [`Scope::launch`] passes as [`DeviceMut`](crate::scope::DeviceMut): pass `&*x` for what it
    /// only reads. What is [bound](Scope::bind) shared is read only, and orders nothing.
    ///
    /// [Events](Scope::record) order the streams for other reasons, and the work that a [library](Scope::call_library) enqueues.
    /// For pieces of a slice that does not fit into device memory, see [`Chunked`](crate::Chunked).
    ///
    /// # Errors
    ///
    /// [`Error::WrongContext`] where the streams are of several contexts; else as [`scope`](Self::scope), the error of the first
    /// stream that has one.
    ///
    /// # Panics
    ///
    /// As [`scope`](Self::scope).
    pub fn scope_over<'env, const N: usize, F, R>(streams: [&'env Self; N], f: F) -> Result<R>
    where
        F: for<'scope> FnOnce([&'scope Scope<'scope, 'env>; N]) -> Result<R>,
    {
        run("Stream::scope_over", streams, f, Error::to_string)
    }

    /// As [`scope_over`](Self::scope_over), with an error type of the caller's, as in [`try_scope`](Self::try_scope).
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let (first, second) = (Stream::new(&context)?, Stream::new(&context)?);
    /// # let mut buffer = DeviceBuffer::<u32>::zeroed(&context, 2)?;
    /// Stream::try_scope_over([&first, &second], |[first, second]| {
    ///     let (mut front, mut back) = first.bind_mut(&mut buffer)?.split_at(1)?;
    ///     first.fill(&mut front, "1".parse()?)?;
    ///     second.fill(&mut back, "2".parse()?)?;
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// assert_eq!(buffer.to_vec()?, [1, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`scope_over`](Self::scope_over).
    ///
    /// # Panics
    ///
    /// As [`scope`](Self::scope).
    pub fn try_scope_over<'env, const N: usize, F, R, E>(
        streams: [&'env Self; N],
        f: F,
    ) -> Result<R, E>
    where
        F: for<'scope> FnOnce([&'scope Scope<'scope, 'env>; N]) -> Result<R, E>,
        E: From<Error> + fmt::Debug,
    {
        run("Stream::try_scope_over", streams, f, |error| {
            format!("Stream::try_scope_over: {error:?}")
        })
    }
}

fn run<'env, const N: usize, F, R, E>(
    operation: &'static str,
    streams: [&'env Stream; N],
    f: F,
    describe: fn(&E) -> String,
) -> Result<R, E>
where
    F: for<'scope> FnOnce([&'scope Scope<'scope, 'env>; N]) -> Result<R, E>,
    E: From<Error>,
{
    let mut ends = Ends::new(operation, streams)?;
    let scopes: [Scope<'_, 'env>; N] = array::from_fn(|index| Scope {
        stream: streams[index],
        end: &ends.0[index],
        scope: PhantomData,
        env: PhantomData,
    });
    let result = f(scopes.each_ref());
    conclude(ScopeEnd::finish_all(&mut ends.0), result, describe)
}
