//! Counts frees that are pending on streams, and waits for them.
//!
//! Memory that is freed on a stream becomes available to other allocations when two things have happened: the stream
//! has executed the free, and *the host has synchronized* with the stream, with an event after the free, or with the
//! context. Querying the stream, letting time pass or trimming the pool is not enough. (The conformance suite tests
//! that.) So a stream that is long idle may withhold any amount of memory, and recovery synchronizes with an event even
//! after a query has returned that the event is complete.
//!
//! A pool of cuguard releases freed memory once the stream has passed the free, so here a query is enough.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cuguard_registry::ResourceKind;
use cuguard_sync::process;

use super::{compaction, pools};
use crate::core::free_event::FreeEvent;
use crate::core::listed_handle::destroy_complete_events;
use crate::core::open_contexts::on_device;
use crate::core::{ContextState, Request};

/// How many streams of the device's contexts have frees pending, and an upper bound of the bytes.
pub(super) fn pending(device: u32) -> (u64, u64) {
    let (mut streams, mut bytes) = (0_u64, 0_u64);
    for state in on_device(device) {
        let (destroyed, freed) = destroy_complete_events(&state);
        (streams, bytes) = (streams + destroyed, bytes.saturating_add(freed));
        for (_, progress) in state.streams.lock().live.values() {
            let pending = progress.pending();
            streams += u64::from(pending != 0);
            bytes = bytes.saturating_add(pending);
        }
    }
    (streams, bytes)
}

/// Waits for pending frees, as long as the policy of the context allows, and calls `enough` each time that some are
/// complete. Returns false if there are none that could help. `limit`: the limit of a pool of cuguard refused the allocation,
/// so that only frees in such a pool help.
pub(super) fn wait_for_frees(
    state: &Arc<ContextState>,
    request: &Request,
    limit: Option<u64>,
    enough: &mut dyn FnMut() -> bool,
) -> bool {
    let (begin, most) = (Instant::now(), state.oom_policy.wait_at_most);
    // What that makes reusable stays in the pools where they may not release it.
    let helps = state.oom_policy.compact || request.kind == Some(ResourceKind::Pooled);
    let ended = helps && compaction::wait_for_ended_streams(state, limit, begin.checked_add(most));
    if ended {
        compaction::trim(state, request, limit);
        if enough() {
            return true;
        }
    }
    let pools = pools::pools(state);
    let of_driver = limit.is_none()
        && (pools.iter().any(|pool| pool.unused() != 0) || pools::is_another_set(state));
    // A pool of cuguard releases what was freed when the stream has passed the free.
    let waiting = compaction::trim(state, request, limit);
    let of_cuguard = !waiting.is_empty();
    let contexts = match of_driver {
        true => on_device(state.device),
        false => Vec::new(),
    };
    let mut events = Vec::new();
    let mut any_failed = false;
    for state in waiting {
        // Not while it captures.
        events.extend(FreeEvent::record_all(&state).unwrap_or_default());
    }
    for state in &contexts {
        let (recorded, failures) = FreeEvent::record_pending(state);
        events.extend(recorded);
        any_failed |= failures != 0;
    }
    // Streams that were destroyed with frees pending.
    let destroyed = || -> u64 {
        let left = contexts.iter().map(|state| destroy_complete_events(state));
        left.map(|(streams, _)| streams).sum()
    };
    let mut left = events.len() as u64 + destroyed();
    if left == 0 && !any_failed {
        return ended;
    }
    let mut pause = Duration::from_micros(20);
    // Holds no lock while it pauses: other threads create and destroy streams.
    loop {
        let before = left;
        events.retain(|event| !event.is_done());
        left = events.len() as u64 + destroyed();
        let timed_out = begin.elapsed() >= most || process::is_exiting() || state.is_closed();
        let is_over = timed_out || left == 0;
        // Slow streams are not waited for if the others free enough.
        let is_enough = (is_over || left < before) && {
            if of_cuguard {
                compaction::trim(state, request, limit);
            }
            enough()
        };
        if is_over || is_enough {
            return true;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(2));
    }
}
