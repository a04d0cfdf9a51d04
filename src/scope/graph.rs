//! Launches of graphs within a scope.

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

use cuguard_driver::result::graph;
use cuguard_driver::sys::{CUgraphExec, CUresult};

use super::Scope;
use super::uses::{Used, Uses};
use crate::core::graph_scratch;
use crate::core::{Request, same_context};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::guards::{GraphExec, Stream};
use crate::recovery;
use cuguard_registry::ResourceKind;

/// An executable graph that a scope launches; see [`Scope::bind_graph`].
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # let context = cuguard::Context::new(0)?;
/// # let stream = cuguard::Stream::new(&context)?;
/// # let mut buffer = cuguard::DeviceBuffer::<u8>::zeroed(&context, 3)?;
/// # let (graph, ()) = stream.capture(|c| c.fill(&mut c.bind_mut(&mut buffer)?, 7))?;
/// let mut exec = graph.instantiate()?;
/// stream.scope(|s| {
///     let mut graph: cuguard::scope::BoundGraph<'_> = s.bind_graph(&mut exec)?;
///     s.launch_graph(&mut graph)
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
pub struct BoundGraph<'scope> {
    exec: CUgraphExec,
    scratch_bytes: usize,
    uses: Uses,
    /// Invariant: launched in its own scope only.
    scope: PhantomData<fn(&'scope ()) -> &'scope ()>,
}

impl fmt::Debug for BoundGraph<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoundGraph")
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Binds an executable graph, to be launched any number of times. It stays borrowed until the scope has ended.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?;
    /// let (graph, ()) = stream.capture(|c| c.fill(&mut c.bind_mut(&mut buffer)?, 7))?;
    /// let mut exec = graph.instantiate()?;
    /// stream.scope(|s| {
    ///     let mut graph = s.bind_graph(&mut exec)?;
    ///     s.launch_graph(&mut graph)
    /// })?;
    /// drop(exec);
    /// assert_eq!(buffer.to_vec()?, [7; 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::WrongContext`], [`Error::ContextClosed`], [`Error::Capture`] in a capture; for memory that was allocated
    /// on another stream, any driver error when this stream is ordered after it.
    pub fn bind_graph(&self, exec: &'env mut GraphExec<'_>) -> Result<BoundGraph<'scope>> {
        const OPERATION: &str = "Scope::bind_graph";
        let reason = "a graph cannot be launched in a capture";
        self.check_not_captured(OPERATION, reason)?;
        let core = self.core();
        let stream_of = ("the scope's stream", core.state());
        same_context::check(OPERATION, stream_of, ("the graph", exec.state()))?;
        drop(core.state().enter(OPERATION)?);
        // As `bind` does for each memory. In the capture there was no order to be made.
        let mut ordered: Vec<*const _> = Vec::new();
        for home in exec.memory().iter().filter_map(|range| range.home) {
            if !ordered.contains(&Arc::as_ptr(home)) {
                self.end.order_after(OPERATION, home)?;
                ordered.push(Arc::as_ptr(home));
            }
        }
        if !exec.calls().is_empty() {
            self.end.keep_group(exec.calls().group());
        }
        Ok(BoundGraph {
            exec: exec.as_raw(),
            scratch_bytes: exec.scratch_bytes(),
            uses: Uses::default(),
            scope: PhantomData,
        })
    }

    /// Launches a graph, after the work that this stream has so far and the graph's launches before.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// # let mut buffer = cuguard::DeviceBuffer::<u8>::zeroed(&context, 3)?;
    /// let (graph, ()) = stream.capture(|c| c.fill(&mut c.bind_mut(&mut buffer)?, 7))?;
    /// let mut exec = graph.instantiate()?;
    /// stream.scope(|s| {
    ///     let mut graph = s.bind_graph(&mut exec)?;
    ///     s.launch_graph(&mut graph)?;
    ///     s.launch_graph(&mut graph)
    /// })?;
    /// drop(exec);
    /// assert_eq!(buffer.to_vec()?, [7; 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], [`Error::OutOfMemory`] where the graph's [scratch memory](Self::zeroed) does not fit or the
    /// driver lacks memory of its own, or any other driver error.
    ///
    /// Whether more than 32 MiB of scratch memory fit is checked before the driver is called: of a launch that it refuses,
    /// it keeps what it has reserved until the process ends, and nothing can use it. What other graphs use at the moment is
    /// not known, and others may allocate between the check and the launch: then the driver refuses it all the same, and the
    /// error and later ones name the memory that is lost.
    #[track_caller]
    #[inline]
    #[doc(alias = "cuGraphLaunch")]
    pub fn launch_graph(&self, graph: &mut BoundGraph<'scope>) -> Result<()> {
        self.launch_bound("Scope::launch_graph", graph, Location::caller())
    }

    #[inline]
    fn launch_bound(
        &self,
        operation: &'static str,
        graph: &mut BoundGraph<'scope>,
        site: &'static Location<'static>,
    ) -> Result<()> {
        self.end
            .using(operation, &[Used::Written(&graph.uses)], || {
                self.enqueue_graph(operation, graph, site)
            })
    }

    #[inline]
    fn enqueue_graph(
        &self,
        operation: &'static str,
        graph: &BoundGraph<'scope>,
        site: &'static Location<'static>,
    ) -> Result<()> {
        let core = self.core();
        let has_scratch = graph.scratch_bytes != 0;
        // A graph is launched in the context of its stream whatever is current, unless that is the default stream. (The
        // conformance suite tests that.)
        if !has_scratch
            && !core.is_default()
            && let Some(_inside) = core.state().try_enter()
        {
            self.end.expect_work();
            // SAFETY: as below.
            match unsafe { graph::launch(graph.exec, core.handle()) } {
                Err(error) if error.code == CUresult::OUT_OF_MEMORY => {}
                launched => return core.state().check(operation, launched, None),
            }
        }
        // CUDA_ERROR_OUT_OF_MEMORY means that nothing was launched, as for kernels.
        let request = Request {
            operation,
            // The driver's own memory for the launch is of unknown size.
            kind: has_scratch.then_some(ResourceKind::GraphMemory),
            bytes: graph.scratch_bytes,
            site,
        };
        recovery::with_recovery(core.state(), &request, || {
            if has_scratch {
                graph_scratch::check(operation, core.state(), graph.scratch_bytes)?;
            }
            self.try_enqueue(operation, |stream| {
                // SAFETY: both are alive and of one context: the executable is borrowed until the stream is idle, and it keeps
                // borrowed what its work uses. Exclusively, so that nothing else launches it or accesses that memory.
                unsafe { graph::launch(graph.exec, stream) }
            })
        })
    }
}

impl GraphExec<'_> {
    /// Launches the graph on a stream and waits for it: a [scope](Stream::scope) with one launch.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?;
    /// let (graph, ()) = stream.capture(|c| c.fill(&mut c.bind_mut(&mut buffer)?, 7))?;
    /// let mut exec = graph.instantiate()?;
    /// exec.launch(&stream)?;
    /// drop(exec);
    /// assert_eq!(buffer.to_vec()?, [7; 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Scope::bind_graph`], [`Scope::launch_graph`] and [`Stream::scope`].
    ///
    /// # Panics
    ///
    /// If a [host function](Scope::call_each) of the graph panicked, with its panic, when all work is done.
    #[track_caller]
    pub fn launch(&mut self, stream: &Stream) -> Result<()> {
        // A closure has no caller of its own.
        let site = Location::caller();
        stream.scope(|s| s.launch_bound("GraphExec::launch", &mut s.bind_graph(self)?, site))
    }
}
