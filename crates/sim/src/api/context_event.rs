//! Events of a whole context.

use cuguard_sys::{CUcontext, CUevent, CUresult};

use super::event::{find, position, record};
use crate::handle::Id;
use crate::result::{DriverResult, check};
use crate::state::{DriverState, lock};

/// The context of a handle, which must be live.
fn find_context(state: &DriverState, context: CUcontext) -> DriverResult<Id> {
    check(!context.is_null(), CUresult::INVALID_CONTEXT)?;
    let id = super::context::find(state, context)?;
    state.check_alive(id)?;
    Ok(id)
}

/// The event is complete when all work that was submitted to the context so far is.
pub unsafe fn cuCtxRecordEvent(context: CUcontext, event: CUevent) -> DriverResult {
    let mut state = lock();
    let context = find_context(&state, context)?;
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
    let context = find_context(&state, context)?;
    let event = find(&state, event)?;
    state.check_context_not_capturing(context)?;
    if let Some(position) = position(&state, event).cloned() {
        state.make_context_wait(context, position);
    }
    Ok(())
}
