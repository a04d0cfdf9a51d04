//! The simulated machine: devices, contexts and all that they hold, behind one lock.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard};
use std::time::Instant;

use cuguard_sys::{CUDA_ARRAY3D_DESCRIPTOR, CUmemAllocationProp, CUresult};

use crate::address_map::{AddressMap, DEVICE_BASE, DEVICE_SPAN, Origin, Range};
use crate::config::{Config, ConfigError};
use crate::counters::Counters;
use crate::current;
use crate::gaps::Gaps;
use crate::handle::{self, Kind};
use crate::memory_block::MemoryBlock;
use crate::misuse;
use crate::physical::{DeviceMemory, PACKED_MAX, PackedPages, to_pages};
use crate::pool::{POOL_SPAN, Pool};
use crate::queue::Stream;

/// What a simulated function answers: nothing, or the code of what went wrong.
pub(crate) type Answer = Result<(), CUresult>;

#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) memory: DeviceMemory,
    /// The primary context keeps its handle for the life of the process, active or not.
    pub(crate) primary: u32,
    pub(crate) primary_retains: u64,
    pub(crate) primary_flags: u32,
    pub(crate) default_pool: u32,
    pub(crate) pool: u32,
}

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) device: u32,
    pub(crate) is_primary: bool,
    pub(crate) alive: bool,
    pub(crate) flags: u32,
    pub(crate) limits: HashMap<u32, usize>,
    pub(crate) cache_config: u32,
    pub(crate) packed: PackedPages,
    /// The legacy default stream.
    pub(crate) legacy: u32,
    /// Thread number → the thread's own default stream.
    pub(crate) per_thread: HashMap<u64, u32>,
}

#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) context: u32,
    pub(crate) flags: u32,
    /// The last record: stream, piece of work, and when it happened.
    pub(crate) record: Option<(u32, u64, Option<Instant>)>,
}

#[derive(Debug)]
pub(crate) struct Physical {
    pub(crate) device: u32,
    pub(crate) size: u64,
    pub(crate) prop: SendProp,
    pub(crate) block: Arc<MemoryBlock>,
    pub(crate) handles: u64,
    pub(crate) mappings: u64,
}

/// Physical memory's properties with the one pointer in them (a Windows matter) left out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendProp {
    type_: u32,
    requested_handle_types: u32,
    location: cuguard_sys::CUmemLocation,
}

impl From<CUmemAllocationProp> for SendProp {
    fn from(prop: CUmemAllocationProp) -> Self {
        Self {
            type_: prop.type_,
            requested_handle_types: prop.requestedHandleTypes,
            location: prop.location,
        }
    }
}

impl From<SendProp> for CUmemAllocationProp {
    fn from(prop: SendProp) -> Self {
        Self {
            type_: prop.type_,
            requestedHandleTypes: prop.requested_handle_types,
            location: prop.location,
            ..Self::default()
        }
    }
}

#[derive(Debug)]
pub(crate) struct Array {
    pub(crate) context: u32,
    pub(crate) descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    pub(crate) row_bytes: usize,
    pub(crate) bytes: u64,
    pub(crate) block: Arc<MemoryBlock>,
}

#[derive(Debug, Default)]
pub(crate) struct Machine {
    pub(crate) config: Config,
    pub(crate) devices: Vec<Device>,
    pub(crate) contexts: HashMap<u32, Context>,
    pub(crate) streams: BTreeMap<u32, Stream>,
    pub(crate) events: HashMap<u32, Event>,
    pub(crate) pools: BTreeMap<u32, Pool>,
    pub(crate) physical: HashMap<u32, Physical>,
    pub(crate) arrays: HashMap<u32, Array>,
    pub(crate) map: AddressMap,
    /// Free device addresses for whole pages, and those for pages of packed blocks: the address of
    /// a large block that is gone does not come back as that of a small one.
    pub(crate) addresses: Gaps,
    pub(crate) packed_addresses: Gaps,
    /// `cuMemAddressReserve`: base → size.
    pub(crate) reservations: BTreeMap<u64, u64>,
    last_id: u32,
    last_range: u64,
}

static MACHINE: LazyLock<Mutex<Machine>> = LazyLock::new(Mutex::default);
/// Told whenever a piece of work on a stream is done.
static PROGRESS: Condvar = Condvar::new();
static RUNNING: AtomicBool = AtomicBool::new(false);
/// The code that [`corrupt`] left, 0 for none.
static CORRUPTED: AtomicU32 = AtomicU32::new(0);

pub(crate) type Guard = MutexGuard<'static, Machine>;

