//! Out of memory: when the driver refuses an allocation, the diagnosis goes to standard error, once for each call site,
//! before the program gets its error code.
//!
//! The driver is queried through its own functions, which are not recorded. The program's thread is inside a driver call
//! that has returned, so the driver can be called here; what it does not return is unknown, and the diagnosis says so.

use std::collections::HashSet;
use std::ffi::{CStr, c_char, c_void};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{LazyLock, Mutex, PoisonError};

use cuguard_nvml::{Nvml, Process};
use cuguard_registry::{Kind, Origin, Registry};
use cuguard_report::oom::{
    FailedRequest, KindUsage, OutOfMemory, PoolUse, ProcessUse, Processes, Settings, print,
};
use cuguard_sys::constants::{
    CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
    CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
};
use cuguard_sys::{CUdevice, CUmemPool_attribute, CUmemoryPool, CUresult};

use crate::{real, state};

/// The stack traces that were diagnosed, by hash.
static DIAGNOSED: LazyLock<Mutex<HashSet<u64>>> = LazyLock::new(Mutex::default);

/// Held while pools are queried, and while the record of a pool that is about to be destroyed is removed: what has a
/// record under this lock is not destroyed yet.
pub(crate) static POOLS: Mutex<()> = Mutex::new(());

/// How many call sites the diagnosis has.
const MAX_SITES: usize = 32;

/// Diagnoses an allocation that the driver refused for lack of memory. `bytes` is 0 where only the driver knows.
#[cold]
pub(crate) fn refused(function: &'static str, kind: Option<Kind>, bytes: u64) {
    let origin = Origin::here();
    let mut hasher = DefaultHasher::new();
    (function, origin.stack).hash(&mut hasher);
    let mut diagnosed = DIAGNOSED.lock().unwrap_or_else(PoisonError::into_inner);
    if !diagnosed.insert(hasher.finish()) {
        return;
    }
    // Other threads that run out of memory at the same time print after this one.
    print(&diagnose(function, kind, bytes, origin));
    drop(diagnosed);
}

fn diagnose(function: &'static str, kind: Option<Kind>, bytes: u64, origin: Origin) -> OutOfMemory {
    let code = CUresult::OUT_OF_MEMORY;
    let mut why = OutOfMemory {
        request: FailedRequest {
            operation: function,
            bytes: (bytes != 0).then_some(bytes),
            kind,
            stack: origin.stack,
            function: Some(function),
            code: code.0,
            code_name: code.name().unwrap_or_default(),
            ..FailedRequest::default()
        },
        ..OutOfMemory::default()
    };
    let driver = Queries::new();
    let device = driver.device().unwrap_or(0);
    why.info.device = device.unsigned_abs();
    why.info.device_name = driver.name(device).unwrap_or_default();
    if let Some((free, total)) = driver.memory() {
        (why.free, why.total) = (Some(free), Some(total));
    }
    why.pools = driver.pools(device);
    why.pools.retain(|pool| pool.reserved != 0);
    why.processes = driver.pci_bus_id(device).map_or_else(
        || Processes::Unknown("the device has no PCI address".to_owned()),
        processes,
    );
    holdings(state::registry(), &mut why);
    why.settings.devices = driver.devices().unwrap_or(0);
    why
}

