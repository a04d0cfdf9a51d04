//! Graphs: work that is captured once and launched any number of times.
//!
//! `scope/capture.rs` captures them and `scope/graph.rs` launches them. This file has their owners, and the memory that
//! a graph keeps borrowed.

use std::fmt;
use std::sync::Arc;

use cuguard_driver::result::graph;
use cuguard_driver::sys::{CUgraph, CUgraphExec, CUresult};
use cust_core::DeviceCopy;

use crate::core::host_call::GraphCalls;
use crate::core::{self, ContextState, OwnedResource, Request};
use crate::error::{Error, Result};
use crate::guards::graph_memory::{Exported, GraphMemory, GraphMemoryMut, GraphRange};
use crate::guards::{DeviceMemory, DeviceView, DeviceViewMut};
use crate::recovery;
use cuguard_registry::ResourceKind;

/// Work that was captured by [`Stream::capture`](crate::Stream::capture). Borrows what the work uses for `'env`.
/// Destroyed on drop.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::graph::Graph;
/// use cuguard::{Context, DeviceBuffer, ResourceKind, Stream};
///
/// let context = Context::new(0)?;
/// let stream = Stream::new(&context)?;
/// let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 1000)?;
/// let (graph, ()): (Graph<'_>, ()) =
///     stream.capture(|c| c.fill(&mut c.bind_mut(&mut buffer)?, 7))?;
/// assert_eq!(graph.node_count()?, 1);
/// drop(graph);
/// assert_eq!(context.totals(ResourceKind::Graph).count, 0);
/// assert_eq!(buffer.to_vec()?, [0; 1000]); // never launched
/// # Ok::<(), cuguard::Error>(())
/// ```
#[must_use = "dropped at once if unused"]
#[doc(alias("CudaGraph", "CUgraph"))]
pub struct Graph<'env> {
    /// Destroyed before the closures of its host functions are dropped.
    owned: OwnedResource,
    parts: GraphParts<'env>,
}

/// What a graph uses.
#[derive(Debug)]
pub(crate) struct GraphParts<'env> {
    /// The number of its capture, which tokens name.
    pub(crate) number: u64,
    pub(crate) calls: GraphCalls<'env>,
    /// The scratch memory that its nodes allocate, in bytes. All of it at a time: it is freed at the end of a launch.
    pub(crate) scratch_bytes: usize,
    pub(crate) memory: Vec<GraphRange<'env>>,
}

/// An executable graph, created by [`Graph::instantiate`]. Destroyed on drop.
///
/// Launches are exclusive, and so is the access to memory that the graph writes:
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, DeviceBuffer, Stream};
///
/// let context = Context::new(0)?;
/// let stream = Stream::new(&context)?;
/// let mut input = DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
/// let mut output = DeviceBuffer::<u32>::zeroed(&context, 3)?;
///
/// let (graph, (input, output)) = stream.capture(|c| {
///     let (input, mut output) = (c.bind_mut(&mut input)?, c.bind_mut(&mut output)?);
///     c.copy(&mut output, &input)?; // or kernels
///     Ok((c.export_mut(&input)?, c.export(&output)?))
/// })?;
/// let mut exec = graph.instantiate()?;
/// exec.launch(&stream)?;
/// assert_eq!(exec.view(&output)?.to_vec()?, [1, 2, 3]);
///
/// exec.view_mut(&input)?.copy_from_slice(&[4, 5, 6])?;
/// stream.scope(|s| {
///     let mut graph = s.bind_graph(&mut exec)?;
///     for _ in 0..1000 {
///         s.launch_graph(&mut graph)?;
///     }
///     Ok(())
/// })?;
/// assert_eq!(exec.view(&output)?.to_vec()?, [4, 5, 6]);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[must_use = "dropped at once if unused"]
#[doc(alias = "CUgraphExec")]
pub struct GraphExec<'env> {
    /// Destroyed before the closures of its host functions are dropped.
    owned: OwnedResource,
    /// What its graph uses. The driver's graph is destroyed: an executable does not need it.
    parts: GraphParts<'env>,
    /// The number of its first capture, which a recapture has too.
    first: u64,
    /// Memory of the first capture, after an update. It is still borrowed for `'env`, and a recapture can use it again. Of
    /// captures in between nothing is kept, as there may be any number.
    first_memory: Option<Vec<GraphRange<'env>>>,
}

