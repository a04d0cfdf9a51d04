//! The memory that a kernel finds while it executes.
//!
//! A kernel's accesses are not known in advance, so that they do not take part in the detection of races between streams:
//! only its arguments do, as a launch checks them. While it executes, an address is that of the memory which is allocated
//! there for the kernel's position on its stream. What was freed on a stream after the launch is still there; what was freed
//! before is not, also if that stream has not reached the free.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use cuguard_ptx::{Host, Memory, Region};
use cuguard_sys::limit;

use super::driver_state::DriverState;
use super::lock::lock;
use crate::handle::Id;
use crate::memory::{Address, Heap, MemoryBlock, MemoryRange, to_pages};
use crate::{PAGE, printed};

/// Where the barrier of a cooperative launch is: below all other device addresses.
pub(crate) const WORKSPACE: u64 = 0x0002_1b7d_3fff_f000;
/// The bytes of a device heap that the program has not set.
const DEFAULT_HEAP: usize = 8 << 20;

/// What a launch reads and writes other than its own registers and shared memory.
#[derive(Debug)]
pub(crate) struct KernelMemory {
    /// The number of the launch.
    launch: u64,
    context: Id,
    device: u32,
    found: Mutex<Found>,
    /// The heap of the context, once it is needed.
    heap: OnceLock<Arc<Heap>>,
    workspace: Workspace,
    printed: Mutex<String>,
}

#[derive(Debug, Default)]
struct Found {
    /// Base → bytes, and where they are on the host.
    ranges: BTreeMap<u64, (u64, Address)>,
    /// Keeps all memory that was ever found until the kernel has ended.
    blocks: Vec<Arc<MemoryBlock>>,
}

/// The barrier of a cooperative launch.
#[derive(Debug, Default)]
#[repr(align(16))]
struct Workspace([AtomicU64; 2]);

impl KernelMemory {
    /// For the launch with this number. `blocks` are those of its arguments.
    pub(crate) fn new(
        launch: u64,
        context: Id,
        device: u32,
        blocks: Vec<Arc<MemoryBlock>>,
    ) -> Self {
        Self {
            launch,
            context,
            device,
            found: Mutex::new(Found {
                blocks,
                ..Found::default()
            }),
            heap: OnceLock::new(),
            workspace: Workspace::default(),
            printed: Mutex::default(),
        }
    }

    pub(crate) fn launch(&self) -> u64 {
        self.launch
    }

    /// Hands over what the kernel printed.
    pub(crate) fn end(&self) {
        let mut text = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
        printed::add(&std::mem::take(&mut *text));
    }

    /// The memory at an address, which stays allocated until the kernel has ended.
    fn keep(&self, state: &DriverState, address: u64) -> Option<(u64, u64, Address)> {
        let range = state.memory_of_launch(address, self.launch)?;
        if !state.is_accessible(range, self.device) {
            return None;
        }
        state.map.note_use(range);
        let (base, block) = (range.base, range.block.clone());
        let size = range.size.min(block.len() as u64);
        let place = (base, size, block.start());
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.ranges.insert(base, (size, block.start()));
        found.blocks.push(block);
        Some(place)
    }

    fn find_kept(&self, address: u64) -> Option<(u64, u64, Address)> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let (&base, &(size, start)) = found.ranges.range(..=address).next_back()?;
        (address - base < size).then_some((base, size, start))
    }

    fn find_place(&self, address: u64) -> Option<(u64, u64, Address)> {
        if address.wrapping_sub(WORKSPACE) < 16 {
            let start = (&raw const self.workspace.0).cast_mut().cast();
            return Some((WORKSPACE, 16, Address::new(start)?));
        }
        if let Some(place) = self.find_kept(address) {
            return Some(place);
        }
        if self.heap.get().is_none() {
            let state = lock();
            if let Some(place) = self.keep(&state, address) {
                return Some(place);
            }
            // What an earlier kernel allocated.
            let heap = state.contexts.get(&self.context)?.heap.clone()?;
            let _ = self.heap.set(heap);
        }
        let heap = self.heap.get()?;
        match heap.contains(address) {
            true => heap.find(address),
            false => self.keep(&lock(), address),
        }
    }
}

// SAFETY: the blocks of all memory that is found, and the heap, are kept until this value is dropped, which is after the
// launch. Beside kernels, copies and fills access it, which the program must order, as it must with a driver, and the host
// where it is managed or page-locked.
unsafe impl Memory for KernelMemory {
    fn find(&self, address: u64) -> Option<Region<'_>> {
        let (start, len, host) = self.find_place(address)?;
        let host = NonNull::new(host.as_ptr())?;
        // SAFETY: as above.
        Some(unsafe { Region::new(start, len, host) })
    }
}

impl Host for KernelMemory {
    fn print(&self, text: &str) {
        let mut printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
        printed.push_str(text);
    }

    fn allocate(&self, bytes: u64) -> u64 {
        if self.heap.get().is_none()
            && let Some(heap) = lock().heap(self.context)
        {
            let _ = self.heap.set(heap);
        }
        self.heap.get().map_or(0, |heap| heap.allocate(bytes))
    }

    fn free(&self, address: u64) -> bool {
        if self.heap.get().is_none()
            && let Some(heap) = lock().heap(self.context)
        {
            let _ = self.heap.set(heap);
        }
        self.heap.get().is_some_and(|heap| heap.free(address))
    }

    fn nanoseconds(&self) -> u64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(0))
    }
}

impl DriverState {
    /// The memory at an address for a kernel with this number.
    pub(crate) fn memory_of_launch(&self, address: u64, launch: u64) -> Option<&MemoryRange> {
        let pending = self.pending_frees.values();
        let later = pending.filter(|own| own.freed_after >= launch && own.contains(address));
        // The same address may be allocated and freed several times.
        let first = later.min_by_key(|own| own.freed_after);
        first.or_else(|| self.map.find(address))
    }

    /// The heap of a context; `None` if there is no memory for it.
    fn heap(&mut self, context: Id) -> Option<Arc<Heap>> {
        let own = self.contexts.get(&context)?;
        if let Some(heap) = &own.heap {
            return Some(heap.clone());
        }
        let bytes = own.limits.get(&limit::MALLOC_HEAP_SIZE);
        let bytes = to_pages(bytes.copied().unwrap_or(DEFAULT_HEAP) as u64)?;
        let device = self.device_of(context);
        self.reserve_pages(device, bytes).ok()?;
        let base = self.addresses.pages.allocate(bytes, PAGE);
        let heap = base.and_then(|base| Heap::new(base, bytes));
        let Some(heap) = heap.map(Arc::new) else {
            if let Some(base) = base {
                self.addresses.pages.free(base, bytes);
            }
            self.device_mut(device).memory.release(bytes);
            return None;
        };
        self.contexts.get_mut(&context)?.heap = Some(heap.clone());
        Some(heap)
    }

    /// Releases the heap of a context, which is idle.
    pub(super) fn release_heap(&mut self, context: Id) {
        let own = self.contexts.get_mut(&context);
        let Some(heap) = own.and_then(|own| own.heap.take()) else {
            return;
        };
        let device = self.device_of(context);
        self.device_mut(device).memory.release(heap.bytes());
        self.addresses.pages.free(heap.base(), heap.bytes());
    }
}
