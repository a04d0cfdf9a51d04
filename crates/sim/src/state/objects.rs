//! What handles refer to, other than streams, events and pools.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use cuguard_sys::CUDA_ARRAY3D_DESCRIPTOR;

use super::graph_usage::GraphUsage;
use crate::handle::Id;
use crate::memory::{DeviceMemory, Heap, MemoryBlock, PackedPages};
use crate::streams::StreamPosition;

#[derive(Debug, Default)]
pub(crate) struct Device {
    /// Its number among all devices, visible to the program or not.
    pub(crate) number: u32,
    pub(crate) memory: DeviceMemory,
    /// The primary context has the same handle for the life of the process, active or not.
    pub(crate) primary: Id,
    pub(crate) primary_retains: u64,
    pub(crate) primary_flags: u32,
    pub(crate) default_pool: Id,
    pub(crate) pool: Id,
    pub(crate) graph_memory: GraphUsage,
}

/// Why a context is being destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// The last release of a primary context: a retain cancels it.
    Released,
    /// Destroyed or reset.
    Destroyed,
}

/// A context that is live or closing.
#[derive(Debug, Default)]
pub(crate) struct Context {
    pub(crate) flags: u32,
    pub(crate) limits: HashMap<u32, usize>,
    pub(crate) cache_config: u32,
    pub(crate) packed: PackedPages,
    /// What kernels allocate from, once one has.
    pub(crate) heap: Option<Arc<Heap>>,
    /// The legacy default stream.
    pub(crate) legacy: Id,
    /// Thread number → the thread's own default stream.
    pub(crate) per_thread: HashMap<u64, Id>,
    /// The streams with incomplete work.
    pub(crate) busy: BTreeSet<Id>,
    pub(crate) closing: Option<Closing>,
    /// `cuCtxGetId`
    pub(crate) number: u64,
    /// The usage count of `cuCtxAttach` and `cuCtxDetach`, less the creation.
    pub(crate) attached: u64,
    /// The contexts whose memory `cuCtxEnablePeerAccess` made accessible.
    pub(crate) peers: BTreeSet<Id>,
    /// The internal stream, once it is needed.
    pub(crate) internal: Option<Id>,
    /// What all work that is submitted from now on waits for: `cuCtxWaitEvent`.
    pub(crate) waits_for: Vec<StreamPosition>,
}

#[derive(Debug)]
pub(crate) struct Array {
    pub(crate) context: Id,
    pub(crate) descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    pub(crate) row_bytes: usize,
    pub(crate) bytes: u64,
    pub(crate) block: Arc<MemoryBlock>,
}

/// Physical memory of `cuMemCreate`.
#[derive(Debug)]
pub(crate) struct Physical {
    pub(crate) device: u32,
    pub(crate) size: u64,
    pub(crate) block: Arc<MemoryBlock>,
    pub(crate) handles: u64,
    pub(crate) mappings: u64,
}
