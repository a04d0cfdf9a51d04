//! Contexts: created, primary and green.

use std::ffi::c_void;

use cuguard_registry::ResourceKind;
use cuguard_sys::*;

use super::{Call, New, is_freed};
use crate::real::queries;
use crate::state::contexts::{self, Ending};

impl Call {
    /// After a call that creates, attaches or retains a context. Without a device, it is the current one.
    ///
    /// # Safety
    ///
    /// `out` is null or what the driver wrote to.
    unsafe fn created_context(
        &self,
        result: CUresult,
        out: *const CUcontext,
        device: Option<CUdevice>,
        is_primary: bool,
    ) -> CUresult {
        if !result.is_success() || out.is_null() {
            let new = New::in_process(ResourceKind::Context, 0).on(device);
            return self.refused(result, &new);
        }
        // SAFETY: as the caller guarantees.
        contexts::created(unsafe { out.read_unaligned() }.0, device, is_primary);
        result
    }
}

/// The end of a context, or of one use of it.
fn ended(ending: Option<Ending>, result: CUresult, is_destroyed: impl FnOnce() -> bool) {
    match ending {
        Some(ending) if !is_freed(result) => ending.failed(),
        Some(ending) if ending.is_last && is_destroyed() => ending.destroyed(),
        _ => {}
    }
}

type Create = unsafe extern "C-unwind" fn(*mut CUcontext, u32, CUdevice) -> CUresult;

/// `cuCtxCreate` and `_v2`, `cuGLCtxCreate` and `_v2`
pub(crate) unsafe fn create(
    call: &Call,
    real: Create,
    out: *mut CUcontext,
    flags: u32,
    device: CUdevice,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, flags, device) };
    // SAFETY: the driver wrote to it.
    unsafe { call.created_context(result, out, Some(device), false) }
}

type CreateV3 = unsafe extern "C-unwind" fn(
    *mut CUcontext,
    *mut CUexecAffinityParam,
    i32,
    u32,
    CUdevice,
) -> CUresult;

/// `cuCtxCreate_v3`
pub(crate) unsafe fn create_v3(
    call: &Call,
    real: CreateV3,
    out: *mut CUcontext,
    affinity: *mut CUexecAffinityParam,
    count: i32,
    flags: u32,
    device: CUdevice,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, affinity, count, flags, device) };
    // SAFETY: the driver wrote to it.
    unsafe { call.created_context(result, out, Some(device), false) }
}

type CreateV4 =
    unsafe extern "C-unwind" fn(*mut CUcontext, *mut CUctxCreateParams, u32, CUdevice) -> CUresult;

/// `cuCtxCreate_v4`
pub(crate) unsafe fn create_v4(
    call: &Call,
    real: CreateV4,
    out: *mut CUcontext,
    parameters: *mut CUctxCreateParams,
    flags: u32,
    device: CUdevice,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, parameters, flags, device) };
    // SAFETY: the driver wrote to it.
    unsafe { call.created_context(result, out, Some(device), false) }
}

type VdpGetProcAddress = Option<unsafe extern "C" fn(u32, u32, *mut *mut c_void) -> u32>;
type CreateVdpau =
    unsafe extern "C-unwind" fn(*mut CUcontext, u32, CUdevice, u32, VdpGetProcAddress) -> CUresult;

/// `cuVDPAUCtxCreate` and `_v2`
pub(crate) unsafe fn create_vdpau(
    call: &Call,
    real: CreateVdpau,
    out: *mut CUcontext,
    flags: u32,
    device: CUdevice,
    vdp_device: u32,
    get_proc_address: VdpGetProcAddress,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, flags, device, vdp_device, get_proc_address) };
    // SAFETY: the driver wrote to it.
    unsafe { call.created_context(result, out, Some(device), false) }
}

type Destroy = unsafe extern "C-unwind" fn(CUcontext) -> CUresult;

/// `cuCtxDestroy` and `_v2`
pub(crate) unsafe fn destroy(_: &Call, real: Destroy, context: CUcontext) -> CUresult {
    let ending = contexts::begin_destroy(context.0);
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(context) };
    ended(ending, result, || true);
    result
}

type Attach = unsafe extern "C-unwind" fn(*mut CUcontext, u32) -> CUresult;

