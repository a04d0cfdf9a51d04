//! Captures: the work of a [`Scope`] becomes a graph.
//!
//! The work is captured on a stream that is private to the capture, in the relaxed mode. So nothing else that the closure
//! does is captured or prohibited: it may allocate, drop guards, use the stream in a scope, capture again. Only a wait for
//! the whole context ends the capture, with an error. Teardown ends the captures of its context before it waits.

use std::marker::PhantomData;
use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cuguard_driver::result::stream;
use cuguard_driver::sys::{CUdeviceptr, stream_capture_mode};
use cust_core::DeviceCopy;

use super::Scope;
use super::bound::{DeviceMut, DeviceRef};
use super::captured::Capture;
use super::end::ScopeEnd;
use crate::core::host_call::GraphCalls;
use crate::core::lock::lock;
use crate::core::{OwnedResource, StreamState, free};
use crate::error::{Error, Result};
use crate::guards::{
    Exported, Graph, GraphExec, GraphMemory, GraphMemoryMut, GraphParts, GraphRange, Stream,
};
use cuguard_registry::{Entry, Key, ResourceKind};

const OPERATION: &str = "Stream::capture";

impl ScopeEnd {
    /// Begins a capture on a stream that nothing else uses.
    fn begin_capture(core: &Arc<StreamState>, capture: Capture) -> Result<Self> {
        let state = core.state();
        let entered = state.enter(OPERATION)?;
        // Inside the gate, so that teardown finds it, and a compaction.
        let begun = state.captures.begin(core.handle(), || {
            // SAFETY: the stream is alive.
            unsafe { stream::begin_capture(core.handle(), stream_capture_mode::RELAXED) }
        });
        entered.check(begun)?;
        let mut end = Self::new(core);
        end.capture = Some(capture);
        Ok(end)
    }

    /// Ends the capture, if it has not ended. Returns the graph.
    fn end_capture(
        &mut self,
        site: &'static Location<'static>,
    ) -> Option<Result<(OwnedResource, Capture)>> {
        let mut capture = self.capture.take()?;
        let (core, state) = (self.core(), self.core().state());
        let entered = match state.enter_any_context(OPERATION) {
            Ok((entered, _)) => entered,
            // Teardown has ended the capture; at exit, and in a forked child, the driver is not called.
            Err(error) => return Some(Err(error)),
        };
        let mut freed = Ok(());
        let scratch = super::end::take(&mut capture.scratch);
        // Each begins at a multiple of 512. Addresses of nodes differ, and so the sum cannot overflow.
        let places = scratch.iter().map(|(_, bytes)| bytes.next_multiple_of(512));
        capture.scratch_bytes = places.sum();
        for (address, _) in scratch.into_iter().rev() {
            // SAFETY: the stream captures, and allocated this in the capture.
            freed = freed.and(unsafe { free::capture_free(address, core.handle()) });
        }
        state.captures.remove(core.handle());
        // SAFETY: the stream is alive.
        let ended = unsafe { stream::end_capture(core.handle()) };
        let graph = match entered.check(ended) {
            Ok(graph) => graph,
            Err(error) => return Some(Err(error)),
        };
        let key = Key::new(ResourceKind::Graph, graph.0 as u64);
        let owner = core.owned.owner().clone();
        let owned = OwnedResource::new_at(site, owner, key, Entry::of_handle(""));
        let freed = entered.check(freed);
        drop(entered);
        // Without a free, each launch but the first would fail.
        Some(freed.map(|()| (owned, capture)))
    }

    /// Ends a capture whose closure failed or panicked, and destroys its graph.
    #[track_caller]
    pub(super) fn abandon_capture(&mut self) {
        if let Some(ended) = self.end_capture(Location::caller()) {
            drop(ended);
            // SAFETY: dropped at once.
            drop(unsafe { self.take_graph_calls() });
        }
    }

