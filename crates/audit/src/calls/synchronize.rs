//! Functions that wait for the device. They create nothing, and are here because they return the errors of kernels, after
//! which every other call fails.

use cuguard_sys::*;

use super::Call;

type CurrentContext = unsafe extern "C-unwind" fn() -> CUresult;

/// `cuCtxSynchronize`
pub(crate) unsafe fn current_context(call: &Call, real: CurrentContext) -> CUresult {
    // SAFETY: as the caller guarantees.
    call.waiting(|| unsafe { real() })
}

type Context = unsafe extern "C-unwind" fn(CUcontext) -> CUresult;

/// `cuCtxSynchronize_v2`
pub(crate) unsafe fn context(call: &Call, real: Context, context: CUcontext) -> CUresult {
    // SAFETY: as the caller guarantees.
    call.waiting(|| unsafe { real(context) })
}

type Stream = unsafe extern "C-unwind" fn(CUstream) -> CUresult;

/// `cuStreamSynchronize`
pub(crate) unsafe fn stream(call: &Call, real: Stream, stream: CUstream) -> CUresult {
    // SAFETY: as the caller guarantees.
    call.waiting(|| unsafe { real(stream) })
}

type Event = unsafe extern "C-unwind" fn(CUevent) -> CUresult;

/// `cuEventSynchronize`
pub(crate) unsafe fn event(call: &Call, real: Event, event: CUevent) -> CUresult {
    // SAFETY: as the caller guarantees.
    call.waiting(|| unsafe { real(event) })
}
