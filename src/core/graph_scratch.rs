//! Whether the scratch memory of a graph fits, before the graph is launched.
//!
//! The driver must not refuse a launch for that: what it could reserve until then stays reserved until the process ends,
//! released by no call and used by no launch. (The conformance suite tests that.)
//!
//! What graphs use, by the driver, includes what it keeps for later launches, and not what such a refusal left behind. So a
//! launch fits if what graphs use, less what running graphs need, is enough; or free memory is; or both together, after what is
//! kept was released.

use std::sync::Mutex;

use cuguard_driver::result::{graph, memory};
use cuguard_driver::sys::CUgraphExec;
use cuguard_report::oom::GRAPH_CHUNK;
use cuguard_sync::process;

use super::allocate::{Failed, Refused};
use super::lock::lock;
use super::stream_state::StreamState;

/// A driver may place each allocation at such a multiple.
const ALIGNMENT: usize = 512;

/// Free memory that the driver does not reserve for graphs. On an H200 it reserved chunks that left 5 MiB, and none that would
/// have left 1 MiB.
const KEPT_FREE: u64 = 5 << 20;

/// The scratch memory of a graph. All of it at a time: it is freed at the end of a launch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScratchSize {
    pub(crate) bytes: usize,
    /// In chunks.
    reserved: u64,
}

impl ScratchSize {
    pub(crate) fn new(allocations: impl Iterator<Item = usize> + Clone) -> Self {
        // Addresses of nodes differ, and so the sums cannot overflow.
        let aligned = allocations.clone().map(|b| b.next_multiple_of(ALIGNMENT));
        let aligned = aligned.sum::<usize>() as u64;
        Self {
            bytes: allocations.sum(),
            reserved: aligned.next_multiple_of(GRAPH_CHUNK),
        }
    }
}

/// Executables with scratch memory that may be running.
static RUNNING: Mutex<Vec<Running>> = Mutex::new(Vec::new());

#[derive(Clone, Copy, Debug)]
struct Running {
    exec: usize,
    /// The address of its state.
    stream: usize,
    device: u32,
    reserved: u64,
}

/// An executable may be running with its scratch memory until this is dropped, when its stream is idle.
#[derive(Debug)]
pub(crate) struct RunningScratch {
    exec: usize,
}

impl Drop for RunningScratch {
    fn drop(&mut self) {
        // In a forked child, a thread that does not exist may have locked it.
        if !process::is_forked() {
            lock(&RUNNING).retain(|running| running.exec != self.exec);
        }
    }
}

/// What running graphs need on other streams of a device. Those on one stream run one after the other.
fn needed_elsewhere(running: &[Running], device: u32, stream: usize) -> u64 {
    let other = |running: &&Running| running.device == device && running.stream != stream;
    let mut streams: Vec<_> = running.iter().filter(other).collect();
    streams.sort_by_key(|running| (running.stream, std::cmp::Reverse(running.reserved)));
    streams.dedup_by_key(|running| running.stream);
    streams.iter().map(|running| running.reserved).sum()
}

/// What a device has for graphs, in bytes.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// By graphs, or kept for their launches.
    used: u64,
    /// In chunks. Queried only where it matters.
    free: u64,
    /// What running graphs need.
    elsewhere: u64,
}

impl Room {
    const fn is_kept(&self, needed: u64) -> bool {
        self.used >= self.elsewhere.saturating_add(needed)
    }

    const fn is_free(&self, needed: u64) -> bool {
        // Running graphs may not have reserved all of theirs.
        let unreserved = self.elsewhere.saturating_sub(self.used);
        self.free >= unreserved.saturating_add(needed)
    }

    const fn is_enough(&self, needed: u64) -> bool {
        self.used.saturating_add(self.free) >= self.elsewhere.saturating_add(needed)
    }
}