/// Whether this process is the child of one in which the machine ran. Its threads are not here,
/// and its lock may be held by one of them; a real driver answers that it is not initialised.
static FORKED: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    /// From the C library: what to call around `fork`.
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> i32;
}

extern "C" fn in_forked_child() {
    FORKED.store(true, Ordering::Release);
}

pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Acquire)
}

pub(crate) fn is_running() -> bool {
    RUNNING.load(Ordering::Acquire)
}

pub(crate) fn lock() -> Guard {
    // A panic under the lock aborts the process at the C boundary, so poison means nothing here.
    MACHINE.lock().unwrap_or_else(|e| e.into_inner())
}

/// Waits until a condition holds that streams bring about.
pub(crate) fn wait_until(guard: Guard, mut holds: impl FnMut(&Machine) -> bool) -> Guard {
    PROGRESS
        .wait_while(guard, |machine| !holds(machine))
        .unwrap_or_else(|e| e.into_inner())
}

pub(crate) fn tell_progress() {
    PROGRESS.notify_all();
}

/// Starts the machine if it does not run yet.
pub(crate) fn start() -> Answer {
    let started = crate::config::with_chosen(|config| {
        let mut machine = lock();
        if is_running() {
            return Ok(());
        }
        if config.devices == 0 {
            return Err(CUresult::NO_DEVICE);
        }
        // SAFETY: the handler only stores a flag, which is allowed in a forked child. Without it
        // (no memory left) a forked child would wait for ever, as with any lock.
        unsafe { pthread_atfork(None, None, Some(in_forked_child)) };
        *machine = Machine::new(config);
        RUNNING.store(true, Ordering::Release);
        Ok(())
    });
    started.unwrap_or_else(|error: ConfigError| {
        eprintln!("cuguard-sim: CUGUARD_SIM: {error}");
        Err(CUresult::INVALID_VALUE)
    })
}

impl Machine {
    fn new(config: Config) -> Self {
        let mut machine = Self {
            packed_addresses: Gaps::new(DEVICE_BASE, DEVICE_SPAN / 2),
            addresses: Gaps::new(DEVICE_BASE + DEVICE_SPAN / 2, DEVICE_SPAN / 2),
            config,
            ..Self::default()
        };
        for device in 0..machine.config.devices {
            let primary = machine.new_id();
            let pool = machine.new_id();
            let base = machine
                .addresses
                .take(POOL_SPAN, POOL_SPAN)
                .unwrap_or(DEVICE_BASE);
            machine.pools.insert(pool, Pool::new(device, base));
            machine.devices.push(Device {
                memory: DeviceMemory {
                    total: machine.config.memory,
                    used: 0,
                },
                primary,
                primary_retains: 0,
                primary_flags: 0,
                default_pool: pool,
                pool,
            });
        }
        machine
    }

    pub(crate) fn new_id(&mut self) -> u32 {
        self.last_id += 1;
        self.last_id
    }

    /// The program did what a real driver leaves undefined.
    pub(crate) fn misused(&self, answer: CUresult, what: String) -> CUresult {
        misuse::undefined(self.config.misuse, answer, what)
    }

    /// A handle that is not alive: of something destroyed, or of nothing at all.
    pub(crate) fn dead_handle(&self, kind: Kind, handle: usize, answer: CUresult) -> CUresult {
        let word = kind.word();
        let why = match handle::decode(kind, handle) {
            Some(id) if id <= self.last_id => "was destroyed",
            _ => "never was one",
        };
        self.misused(
            answer,
            format!("the {word} {handle:#x} is used, which {why}"),
        )
    }

    pub(crate) fn device(&self, ordinal: i32) -> Result<u32, CUresult> {
        u32::try_from(ordinal)
            .ok()
            .filter(|device| (*device as usize) < self.devices.len())
            .ok_or(CUresult::INVALID_DEVICE)
    }

    pub(crate) fn on(&self, device: u32) -> &Device {
        &self.devices[device as usize]
    }

    pub(crate) fn on_mut(&mut self, device: u32) -> &mut Device {
        &mut self.devices[device as usize]
    }

    /// The calling thread's current context, which must be alive.
    pub(crate) fn current(&self) -> Result<u32, CUresult> {
        let context = current::top().ok_or(CUresult::INVALID_CONTEXT)?;
        self.check_alive(context)?;
        Ok(context)
    }

    /// The same for what hands out memory: refused as well when a stray access has made all
    /// contexts unusable.
    pub(crate) fn usable_current(&self) -> Result<u32, CUresult> {
        let context = self.current()?;
        corrupted()?;
        Ok(context)
    }

