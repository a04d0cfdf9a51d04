//! The simulated machine: devices, contexts and all that they hold, behind one lock.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use cuguard_sys::{CUDA_ARRAY3D_DESCRIPTOR, CUmemAllocationProp, CUresult};

use crate::address_map::AddressMap;
use crate::address_space::AddressSpace;
use crate::config::{Config, ConfigError};
use crate::context::Context;
use crate::counters::Counters;
use crate::crew::Crew;
use crate::current;
use crate::engine;
use crate::event_table::EventTable;
use crate::handle::{self, Id, Kind, Numbers};
use crate::lock::{Leftover, lock};
use crate::memory_block::MemoryBlock;
use crate::misuse;
use crate::os;
use crate::others::OtherProcess;
use crate::physical::{DeviceMemory, to_pages};
use crate::pool::Pool;
use crate::quarantine::Quarantine;
use crate::queue::Stream;

/// What a simulated function answers: nothing, or the code of what went wrong.
pub(crate) type Answer = Result<(), CUresult>;

#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) memory: DeviceMemory,
    /// Who holds `memory.others`.
    pub(crate) others: Vec<OtherProcess>,
    /// The primary context keeps its handle for the life of the process, active or not.
    pub(crate) primary: Id,
    pub(crate) primary_retains: u64,
    pub(crate) primary_flags: u32,
    pub(crate) default_pool: Id,
    pub(crate) pool: Id,
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
    pub(crate) context: Id,
    pub(crate) descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    pub(crate) row_bytes: usize,
    pub(crate) bytes: u64,
    pub(crate) block: Arc<MemoryBlock>,
}

#[derive(Debug, Default)]
pub(crate) struct Machine {
    pub(crate) config: Config,
    pub(crate) devices: Vec<Device>,
    /// Those alive. A context that is not here and whose number was given out is destroyed.
    pub(crate) contexts: HashMap<Id, Context>,
    pub(crate) streams: HashMap<Id, Stream>,
    pub(crate) events: EventTable,
    pub(crate) pools: BTreeMap<Id, Pool>,
    pub(crate) physical: HashMap<Id, Physical>,
    pub(crate) arrays: HashMap<Id, Array>,
    pub(crate) map: AddressMap,
    pub(crate) addresses: AddressSpace,
    /// `cuMemAddressReserve`: base → size.
    pub(crate) reservations: BTreeMap<u64, u64>,
    pub(crate) quarantine: Quarantine,
    pub(crate) crew: Crew,
    pub(crate) leftovers: Vec<Leftover>,
    /// How many threads wait for memory that work in flight holds.
    pub(crate) watchers: usize,
    pub(crate) numbers: Numbers,
    pub(crate) last_range: u64,
}

static RUNNING: AtomicBool = AtomicBool::new(false);
/// The code that [`corrupt`] left, 0 for none.
static CORRUPTED: AtomicU32 = AtomicU32::new(0);

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

/// Starts the machine if it does not run yet.
pub(crate) fn start() -> Answer {
    // What the environment says matters only once, before the machine runs.
    if is_running() {
        return Ok(());
    }
    let started = crate::config::with_chosen(|config| {
        let mut machine = lock();
        if is_running() {
            return Ok(());
        }
        if config.devices == 0 {
            return Err(CUresult::NO_DEVICE);
        }
        *machine = Machine::new(config)?;
        // SAFETY: the handler only stores a flag, which is allowed in a forked child. Without it
        // (no memory left) a forked child would wait for ever, as with any lock.
        unsafe { pthread_atfork(None, None, Some(in_forked_child)) };
        RUNNING.store(true, Ordering::Release);
        Ok(())
    });
    started.unwrap_or_else(|error: ConfigError| {
        os::say(&format!("CUGUARD_SIM: {error}"));
        Err(CUresult::INVALID_VALUE)
    })
}

impl Machine {
    fn new(config: Config) -> Result<Self, CUresult> {
        let mut machine = Self {
            map: AddressMap::new(config.devices),
            addresses: AddressSpace::new(&config),
            config,
            ..Self::default()
        };
        for device in 0..machine.config.devices {
            let primary = machine.numbers.next_context(device);
            let pool = machine.add_pool(device)?;
            machine.devices.push(Device {
                memory: DeviceMemory::new(machine.config.memory),
                others: Vec::new(),
                primary,
                primary_retains: 0,
                primary_flags: 0,
                default_pool: pool,
                pool,
            });
        }
        Ok(machine)
    }

    /// The program did what a real driver leaves undefined.
    pub(crate) fn misused(&self, answer: CUresult, what: String) -> CUresult {
        misuse::undefined(self.config.misuse, answer, what)
    }

