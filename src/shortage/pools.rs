//! The streams and pools of a context, for the moment in which memory runs out: which streams have
//! frees to do, and which pools have memory that they do not use.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use cuguard_driver::api;
use cuguard_driver::sys::{CUmemoryPool, CUresult, pool_attribute};

use crate::custody::{Custody, key};
use crate::memory::PoolCore;
use crate::oom::PoolUse;
use crate::registry::Kind;
use crate::stream::StreamCore;

/// What a context has made of one kind and is still there, in the order in which it was made.
pub(crate) struct Shared<T>(Mutex<(u64, Vec<(u64, Weak<T>)>)>);

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Shared<T> {
    /// Remembers one more.
    pub(crate) fn add(&self, new: &Arc<T>) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.0 += 1;
        let number = list.0;
        list.1.retain(|(_, one)| one.strong_count() > 0);
        list.1.push((number, Arc::downgrade(new)));
    }

    /// Those that are there, with their numbers. They stay as long as the answer is kept.
    fn alive(&self) -> Vec<(u64, Arc<T>)> {
        let list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let alive = list.1.iter();
        alive
            .filter_map(|(number, one)| Some((*number, one.upgrade()?)))
            .collect()
    }
}

const OPERATION: &str = "out of memory";

/// Streams that have frees to do.
pub(super) fn busy_streams(custody: &Custody) -> Vec<Arc<StreamCore>> {
    let streams = custody.streams.alive();
    let Ok(_entered) = custody.enter(OPERATION) else {
        return Vec::new();
    };
    let streams = streams.into_iter().map(|(_, stream)| stream);
    let busy = |stream: &Arc<StreamCore>| {
        // SAFETY: the stream is alive.
        let code = || unsafe { api::cuStreamQuery(stream.handle()) };
        stream.may_have_frees() && code() == CUresult::NOT_READY
    };
    streams.filter(busy).collect()
}

/// Waits for these streams.
pub(super) fn wait_for(custody: &Custody, streams: &[Arc<StreamCore>]) {
    let Ok(_entered) = custody.enter(OPERATION) else {
        return;
    };
    for stream in streams {
        stream.forget_frees();
        // What it says, the next attempt says too. SAFETY: the stream is alive.
        let _ = unsafe { api::cuStreamSynchronize(stream.handle()) };
    }
}

/// The device's own pool, the one that is set for it if that is another, and those of the context.
pub(super) fn pools(custody: &Custody) -> Vec<(CUmemoryPool, PoolUse)> {
    let own = custody.pools.alive();
    let Ok(_entered) = custody.enter(OPERATION) else {
        return Vec::new();
    };
    let device = custody.device as i32;
    let mut found: Vec<(CUmemoryPool, String)> = Vec::new();
    let (mut default, mut current) = (CUmemoryPool::NULL, CUmemoryPool::NULL);
    // SAFETY: the variables can be written to, and the device exists.
    let codes = unsafe {
        [
            api::cuDeviceGetDefaultMemPool(&mut default, device),
            api::cuDeviceGetMemPool(&mut current, device),
        ]
    };
    if codes[0].is_success() {
        found.push((default, "the device's pool".to_owned()));
    }
    for (number, core) in &own {
        let pool = CUmemoryPool(core.address() as usize);
        let label = custody
            .registry
            .label_of(key(Kind::MemoryPool, core.address()));
        let name = match label {
            Some(label) => format!("pool {number} \"{label}\""),
            None => format!("pool {number} of this context"),
        };
        found.push((pool, name));
    }
    if codes[1].is_success() && found.iter().all(|(pool, _)| *pool != current) {
        found.push((current, "the pool that is set for the device".to_owned()));
    }
    found
        .into_iter()
        .filter_map(|(pool, name)| Some((pool, look_at(pool, name)?)))
        .collect()
}

fn look_at(pool: CUmemoryPool, name: String) -> Option<PoolUse> {
    let ask = |attribute| {
        let mut value = 0_u64;
        // SAFETY: the pool is alive, and these attributes are 64 bits wide.
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
    // They stay while they are trimmed.
    let _own: Vec<(u64, Arc<PoolCore>)> = custody.pools.alive();
    let pools = pools(custody);
    let Ok(_entered) = custody.enter(OPERATION) else {
        return false;
    };
    let unused = pools.iter().filter(|(_, pool)| pool.unused() != 0);
    let mut any = false;
    for (pool, _) in unused {
        // SAFETY: the pool is alive.
        any |= unsafe { api::cuMemPoolTrimTo(*pool, 0) }.is_success();
    }
    any
}
