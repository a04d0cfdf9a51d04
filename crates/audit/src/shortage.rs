//! Out of memory: when the driver refuses an allocation, the diagnosis goes to standard error before the program gets its error
//! code. It is kept for the report. A call site is diagnosed again where the program went on and allocated in between: what it is
//! refused later may be what ends it.
//!
//! An allocator that is refused memory may free what it caches and retry, from another line: that is the same request, which is
//! diagnosed and counted once.
//!
//! The driver is queried through its own functions, which are not recorded. The program's thread is inside a driver call
//! that has returned, so the driver can be called here; what it does not return is unknown, and the diagnosis says so.

mod on_device;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use cuguard_nvml::{Nvml, Process};
use cuguard_registry::{Amount, Origin, Refusals, Registry, ResourceKind, record_out_of_memory};
use cuguard_report::audit::{Refused, program_functions};
use cuguard_report::oom::{
    FailedRequest, GraphMemoryUse, KindUsage, OutOfMemory, PoolUse, ProcessUse, Processes, Settings,
};
use cuguard_report::register_frames;
use cuguard_sys::{CUdevice, CUmemoryPool, CUresult, graph_mem_attribute, pool_attribute};

use crate::real::queries;
use crate::state::contexts;
use crate::{origin, python, state, stderr};
use on_device::OnDevice;

/// Held while an allocation is diagnosed, so that the diagnoses of several threads follow each other.
static DIAGNOSING: Mutex<()> = Mutex::new(());

/// What was refused, by a hash of function and stack trace, in this order; a retry as the call site of the first try. Never held while
/// the driver is called.
static REFUSED: Mutex<Table> = Mutex::new(Table::new());

/// The same by device.
static REFUSALS: Refusals = Refusals::new();

/// The devices of the pools that the program created. Held while pools are queried, and while the record of a pool that is
/// about to be destroyed is removed: what has a record under this lock is not destroyed yet.
static POOLS: Mutex<BTreeMap<u64, CUdevice>> = Mutex::new(BTreeMap::new());

/// The devices of pools, locked.
pub(crate) fn pools() -> MutexGuard<'static, BTreeMap<u64, CUdevice>> {
    cuguard_sync::lock(&POOLS)
}

/// How many diagnoses of a call site are printed: a program that allocates as much as it can is refused all the time.
const MAX_PRINTED: u32 = 3;

/// How long a diagnosis lasts that another one, which is not printed, would replace in the report.
const DIAGNOSED_FOR: Duration = Duration::from_secs(10);

/// A thread that asks again later than this after it was refused does not retry.
const RETRIED_FOR: Duration = Duration::from_secs(10);

/// How many call sites the diagnosis has.
const MAX_SITES: usize = 32;

/// Diagnoses an allocation that the driver refused for lack of memory. `bytes` is 0 where only the driver knows. Without a
/// device, it is the current one.
#[cold]
pub(crate) fn refused(
    function: &'static str,
    kind: Option<ResourceKind>,
    bytes: u64,
    device: Option<CUdevice>,
) {
    let trace = origin::trace();
    state::begin();
    register_frames(python::resolve);
    let origin = Origin::from_frames(trace.stack());
    let mut hasher = DefaultHasher::new();
    (function, origin.stack).hash(&mut hasher);
    let hash = hasher.finish();
    ANY.store(true, Relaxed);
    let now = Instant::now();
    let last = Last {
        hash,
        function,
        bytes,
        device,
        at: now,
    };
    let before = LAST.replace(Some(last));
    let before = before.filter(|before| now - before.at < RETRIED_FOR);
    if let Some(first) = before
        && first.hash != hash
        && (first.function, first.bytes, first.device) == (function, bytes, device)
        && is_retry(hash, first.hash, origin)
    {
        // It may be tried once more.
        LAST.set(Some(Last { at: now, ..first }));
        return;
    }
    let recorded = record_out_of_memory(bytes, || trace, contexts::current());
    let of_host = kind.is_some_and(|kind| kind.is_memory() && !kind.is_device_memory());
    let on = device
        .or_else(contexts::current_device)
        .filter(|_| !of_host);
    REFUSALS.count(on.and_then(|on| u32::try_from(on).ok()), bytes);
    let bytes_asked_for = bytes;
    let bytes = (bytes != 0).then_some(bytes);
    let new = Refused {
        function: function.to_owned(),
        kind,
        bytes,
        origin,
        ..Refused::default()
    };
    // Freed something, perhaps, and tries again, with less perhaps: it is the same request.
    let is_retry = before.is_some_and(|before| {
        before.hash == hash && before.device == device && bytes_asked_for <= before.bytes
    });
    let Some(is_printed) = note(hash, new, is_retry) else {
        return;
    };
    let diagnosing = cuguard_sync::lock(&DIAGNOSING);
    let why = queries::beside_captures(|| diagnose(function, kind, bytes, origin, device));
    let text = why.to_text();
    if is_printed {
        stderr::print(&text);
    }
    drop(diagnosing);
    recorded.diagnose(|| text.clone());
    if let Some(one) = table().find(hash) {
        one.diagnosis = text;
    }
    // The program has not run since it was refused.
    LAST.set(Some(Last {
        at: Instant::now(),
        ..last
    }));
}