/// `cuCtxAttach`: one more use of the current context.
pub(crate) unsafe fn attach(
    call: &Call,
    real: Attach,
    out: *mut CUcontext,
    flags: u32,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, flags) };
    // SAFETY: the driver wrote to it.
    unsafe { call.created_context(result, out, None, false) }
}

/// `cuCtxDetach`: destroys the context with its last use. A primary context is released by another function.
pub(crate) unsafe fn detach(_: &Call, real: Destroy, context: CUcontext) -> CUresult {
    let ending = contexts::begin_detach(context.0);
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(context) };
    ended(ending, result, || true);
    result
}

type RetainPrimary = unsafe extern "C-unwind" fn(*mut CUcontext, CUdevice) -> CUresult;

/// `cuDevicePrimaryCtxRetain`
pub(crate) unsafe fn retain_primary(
    call: &Call,
    real: RetainPrimary,
    out: *mut CUcontext,
    device: CUdevice,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, device) };
    // SAFETY: the driver wrote to it.
    unsafe { call.created_context(result, out, Some(device), true) }
}

type OfDevice = unsafe extern "C-unwind" fn(CUdevice) -> CUresult;

/// `cuDevicePrimaryCtxRelease` and `_v2`
pub(crate) unsafe fn release_primary(_: &Call, real: OfDevice, device: CUdevice) -> CUresult {
    let ending = contexts::begin_release_primary(device);
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(device) };
    // Other code of the process may have retained it in a way that is not recorded.
    ended(ending, result, || !is_active(device));
    result
}

/// `cuDevicePrimaryCtxRetain` of a guard: others allocate in the context later.
pub(crate) unsafe fn retain_primary_by_guard(
    _: &Call,
    real: RetainPrimary,
    out: *mut CUcontext,
    device: CUdevice,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, device) };
    if result.is_success() && !out.is_null() {
        // SAFETY: the driver wrote to it.
        contexts::note_primary(unsafe { out.read_unaligned() }.0, device);
    }
    result
}

/// `cuDevicePrimaryCtxRelease` and `_v2` of a guard, whose uses are not counted.
pub(crate) unsafe fn release_primary_by_guard(
    _: &Call,
    real: OfDevice,
    device: CUdevice,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(device) };
    if is_freed(result) && !is_active(device) {
        contexts::primary_ended(device);
    }
    result
}

/// Whether a device has a primary context.
fn is_active(device: CUdevice) -> bool {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: both can be written to.
    let result = unsafe { queries::cuDevicePrimaryCtxGetState(device, &mut flags, &mut active) };
    result.is_success() && active != 0
}

/// `cuDevicePrimaryCtxReset` and `_v2`. The context stays retained.
pub(crate) unsafe fn reset_primary(_: &Call, real: OfDevice, device: CUdevice) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(device) };
    if is_freed(result) {
        contexts::reset_primary(device);
    }
    result
}

type CreateGreen =
    unsafe extern "C-unwind" fn(*mut CUgreenCtx, CUdevResourceDesc, CUdevice, u32) -> CUresult;

/// `cuGreenCtxCreate`
pub(crate) unsafe fn create_green(
    call: &Call,
    real: CreateGreen,
    out: *mut CUgreenCtx,
    resources: CUdevResourceDesc,
    device: CUdevice,
    flags: u32,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, resources, device, flags) };
    // SAFETY: the driver wrote to it. Both handles are pointers.
    unsafe { call.created_context(result, out.cast::<CUcontext>(), Some(device), false) }
}

type DestroyGreen = unsafe extern "C-unwind" fn(CUgreenCtx) -> CUresult;

/// `cuGreenCtxDestroy`
pub(crate) unsafe fn destroy_green(_: &Call, real: DestroyGreen, context: CUgreenCtx) -> CUresult {
    let ending = contexts::begin_destroy(context.0);
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(context) };
    ended(ending, result, || true);
    result
}

type FromGreen = unsafe extern "C-unwind" fn(*mut CUcontext, CUgreenCtx) -> CUresult;

/// `cuCtxFromGreenCtx`: another handle of a green context, to make it current.
pub(crate) unsafe fn from_green(
    _: &Call,
    real: FromGreen,
    out: *mut CUcontext,
    green: CUgreenCtx,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, green) };
    if result.is_success() && !out.is_null() {
        // SAFETY: the driver wrote to it.
        contexts::add_handle(unsafe { out.read_unaligned() }.0, green.0);
    }
    result
}
