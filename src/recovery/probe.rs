//! The largest block that could be had now, found by trying.

use cuguard_driver::result::memory::{self, MemoryInfo};
use cuguard_driver::sys::CUstream;

use crate::core::{ContextState, free, key};
use crate::error::Result;
use cuguard_registry::{Kind, PAGE};

/// Looks for it between what was had and what was not, in whole pages. The blocks are not recorded:
/// they are gone before this returns.
pub(crate) fn largest_block(state: &ContextState, operation: &'static str) -> Result<u64> {
    let entered = state.enter(operation)?;
    let MemoryInfo { free, total } = entered.check(memory::info())?;
    let try_it = |pages: u64| {
        let bytes = pages * PAGE;
        let Ok(address) = memory::alloc(bytes as usize) else {
            return Ok(false);
        };
        let key = key(Kind::Device, address);
        // SAFETY: allocated just now, and nobody else knows of it.
        let freed = unsafe { free::free(key, CUstream::NULL) };
        if let Err(error) = freed {
            state.record_failed_free(key, bytes, None, error);
        }
        entered.check(freed).map(|()| true)
    };
    // Where pools have unused memory the driver takes it from them, so it may be more than is free.
    let (mut had, mut refused) = (0, total.max(free) as u64 / PAGE + 1);
    let near = free as u64 / PAGE;
    if near > 0 && !try_it(near)? {
        refused = near;
    } else {
        had = near;
        let mut step = 1;
        while had + step < refused {
            if !try_it(had + step)? {
                refused = had + step;
                break;
            }
            had += step;
            step *= 2;
        }
    }
    // Mostly nearly all of it can be had: the first attempts are close to the top.
    let mut step = 1;
    while refused - had > 1 {
        let middle = had + (refused - had) / 2;
        let pages = middle.max(refused.saturating_sub(step));
        if try_it(pages)? {
            had = pages;
        } else {
            refused = pages;
            step *= 2;
        }
    }
    let largest = had * PAGE;
    Ok(state
        .budget
        .left()
        .map_or(largest, |left| left.min(largest)))
}
