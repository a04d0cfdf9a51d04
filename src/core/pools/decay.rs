//! Releases idle memory of pools to the device as time passes, on one thread for the process.
//!
//! The thread starts with the first pool that has a decay time, and ends when no such pool is left. It holds only weak
//! references, and enters a context as any other operation does.

use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use cuguard_pool::Pool;
use cuguard_sync::process;

use crate::core::pools::driver::{PoolDriver, note_if_broken};
use crate::core::shared::context_state::ContextState;
use crate::core::shared::lock::lock;

/// A pool of the thread.
struct Watched {
    pool: Weak<Pool<PoolDriver>>,
    state: Weak<ContextState>,
    decay: Duration,
}

/// The pools; the thread runs while there are any.
struct Watch {
    pools: Vec<Watched>,
    is_running: bool,
}

static WATCH: Mutex<Watch> = Mutex::new(Watch {
    pools: Vec::new(),
    is_running: false,
});

/// How often idle memory is looked for: four times in the shortest decay time, within these limits.
const SHORTEST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_millis(500);

/// The same for pools that are to be destroyed.
const ORPHAN: Duration = Duration::from_millis(200);

/// Adds a pool, if its memory decays at all.
pub(in crate::core) fn watch(
    state: &Arc<ContextState>,
    pool: &Arc<Pool<PoolDriver>>,
    decay: Duration,
) {
    if decay == Duration::MAX {
        return;
    }
    add(state, pool, decay);
}

/// Adds a pool that is to be destroyed when its streams have done their work.
pub(in crate::core) fn watch_orphan(state: &Arc<ContextState>, pool: &Arc<Pool<PoolDriver>>) {
    add(state, pool, ORPHAN);
}

fn add(state: &Arc<ContextState>, pool: &Arc<Pool<PoolDriver>>, decay: Duration) {
    let mut watch = lock(&WATCH);
    watch.pools.push(Watched {
        pool: Arc::downgrade(pool),
        state: Arc::downgrade(state),
        decay,
    });
    if !watch.is_running {
        let thread = std::thread::Builder::new().name("cuguard-decay".to_owned());
        // Without the thread, idle memory is released when memory runs short, and by `trim`.
        watch.is_running = thread.spawn(run).is_ok();
    }
}

fn run() {
    let _own = cuguard_sync::own_thread::enter_shared();
    loop {
        let mut watch = lock(&WATCH);
        watch.pools.retain(|one| one.pool.strong_count() > 0);
        if watch.pools.is_empty() || process::is_exiting() {
            watch.is_running = false;
            return;
        }
        let pause = watch.pools.iter().map(|one| one.decay / 4).min();
        let pools = watch.pools.iter();
        let pools: Vec<_> = pools
            .filter_map(|one| Some((one.state.upgrade()?, one.pool.upgrade()?)))
            .collect();
        drop(watch);
        for (state, pool) in pools {
            if let Some(_inside) = state.try_enter() {
                // What is refused is kept, and tried again.
                let decayed = pool.decay(Instant::now());
                note_if_broken(&state, "Pool::decay", &decayed);
                drop(pool);
                state.pools_of_cuguard().destroy_orphans();
            }
        }
        std::thread::sleep(pause.unwrap_or(LONGEST).clamp(SHORTEST, LONGEST));
    }
}