    /// The bytes of managed memory that a device has used.
    pub(crate) fn resident_managed(&self, device: u32) -> u64 {
        let managed = self.map.iter().filter(|range| {
            range.origin == Origin::Managed && range.device == device && range.block.was_used()
        });
        managed.filter_map(|range| to_pages(range.size)).sum()
    }

    pub(crate) fn check_alive(&self, context: u32) -> Answer {
        match self.contexts.get(&context) {
            Some(c) if c.alive => Ok(()),
            _ => Err(CUresult::CONTEXT_IS_DESTROYED),
        }
    }

    /// What calls need that work without a current context, but not with a dead one.
    pub(crate) fn check_current_if_any(&self) -> Answer {
        current::top().map_or(Ok(()), |context| self.check_alive(context))
    }

    /// The device of a context that exists.
    pub(crate) fn device_of(&self, context: u32) -> u32 {
        self.contexts.get(&context).map_or(0, |c| c.device)
    }

    /// Makes a context, or brings a primary one back to life. It costs device memory.
    pub(crate) fn open_context(&mut self, id: u32, device: u32, flags: u32) -> Answer {
        let cost = self.config.context_cost;
        if !self.take_pages(device, cost) {
            return Err(CUresult::OUT_OF_MEMORY);
        }
        let legacy = self.new_id();
        self.streams.insert(legacy, Stream::legacy(id));
        let is_primary = self.on(device).primary == id;
        self.contexts.insert(
            id,
            Context {
                device,
                is_primary,
                alive: true,
                flags,
                limits: HashMap::new(),
                cache_config: 0,
                packed: PackedPages::new(),
                legacy,
                per_thread: HashMap::new(),
            },
        );
        Ok(())
    }

    /// Ends a context: all that it holds goes, its own cost comes back. Its streams must be idle.
    /// Stream-ordered memory stays, as it belongs to the device.
    pub(crate) fn close_context(&mut self, id: u32) {
        let device = self.device_of(id);
        for range in self.map.remove_where(|range| range.context == Some(id)) {
            self.release_range(&range);
        }
        let arrays: Vec<u32> = self
            .arrays
            .iter()
            .filter(|(_, a)| a.context == id)
            .map(|(id, _)| *id)
            .collect();
        for array in arrays {
            self.remove_array(array);
        }
        self.streams.retain(|_, stream| {
            if stream.context == id {
                stream.dismiss();
            }
            stream.context != id
        });
        let cost = self.config.context_cost;
        if let Some(context) = self.contexts.get_mut(&id) {
            context.alive = false;
            let packed = context.packed.bytes();
            debug_assert_eq!(packed, 0, "every packed block went with its range");
        }
        self.on_mut(device).memory.give(cost);
    }

    /// Pages from a device; pools give back what they only hoard before that fails.
    pub(crate) fn take_pages(&mut self, device: u32, bytes: u64) -> bool {
        if self.on_mut(device).memory.take(bytes) {
            return true;
        }
        self.squeeze_pools(device);
        self.on_mut(device).memory.take(bytes)
    }

    /// Has every pool of a device give back what it does not use.
    pub(crate) fn squeeze_pools(&mut self, device: u32) {
        let streams = &self.streams;
        let memory = &mut self.devices[device as usize].memory;
        for pool in self.pools.values_mut().filter(|pool| pool.device == device) {
            pool.observe(|stream| Some(streams.get(&stream).map_or(u64::MAX, Stream::completed)));
            pool.release(0, memory);
        }
    }

    /// Device memory for `cuMemAlloc` in a context.
    pub(crate) fn take_device_memory(&mut self, context: u32, bytes: u64) -> Result<u64, CUresult> {
        let device = self.device_of(context);
        if bytes > PACKED_MAX {
            let pages = to_pages(bytes).ok_or(CUresult::OUT_OF_MEMORY)?;
            if pages > self.on(device).memory.total || !self.take_pages(device, pages) {
                return Err(CUresult::OUT_OF_MEMORY);
            }
            let base = self.addresses.take(pages, crate::PAGE);
            if base.is_none() {
                self.on_mut(device).memory.give(pages);
            }
            return base.ok_or(CUresult::OUT_OF_MEMORY);
        }
        for squeezed in [false, true] {
            if squeezed {
                self.squeeze_pools(device);
            }
            let memory = &mut self.devices[device as usize].memory;
            let context = self
                .contexts
                .get_mut(&context)
                .ok_or(CUresult::INVALID_CONTEXT)?;
            if let Some(at) = context
                .packed
                .take(bytes, memory, &mut self.packed_addresses)
            {
                return Ok(at);
            }
        }
        Err(CUresult::OUT_OF_MEMORY)
    }

