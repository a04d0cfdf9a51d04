//! Driver functions that this library calls for itself. They change nothing.
//!
//! While a stream is being captured, those that ask for memory of a pool, of graphs or of the device count as unsafe, and
//! invalidate the capture: they are called by [`beside_captures`].

#![allow(non_snake_case, reason = "the driver's own names")]

use std::ffi::c_void;
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use cuguard_sys::*;

use super::driver::driver;

macro_rules! query {
    (fn $name:ident($($parameter:ident: $type:ty),*);) => {
        /// Fails with `NOT_FOUND` where the driver does not have it.
        ///
        /// # Safety
        ///
        /// What the driver documents about the arguments.
        pub(crate) unsafe fn $name($($parameter: $type),*) -> CUresult {
            type Real = unsafe extern "C" fn($($type),*) -> CUresult;
            static ADDRESS: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
            let mut address = ADDRESS.load(Relaxed).cast_const();
            if address.is_null() {
                let Some(found) = driver().and_then(|driver| driver.function(stringify!($name))) else {
                    return CUresult::NOT_FOUND;
                };
                address = found;
                ADDRESS.store(found.cast_mut(), Relaxed);
            }
            // SAFETY: the driver's function of this name has this signature.
            let real = unsafe { transmute::<*const c_void, Real>(address) };
            // SAFETY: as the caller guarantees.
            unsafe { real($($parameter),*) }
        }
    };
}

macro_rules! queries {
    ($($name:ident)*) => { $(signature!($name, query);)* };
}

queries! {
    cuCtxGetCurrent
    cuCtxGetDevice
    cuDeviceGetCount
    cuDeviceGetDefaultMemPool
    cuDeviceGetGraphMemAttribute
    cuDeviceGetName
    cuDeviceGetPCIBusId
    cuDeviceTotalMem_v2
    cuDevicePrimaryCtxGetState
    cuMemGetAddressRange_v2
    cuMemGetInfo_v2
    cuMemPoolGetAttribute
    cuPointerGetAttribute
    cuThreadExchangeStreamCaptureMode
    cuStreamIsCapturing
    cuStreamIsCapturing_ptsz
    cuGraphGetNodes
    cuGraphNodeGetType
    cuGraphMemAllocNodeGetParams
    cuGraphMemFreeNodeGetParams
    cuGraphChildGraphNodeGetGraph
}

/// The calling thread's mode of captures, which is restored on drop.
struct CaptureMode(Option<CUstreamCaptureMode>);

impl CaptureMode {
    fn exchange(mut mode: CUstreamCaptureMode) -> Option<CUstreamCaptureMode> {
        // SAFETY: the mode can be read and written to.
        let result = unsafe { cuThreadExchangeStreamCaptureMode(&mut mode) };
        result.is_success().then_some(mode)
    }
}

impl Drop for CaptureMode {
    fn drop(&mut self) {
        self.0.map(Self::exchange);
    }
}

/// Calls queries that are unsafe while a stream is being captured, of this thread or of another: none is invalidated.
pub(crate) fn beside_captures<T>(query: impl FnOnce() -> T) -> T {
    let _restored = CaptureMode(CaptureMode::exchange(stream_capture_mode::RELAXED));
    query()
}
