//! What a node of a graph does.

use std::ffi::c_void;
use std::sync::Arc;

use crate::handle::Id;
use cuguard_sys::{
    CUDA_HOST_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUhostFn, CUmemPoolProps,
    graph_node_type,
};

/// A function of the program, with its argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostFunction {
    pub(crate) function: CUhostFn,
    pub(crate) data: *mut c_void,
}

impl HostFunction {
    pub(crate) fn params(self) -> CUDA_HOST_NODE_PARAMS {
        CUDA_HOST_NODE_PARAMS {
            fn_: Some(self.function),
            userData: self.data,
        }
    }
}

// SAFETY: the program passed function and argument to be called on a thread of the driver.
unsafe impl Send for HostFunction {}

/// The allocation of a node. The address is fixed when the node is created; the memory is allocated
/// when the graph is launched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllocateParams {
    pub(crate) properties: CUmemPoolProps,
    pub(crate) bytes: usize,
    pub(crate) address: u64,
}

/// A kernel with a copy of its arguments.
#[derive(Debug)]
pub(crate) struct KernelParams {
    /// The handle of the function.
    pub(crate) function: usize,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub(crate) shared: u32,
    /// The blocks of a cluster.
    pub(crate) cluster: [u32; 3],
    pub(crate) cooperative: bool,
    /// As the kernel reads them.
    pub(crate) arguments: Vec<u8>,
    /// A pointer to each argument, for programs that ask. They point into `arguments`, which never
    /// changes.
    pub(crate) pointers: Vec<*mut c_void>,
}

// SAFETY: the pointers are to the arguments, which the structure owns and never changes.
unsafe impl Send for KernelParams {}
// SAFETY: as above.
unsafe impl Sync for KernelParams {}

/// What a node does when the graph executes.
#[derive(Clone, Debug)]
pub(crate) enum NodeParams {
    Empty,
    Kernel(Arc<KernelParams>),
    Copy(CUDA_MEMCPY3D),
    Fill(CUDA_MEMSET_NODE_PARAMS),
    Host(HostFunction),
    /// A graph of its own, by its id.
    Child(Id),
    /// Records this event.
    Record(Id),
    /// Waits for this event.
    Wait(Id),
    Allocate(AllocateParams),
    /// Frees the memory at this address.
    Free(u64),
}

// SAFETY: addresses are numbers here. What the work of a node accesses through them is what the
// program passed to be accessed by the driver.
unsafe impl Send for NodeParams {}

impl NodeParams {
    /// `CUgraphNodeType`
    pub(crate) fn node_type(&self) -> u32 {
        match self {
            Self::Empty => graph_node_type::EMPTY,
            Self::Kernel(_) => graph_node_type::KERNEL,
            Self::Copy(_) => graph_node_type::MEMCPY,
            Self::Fill(_) => graph_node_type::MEMSET,
            Self::Host(_) => graph_node_type::HOST,
            Self::Child(_) => graph_node_type::GRAPH,
            Self::Record(_) => graph_node_type::EVENT_RECORD,
            Self::Wait(_) => graph_node_type::WAIT_EVENT,
            Self::Allocate(_) => graph_node_type::MEM_ALLOC,
            Self::Free(_) => graph_node_type::MEM_FREE,
        }
    }

    /// Whether it allocates or frees memory, which restricts what can be done with its graph.
    pub(crate) fn is_memory(&self) -> bool {
        matches!(self, Self::Allocate(_) | Self::Free(_))
    }

    /// The address of an allocation.
    pub(crate) fn allocates_at(&self) -> Option<u64> {
        match self {
            Self::Allocate(allocation) => Some(allocation.address),
            _ => None,
        }
    }

    /// Whether the node can be disabled in an instantiated graph.
    pub(crate) fn can_be_disabled(&self) -> bool {
        matches!(self, Self::Copy(_) | Self::Fill(_) | Self::Kernel(_))
    }
}
