//! The largest block that could be had now, found by trying.

use cuguard_driver::api;
use cuguard_driver::sys::CUstream;

use crate::core::{ContextState, free, key};
use crate::error::Result;
use cuguard_registry::{FailedFree, Kind, PAGE};

/// Looks for it between what was had and what was not, in whole pages. The blocks are not recorded:
/// they are gone before this returns.
pub(crate) fn largest_block(state: &ContextState, operation: &'static str) -> Result<u64> {
    let entered = state.enter(operation)?;
    let (mut free, mut total) = (0, 0);
    // SAFETY: both variables can be written to.
    let code = unsafe { api::cuMemGetInfo_v2(&mut free, &mut total) };
    entered.check("cuMemGetInfo", code)?;
    let try_it = |pages: u64| {
        let mut address = 0;
        // SAFETY: the variable can be written to, and the context is current.
        let code = unsafe { api::cuMemAlloc_v2(&mut address, (pages * PAGE) as usize) };
        if !code.is_success() {
            return Ok(false);
        }
        let key = key(Kind::Device, address);
        // SAFETY: it was given out just now, and nobody else knows of it.
        let code = unsafe { free::free(key, CUstream::NULL) };
        let function = free::function(Kind::Device);
        if !code.is_success() {
            let (bytes, name) = (pages * PAGE, code.name().unwrap_or_default());
            let failed = FailedFree::new(key, bytes, None, function, code.0, name);
            state.registry.file_failed_free(failed);
        }
        entered.check(function, code).map(|()| true)
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
