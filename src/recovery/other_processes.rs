//! Pools in other processes of the user: they release idle memory on request, where they can be reached.
//!
//! A process can be reached if `LEAK_REPORT` turns reports on in it: then it has a socket that only its user can open.

use std::time::Duration;

use cuguard_driver::result::device;
use cuguard_live::{Request, ask_others};

use crate::core::ContextState;

/// How long all of them together are waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Has pools in other processes release idle memory of the device, and returns whether any replied: what one releases for
/// another process, or too late for its reply, can be had too.
pub(super) fn release(state: &ContextState) -> bool {
    let Some(inside) = state.try_enter() else {
        return false;
    };
    let device = device::uuid(state.device as i32);
    drop(inside);
    let Ok(device) = device else {
        return false;
    };
    !ask_others(Request::Trim { device }, PATIENCE).is_empty()
}
