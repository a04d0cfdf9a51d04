//! Events of a whole context.

use cuguard_sys::{CUcontext, CUevent, CUresult};

use super::context::find_live;
use super::event::{find, position, record};
use crate::result::{DriverResult, check};
use crate::state::lock;

/// The event is complete when all work that was submitted to the context so far is.
pub unsafe fn cuCtxRecordEvent(context: CUcontext, event: CUevent) -> DriverResult {
    let mut state = lock();
    let context = find_live(&state, context)?;
    let event = find(&state, event)?;
    let own = state.events.live.get(&event).map(|event| event.context);
    check(own == Some(context), CUresult::INVALID_HANDLE)?;
    state.check_context_not_capturing(context)?;
    let stream = state.stream_after_context(context)?;
    record(&mut state, event, stream)
}

/// All work that is submitted to the context from now on waits for the event.
pub unsafe fn cuCtxWaitEvent(context: CUcontext, event: CUevent) -> DriverResult {
    let mut state = lock();
    let context = find_live(&state, context)?;
    let event = find(&state, event)?;
    state.check_context_not_capturing(context)?;
    if let Some(position) = position(&state, event).cloned() {
        state.make_context_wait(context, position);
    }
    Ok(())
}
