//! Executes a grid: its blocks, on one thread of the host or several.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::cluster::{ClusterPause, ClusterRun, ThreadFailure};
use super::code::Code;
use crate::machine::{FaultKind, Grid, Regions};

/// The order in which blocks and warps execute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// By their indices. Results are the same each time: the blocks of a kernel that may communicate, such as by atomic
    /// operations whose results it uses, execute in turn on one thread.
    #[default]
    Sequential,
    /// Shuffled by a seed.
    Random(u64),
}

/// How a grid executes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape<'a> {
    pub(crate) kernel: usize,
    pub(crate) order: Order,
    /// Threads of the host.
    pub(crate) workers: usize,
    /// Instructions that a warp may execute.
    pub(crate) limit: u64,
    /// Ends it once it is true.
    pub(crate) cancel: Option<&'a AtomicBool>,
}

/// What a grid has executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Instructions of warps.
    pub warp_instructions: u64,
    /// Instructions of threads.
    pub thread_instructions: u64,
}

/// Why a grid stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchError {
    /// What happened.
    pub kind: FaultKind,
    /// The kernel.
    pub kernel: String,
    /// `blockIdx` of the thread.
    pub block: [u32; 3],
    /// `threadIdx` of the thread.
    pub thread: [u32; 3],
    /// The line in the PTX.
    pub line: u32,
    /// The file and the line that it was compiled from, if `.loc` says so.
    pub source: Option<(String, u32)>,
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.block;
        let [i, j, k] = self.thread;
        let (kernel, kind, line) = (&self.kernel, &self.kind, self.line);
        write!(
            f,
            "{kernel}: {kind}; block ({x}, {y}, {z}), thread ({i}, {j}, {k}), PTX line {line}"
        )?;
        match &self.source {
            Some((file, line)) => write!(f, ", {file}:{line}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for LaunchError {}

/// A failure, and the line and source of the instruction.
pub(crate) struct Located {
    pub(crate) kind: FaultKind,
    pub(crate) block: [u32; 3],
    pub(crate) thread: [u32; 3],
    pub(crate) line: u32,
    pub(crate) location: Option<(u32, u32)>,
}

/// Clusters that may have started at a time: of 132 multiprocessors with up to 16 blocks.
const RESIDENT: usize = 2112;
/// The bytes of the host that they may need, unless all of them wait.
const RESIDENT_BYTES: usize = 1 << 30;
/// How often all clusters that a worker has started may wait in turn before it starts another that these might wait for.
const PATIENCE: usize = 8;

/// Executes a grid.
pub(crate) fn launch(
    code: &Code,
    grid: &Grid<'_>,
    shape: Shape<'_>,
) -> Result<Statistics, Located> {
    let [x, y, z] = [0, 1, 2].map(|axis| u64::from(grid.blocks[axis] / grid.cluster[axis].max(1)));
    let clusters = x * y * z;
    let workers = (shape.workers.max(1) as u64).min(clusters) as usize;
    let queue = Queue {
        next: AtomicU64::new(0),
        clusters,
        resident: RESIDENT.div_ceil(workers),
        bytes: RESIDENT_BYTES / workers,
        ended: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        failed: Mutex::new(None),
    };
    let mut total = Statistics::default();
    if workers == 1 {
        total = work(code, grid, shape, &queue);
    } else {
        let done = std::thread::scope(|scope| {
            let start = |_| scope.spawn(|| work(code, grid, shape, &queue));
            let threads: Vec<_> = (0..workers).map(start).collect();
            threads
                .into_iter()
                .map(|thread| thread.join())
                .collect::<Vec<_>>()
        });
        for result in done {
            match result {
                Ok(own) => {
                    total.warp_instructions += own.warp_instructions;
                    total.thread_instructions += own.thread_instructions;
                }
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    }
    let have_all_ended = queue.ended.into_inner() == clusters;
    let failed = queue
        .failed
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    match failed {
        None if have_all_ended => Ok(total),
        None => Err(Located {
            kind: FaultKind::Cancelled,
            block: [0; 3],
            thread: [0; 3],
            line: 0,
            location: None,
        }),
        Some((_, failed)) => {
            let (line, location) = code.line(failed.failure.pc);
            Err(Located {
                kind: failed.failure.stop.kind,
                block: failed.block,
                thread: failed.thread,
                line,
                location,
            })
        }
    }
}

/// The clusters that wait for a worker.
struct Queue {
    /// The number of the next cluster to start.
    next: AtomicU64,
    clusters: u64,
    /// Clusters that a worker may have started, and the bytes that they may need before others are.
    resident: usize,
    bytes: usize,
    /// Clusters that have ended.
    ended: AtomicU64,
    /// Whether a thread has failed.
    stop: AtomicBool,
    /// The failure in the cluster with the lowest number.
    failed: Mutex<Option<(u64, ThreadFailure)>>,
}

/// Stops the other workers when one unwinds: they might wait for its clusters.
struct StopOnPanic<'a>(&'a AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

fn work(code: &Code, grid: &Grid<'_>, shape: Shape<'_>, queue: &Queue) -> Statistics {
    let mut regions = Regions::new();
    let mut total = Statistics::default();
    let mut waiting: VecDeque<(u64, ClusterRun)> = VecDeque::new();
    let order = |salt: u64, warps: usize| match shape.order {
        Order::Sequential => (0..warps).collect(),
        Order::Random(seed) => shuffled(warps, seed ^ salt),
    };
    let _stop = StopOnPanic(&queue.stop);
    let is_cancelled = || shape.cancel.is_some_and(|own| own.load(Ordering::Relaxed));
    let should_stop = || queue.stop.load(Ordering::Relaxed) || is_cancelled();
    // Bytes of the clusters that wait, and how many of them have waited in turn without an end of one.
    let (mut bytes, mut idle) = (0, 0);
    while !should_stop() {
        let mut start = None;
        let has_room = waiting.len() < queue.resident && bytes < queue.bytes;
        if has_room || idle > PATIENCE * waiting.len() {
            idle = 0;
            let number = queue.next.fetch_add(1, Ordering::Relaxed);
            start = (number < queue.clusters).then_some(number);
        }
        let (number, mut cluster) = if let Some(turn) = start {
            let number = match shape.order {
                Order::Sequential => turn,
                Order::Random(seed) => in_window(turn, queue, seed),
            };
            (
                number,
                ClusterRun::new(code, grid, shape.kernel, number, &order),
            )
        } else if let Some((number, cluster)) = waiting.pop_front() {
            bytes -= cluster.bytes();
            (number, cluster)
        } else {
            break;
        };
        match cluster.run(code, grid, &mut regions, shape.limit, &should_stop) {
            Ok(ClusterPause::Ended) => {
                let (warps, threads) = cluster.steps();
                total.warp_instructions += warps;
                total.thread_instructions += threads;
                queue.ended.fetch_add(1, Ordering::Relaxed);
                idle = 0;
            }
            Ok(ClusterPause::Waiting) => {
                idle += 1;
                bytes += cluster.bytes();
                waiting.push_back((number, cluster));
            }
            Err(failure) => {
                queue.stop.store(true, Ordering::Relaxed);
                let mut failed = queue.failed.lock().unwrap_or_else(|own| own.into_inner());
                if failed.as_ref().is_none_or(|(other, _)| number < *other) {
                    *failed = Some((number, failure));
                }
            }
        }
    }
    total
}

/// A step of a generator of random numbers (splitmix64).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut own = *state;
    own = (own ^ own >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    own = (own ^ own >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    own ^ own >> 31
}

fn shuffled(count: usize, mut seed: u64) -> Vec<usize> {
    let mut found: Vec<usize> = (0..count).collect();
    for at in (1..count).rev() {
        found.swap(at, (random(&mut seed) % (at as u64 + 1)) as usize);
    }
    found
}

/// Permutes numbers among those that may have started together. A cluster may so wait for those before it, as on a GPU:
/// among these is always one that has started or can be.
fn in_window(number: u64, queue: &Queue, seed: u64) -> u64 {
    let width = queue.resident as u64;
    let start = number / width * width;
    let count = width.min(queue.clusters - start);
    start + permuted(number - start, count, seed ^ start)
}

/// A permutation of the numbers below `count` without a table: a Feistel network, walked until it is in range.
fn permuted(number: u64, count: u64, seed: u64) -> u64 {
    let bits = (u64::BITS - (count - 1).leading_zeros()).max(2).div_ceil(2);
    let mask = (1 << bits) - 1;
    let mut own = number;
    loop {
        let (mut left, mut right) = (own >> bits, own & mask);
        for round in 0..4 {
            let mut state = right ^ seed.rotate_left(round * 16);
            (left, right) = (right, left ^ random(&mut state) & mask);
        }
        own = left << bits | right;
        if own < count {
            return own;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_orders_are_permutations() {
        for count in [1, 2, 3, 5, 64, 1000] {
            let mut found: Vec<u64> = (0..count).map(|own| permuted(own, count, 7)).collect();
            let shuffled = shuffled(count as usize, 3);
            found.sort_unstable();
            assert_eq!(found, (0..count).collect::<Vec<_>>());
            let mut sorted = shuffled.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..count as usize).collect::<Vec<_>>());
            assert!(count < 64 || shuffled != sorted);
        }
    }
}