/// What the records of this process have.
fn holdings(registry: &Registry, why: &mut OutOfMemory) {
    let usage = registry.memory_usage();
    for kind in Kind::ALL.iter().copied().filter(|kind| kind.is_memory()) {
        let amount = registry.totals(kind).live();
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
    why.call_sites.retain(|site| site.group.kind.is_memory());
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

/// Queries of the driver, which return `None` where it lacks the function or fails.
struct Queries(Option<&'static real::Driver>);

/// Calls a function of the driver: its name, its type, its arguments.
macro_rules! call {
    ($driver:expr, $name:literal, fn($($type:ty),*), $($argument:expr),*) => {{
        let function = $driver.0.and_then(|driver| driver.function($name))?;
        // SAFETY: the driver's function of this name has this type, and each pointer is to a local variable that
        // outlives the call.
        let code = unsafe {
            let function: unsafe extern "C" fn($($type),*) -> CUresult =
                std::mem::transmute::<*const c_void, _>(function);
            function($($argument),*)
        };
        code.is_success().then_some(())
    }};
}

impl Queries {
    fn new() -> Self {
        Self(real::driver())
    }

    /// The device of the current context.
    fn device(&self) -> Option<CUdevice> {
        let mut device = 0;
        call!(self, "cuCtxGetDevice", fn(*mut CUdevice), &raw mut device)?;
        Some(device)
    }

    fn devices(&self) -> Option<u32> {
        let mut count = 0;
        call!(self, "cuDeviceGetCount", fn(*mut i32), &raw mut count)?;
        u32::try_from(count).ok()
    }

    fn name(&self, device: CUdevice) -> Option<String> {
        let mut name = [0; 128];
        call!(
            self,
            "cuDeviceGetName",
            fn(*mut c_char, i32, CUdevice),
            name.as_mut_ptr(),
            name.len() as i32,
            device
        )?;
        text(&name)
    }

    fn pci_bus_id(&self, device: CUdevice) -> Option<String> {
        let mut id = [0; 32];
        call!(
            self,
            "cuDeviceGetPCIBusId",
            fn(*mut c_char, i32, CUdevice),
            id.as_mut_ptr(),
            id.len() as i32,
            device
        )?;
        text(&id)
    }

    /// Free and total memory.
    fn memory(&self) -> Option<(u64, u64)> {
        let (mut free, mut total) = (0_usize, 0_usize);
        call!(
            self,
            "cuMemGetInfo_v2",
            fn(*mut usize, *mut usize),
            &raw mut free,
            &raw mut total
        )?;
        Some((free as u64, total as u64))
    }

    /// The device's default pool, and those that the program created.
    fn pools(&self, device: CUdevice) -> Vec<PoolUse> {
        let mut pools = Vec::new();
        if let Some(pool) = self.default_pool(device) {
            pools.extend(self.pool(pool, "the device's default pool".to_owned()));
        }
        // Until the list is complete, no pool is destroyed.
        let _pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        let mut handles = Vec::new();
        state::registry().for_each(|key, _| {
            if key.kind == Kind::MemoryPool {
                handles.push(key.address);
            }
        });
        handles.sort_unstable();
        for (index, handle) in handles.into_iter().enumerate() {
            let name = format!("pool {} of the program", index + 1);
            pools.extend(self.pool(CUmemoryPool(handle as usize), name));
        }
        pools
    }

    fn default_pool(&self, device: CUdevice) -> Option<CUmemoryPool> {
        let mut pool: CUmemoryPool = CUmemoryPool::default();
        call!(
            self,
            "cuDeviceGetDefaultMemPool",
            fn(*mut CUmemoryPool, CUdevice),
            &raw mut pool,
            device
        )?;
        Some(pool)
    }

    fn pool(&self, pool: CUmemoryPool, name: String) -> Option<PoolUse> {
        let attribute = |which: CUmemPool_attribute| {
            let mut value = 0_u64;
            call!(
                self,
                "cuMemPoolGetAttribute",
                fn(CUmemoryPool, CUmemPool_attribute, *mut c_void),
                pool,
                which,
                (&raw mut value).cast()
            )?;
            Some(value)
        };
        Some(PoolUse {
            name,
            reserved: attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?,
            used: attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?,
            threshold: attribute(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD),
        })
    }
}

/// The text before the first zero.
fn text(bytes: &[c_char]) -> Option<String> {
    let bytes: Vec<u8> = bytes.iter().map(|byte| *byte as u8).collect();
    let text = CStr::from_bytes_until_nul(&bytes).ok()?;
    Some(text.to_string_lossy().into_owned())
}
