//! Functions, kernels and variables of modules and libraries: who has one of these has the module.

use std::ffi::c_char;

use cuguard_registry::ResourceKind;
use cuguard_sys::*;

use super::{Address, Call};
use crate::state::parts;

/// Notes what the driver wrote to `out`.
///
/// # Safety
///
/// `out` is null or what the driver wrote to, if it succeeded.
unsafe fn note<T: Address>(
    result: CUresult,
    (kind, owner): (ResourceKind, impl Address),
    out: *const T,
    bytes: u64,
) -> CUresult {
    if result.is_success() && !out.is_null() {
        // SAFETY: as the caller guarantees.
        let part = unsafe { out.read_unaligned() }.address();
        if part != 0 {
            parts::found(kind, owner.address(), part, bytes);
        }
    }
    result
}

/// A function that finds a handle by its name.
macro_rules! find_handle {
    ($(#[$doc:meta])* $name:ident, $real:ident, $part:ty, $owner:ty, $kind:expr) => {
        type $real = unsafe extern "C-unwind" fn(*mut $part, $owner, *const c_char) -> CUresult;

        $(#[$doc])*
        pub(crate) unsafe fn $name(
            _: &Call,
            real: $real,
            out: *mut $part,
            owner: $owner,
            name: *const c_char,
        ) -> CUresult {
            // SAFETY: as the caller guarantees.
            let result = unsafe { real(out, owner, name) };
            // SAFETY: the driver wrote to it.
            unsafe { note(result, ($kind, owner), out, 0) }
        }
    };
}

find_handle! {
    /// `cuModuleGetFunction`
    function_of_module, FunctionOfModule, CUfunction, CUmodule, ResourceKind::Module
}
find_handle! {
    /// `cuLibraryGetKernel`
    kernel_of_library, KernelOfLibrary, CUkernel, CUlibrary, ResourceKind::Library
}

/// A function that returns the one handle of another.
macro_rules! get_handle {
    ($(#[$doc:meta])* $name:ident, $real:ident, $part:ty, $owner:ty, $kind:expr) => {
        type $real = unsafe extern "C-unwind" fn(*mut $part, $owner) -> CUresult;

        $(#[$doc])*
        pub(crate) unsafe fn $name(
            _: &Call,
            real: $real,
            out: *mut $part,
            owner: $owner,
        ) -> CUresult {
            // SAFETY: as the caller guarantees.
            let result = unsafe { real(out, owner) };
            // SAFETY: the driver wrote to it.
            unsafe { note(result, ($kind, owner), out, 0) }
        }
    };
}

get_handle! {
    /// `cuLibraryGetModule`
    module_of_library, ModuleOfLibrary, CUmodule, CUlibrary, ResourceKind::Library
}
get_handle! {
    /// `cuKernelGetFunction`
    function_of_kernel, FunctionOfKernel, CUfunction, CUkernel, ResourceKind::Library
}

/// A function that lists all handles.
macro_rules! list_handles {
    ($(#[$doc:meta])* $name:ident, $real:ident, $part:ty, $owner:ty, $kind:expr) => {
        type $real = unsafe extern "C-unwind" fn(*mut $part, u32, $owner) -> CUresult;

        $(#[$doc])*
        pub(crate) unsafe fn $name(
            _: &Call,
            real: $real,
            out: *mut $part,
            most: u32,
            owner: $owner,
        ) -> CUresult {
            // SAFETY: as the caller guarantees.
            let result = unsafe { real(out, most, owner) };
            if !out.is_null() {
                for index in 0..most as usize {
                    // SAFETY: the driver fills the whole array, or fails. Where it has fewer handles, it leaves the rest as it
                    // was: what is there is not a handle, and found nowhere or does no harm.
                    let _ = unsafe { note(result, ($kind, owner), out.add(index), 0) };
                }
            }
            result
        }
    };
}

list_handles! {
    /// `cuModuleEnumerateFunctions`
    functions_of_module, FunctionsOfModule, CUfunction, CUmodule, ResourceKind::Module
}
list_handles! {
    /// `cuLibraryEnumerateKernels`
    kernels_of_library, KernelsOfLibrary, CUkernel, CUlibrary, ResourceKind::Library
}

/// A function that finds a variable: its address and its length.
macro_rules! find_variable {
    ($(#[$doc:meta])* $name:ident, $real:ident, $address:ty, $size:ty, $owner:ty, $kind:expr) => {
        type $real = unsafe extern "C-unwind" fn(
            *mut $address,
            *mut $size,
            $owner,
            *const c_char,
        ) -> CUresult;

        $(#[$doc])*
        pub(crate) unsafe fn $name(
            _: &Call,
            real: $real,
            out: *mut $address,
            bytes: *mut $size,
            owner: $owner,
            name: *const c_char,
        ) -> CUresult {
            // SAFETY: as the caller guarantees.
            let result = unsafe { real(out, bytes, owner, name) };
            let mut length = 0;
            if result.is_success() && !bytes.is_null() {
                // SAFETY: the driver wrote to it.
                let written = unsafe { bytes.read_unaligned() };
                length = written as u64;
            }
            // SAFETY: the driver wrote to it.
            unsafe { note(result, ($kind, owner), out, length) }
        }
    };
}

find_variable! {
    /// `cuModuleGetGlobal`
    variable_of_module_v1, VariableOfModuleV1, CUdeviceptr_v1, u32, CUmodule, ResourceKind::Module
}
find_variable! {
    /// `cuModuleGetGlobal_v2`
    variable_of_module, VariableOfModule, CUdeviceptr, usize, CUmodule, ResourceKind::Module
}
find_variable! {
    /// `cuLibraryGetGlobal` and `cuLibraryGetManaged`
    variable_of_library, VariableOfLibrary, CUdeviceptr, usize, CUlibrary, ResourceKind::Library
}
