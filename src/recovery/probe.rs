//! The free memory of a device: what the driver reports, and the largest block that can be allocated now, found by
//! trial.

use cuguard_driver::result::memory::{self, MemoryInfo};
use cuguard_driver::sys::CUstream;

use crate::core::{ContextState, free};
use crate::error::Result;
use cuguard_registry::{Key, PAGE, ResourceKind};

/// Free and total memory of the device.
pub(super) fn memory(state: &ContextState) -> Option<(u64, u64)> {
    let _entered = state.enter("out of memory").ok()?;
    let info = memory::info().ok()?;
    Some((info.free as u64, info.total as u64))
}

/// Searches in whole pages between sizes that succeed and sizes that fail. The blocks are freed at once and not
/// recorded.
pub(crate) fn largest_block(state: &ContextState, operation: &'static str) -> Result<u64> {
    let entered = state.enter(operation)?;
    let MemoryInfo { free, total } = entered.check(memory::info())?;
    let try_it = |pages: u64| {
        let bytes = pages * PAGE;
        let Ok(address) = memory::alloc(bytes as usize) else {
            return Ok(false);
        };
        let key = Key::new(ResourceKind::Device, address);
        // SAFETY: allocated just now; no other reference exists.
        let freed = unsafe { free::free(key, CUstream::NULL) };
        if let Err(error) = freed {
            state.record_failed_free(key, bytes, None, error);
        }
        entered.check(freed).map(|()| true)
    };
    // The driver takes unused memory from pools, so a block may be larger than what is free.
    let (mut fits, mut fails) = (0, total.max(free) as u64 / PAGE + 1);
    let near = free as u64 / PAGE;
    if near > 0 && !try_it(near)? {
        fails = near;
    } else {
        fits = near;
        let mut step = 1;
        while fits + step < fails {
            if !try_it(fits + step)? {
                fails = fits + step;
                break;
            }
            fits += step;
            step *= 2;
        }
    }
    // Usually nearly all of it can be allocated, so the first attempts are close to the top.
    let mut step = 1;
    while fails - fits > 1 {
        let middle = fits + (fails - fits) / 2;
        let pages = middle.max(fails.saturating_sub(step));
        if try_it(pages)? {
            fits = pages;
        } else {
            fails = pages;
            step *= 2;
        }
    }
    let largest = fits * PAGE;
    Ok(state
        .budget
        .left()
        .map_or(largest, |left| left.min(largest)))
}
