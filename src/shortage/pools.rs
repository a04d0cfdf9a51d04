//! The streams and pools of a context, for the moment in which memory runs out: which streams have
//! frees to do, and which pools have memory that they do not use.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cuguard_driver::api;
use cuguard_driver::sys::{CUmemoryPool, CUresult, CUstream, pool_attribute};

use crate::custody::Custody;
use crate::exit;
use crate::oom::PoolUse;
use crate::registry::Key;

/// The streams, or the pools, of a context that are there, by the order in which they were made.
/// Nothing is destroyed while the list is locked, so what is in it can be used.
#[derive(Default)]
pub(crate) struct List(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    next: u64,
    all: BTreeMap<u64, (Key, Arc<AtomicBool>)>,
    /// A stream went that had frees to do: they come without anybody being able to ask for them.
    lost_frees: bool,
}

impl List {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Something is on the list until this goes. That is before it is destroyed.
pub(crate) struct Listed {
    custody: Arc<Custody>,
    list: fn(&Custody) -> &List,
    number: u64,
    /// Of a stream: memory was freed on it since it was last waited for because memory ran out.
    has_frees: Arc<AtomicBool>,
}

impl std::fmt::Debug for Listed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "number {} of {:?}", self.number, self.custody)
    }
}

impl Listed {
    pub(crate) fn new(custody: &Arc<Custody>, list: fn(&Custody) -> &List, key: Key) -> Self {
        let has_frees = Arc::new(AtomicBool::new(false));
        let mut entries = list(custody).lock();
        entries.next += 1;
        let number = entries.next;
        entries.all.insert(number, (key, has_frees.clone()));
        drop(entries);
        Self {
            custody: custody.clone(),
            list,
            number,
            has_frees,
        }
    }

    /// Remembers that memory was freed on a stream.
    #[inline]
    pub(crate) fn note_free(&self) {
        // Mostly it is set already, and then nothing is written.
        if !self.has_frees.load(Relaxed) {
            self.has_frees.store(true, Relaxed);
        }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        // In a forked child the lock may be held by a thread that is not there; and once the process
        // ends nothing is destroyed.
        if exit::is_exiting() {
            return;
        }
        let mut entries = (self.list)(&self.custody).lock();
        entries.all.remove(&self.number);
        entries.lost_frees |= self.has_frees.load(Relaxed);
    }
}

const OPERATION: &str = "out of memory";

/// How many streams of the device's contexts have frees to do. Pools are the device's, so what waits
/// in another context matters as well.
pub(super) fn busy_streams(device: u32) -> u64 {
    let on_device = exit::open();
    let on_device = on_device.iter().filter(|custody| custody.device == device);
    on_device.map(|custody| busy_in(custody)).sum()
}

fn busy_in(custody: &Custody) -> u64 {
    let Ok(_entered) = custody.enter(OPERATION) else {
        return 0;
    };
    let entries = custody.streams.lock();
    let busy = entries.all.values().filter(|(key, has_frees)| {
        let stream = CUstream(key.address as usize);
        // SAFETY: the stream is on the list, so it is alive.
        let code = || unsafe { api::cuStreamQuery(stream) };
        if !has_frees.load(Relaxed) {
            return false;
        }
        // Cleared before it is asked: a free that comes in between sets it again.
        has_frees.store(false, Relaxed);
        let busy = code() == CUresult::NOT_READY;
        if busy {
            has_frees.store(true, Relaxed);
        }
        busy
    });
    busy.count() as u64
}

/// Frees may be under way of which nobody can ask, as their stream is gone.
fn has_lost_frees(device: u32) -> bool {
    let mut lost = false;
    for custody in exit::open() {
        if custody.device == device {
            lost |= std::mem::take(&mut custody.streams.lock().lost_frees);
        }
    }
    lost
}

/// How long frees are waited for whose stream is gone.
const LOST: Duration = Duration::from_millis(500);

/// Waits for frees that are under way, for so long at most. `None` where there are none that could
/// bring anything; else how many streams are still busy.
pub(super) fn wait_for_frees(custody: &Custody, most: Duration) -> Option<u64> {
    let unused = || -> u64 {
        let pools = pools(custody);
        pools
            .iter()
            .fold(0, |sum, pool| sum.saturating_add(pool.unused()))
    };
    let before = unused();
    if before == 0 {
        return None;
    }
    let lost = has_lost_frees(custody.device);
    let mut busy = busy_streams(custody.device);
    if busy == 0 && !lost {
        return None;
    }
    let begin = Instant::now();
    let mut pause = Duration::from_micros(20);
    // Nobody is kept from making and destroying streams meanwhile.
    while begin.elapsed() < most && !exit::is_exiting() && !custody.is_closed() {
        let still_lost = lost && begin.elapsed() < LOST && unused() >= before;
        if busy == 0 && !still_lost {
            break;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(2));
        busy = busy_streams(custody.device);
    }
    Some(busy)
}

/// Calls `each` for the device's own pool and those of the context, while they are there.
fn for_each_pool(custody: &Custody, mut each: impl FnMut(CUmemoryPool, PoolUse)) {
    let Ok(_entered) = custody.enter(OPERATION) else {
        return;
    };
    let mut default = CUmemoryPool::NULL;
    // SAFETY: the variable can be written to, and the device exists.
    let code = unsafe { api::cuDeviceGetDefaultMemPool(&mut default, custody.device as i32) };
    if code.is_success()
        && let Some(pool) = look_at(default, "the device's pool".to_owned())
    {
        each(default, pool);
    }
    let entries = custody.pools.lock();
    for (number, (key, _)) in &entries.all {
        let name = match custody.registry.label_of(*key) {
            Some(label) => format!("pool {number} {label:?}"),
            None => format!("pool {number} of this context"),
        };
        let pool = CUmemoryPool(key.address as usize);
        if let Some(looked) = look_at(pool, name) {
            each(pool, looked);
        }
    }
}

pub(super) fn pools(custody: &Custody) -> Vec<PoolUse> {
    let mut all = Vec::new();
    for_each_pool(custody, |_, pool| all.push(pool));
    all
}

/// The pool is alive.
fn look_at(pool: CUmemoryPool, name: String) -> Option<PoolUse> {
    let ask = |attribute| {
        let mut value = 0_u64;
        // SAFETY: the device's own pool is always there, others are on the list; and these
        // attributes are 64 bits wide.
        let code = unsafe { api::cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast()) };
        code.is_success().then_some(value)
    };
    let reserved = ask(pool_attribute::RESERVED_MEM_CURRENT)?;
    let mut pool = PoolUse::new(name, reserved, ask(pool_attribute::USED_MEM_CURRENT)?);
    pool.threshold = ask(pool_attribute::RELEASE_THRESHOLD);
    Some(pool)
}

/// Makes pools give back what they do not use. False where none has anything.
pub(super) fn trim(custody: &Custody) -> bool {
    let mut any = false;
    for_each_pool(custody, |pool, looked| {
        if looked.unused() != 0 {
            any = true;
            // What it refuses it keeps, and the report shows that. SAFETY: as in `look_at`.
            let _ = unsafe { api::cuMemPoolTrimTo(pool, 0) };
        }
    });
    any
}
