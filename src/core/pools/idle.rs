//! Idle memory of pools, for other processes: they ask for it when their own allocations run short.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use cuguard_driver::result::device;

use cuguard_sync::own_thread;

use crate::core::shared::open_contexts;

/// How long the thread that serves requests waits for the release.
const PATIENCE: Duration = Duration::from_millis(500);

/// Releases the idle memory of all pools on the device with this UUID, on a thread of its own: a driver call that does not
/// return must not keep the calling thread from its next request. Returns how many bytes were released in time.
pub(crate) fn release_on_thread(uuid: [u8; 16]) -> u64 {
    // One at a time: what the first releases, the second need not.
    let Some(running) = Running::begin() else {
        return 0;
    };
    let (sender, receiver) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name("cuguard-trim".to_owned());
    let spawned = thread.spawn(move || {
        let _own = own_thread::enter_shared();
        let released = release(uuid);
        drop(running);
        // Fails where the other thread no longer waits.
        let _ = sender.send(released);
    });
    match spawned {
        Ok(_) => receiver.recv_timeout(PATIENCE).unwrap_or(0),
        Err(_) => 0,
    }
}

static IS_RUNNING: AtomicBool = AtomicBool::new(false);

/// The one release, until this is dropped: also when it panics, or when its thread cannot be started.
struct Running;

impl Running {
    fn begin() -> Option<Self> {
        (!IS_RUNNING.swap(true, Ordering::AcqRel)).then_some(Self)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        IS_RUNNING.store(false, Ordering::Release);
    }
}

fn release(uuid: [u8; 16]) -> u64 {
    let mut released = 0;
    for state in open_contexts::all() {
        let pools = state.pools_of_cuguard();
        if !pools.any() {
            continue;
        }
        // Inside, so that neither the context nor the process ends meanwhile.
        let Some(_inside) = state.try_enter() else {
            continue;
        };
        if device::uuid(state.device as i32) == Ok(uuid) {
            released += pools.trim(&state);
        }
    }
    released
}