    /// # Safety
    ///
    /// What the closures borrow is valid for `'env`.
    unsafe fn take_graph_calls<'env>(&mut self) -> GraphCalls<'env> {
        let group = self.take_group();
        // SAFETY: as the caller ensures.
        unsafe { GraphCalls::new(group, self.take_calls()) }
    }
}

impl Stream {
    /// Captures the work of `f` as a graph, which can be launched any number of times at little cost. The work is not
    /// executed now. Also returns the value of `f`, such as [memory](Scope::export) to access between launches.
    ///
    /// The graph borrows what its work uses, so that it cannot outlive its memory, its modules, or this stream.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// let input = [1, 2, 3];
    /// let mut output = [0; 3];
    /// let (graph, ()) = stream.capture(|c| {
    ///     let mut scratch = c.zeroed(3)?; // allocated and freed by each launch
    ///     c.upload(&mut scratch, &c.bind_host(&input))?;
    ///     c.download(&mut c.bind_host_mut(&mut output), &scratch)
    /// })?;
    /// let mut exec = graph.instantiate()?;
    /// for _ in 0..10 {
    ///     exec.launch(&stream)?;
    /// }
    /// drop(exec);
    /// assert_eq!(output, [1, 2, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// These operations of a [`Scope`] cannot be captured and fail: [`record`](Scope::record), [`wait`](Scope::wait),
    /// [`call`](Scope::call), [`call_with`](Scope::call_with), [`bind_peer`](Scope::bind_peer), launches of graphs, and copies
    /// from or to page-locked host memory of another context. All others can.
    ///
    /// Scratch memory becomes nodes that allocate and free, so it does not count in reports and limits; the driver keeps
    /// its memory for later launches.
    ///
    /// Other work of the closure, such as allocations and scopes, is executed at once, on this stream too. While a capture
    /// is in progress, no thread can wait for the whole context, such as by [`Context::synchronize`](crate::Context): that
    /// fails, and ends the capture with an error.
    ///
    /// # Errors
    ///
    /// The error of `f`, [`Error::ContextClosed`], or any other driver error. Nothing stays allocated.
    #[track_caller]
    #[doc(alias("begin_capture", "cuStreamBeginCapture"))]
    pub fn capture<'env, F, R>(&'env self, f: F) -> Result<(Graph<'env>, R)>
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Result<R>,
    {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        capture(self, Capture::new(number, Vec::new()), f)
    }
}