/// An allocation that was refused.
#[derive(Clone, Copy)]
struct Last {
    /// Of its call site.
    hash: u64,
    function: &'static str,
    bytes: u64,
    /// The device that the call names.
    device: Option<CUdevice>,
    at: Instant,
}

/// Whether anything was refused.
static ANY: AtomicBool = AtomicBool::new(false);

/// How often memory was allocated since, by all threads: the program goes on.
static ALLOCATED: AtomicU64 = AtomicU64::new(0);

/// The calling thread has allocated memory, or created a resource by this function: what it is refused next is not a retry.
#[inline]
pub(crate) fn created(function: &'static str, kind: ResourceKind) {
    if ANY.load(Relaxed) {
        goes_on(function, kind);
    }
}

#[cold]
fn goes_on(function: &'static str, kind: ResourceKind) {
    // Other resources may be created between two tries: an event, to wait for.
    let was_refused = || LAST.get().is_some_and(|last| last.function == function);
    if kind.is_memory() || was_refused() {
        ALLOCATED.fetch_add(1, Relaxed);
        LAST.set(None);
    }
}

thread_local! {
    /// What the thread was refused last, and where.
    static LAST: Cell<Option<Last>> = const { Cell::new(None) };
}

struct Site {
    hash: u64,
    refused: Refused,
    printed: u32,
    /// When it was diagnosed last, and how much was allocated by then.
    diagnosed: Option<(Instant, u64)>,
}

struct Table {
    sites: Vec<Site>,
    /// Call sites that retry, and those of the first try.
    retries: Vec<(u64, u64)>,
}

impl Table {
    const fn new() -> Self {
        Self {
            sites: Vec::new(),
            retries: Vec::new(),
        }
    }

    fn find(&mut self, hash: u64) -> Option<&mut Refused> {
        self.site(hash).map(|site| &mut site.refused)
    }

    fn site(&mut self, hash: u64) -> Option<&mut Site> {
        self.sites.iter_mut().find(|site| site.hash == hash)
    }
}

fn table() -> MutexGuard<'static, Table> {
    cuguard_sync::lock(&REFUSED)
}

/// Whether a call site retries what the thread was refused at another: through the same functions of the program, wherever a library
/// or one of these functions calls from.
fn is_retry(hash: u64, first: u64, origin: Origin) -> bool {
    let first_stack = {
        let mut table = table();
        if table.retries.contains(&(hash, first)) {
            return true;
        }
        if table.find(hash).is_some() {
            return false;
        }
        table.find(first).map(|first| first.origin.stack)
    };
    // Names are resolved without the lock, once for each pair of call sites.
    let own = program_functions(origin.stack);
    let is_retry = !own.is_empty() && first_stack.is_some_and(|it| program_functions(it) == own);
    if is_retry {
        table().retries.push((hash, first));
    }
    is_retry
}

/// Counts a refused allocation. `None` if it is not diagnosed: the first of its call site is, and later ones if the program went on;
/// otherwise whether the diagnosis is printed.
fn note(hash: u64, new: Refused, is_retry: bool) -> Option<bool> {
    let mut table = table();
    if table.site(hash).is_none() {
        table.sites.push(Site {
            hash,
            refused: new.clone(),
            printed: 0,
            diagnosed: None,
        });
    }
    let site = table.site(hash)?;
    site.refused.count = site.refused.count.saturating_add(1);
    site.refused.largest = site.refused.largest.max(new.bytes);
    let now = (Instant::now(), ALLOCATED.load(Relaxed));
    let is_printed = site.printed < MAX_PRINTED && !is_retry;
    if let Some((then, allocated)) = site.diagnosed
        && (allocated == now.1 || !is_printed && now.0 - then < DIAGNOSED_FOR)
    {
        return None;
    }
    site.diagnosed = Some(now);
    site.printed += u32::from(is_printed);
    Some(is_printed)
}