impl fmt::Debug for Graph<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.owned.fmt_guard("Graph", f)
    }
}

impl fmt::Debug for GraphExec<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.owned.fmt_guard("GraphExec", f)
    }
}

impl<'env> Graph<'env> {
    pub(crate) fn new(owned: OwnedResource, parts: GraphParts<'env>) -> Self {
        Self { owned, parts }
    }

    fn state(&self) -> &Arc<ContextState> {
        self.owned.state()
    }

    /// Names the graph in reports. [`instantiate`](Self::instantiate) destroys the graph: name the executable as well.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?;
    /// let (graph, ()) = stream.capture(|c| c.fill(&mut c.bind_mut(&mut buffer)?, 7))?;
    /// let graph = graph.with_label("step");
    /// let snapshot = context.snapshot();
    /// assert!(snapshot.live.iter().any(|group| group.label.as_deref() == Some("step")));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use = "returns the guard"]
    pub fn with_label(self, label: &str) -> Self {
        self.owned.name(label);
        self
    }

    /// The driver's graph. The guard still owns it.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?;
    /// let (graph, ()) = stream.capture(|c| c.fill(&mut c.bind_mut(&mut buffer)?, 7))?;
    /// assert!(!graph.as_raw().is_null());
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn as_raw(&self) -> CUgraph {
        CUgraph(self.owned.address() as usize)
    }

    /// The number of its nodes: copies, fills, launches, host functions, allocations and frees.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?;
    /// let (graph, ()) = stream.capture(|c| {
    ///     let mut scratch = c.zeroed(3)?; // an allocation, a fill, and a free at the end
    ///     c.copy(&mut scratch, &c.bind(&buffer)?)
    /// })?;
    /// assert_eq!(graph.node_count()?, 4);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], or any other driver error.
    pub fn node_count(&self) -> Result<usize> {
        let entered = self.state().enter("Graph::node_count")?;
        // SAFETY: the graph is alive.
        entered.check(unsafe { graph::node_count(self.as_raw()) })
    }

    /// Creates an executable, and destroys the driver's graph, which the executable does not need. By value: two
    /// executables of one graph could run at the same time, and write to the same memory.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// # let mut buffer = cuguard::DeviceBuffer::<u8>::zeroed(&context, 3)?;
    /// let (graph, ()) = stream.capture(|c| c.fill(&mut c.bind_mut(&mut buffer)?, 7))?;
    /// graph.instantiate()?.launch(&stream)?;
    /// assert_eq!(buffer.to_vec()?, [7; 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], [`Error::OutOfMemory`], or any other driver error.
    #[track_caller]
    pub fn instantiate(self) -> Result<GraphExec<'env>> {
        const OPERATION: &str = "Graph::instantiate";
        let state = self.state();
        let request = Request::of_unknown_size(OPERATION, Some(ResourceKind::GraphExec));
        let owned = recovery::with_recovery(state, &request, || {
            let _entered = state.enter(OPERATION)?;
            let owner = || self.owned.owner().clone();
            core::allocate(state, &request, ResourceKind::GraphExec, "", owner, || {
                // SAFETY: the graph is alive.
                unsafe { graph::instantiate(self.as_raw(), 0) }.map(|exec| exec.0 as u64)
            })
        })?;
        let Self {
            owned: graph,
            parts,
        } = self;
        // A failed call is recorded.
        drop(graph);
        Ok(GraphExec {
            owned,
            first: parts.number,
            parts,
            first_memory: None,
        })
    }

    /// Destroys the graph and returns the driver's error.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?;
    /// let (graph, ()) = stream.capture(|c| c.fill(&mut c.bind_mut(&mut buffer)?, 7))?;
    /// graph.close()?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], or any other driver error.
    pub fn close(self) -> Result<()> {
        self.owned.close("Graph::close")
    }
}