/// Checks that the scratch memory of a launch fits, and counts the executable as running, unless it is counted.
///
/// Where the driver does not say what is free, the launch does.
pub(crate) fn check(
    operation: &'static str,
    core: &StreamState,
    exec: CUgraphExec,
    scratch: ScratchSize,
) -> Result<Option<RunningScratch>, Failed> {
    let state = core.state();
    let (stream, device) = (std::ptr::from_ref(core).addr(), state.device);
    let needed = scratch.reserved;
    let _entered = state.enter(operation)?;
    for is_trimmed in [false, true] {
        // Held until this one is counted: of two that fit only one by one, one is refused.
        let mut running = lock(&RUNNING);
        let elsewhere = needed_elsewhere(&running, device, stream);
        let used = graph::used_memory(device as i32).unwrap_or(u64::MAX);
        let mut room = Room {
            used,
            free: 0,
            elsewhere,
        };
        let mut fits = room.is_kept(needed);
        if !fits {
            room.free = memory::info().map_or(u64::MAX, |info| in_chunks(info.free as u64));
            fits = room.is_free(needed) || (is_trimmed && room.is_enough(needed));
        }
        if fits {
            let exec = exec.0;
            let is_counted = running.iter().any(|running| running.exec == exec);
            return Ok((!is_counted).then(|| {
                running.push(Running {
                    exec,
                    stream,
                    device,
                    reserved: needed,
                });
                RunningScratch { exec }
            }));
        }
        drop(running);
        if is_trimmed || !room.is_enough(needed) {
            break;
        }
        // Not without need: the next launches would reserve it again. What cannot be released stays in use.
        let _ = graph::trim_memory(device as i32);
    }
    Err(Refused::NotLaunched.into())
}

/// What the driver can reserve of free memory.
const fn in_chunks(free: u64) -> u64 {
    free.saturating_sub(KEPT_FREE) / GRAPH_CHUNK * GRAPH_CHUNK
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn scratch_memory_is_reserved_in_chunks() {
        let size = |allocations: &[usize]| {
            let size = ScratchSize::new(allocations.iter().copied());
            (size.bytes as u64, size.reserved / MIB)
        };
        assert_eq!(size(&[]), (0, 0));
        assert_eq!(size(&[1, 1]), (2, 32));
        assert_eq!(size(&[20 << 20, 20 << 20]), (40 * MIB, 64));
        assert_eq!(size(&[(32 << 20) - 512, 1, 1]).1, 64);
    }

    /// Measured: 257.12 MiB free were 7 chunks, 701.12 were 21, and 142,629.12 were 4,457.
    #[test]
    fn the_last_free_memory_is_not_reserved() {
        for (free, chunks) in [(257, 7), (701, 21), (142_629, 4_457), (5, 0), (0, 0)] {
            assert_eq!(
                in_chunks(free * MIB + MIB / 8) / GRAPH_CHUNK,
                chunks,
                "{free}"
            );
        }
    }

    #[test]
    fn graphs_on_one_stream_share_their_memory() {
        let running = |exec, stream, device, reserved| Running {
            exec,
            stream,
            device,
            reserved,
        };
        let running = [
            running(1, 1, 0, 100),
            running(2, 1, 0, 300),
            running(3, 2, 0, 50),
            running(4, 3, 1, 7),
        ];
        let elsewhere = |device, stream| needed_elsewhere(&running, device, stream);
        assert_eq!(elsewhere(0, 1), 50);
        assert_eq!(elsewhere(0, 2), 300);
        assert_eq!(elsewhere(0, 9), 350);
        assert_eq!(elsewhere(1, 9), 7);
    }

    #[test]
    fn what_running_graphs_need_is_not_room() {
        let room = |used, free, elsewhere| Room {
            used,
            free,
            elsewhere,
        };
        assert!(room(100, 0, 0).is_kept(100) && !room(100, 0, 1).is_kept(100));
        // A graph that is about to be launched has reserved nothing yet.
        assert!(!room(0, 150, 100).is_free(100) && room(100, 100, 100).is_free(100));
        assert!(room(50, 50, 0).is_enough(100) && !room(50, 50, 0).is_free(100));
        assert!(room(u64::MAX, 0, 0).is_kept(100) && room(0, u64::MAX, 5).is_free(100));
    }
}
