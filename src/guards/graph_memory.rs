//! The memory of graphs: what a graph keeps borrowed, the tokens by which the program accesses it, and what the driver
//! keeps for later launches.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use cuguard_driver::result::graph;
use cuguard_driver::sys::CUdeviceptr;

use crate::core::StreamState;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::guards::Context;
#[cfg(doc)]
use crate::guards::Graph;

/// Device memory that a graph keeps borrowed.
#[derive(Clone, Debug)]
pub(crate) struct GraphRange<'env> {
    pub(crate) addresses: Range<CUdeviceptr>,
    pub(crate) exclusive: bool,
    /// The stream that it was allocated on: launches are ordered after its work. The memory keeps the stream, and is borrowed
    /// for as long as the graph can be used: a graph that is leaked keeps neither.
    pub(crate) home: Option<&'env Arc<StreamState>>,
    /// Whether it is a block of a [`Pool`](crate::Pool), which other devices cannot access.
    pub(crate) is_pooled: bool,
}

impl GraphRange<'_> {
    /// The same range for a capture in progress, which has no lifetime.
    ///
    /// # Safety
    ///
    /// It is not used when the lifetime has ended.
    pub(crate) unsafe fn for_capture(&self) -> GraphRange<'static> {
        GraphRange {
            addresses: self.addresses.clone(),
            exclusive: self.exclusive,
            // SAFETY: as the caller ensures.
            home: self.home.map(|home| unsafe { &*std::ptr::from_ref(home) }),
            is_pooled: self.is_pooled,
        }
    }

    pub(crate) fn contains(&self, addresses: &Range<CUdeviceptr>) -> bool {
        self.addresses.start <= addresses.start && addresses.end <= self.addresses.end
    }
}

/// Memory that a graph reads, for access between its launches; see [`Scope::export`](crate::Scope::export).
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # use cuguard::{Context, DeviceBuffer, Stream};
/// # let context = Context::new(0)?;
/// # let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?;
/// let (graph, data) = stream.capture(|c| c.export(&c.bind(&buffer)?))?;
/// let data: cuguard::graph::GraphMemory<u8> = data;
/// assert_eq!((data.len(), data.is_empty()), (3, false));
/// # Ok::<(), cuguard::Error>(())
/// ```
pub struct GraphMemory<T> {
    pub(crate) memory: Exported,
    pub(crate) values: PhantomData<fn() -> T>,
}

/// Memory that a graph reads and writes, for access between its launches; see
/// [`Scope::export_mut`](crate::Scope::export_mut).
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # use cuguard::{Context, DeviceBuffer, Stream};
/// # let context = Context::new(0)?;
/// # let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?;
/// let (graph, data) = stream.capture(|c| c.export_mut(&c.bind_mut(&mut buffer)?))?;
/// let data: cuguard::graph::GraphMemoryMut<u8> = data;
/// assert_eq!((data.len(), data.is_empty()), (3, false));
/// # Ok::<(), cuguard::Error>(())
/// ```
pub struct GraphMemoryMut<T> {
    pub(crate) memory: Exported,
    /// Invariant, as a mutable reference is: a value with a shorter lifetime must not be written.
    pub(crate) values: PhantomData<fn(T) -> T>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Exported {
    pub(crate) graph: u64,
    pub(crate) address: CUdeviceptr,
    pub(crate) len: usize,
}

impl Exported {
    /// The addresses of the values.
    pub(crate) fn addresses<T>(&self) -> Range<CUdeviceptr> {
        self.address..self.address + (self.len * size_of::<T>()) as u64
    }
}

macro_rules! token {
    ($($name:ident)*) => {$(
        impl<T> Clone for $name<T> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T> Copy for $name<T> {}

        impl<T> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let (len, name) = (self.memory.len, std::any::type_name::<T>());
                write!(f, concat!(stringify!($name), "({} x {})"), len, name)
            }
        }

        impl<T> $name<T> {
            /// The number of values.
            #[must_use]
            pub fn len(&self) -> usize {
                self.memory.len
            }

            /// Whether there are no values.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.memory.len == 0
            }
        }
    )*};
}

token!(GraphMemory GraphMemoryMut);

impl<T> GraphMemoryMut<T> {
    /// The same memory, to be read only.
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
    /// let read_only: cuguard::graph::GraphMemory<u8> = data.as_ref();
    /// assert_eq!(graph.instantiate()?.view(&read_only)?.len(), 3);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn as_ref(&self) -> GraphMemory<T> {
        GraphMemory {
            memory: self.memory,
            values: PhantomData,
        }
    }
}

impl<T> From<GraphMemoryMut<T>> for GraphMemory<T> {
    fn from(memory: GraphMemoryMut<T>) -> Self {
        memory.as_ref()
    }
}

impl Context {
    /// Releases device memory that the driver keeps for the next launch of [graphs](Graph) that allocate, and that no
    /// executable uses. This also happens when memory runs out, and when the context is closed.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// let free = context.memory()?.free;
    /// let (graph, ()) = stream.capture(|c| c.zeroed::<u8>(1 << 20).map(drop))?;
    /// graph.instantiate()?.launch(&stream)?;
    /// context.trim_graph_memory()?;
    /// assert_eq!(context.memory()?.free, free);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], or any other driver error.
    pub fn trim_graph_memory(&self) -> Result<()> {
        let entered = self.state().enter_to_wait("Context::trim_graph_memory")?;
        entered.check(graph::trim_memory(self.state().device as i32))
    }
}
