//! The functions of a driver that running a kernel needs.

use std::ffi::{c_char, c_void};
use std::fmt;

use cuguard_sys::*;

macro_rules! functions {
    ($($name:ident($($type:ty),*);)*) => {
        /// The functions of a driver. Two drivers can be used in the same process.
        #[allow(non_snake_case, missing_docs, reason = "the driver's own functions")]
        pub struct Driver {
            $(pub $name: unsafe extern "C" fn($($type),*) -> CUresult,)*
        }

        impl Driver {
            fn of(lookup: &dyn Fn(&str) -> Option<*const c_void>) -> Result<Self, String> {
                Ok(Self {
                    $($name: {
                        let address = lookup(stringify!($name)).ok_or("the driver has no ".to_owned() + stringify!($name))?;
                        // SAFETY: the function of this name has this signature, by the driver's header.
                        unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn($($type),*) -> CUresult>(address) }
                    },)*
                })
            }
        }
    };
}

functions! {
    cuInit(u32);
    cuDeviceGet(*mut CUdevice, i32);
    cuDeviceGetName(*mut c_char, i32, CUdevice);
    cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
    cuDevicePrimaryCtxRelease_v2(CUdevice);
    cuCtxSetCurrent(CUcontext);
    cuCtxSynchronize();
    cuGetErrorName(CUresult, *mut *const c_char);
    cuMemAlloc_v2(*mut CUdeviceptr, usize);
    cuMemFree_v2(CUdeviceptr);
    cuMemcpyHtoD_v2(CUdeviceptr, *const c_void, usize);
    cuMemcpyDtoH_v2(*mut c_void, CUdeviceptr, usize);
    cuModuleLoadDataEx(*mut CUmodule, *const c_void, u32, *mut CUjit_option, *mut *mut c_void);
    cuModuleUnload(CUmodule);
    cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char);
    cuFuncSetAttribute(CUfunction, CUfunction_attribute, i32);
    cuLaunchKernel(CUfunction, u32, u32, u32, u32, u32, u32, u32, CUstream, *mut *mut c_void, *mut *mut c_void);
    cuLaunchCooperativeKernel(CUfunction, u32, u32, u32, u32, u32, u32, u32, CUstream, *mut *mut c_void);
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

impl Driver {
    /// The simulated driver of this process.
    ///
    /// # Errors
    ///
    /// Never, unless the simulated driver lacks a function.
    pub fn simulated() -> Result<Self, String> {
        Self::of(&|name| cuguard_sim::lookup(name))
    }

    /// The installed driver.
    ///
    /// # Errors
    ///
    /// There is none, or it is too old.
    pub fn installed() -> Result<Self, String> {
        // SAFETY: initializers of the driver's library have no requirements.
        let library = unsafe { libloading::Library::new("libcuda.so.1") }
            .map_err(|error| error.to_string())?;
        let driver = Self::of(&|name| {
            // SAFETY: only the address is taken; `of` knows the signature.
            let symbol = unsafe { library.get::<*const c_void>(name.as_bytes()) };
            symbol.ok().map(|symbol| *symbol)
        });
        // The driver stays for the life of the process.
        std::mem::forget(library);
        driver
    }
}