    /// Enters a range into the map, with an id of its own.
    pub(crate) fn add_range(&mut self, mut range: Range) {
        self.last_range += 1;
        range.id = self.last_range;
        self.map.insert(range);
    }

    /// Gives back what a range that has left the map took.
    pub(crate) fn release_range(&mut self, range: &Range) {
        let memory = &mut self.devices[range.device as usize].memory;
        match range.origin {
            Origin::Device if range.size > PACKED_MAX => {
                let pages = to_pages(range.size).unwrap_or(range.size);
                memory.give(pages);
                self.addresses.give(range.base, pages);
            }
            Origin::Device => {
                let context = range.context.and_then(|id| self.contexts.get_mut(&id));
                if let Some(context) = context {
                    let addresses = &mut self.packed_addresses;
                    context
                        .packed
                        .give(range.base, range.size, memory, addresses);
                }
            }
            Origin::Pool(id) => {
                if let Some(pool) = self.pools.get_mut(&id) {
                    pool.free_now(range.base, range.size);
                    pool.release(pool.release_threshold, memory);
                }
                self.drop_pool_if_done(id);
            }
            Origin::Mapping { physical, .. } => {
                if let Some(physical) = self.physical.get_mut(&physical) {
                    physical.mappings -= 1;
                }
                self.drop_physical_if_done(physical);
            }
            Origin::Pinned | Origin::Registered | Origin::Managed => {}
        }
    }

    /// A destroyed pool goes with its last block.
    pub(crate) fn drop_pool_if_done(&mut self, id: u32) {
        let Some(pool) = self.pools.get_mut(&id) else {
            return;
        };
        if pool.destroyed && pool.live == 0 {
            pool.release(0, &mut self.devices[pool.device as usize].memory);
            if pool.reserved() == 0 {
                let base = pool.base;
                self.pools.remove(&id);
                self.addresses.give(base, POOL_SPAN);
            }
        }
    }

    /// Physical memory goes when neither a handle nor a mapping refers to it.
    pub(crate) fn drop_physical_if_done(&mut self, id: u32) {
        if let Some(physical) = self.physical.get(&id)
            && physical.handles == 0
            && physical.mappings == 0
        {
            let (device, size) = (physical.device, physical.size);
            self.physical.remove(&id);
            self.on_mut(device).memory.give(size);
        }
    }

    pub(crate) fn remove_array(&mut self, id: u32) {
        if let Some(array) = self.arrays.remove(&id) {
            let device = self.device_of(array.context);
            self.on_mut(device)
                .memory
                .give(to_pages(array.bytes).unwrap_or(0));
        }
    }
}

/// Breaks the simulated machine as a kernel's access to a bad address breaks a real one: from now
/// on, whatever needs a context answers `code`, on every context and every thread, and no new
/// context can be had. Only a new process helps.
///
/// ```no_run
/// use cuguard_sys::CUresult;
///
/// cuguard_sim::corrupt(CUresult::ILLEGAL_ADDRESS);
/// ```
pub fn corrupt(code: CUresult) {
    CORRUPTED.store(code.0, Ordering::Release);
}

/// What a stray access left behind, if there was one.
pub(crate) fn corrupted() -> Answer {
    CUresult(CORRUPTED.load(Ordering::Acquire)).ok()
}

pub(crate) fn count_into(counters: &mut Counters) {
    let machine = lock();
    counters.contexts = machine.contexts.values().filter(|c| c.alive).count() as u64;
    counters.streams = machine.streams.values().filter(|s| s.is_created()).count() as u64;
    let orphaned = |event: &&Event| machine.check_alive(event.context).is_ok();
    counters.events = machine.events.values().filter(orphaned).count() as u64;
    let defaults = machine.devices.len();
    counters.pools = machine
        .pools
        .values()
        .filter(|pool| !pool.destroyed)
        .count() as u64;
    counters.pools -= defaults as u64;
    for range in machine.map.iter() {
        match range.origin {
            Origin::Device => counters.device.add(range.size),
            Origin::Pool(_) => counters.pooled.add(range.size),
            Origin::Pinned => counters.pinned.add(range.size),
            Origin::Registered => counters.registered.add(range.size),
            Origin::Managed => counters.managed.add(range.size),
            // Counted once, as physical memory.
            Origin::Mapping { .. } => {}
        }
    }
    machine
        .arrays
        .values()
        .for_each(|array| counters.arrays.add(array.bytes));
    machine
        .physical
        .values()
        .for_each(|physical| counters.physical.add(physical.size));
    machine
        .reservations
        .values()
        .for_each(|size| counters.reserved.add(*size));
    counters.device_bytes_in_use = machine.devices.iter().map(|d| d.memory.used).sum();
}