impl<'env> GraphExec<'env> {
    pub(crate) fn state(&self) -> &Arc<ContextState> {
        self.owned.state()
    }

    /// Names the executable in reports.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?;
    /// let (graph, ()) = stream.capture(|c| c.fill(&mut c.bind_mut(&mut buffer)?, 7))?;
    /// let exec = graph.instantiate()?.with_label("step");
    /// let snapshot = context.snapshot();
    /// assert!(snapshot.live.iter().any(|group| group.label.as_deref() == Some("step")));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use = "returns the guard"]
    pub fn with_label(self, label: &str) -> Self {
        self.owned.name(label);
        self
    }

    /// The driver's executable. The guard still owns it.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?;
    /// let (graph, ()) = stream.capture(|c| c.fill(&mut c.bind_mut(&mut buffer)?, 7))?;
    /// assert!(!graph.instantiate()?.as_raw().is_null());
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn as_raw(&self) -> CUgraphExec {
        CUgraphExec(self.owned.address() as usize)
    }

    pub(crate) fn calls(&self) -> &GraphCalls<'env> {
        &self.parts.calls
    }

    /// The scratch memory of a launch, in bytes.
    pub(crate) fn scratch_bytes(&self) -> usize {
        self.parts.scratch_bytes
    }

    /// The number of its first capture, which a recapture has too.
    pub(crate) fn number(&self) -> u64 {
        self.first
    }

    /// The memory that it uses, which is borrowed for `'env`.
    pub(crate) fn memory(&self) -> &[GraphRange<'env>] {
        &self.parts.memory
    }

    /// The memory that tokens may name: that which it uses, and that of its first capture.
    pub(crate) fn known_memory(&self) -> impl Iterator<Item = &GraphRange<'env>> {
        let first = self.first_memory.iter().flatten();
        self.parts.memory.iter().chain(first)
    }

    /// Replaces the parameters of all work by those of another graph with the same nodes and dependencies: other
    /// addresses, sizes, values and arguments of kernels.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// let (mut one, mut two) =
    ///     (DeviceBuffer::<u8>::zeroed(&context, 3)?, DeviceBuffer::<u8>::zeroed(&context, 3)?);
    /// let (first, ()) = stream.capture(|c| c.fill(&mut c.bind_mut(&mut one)?, 1))?;
    /// let (second, ()) = stream.capture(|c| c.fill(&mut c.bind_mut(&mut two)?, 2))?;
    /// let mut exec = first.instantiate()?;
    /// exec.update(second)?;
    /// exec.launch(&stream)?;
    /// drop(exec);
    /// assert_eq!((one.to_vec()?, two.to_vec()?), (vec![0; 3], vec![2; 3]));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// For a graph that uses the same memory again, see [`recapture`](Self::recapture).
    ///
    /// # Errors
    ///
    /// [`Error::GraphUpdate`] where the graphs differ in more than parameters, [`Error::Capture`] where both allocate
    /// [scratch memory](crate::Scope::zeroed), [`Error::WrongContext`], [`Error::ContextClosed`], or any other driver error.
    /// The executable is unchanged, and the new graph is destroyed.
    #[doc(alias = "cuGraphExecUpdate")]
    pub fn update(&mut self, graph: Graph<'env>) -> Result<()> {
        self.update_by("GraphExec::update", graph)
    }

    pub(crate) fn update_by(&mut self, operation: &'static str, graph: Graph<'env>) -> Result<()> {
        let (this, that) = (
            ("the executable", self.state()),
            ("the graph", graph.state()),
        );
        core::same_context::check(operation, this, that)?;
        let entered = self.state().enter(operation)?;
        if self.parts.scratch_bytes != 0 && graph.parts.scratch_bytes != 0 {
            // Where a driver did not refuse this, the executable would allocate at the addresses of the one graph, and
            // access those of the other.
            let reason = "a graph with scratch memory cannot be updated: the addresses are its own; \
                          instantiate the new graph, or bind a buffer";
            return Err(Error::Capture { operation, reason });
        }
        // SAFETY: both are alive. The executable is not in flight: scopes that launch it borrow it exclusively.
        let updated = unsafe { graph::exec_update(self.as_raw(), graph.as_raw()) };
        let result = match updated {
            Ok(()) => Ok(()),
            Err((error, result)) if error.code == CUresult::GRAPH_EXEC_UPDATE_FAILURE => {
                Err(Error::GraphUpdate { operation, result })
            }
            Err((error, _)) => entered.check(Err(error)),
        };
        drop(entered);
        // The driver leaves the executable as it is. Should it not, host functions of the new graph do nothing.
        result?;
        let Graph { owned, parts } = graph;
        // A failed call is recorded.
        drop(owned);
        let former = std::mem::replace(&mut self.parts, parts);
        self.first_memory.get_or_insert(former.memory);
        Ok(())
    }

    /// The memory of a token, if it is of one of this executable's graphs.
    pub(crate) fn range<T>(
        &self,
        operation: &'static str,
        token: &Exported,
        exclusive: bool,
    ) -> Result<&GraphRange<'env>> {
        let addresses = token.addresses::<T>();
        let is_it =
            |range: &&GraphRange<'_>| range.contains(&addresses) && (range.exclusive || !exclusive);
        let is_known = [self.first, self.parts.number].contains(&token.graph);
        let range = self.known_memory().find(is_it).filter(|_| is_known);
        range.ok_or(Error::WrongGraph { operation })
    }

    fn device_memory<T>(
        &self,
        operation: &'static str,
        token: &Exported,
        exclusive: bool,
    ) -> Result<DeviceMemory<'_>> {
        let range = self.range::<T>(operation, token, exclusive)?;
        let bytes = token.len * size_of::<T>();
        let memory = DeviceMemory::of_parts(token.address, bytes, self.state(), range.home);
        Ok(memory.pooled(range.is_pooled))
    }

    /// A view of memory that the graph uses: a [`GraphMemory`] or a [`GraphMemoryMut`]. After an [update](Self::update) or a
    /// [recapture](Self::recapture) also of memory that its first capture exported, but not of captures in between.
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
    /// exec.launch(&stream)?;
    /// assert_eq!(exec.view(&data)?.to_vec()?, [7; 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::WrongGraph`] if neither the first nor the last capture of this executable exported the memory.
    pub fn view<T: DeviceCopy>(
        &self,
        memory: &(impl Into<GraphMemory<T>> + Copy),
    ) -> Result<DeviceView<'_, T>> {
        let token = &(*memory).into().memory;
        let found = self.device_memory::<T>("GraphExec::view", token, false)?;
        // SAFETY: the graph keeps the memory borrowed for `'env`, and it holds `len` values. Launches, which may write to
        // it, borrow this exclusively and have ended.
        Ok(unsafe { DeviceView::new(found, token.len) })
    }

    /// A view of memory that the graph writes, to read and to write it.
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
    /// let mut view = exec.view_mut(&data)?;
    /// view.copy_from_slice(&[1, 2, 3])?;
    /// assert_eq!(view.to_vec()?, [1, 2, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`view`](Self::view).
    pub fn view_mut<T: DeviceCopy>(
        &mut self,
        memory: &GraphMemoryMut<T>,
    ) -> Result<DeviceViewMut<'_, T>> {
        let token = &memory.memory;
        let found = self.device_memory::<T>("GraphExec::view_mut", token, true)?;
        // SAFETY: as in `view`. The graph borrows the memory exclusively, and the view borrows the graph exclusively.
        Ok(unsafe { DeviceViewMut::new(found, token.len) })
    }

    /// Destroys the executable and returns the driver's error.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?;
    /// let (graph, ()) = stream.capture(|c| c.fill(&mut c.bind_mut(&mut buffer)?, 7))?;
    /// graph.instantiate()?.close()?;
    /// assert_eq!(context.totals(cuguard::ResourceKind::GraphExec).count, 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], or any other driver error.
    pub fn close(self) -> Result<()> {
        self.owned.close("GraphExec::close")
    }
}