/// What was refused until now, by device.
pub(crate) fn refused_by_device() -> Vec<(Option<u32>, Amount)> {
    REFUSALS.all()
}

/// What was refused until now, by call site.
pub(crate) fn all_refused() -> Vec<Refused> {
    let sites = &table().sites;
    sites.iter().map(|site| site.refused.clone()).collect()
}

fn diagnose(
    function: &'static str,
    kind: Option<ResourceKind>,
    bytes: Option<u64>,
    origin: Origin,
    device: Option<CUdevice>,
) -> OutOfMemory {
    let code = CUresult::OUT_OF_MEMORY;
    let mut why = OutOfMemory {
        request: FailedRequest {
            operation: function,
            bytes,
            kind,
            stack: origin.stack,
            function: Some(function),
            code: code.0,
            code_name: code.name().unwrap_or_default(),
            ..FailedRequest::default()
        },
        ..OutOfMemory::default()
    };
    let current = contexts::current_device();
    let device = device.or(current).unwrap_or(0);
    let is_current = current == Some(device);
    let devices = devices();
    let is_only = devices == Some(1);
    why.info.device = device.unsigned_abs();
    // SAFETY: both write at most as much as is there.
    let name = text::<128>(|text, len| unsafe { queries::cuDeviceGetName(text, len, device) });
    why.info.device_name = name.unwrap_or_default();
    match memory().filter(|_| is_current) {
        Some((free, total)) => (why.free, why.total) = (Some(free), Some(total)),
        // What is free is known with a context on the device alone.
        None => why.total = total(device),
    }
    why.pools = pools_on(device, is_only);
    why.pools.retain(|pool| pool.reserved != 0);
    why.graphs = graphs(device).unwrap_or_default();
    // SAFETY: as above.
    let address =
        text::<32>(|text, len| unsafe { queries::cuDeviceGetPCIBusId(text, len, device) });
    why.processes = address.map_or_else(
        || Processes::Unknown("the device has no PCI address".to_owned()),
        processes,
    );
    let there = OnDevice::new(state::registry(), device, is_current, is_only);
    holdings(state::registry(), &there, &mut why);
    why.settings.devices = devices.unwrap_or(0);
    why
}

/// What the records of this process have, of the device's memory and of the host's.
fn holdings(registry: &Registry, there: &OnDevice, why: &mut OutOfMemory) {
    let mut amounts = [Amount::default(); ResourceKind::COUNT];
    let usage = registry.memory_usage_of(|key, record| {
        let counts = there.has(key, record);
        if counts {
            amounts[key.kind.index()] += Amount::new(1, record.bytes());
        }
        counts
    });
    for kind in ResourceKind::ALL
        .iter()
        .copied()
        .filter(|kind| kind.is_memory())
    {
        let amount = amounts[kind.index()];
        if amount.count != 0 {
            why.usage.push(KindUsage { kind, amount });
        }
    }
    why.pages = usage.pages;
    why.settings = Settings {
        level: registry.level(),
        audited: true,
        ..Settings::default()
    };
    why.call_sites = usage.sites;
    let request = &why.request;
    why.call_sites
        .retain(|site| request.may_be_why(site.group.kind));
    why.call_sites.truncate(MAX_SITES);
}

fn processes(pci_bus_id: String) -> Processes {
    let listed = Nvml::get().map_err(ToString::to_string).and_then(|nvml| {
        if nvml.is_mig_enabled(&pci_bus_id).unwrap_or(false) {
            return Err(
                "the card is cut into instances (MIG), and NVML lists the processes of all"
                    .to_owned(),
            );
        }
        nvml.processes(&pci_bus_id)
            .map_err(|error| error.to_string())
    });
    let to_use = |process: Process| ProcessUse {
        pid: process.pid,
        name: process.command.or(process.name),
        bytes: process.bytes,
        own: process.own,
    };
    match listed {
        Ok(listed) => {
            let mut list: Vec<_> = listed.into_iter().map(to_use).collect();
            list.sort_by_key(|process| (std::cmp::Reverse(process.bytes), process.pid));
            Processes::Known(list)
        }
        Err(reason) => Processes::Unknown(reason),
    }
}

fn devices() -> Option<u32> {
    let mut count = 0;
    // SAFETY: the variable outlives the call, as in all functions below.
    let result = unsafe { queries::cuDeviceGetCount(&mut count) };
    u32::try_from(count).ok().filter(|_| result.is_success())
}