    /// A handle that is not alive: of something destroyed, or of nothing at all.
    pub(crate) fn dead_handle(&self, kind: Kind, handle: usize, answer: CUresult) -> CUresult {
        let word = kind.word();
        let why = match handle::decode(kind, handle) {
            Some(id) if self.numbers.was_given(kind, id) => "was destroyed",
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
    pub(crate) fn current(&self) -> Result<Id, CUresult> {
        let context = current::top().ok_or(CUresult::INVALID_CONTEXT)?;
        self.check_alive(context)?;
        Ok(context)
    }

    /// The same for what hands out memory: refused as well when a stray access has made all
    /// contexts unusable.
    pub(crate) fn usable_current(&self) -> Result<Id, CUresult> {
        let context = self.current()?;
        corrupted()?;
        Ok(context)
    }

    /// What calls need that work without a current context, but not with a dead one.
    pub(crate) fn check_current_if_any(&self) -> Answer {
        current::top().map_or(Ok(()), |context| self.check_alive(context))
    }

    /// Pages from a device; pools give back what they only hoard before that fails.
    pub(crate) fn take_pages(&mut self, device: u32, bytes: u64) -> bool {
        if self.on_mut(device).memory.take(bytes) {
            return true;
        }
        self.squeeze_pools(device, None);
        self.on_mut(device).memory.take(bytes)
    }

    /// Has every pool of a device give back what it does not use. Measured: what was freed on a
    /// stream that nobody has waited for since stays where it is, also when the stream is long done;
    /// only the pool that is asked for memory itself looks how far its streams are.
    pub(crate) fn squeeze_pools(&mut self, device: u32, asked: Option<Id>) {
        let streams = &self.streams;
        let memory = &mut self.devices[device as usize].memory;
        let here = self.pools.iter_mut();
        for (id, pool) in here.filter(|(_, pool)| pool.device == device) {
            pool.observe(|stream| match streams.get(&stream) {
                None => Some(u64::MAX),
                Some(stream) => (asked == Some(*id)).then_some(stream.completed),
            });
            pool.release(0, memory);
        }
    }

    pub(crate) fn add_pool(&mut self, device: u32) -> Result<Id, CUresult> {
        let base = self.addresses.take_pool().ok_or(CUresult::OUT_OF_MEMORY)?;
        let id = self.numbers.next(Kind::Pool);
        let span = self.addresses.pool_span();
        self.pools.insert(id, Pool::new(device, base, span));
        Ok(id)
    }

    /// A destroyed pool goes with its last block.
    pub(crate) fn drop_pool_if_done(&mut self, id: Id) {
        let Some(pool) = self.pools.get_mut(&id) else {
            return;
        };
        if pool.destroyed && pool.live == 0 {
            pool.release(0, &mut self.devices[pool.device as usize].memory);
            if pool.reserved() == 0 {
                let base = pool.base;
                self.pools.remove(&id);
                self.addresses.give_pool(base);
            }
        }
    }

    /// Physical memory goes when neither a handle nor a mapping refers to it.
    pub(crate) fn drop_physical_if_done(&mut self, id: Id) {
        if let Some(physical) = self.physical.get(&id)
            && physical.handles == 0
            && physical.mappings == 0
            && let Some(physical) = self.physical.remove(&id)
        {
            self.on_mut(physical.device).memory.give(physical.size);
            self.discard(physical.block);
        }
    }

    pub(crate) fn remove_array(&mut self, id: Id) {
        if let Some(array) = self.arrays.remove(&id) {
            let device = self.device_of(array.context);
            let pages = to_pages(array.bytes).unwrap_or(0);
            self.on_mut(device).memory.give(pages);
            if let Some(context) = self.contexts.get_mut(&array.context) {
                context.arrays.remove(&id);
            }
            self.discard(array.block);
        }
    }
}

/// Breaks the simulated machine as a kernel's access to a bad address breaks a real one: from now
/// on, whatever needs a context answers `code`, on every context and every thread, no new context
/// can be had, and work that is in flight stops. Only a new process helps: there is no way back, and `CUDA_SUCCESS`, which
/// is nothing to break a machine with, is ignored.
///
/// ```no_run
/// use cuguard_sys::CUresult;
///
/// cuguard_sim::corrupt(CUresult::ILLEGAL_ADDRESS);
/// ```
pub fn corrupt(code: CUresult) {
    if !code.is_success() {
        CORRUPTED.store(code.0, Ordering::Release);
        engine::stop(code);
    }
}

/// What a stray access left behind, if there was one.
pub(crate) fn corrupted() -> Answer {
    CUresult(CORRUPTED.load(Ordering::Acquire)).ok()
}

pub(crate) fn count_into(counters: &mut Counters) {
    let machine = lock();
    let alive = machine.contexts.values().filter(|c| c.closing.is_none());
    counters.contexts = alive.count() as u64;
    counters.streams = machine.streams.values().filter(|s| s.is_created()).count() as u64;
    counters.events = machine.events.len() as u64;
    let created = machine.pools.values().filter(|pool| !pool.destroyed);
    counters.pools = (created.count() - machine.devices.len()) as u64;
    machine.map.count_into(counters);
    for array in machine.arrays.values() {
        counters.arrays.add(array.bytes);
    }
    for physical in machine.physical.values() {
        counters.physical.add(physical.size);
    }
    for size in machine.reservations.values() {
        counters.reserved.add(*size);
    }
    counters.device_bytes_in_use = machine.devices.iter().map(|d| d.memory.used).sum();
}
