//! Checks whether the scratch memory of a graph fits, before the graph is launched.
//!
//! A launch that the driver refuses loses memory: the driver keeps the memory that it had already reserved until the
//! process ends. No call releases this memory, and no launch uses it. (The conformance suite tests that.) So the check
//! comes before the launch. It never refuses a launch that might fit, because only the driver knows what others use at
//! the moment.

use std::sync::Mutex;

use cuguard_driver::result::{graph, memory, virtual_memory};
use cuguard_driver::sys::CUresult;
use cuguard_registry::{Key, ResourceKind};
use cuguard_report::oom::GRAPH_CHUNK;

use crate::core::shared::budget::Refused;
use crate::core::shared::context_state::ContextState;
use crate::core::shared::lock::lock;
use crate::core::shared::request::Failed;

/// With so much more free memory than is missing, no launch was refused: with 5 MiB more it succeeded, with 3 MiB it failed, and
/// so did the probe.
const MARGIN: u64 = 8 << 20;

/// Two checks at a time would take the memory from each other.
static PROBING: Mutex<()> = Mutex::new(());

/// Checks that the scratch memory of a launch fits, all of it at a time: into what graphs have reserved, into free memory, or
/// into both together.
///
/// Where memory is short, physical memory of the missing size tells. For it, and not for a launch, the driver takes unused memory
/// of pools, and moves managed memory to the host. Other than an allocation it waits for no kernel, and is permitted during
/// captures. Where the driver does not say what is free, the launch does.
#[expect(clippy::disallowed_methods, reason = "what is released is the probe")]
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
    let Some(missing) = needed.checked_sub(kept).filter(|missing| *missing != 0) else {
        return Ok(());
    };
    if memory::info().map_or(true, |info| info.free as u64 >= missing + MARGIN) {
        return Ok(());
    }
    let _one = lock(&PROBING);
    match virtual_memory::create(missing as usize, device) {
        Ok(memory) => {
            // SAFETY: created just now, and mapped nowhere.
            let released = unsafe { virtual_memory::release(memory) };
            if let Err(error) = released {
                let key = Key::new(ResourceKind::Physical, memory);
                state.record_failed_free(key, missing, None, error);
            }
            Ok(entered.check(released)?)
        }
        Err(error) if error.code == CUresult::OUT_OF_MEMORY => Err(Refused::NotLaunched.into()),
        // A device without virtual memory, for instance.
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
