//! Modules and kernels, which are not simulated.

use std::ffi::{c_char, c_void};

use cuguard_sys::{CUdeviceptr, CUfunction, CUmodule, CUresult, CUstream};

use crate::result::DriverResult;
use crate::state::lock;

macro_rules! not_supported {
    ($(fn $name:ident($($type:ty),*);)*) => {$(
        /// Checks what a real driver checks before it looks at the code.
        #[allow(clippy::too_many_arguments, reason = "the driver's own signature")]
        pub unsafe fn $name($(_: $type),*) -> DriverResult {
            lock().current()?;
            Err(CUresult::NOT_SUPPORTED)
        }
    )*};
}

not_supported! {
    fn cuModuleLoadData(*mut CUmodule, *const c_void);
    fn cuModuleUnload(CUmodule);
    fn cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char);
    fn cuModuleGetGlobal_v2(*mut CUdeviceptr, *mut usize, CUmodule, *const c_char);
    fn cuLaunchKernel(
        CUfunction, u32, u32, u32, u32, u32, u32, u32, CUstream, *mut *mut c_void, *mut *mut c_void
    );
}