#[track_caller]
fn capture<'env, F, R>(stream: &'env Stream, capture: Capture, f: F) -> Result<(Graph<'env>, R)>
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Result<R>,
{
    let site = Location::caller();
    let core = stream.for_capture(OPERATION)?;
    let mut end = ScopeEnd::begin_capture(&core, capture)?;
    let result = f(&Scope {
        stream,
        end: &end,
        scope: PhantomData,
        env: PhantomData,
    });
    // The error of `f` comes first: it may be why the capture is invalid. `end` is dropped, which ends the capture.
    let value = result?;
    let ended = end.end_capture(site);
    // SAFETY: they borrow for `'env` what `f` could borrow.
    let calls = unsafe { end.take_graph_calls() };
    let (owned, mut capture) =
        ended.unwrap_or_else(|| unreachable!("the capture ends here only"))?;
    let parts = GraphParts {
        number: capture.number,
        calls,
        scratch_bytes: capture.scratch_bytes,
        memory: super::end::take(&mut capture.memory),
    };
    Ok((Graph::new(owned, parts), value))
}

impl<'env> GraphExec<'env> {
    /// Captures work with the same nodes and dependencies, and replaces the parameters of this graph's work by those of
    /// the new. As [`Stream::capture`] and [`update`](Self::update), but the closure can use the memory of this graph
    /// again, by [`Scope::reuse`] and [`Scope::reuse_mut`]: what the first capture exported, and the capture before this one.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?;
    /// let (graph, data) = stream.capture(|c| {
    ///     let mut data = c.bind_mut(&mut buffer)?;
    ///     c.fill(&mut data, 1)?;
    ///     c.export_mut(&data)
    /// })?;
    /// let mut exec = graph.instantiate()?;
    /// for value in 2..5 {
    ///     exec.recapture(&stream, |c| c.fill(&mut c.reuse_mut(&data)?, value))?;
    ///     exec.launch(&stream)?;
    ///     assert_eq!(exec.view(&data)?.to_vec()?, [value; 3]);
    /// }
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Stream::capture`] and [`update`](Self::update), also where both captures allocate scratch memory. The executable
    /// is unchanged then.
    #[track_caller]
    pub fn recapture<F, R>(&mut self, stream: &'env Stream, f: F) -> Result<R>
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Result<R>,
    {
        // SAFETY: it is borrowed for `'env`, longer than the capture lasts.
        let extend = |range: &GraphRange<'env>| unsafe { range.for_capture() };
        let memory = self.known_memory().map(extend).collect();
        let (graph, value) = capture(stream, Capture::new(self.number(), memory), f)?;
        self.update_by("GraphExec::recapture", graph)?;
        Ok(value)
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Fails in a capture.
    pub(super) fn check_not_captured(
        &self,
        operation: &'static str,
        reason: &'static str,
    ) -> Result<()> {
        match self.end.capture {
            Some(_) => Err(Error::Capture { operation, reason }),
            None => Ok(()),
        }
    }

    fn the_capture(&self, operation: &'static str) -> Result<&Capture> {
        let reason = "only possible in Stream::capture and GraphExec::recapture";
        self.end
            .capture
            .as_ref()
            .ok_or(Error::Capture { operation, reason })
    }

    fn exported<T>(
        &self,
        operation: &'static str,
        memory: &DeviceRef<'scope, T>,
    ) -> Result<Exported> {
        let capture = self.the_capture(operation)?;
        let exported = Exported {
            graph: capture.number,
            address: *memory.address(),
            len: memory.len(),
        };
        let addresses = exported.addresses::<T>();
        let known = lock(&capture.memory)
            .iter()
            .any(|range| range.contains(&addresses));
        if !known {
            let reason = "scratch memory exists only while the graph runs";
            return Err(Error::Capture { operation, reason });
        }
        Ok(exported)
    }

    /// In a [capture](Stream::capture): names memory that the graph keeps borrowed, for
    /// [`GraphExec::view`](crate::graph::GraphExec::view) and [`reuse`](Self::reuse).
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?;
    /// let (graph, data) = stream.capture(|c| c.export(&c.bind(&buffer)?))?;
    /// assert_eq!(graph.instantiate()?.view(&data)?.to_vec()?, [0; 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Capture`] for scratch memory, and outside of a capture.
    pub fn export<T: DeviceCopy + Send + Sync + 'scope>(
        &self,
        memory: &impl AsRef<DeviceRef<'scope, T>>,
    ) -> Result<GraphMemory<T>> {
        Ok(GraphMemory {
            memory: self.exported("Scope::export", memory.as_ref())?,
            values: PhantomData,
        })
    }

    /// As [`export`](Self::export), for memory that is bound exclusively: for
    /// [`GraphExec::view_mut`](crate::graph::GraphExec::view_mut) and [`reuse_mut`](Self::reuse_mut).
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?;
    /// let (graph, data) = stream.capture(|c| c.export_mut(&c.bind_mut(&mut buffer)?))?;
    /// graph.instantiate()?.view_mut(&data)?.fill(1)?;
    /// assert_eq!(buffer.to_vec()?, [1; 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`export`](Self::export).
    pub fn export_mut<T: DeviceCopy + Send + Sync>(
        &self,
        memory: &DeviceMut<'scope, T>,
    ) -> Result<GraphMemoryMut<T>> {
        Ok(GraphMemoryMut {
            memory: self.exported("Scope::export_mut", memory)?,
            values: PhantomData,
        })
    }

    /// Binds memory of the executable that is captured again.
    fn reuse_range<T>(
        &self,
        operation: &'static str,
        token: &Exported,
        exclusive: bool,
    ) -> Result<()> {
        let capture = self.the_capture(operation)?;
        let addresses = token.addresses::<T>();
        let is_it =
            |range: &&GraphRange<'_>| range.contains(&addresses) && (range.exclusive || !exclusive);
        let found = capture.reusable.iter().find(is_it);
        let Some(found) = found.filter(|_| token.graph == capture.number) else {
            return Err(Error::WrongGraph { operation });
        };
        // What `bind_mut` leaves to the borrow checker.
        let mut reused = lock(&capture.reused);
        let conflicts = |(other, other_exclusive): &(Range<CUdeviceptr>, bool)| {
            (exclusive || *other_exclusive)
                && other.start < addresses.end
                && addresses.start < other.end
        };
        if reused.iter().any(conflicts) {
            let reason = "this capture has bound the memory already, and exclusively";
            return Err(Error::Capture { operation, reason });
        }
        reused.push((addresses.clone(), exclusive));
        let range = GraphRange {
            addresses,
            exclusive: found.exclusive,
            home: found.home,
            is_pooled: found.is_pooled,
        };
        drop(reused);
        // SAFETY: the executable has it borrowed for its lifetime, which is that of the new graph.
        unsafe { capture.add_memory(&range) };
        Ok(())
    }

    /// In a [recapture](GraphExec::recapture): binds memory of the executable, to be read.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?;
    /// let mut seen = [[9; 3]; 2];
    /// let (first, second) = seen.split_at_mut(1);
    /// let (graph, data) = stream.capture(|c| {
    ///     let data = c.bind(&buffer)?;
    ///     c.download(&mut c.bind_host_mut(&mut first[0]), &data)?;
    ///     c.export(&data)
    /// })?;
    /// let mut exec = graph.instantiate()?;
    /// exec.recapture(&stream, |c| {
    ///     c.download(&mut c.bind_host_mut(&mut second[0]), &c.reuse(&data)?)
    /// })?;
    /// exec.launch(&stream)?;
    /// drop(exec);
    /// assert_eq!(seen, [[9; 3], [0; 3]]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::WrongGraph`] if neither the first nor the last capture of the executable exported it, [`Error::Capture`] outside of a
    /// recapture and where this capture has bound the memory exclusively.
    pub fn reuse<T: DeviceCopy>(&self, memory: &GraphMemory<T>) -> Result<DeviceRef<'scope, T>> {
        self.reuse_range::<T>("Scope::reuse", &memory.memory, false)?;
        Ok(DeviceRef::new(memory.memory.address, memory.memory.len))
    }

    /// In a [recapture](GraphExec::recapture): binds memory of the executable, to be read and written.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?;
    /// let (graph, data) = stream.capture(|c| {
    ///     let mut data = c.bind_mut(&mut buffer)?;
    ///     c.fill(&mut data, 7)?;
    ///     c.export_mut(&data)
    /// })?;
    /// let mut exec = graph.instantiate()?;
    /// exec.recapture(&stream, |c| c.fill(&mut c.reuse_mut(&data)?, 8))?;
    /// exec.launch(&stream)?;
    /// drop(exec);
    /// assert_eq!(buffer.to_vec()?, [8; 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::WrongGraph`] if neither the first nor the last capture of the executable exported it, [`Error::Capture`] outside of a
    /// recapture and where this capture has bound the memory already.
    pub fn reuse_mut<T: DeviceCopy>(
        &self,
        memory: &GraphMemoryMut<T>,
    ) -> Result<DeviceMut<'scope, T>> {
        self.reuse_range::<T>("Scope::reuse_mut", &memory.memory, true)?;
        Ok(DeviceMut::new(memory.memory.address, memory.memory.len))
    }
}
