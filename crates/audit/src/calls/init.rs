//! `cuInit`.

use cuguard_sys::CUresult;

use super::Call;

type Init = unsafe extern "C-unwind" fn(u32) -> CUresult;

/// `cuInit`
pub(crate) unsafe fn init(_: &Call, real: Init, flags: u32) -> CUresult {
    // SAFETY: as the caller guarantees.
    unsafe { real(flags) }
}
