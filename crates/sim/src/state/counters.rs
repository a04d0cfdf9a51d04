//! Counters of what exists in the simulated driver, and of calls.

use std::collections::BTreeMap;

use super::lock::lock;
use crate::functions;
use crate::memory::MemoryKind;
use crate::misuse;
use crate::process;

/// A number of objects and their bytes.
///
/// ```
/// let usage = cuguard_sim::Usage::default();
/// assert_eq!((usage.count, usage.bytes), (0, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// How many objects.
    pub count: u64,
    /// How many bytes, as the program requested them.
    pub bytes: u64,
}

impl Usage {
    fn of(sizes: impl Iterator<Item = u64>) -> Self {
        let mut usage = Self::default();
        sizes.for_each(|bytes| usage.add(bytes));
        usage
    }

    fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
    }
}

/// What exists, and how often each function was called; see [`counters`].
///
/// ```
/// let before = cuguard_sim::counters();
/// assert_eq!(before.device.count, 0);
/// assert_eq!(before.allocations().bytes, 0);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Live contexts, including primary ones.
    pub contexts: u64,
    /// Streams that the program created.
    pub streams: u64,
    /// Events.
    pub events: u64,
    /// Graphs that the program created, cloned or captured.
    pub graphs: u64,
    /// Instantiated graphs.
    pub graph_execs: u64,
    /// User objects of graphs.
    pub user_objects: u64,
    /// Memory pools that the program created.
    pub pools: u64,
    /// Modules that the program loaded, without those of libraries.
    pub modules: u64,
    /// Libraries.
    pub libraries: u64,
    /// Linkers.
    pub linkers: u64,
    /// Arrays.
    pub arrays: Usage,
    /// `cuMemAlloc` and `cuMemAllocPitch`.
    pub device: Usage,
    /// Stream-ordered allocations on which neither free function was called.
    pub pooled: Usage,
    /// Memory that graphs have allocated and on which no free function was called.
    pub graph_memory: Usage,
    /// `cuMemAllocHost` and `cuMemHostAlloc`.
    pub pinned: Usage,
    /// `cuMemHostRegister`.
    pub registered: Usage,
    /// `cuMemAllocManaged`.
    pub managed: Usage,
    /// Physical memory of `cuMemCreate` to which a handle or a mapping refers.
    pub physical: Usage,
    /// Address ranges of `cuMemAddressReserve`.
    pub reserved: Usage,
    /// Bytes of device memory that this process uses on all devices: pages, what pools have
    /// reserved, and the overhead of contexts.
    pub device_bytes_in_use: u64,
    /// How often misuse was detected; see [`misuses`](crate::misuses).
    pub misuses: usize,
    /// Calls by function, without functions that were never called.
    pub calls: BTreeMap<&'static str, u64>,
}

impl Counters {
    /// All memory, of any kind, that the program has allocated and not freed. Registered host
    /// memory belongs to the program and does not count.
    #[must_use]
    pub fn allocations(&self) -> Usage {
        let mut sum = Usage::default();
        for usage in [
            self.arrays,
            self.device,
            self.pooled,
            self.graph_memory,
            self.pinned,
            self.managed,
            self.physical,
        ] {
            sum.count += usage.count;
            sum.bytes += usage.bytes;
        }
        sum
    }

    /// How often a function was called.
    ///
    /// ```
    /// assert_eq!(cuguard_sim::counters().calls_of("cuMemAlloc_v2"), 0);
    /// ```
    #[must_use]
    pub fn calls_of(&self, function: &str) -> u64 {
        self.calls.get(function).copied().unwrap_or(0)
    }
}

/// The current counters. Before `cuInit`, and in a forked child of a process that used the
/// simulated GPU, all are zero but the calls.
///
/// ```
/// let counters = cuguard_sim::counters();
/// assert_eq!(counters.contexts, 0);
/// ```
#[must_use]
pub fn counters() -> Counters {
    Counters {
        calls: functions::calls(),
        ..live_counters()
    }
}

/// The same without the calls, which take most of the time.
///
/// ```
/// let live = cuguard_sim::live_counters();
/// assert!(live.contexts == 0 && live.calls.is_empty());
/// ```
#[must_use]
pub fn live_counters() -> Counters {
    let mut counters = Counters::default();
    // In a forked child, a thread of the parent may have held the lock.
    if process::is_forked() {
        return counters;
    }
    counters.misuses = misuse::count();
    let state = lock();
    let live = state.contexts.values().filter(|c| c.closing.is_none());
    counters.contexts = live.count() as u64;
    counters.streams = state.streams.values().filter(|s| s.is_created()).count() as u64;
    counters.events = state.events.live.len() as u64;
    // A child graph belongs to its node, and a graph that is being captured is not the program's yet.
    let graphs = state.graphs.graphs.iter();
    let graphs = graphs.filter(|(id, graph)| graph.parent.is_none() && !state.is_new_capture(**id));
    counters.graphs = graphs.count() as u64;
    counters.graph_execs = state.graphs.execs.len() as u64;
    counters.user_objects = state.graphs.objects.len() as u64;
    let created = state.pools.values().filter(|pool| !pool.destroyed);
    let defaults = state.devices.len() + state.location_pools.len();
    counters.pools = (created.count() - defaults) as u64;
    let modules = state.code.modules.values();
    counters.modules = modules.filter(|module| module.library.is_none()).count() as u64;
    counters.libraries = state.code.libraries.len() as u64;
    counters.linkers = state.code.linkers.len() as u64;
    for range in state.map.ranges() {
        match range.kind {
            MemoryKind::Device => counters.device.add(range.size),
            MemoryKind::Pool(_) => counters.pooled.add(range.size),
            MemoryKind::Graph => counters.graph_memory.add(range.size),
            MemoryKind::Pinned => counters.pinned.add(range.size),
            MemoryKind::Registered => counters.registered.add(range.size),
            MemoryKind::Managed => counters.managed.add(range.size),
            // Counted as physical memory, and with their modules.
            MemoryKind::Mapping { .. } | MemoryKind::Variable => {}
        }
    }
    counters.arrays = Usage::of(state.arrays.values().map(|array| array.bytes));
    counters.physical = Usage::of(state.physical.values().map(|physical| physical.size));
    counters.reserved = Usage::of(state.reservations.values().copied());
    counters.device_bytes_in_use = state.devices.iter().map(|d| d.memory.used).sum();
    counters
}