/// A text that the driver writes.
fn text<const N: usize>(query: impl FnOnce(*mut c_char, i32) -> CUresult) -> Option<String> {
    let mut text = [0_u8; N];
    let result = query(text.as_mut_ptr().cast(), N as i32);
    let text = CStr::from_bytes_until_nul(&text).ok()?;
    result
        .is_success()
        .then(|| text.to_string_lossy().into_owned())
}

/// Total memory of any device.
fn total(device: CUdevice) -> Option<u64> {
    let mut total = 0;
    // SAFETY: as above.
    let result = unsafe { queries::cuDeviceTotalMem_v2(&mut total, device) };
    result.is_success().then_some(total as u64)
}

/// Free and total memory of the current device.
fn memory() -> Option<(u64, u64)> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: as above.
    let result = unsafe { queries::cuMemGetInfo_v2(&mut free, &mut total) };
    result.is_success().then_some((free as u64, total as u64))
}

/// The device's default pool, and those that the program created there. Where there is no other device, also those of
/// which the device is not known: they were imported.
fn pools_on(device: CUdevice, is_only: bool) -> Vec<PoolUse> {
    let mut list = Vec::new();
    let mut default = CUmemoryPool::default();
    // SAFETY: as above.
    if unsafe { queries::cuDeviceGetDefaultMemPool(&mut default, device) }.is_success() {
        list.extend(pool(default, "the device's default pool".to_owned()));
    }
    // Until the list is complete, no pool is destroyed.
    let devices = pools();
    let mut handles = Vec::new();
    state::registry().for_each(|key, _| {
        if key.kind == ResourceKind::MemoryPool {
            handles.push(key.address);
        }
    });
    handles.sort_unstable();
    for (index, handle) in handles.into_iter().enumerate() {
        let is_there = devices.get(&handle).map_or(is_only, |own| *own == device);
        if is_there {
            let name = format!("pool {} of the program", index + 1);
            list.extend(pool(CUmemoryPool(handle as usize), name));
        }
    }
    list
}

/// What the driver's pools on a device, and its graphs, hold and do not use: of the default pool, and of those that the program
/// created there.
pub(crate) fn cached_on(device: CUdevice) -> Option<u64> {
    let mut default = CUmemoryPool::default();
    // SAFETY: as above.
    let result = unsafe { queries::cuDeviceGetDefaultMemPool(&mut default, device) };
    let unused = |handle| {
        let it = pool(handle, String::new())?;
        Some(it.reserved.saturating_sub(it.used))
    };
    let mut sum = result.is_success().then(|| unused(default)).flatten()?;
    // Until all are queried, no pool is destroyed.
    let devices = pools();
    let there = devices.iter().filter(|(_, own)| **own == device);
    for (handle, _) in there {
        sum = sum.saturating_add(unused(CUmemoryPool(*handle as usize)).unwrap_or(0));
    }
    drop(devices);
    let graphs = graphs(device).unwrap_or_default();
    Some(sum.saturating_add(graphs.reserved.saturating_sub(graphs.used)))
}

/// What graphs have reserved of a device.
fn graphs(device: CUdevice) -> Option<GraphMemoryUse> {
    let attribute = |which| {
        let mut value = 0_u64;
        let into = (&raw mut value).cast();
        // SAFETY: as above; these attributes have 8 bytes.
        let result = unsafe { queries::cuDeviceGetGraphMemAttribute(device, which, into) };
        result.is_success().then_some(value)
    };
    Some(GraphMemoryUse {
        reserved: attribute(graph_mem_attribute::RESERVED_MEM_CURRENT)?,
        used: attribute(graph_mem_attribute::USED_MEM_CURRENT)?,
    })
}

fn pool(pool: CUmemoryPool, name: String) -> Option<PoolUse> {
    let attribute = |which| {
        let mut value = 0_u64;
        // SAFETY: as above; these attributes have 8 bytes, and the pool is not destroyed yet.
        let result =
            unsafe { queries::cuMemPoolGetAttribute(pool, which, (&raw mut value).cast()) };
        result.is_success().then_some(value)
    };
    Some(PoolUse {
        name,
        reserved: attribute(pool_attribute::RESERVED_MEM_CURRENT)?,
        used: attribute(pool_attribute::USED_MEM_CURRENT)?,
        threshold: attribute(pool_attribute::RELEASE_THRESHOLD),
        of_cuguard: false,
    })
}
