//! The streams and pools of a context, for the moment in which memory runs out: which streams have
//! frees to do, and which pools have memory that they do not use.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cuguard_driver::api;
use cuguard_driver::sys::{CUevent, CUmemoryPool, CUresult, CUstream, flags, pool_attribute};

use crate::custody::Custody;
use crate::exit;
use crate::oom::PoolUse;
use crate::raw;
use crate::registry::{FailedFree, Key, Kind};

/// The streams, or the pools, of a context that are there, by the order in which they were made.
/// Nothing is destroyed while the list is locked, so what is in it can be used.
#[derive(Default)]
pub(crate) struct List(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    next: u64,
    all: BTreeMap<u64, (Key, Arc<AtomicBool>)>,
    /// When the last stream went that had frees to do: they come without anybody being able to ask for
    /// them.
    lost: Option<Instant>,
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
        if self.has_frees.load(Relaxed) {
            entries.lost = Some(Instant::now());
        }
    }
}

const OPERATION: &str = "out of memory";

/// The contexts of a device. Pools are the device's, so what waits in another context matters as well.
fn contexts_on(device: u32) -> Vec<Arc<Custody>> {
    let mut contexts = exit::open();
    contexts.retain(|custody| custody.device == device);
    contexts
}

/// Calls `each` for the streams of a context that have frees to do.
fn for_each_busy(custody: &Custody, mut each: impl FnMut(CUstream)) {
    let Ok(_entered) = custody.enter(OPERATION) else {
        return;
    };
    let entries = custody.streams.lock();
    for (key, has_frees) in entries.all.values() {
        // Cleared before it is asked: a free that comes in between sets it again.
        if !has_frees.swap(false, Relaxed) {
            continue;
        }
        let stream = CUstream(key.address as usize);
        // SAFETY: the stream is on the list, so it is alive.
        let code = unsafe { api::cuStreamQuery(stream) };
        if !code.is_success() {
            has_frees.store(true, Relaxed);
        }
        if code == CUresult::NOT_READY {
            each(stream);
        }
    }
}

/// How many streams of the device's contexts have frees to do.
pub(super) fn busy_streams(device: u32) -> u64 {
    let mut busy = 0;
    for custody in contexts_on(device) {
        for_each_busy(&custody, |_| busy += 1);
    }
    busy
}

/// A mark in a stream: all that the stream was given before is done when the device gets there.
struct Mark {
    custody: Arc<Custody>,
    event: CUevent,
}

impl Mark {
    /// The stream is alive, and its context current.
    fn new(custody: &Arc<Custody>, stream: CUstream) -> Option<Self> {
        let mut event = CUevent::NULL;
        // SAFETY: the variable can be written to, and the context is current.
        let made = unsafe { api::cuEventCreate(&mut event, flags::EVENT_DISABLE_TIMING) };
        let mark = made.is_success().then(|| Self {
            custody: custody.clone(),
            event,
        })?;
        // SAFETY: both are alive, and of one context.
        let recorded = unsafe { api::cuEventRecord(event, stream) };
        recorded.is_success().then_some(mark)
    }

    fn is_done(&self) -> bool {
        match self.custody.enter(OPERATION) {
            Ok(_entered) => {
                // SAFETY: the event is alive: its context is, and teardown waits for who is inside.
                let code = unsafe { api::cuEventQuery(self.event) };
                code != CUresult::NOT_READY
            }
            Err(_) => true,
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let key = Key::new(Kind::Event, self.event.0 as u64);
        let (function, code) = match self.custody.enter(OPERATION) {
            Ok(_entered) => {
                // SAFETY: nobody else knows of it, and its context is current.
                let code = unsafe { raw::free(key, CUstream::NULL) };
                (raw::function(Kind::Event), code)
            }
            Err(error) => match error.code() {
                Some(code) => ("cuCtxPushCurrent", code),
                // A context that is closed takes its events with it; at the end nobody is asked.
                None => return,
            },
        };
        if !code.is_success() {
            let name = code.to_string();
            let failed = FailedFree::new(key, 0, None, function, code.0, name);
            self.custody.registry.file_failed_free(failed);
        }
    }
}

/// When a stream went that had frees to do, if that was a moment ago: nobody can ask for those.
fn lost_frees(device: u32) -> Option<Instant> {
    let contexts = contexts_on(device);
    let lost = contexts
        .iter()
        .filter_map(|custody| custody.streams.lock().lost);
    lost.filter(|lost| lost.elapsed() < LOST).max()
}

/// How long frees are waited for whose stream is gone.
const LOST: Duration = Duration::from_millis(500);

/// Waits for the frees that streams have to do now, for so long at most. `None` where there are none
/// that could bring anything; else how many streams have not got there.
pub(super) fn wait_for_frees(custody: &Custody, most: Duration) -> Option<u64> {
    let contexts = contexts_on(custody.device);
    let unused = || -> u64 {
        let pools = contexts.iter().flat_map(|custody| pools(custody));
        pools.fold(0, |sum, pool| sum.saturating_add(pool.unused()))
    };
    let before = unused();
    if before == 0 {
        return None;
    }
    let lost = lost_frees(custody.device);
    let mut marks = Vec::new();
    let mut unmarked = 0;
    for custody in &contexts {
        for_each_busy(custody, |stream| match Mark::new(custody, stream) {
            Some(mark) => marks.push(mark),
            None => unmarked += 1,
        });
    }
    if marks.is_empty() && lost.is_none() {
        return None;
    }
    let begin = Instant::now();
    let mut pause = Duration::from_micros(20);
    // Nobody is kept from making and destroying streams meanwhile.
    while begin.elapsed() < most && !exit::is_exiting() && !custody.is_closed() {
        marks.retain(|mark| !mark.is_done());
        let is_lost = lost.is_some_and(|lost| lost.elapsed() < LOST) && unused() >= before;
        if marks.is_empty() && !is_lost {
            break;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(2));
    }
    Some(marks.len() as u64 + unmarked)
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
