//! Whether the scratch memory of a graph fits, before the graph is launched.
//!
//! The driver must not refuse a launch for that: what it could reserve until then stays reserved until the process ends,
//! released by no call and used by no launch. (The conformance suite tests that.) A launch that might fit is never refused here:
//! what others use at the moment, only the driver knows.

use cuguard_driver::result::{graph, memory};
use cuguard_driver::sys::{CUresult, CUstream};
use cuguard_registry::{Key, Kind};
use cuguard_report::oom::GRAPH_CHUNK;

use super::allocate::{Failed, Refused};
use super::context_state::ContextState;
use super::free;

/// Checks that the scratch memory of a launch fits, all of it at a time: into what graphs have reserved, into free memory, or
/// into both together.
///
/// Where memory is short, an allocation of what is missing tells: the driver takes unused memory of pools for it, and moves
/// managed memory to the host. Where the driver does not say what is free, the launch does.
pub(crate) fn check(
    operation: &'static str,
    state: &ContextState,
    bytes: usize,
) -> Result<(), Failed> {
    let needed = in_chunks(bytes as u64);
    if needed == 0 {
        return Ok(());
    }
    let device = state.device as i32;
    let entered = state.enter(operation)?;
    // Without what launches have lost that the driver refused.
    let kept = graph::used_memory(device).unwrap_or(u64::MAX);
    let is_free = |bytes| memory::info().map_or(true, |info| info.free as u64 >= bytes);
    if kept >= needed || is_free(needed) {
        return Ok(());
    }
    let missing = needed - kept;
    if is_free(missing) {
        // Not without need: the next launches would reserve it again. What cannot be released stays in use.
        let _ = graph::trim_memory(device);
        return Ok(());
    }
    match memory::alloc(missing as usize) {
        Ok(address) => {
            let key = Key::new(Kind::Device, address);
            // SAFETY: allocated just now; no other reference exists.
            let freed = unsafe { free::free(key, CUstream::NULL) };
            if let Err(error) = freed {
                state.record_failed_free(key, missing, None, error);
            }
            Ok(entered.check(freed)?)
        }
        Err(error) if error.code == CUresult::OUT_OF_MEMORY => Err(Refused::NotLaunched.into()),
        // During a capture, for instance.
        Err(_) => Ok(()),
    }
}

/// What the driver reserves for so much. Where that is one chunk, a refused launch loses nothing, and the driver decides.
const fn in_chunks(bytes: u64) -> u64 {
    match bytes <= GRAPH_CHUNK {
        true => 0,
        false => bytes.next_multiple_of(GRAPH_CHUNK),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_memory_is_reserved_in_chunks() {
        const MIB: u64 = 1 << 20;
        for (bytes, chunks) in [
            (0, 0),
            (1, 0),
            (32 * MIB, 0),
            (32 * MIB + 1, 2),
            (64 * MIB, 2),
        ] {
            assert_eq!(in_chunks(bytes) / GRAPH_CHUNK, chunks, "{bytes}");
        }
    }
}
