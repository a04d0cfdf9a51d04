//! The recorded functions.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use crate::real;

/// Calls the macro `$callback` with the exported name of each recorded function and the function that records
/// it. All versions are here, and the variants for per-thread default streams.
macro_rules! with_recorded {
    ($callback:ident) => {
        $callback! {
            cuInit = init::init;
            cuGetProcAddress = proc_address::get_proc_address;
            cuGetProcAddress_v2 = proc_address::get_proc_address_v2;

            cuMemAlloc = device::alloc_v1;
            cuMemAlloc_v2 = device::alloc;
            cuMemAllocPitch = device::alloc_pitch_v1;
            cuMemAllocPitch_v2 = device::alloc_pitch;
            cuMemAllocManaged = device::alloc_managed;
            cuMemFree = device::free_v1;
            cuMemFree_v2 = device::free;

            cuMemAllocHost = host::alloc_v1;
            cuMemAllocHost_v2 = host::alloc;
            cuMemHostAlloc = host::alloc_with_flags;
            cuMemFreeHost = host::free;
            cuMemHostRegister = host::register;
            cuMemHostRegister_v2 = host::register;
            cuMemHostUnregister = host::unregister;

            cuMemAllocAsync = stream_ordered::alloc;
            cuMemAllocAsync_ptsz = stream_ordered::alloc_ptsz;
            cuMemAllocFromPoolAsync = stream_ordered::alloc_from_pool;
            cuMemAllocFromPoolAsync_ptsz = stream_ordered::alloc_from_pool_ptsz;
            cuMemFreeAsync = stream_ordered::free;
            cuMemFreeAsync_ptsz = stream_ordered::free_ptsz;
            cuMemPoolCreate = stream_ordered::create_pool;
            cuMemPoolDestroy = stream_ordered::destroy_pool;
            cuMemPoolImportFromShareableHandle = stream_ordered::import_pool;
            cuMemPoolImportPointer = stream_ordered::import_pointer;

            cuMemCreate = virtual_memory::create;
            cuMemImportFromShareableHandle = virtual_memory::import;
            cuMulticastCreate = virtual_memory::create_multicast;
            cuMemRetainAllocationHandle = virtual_memory::retain;
            cuMemRelease = virtual_memory::release;
            cuMemMap = virtual_memory::map;
            cuMemUnmap = virtual_memory::unmap;
            cuMemAddressReserve = virtual_memory::reserve;
            cuMemAddressFree = virtual_memory::free_reserved;

            cuArrayCreate = array::create_v1;
            cuArrayCreate_v2 = array::create;
            cuArray3DCreate = array::create_3d_v1;
            cuArray3DCreate_v2 = array::create_3d;
            cuArrayDestroy = array::destroy;
            cuMipmappedArrayCreate = array::create_mipmapped;
            cuMipmappedArrayDestroy = array::destroy_mipmapped;

            cuIpcOpenMemHandle = imported::open_ipc;
            cuIpcOpenMemHandle_v2 = imported::open_ipc;
            cuIpcCloseMemHandle = imported::close_ipc;
            cuIpcOpenEventHandle = imported::open_ipc_event;
            cuImportExternalMemory = imported::import;
            cuDestroyExternalMemory = imported::destroy;
            cuExternalMemoryGetMappedBuffer = imported::map_buffer;
            cuExternalMemoryGetMappedMipmappedArray = imported::map_mipmapped_array;

            cuCtxCreate = context::create;
            cuCtxCreate_v2 = context::create;
            cuCtxCreate_v3 = context::create_v3;
            cuCtxCreate_v4 = context::create_v4;
            cuGLCtxCreate = context::create;
            cuGLCtxCreate_v2 = context::create;
            cuVDPAUCtxCreate = context::create_vdpau;
            cuVDPAUCtxCreate_v2 = context::create_vdpau;
            cuCtxDestroy = context::destroy;
            cuCtxDestroy_v2 = context::destroy;
            cuCtxAttach = context::attach;
            cuCtxDetach = context::detach;
            cuDevicePrimaryCtxRetain = context::retain_primary;
            cuDevicePrimaryCtxRelease = context::release_primary;
            cuDevicePrimaryCtxRelease_v2 = context::release_primary;
            cuDevicePrimaryCtxReset = context::reset_primary;
            cuDevicePrimaryCtxReset_v2 = context::reset_primary;
            cuGreenCtxCreate = context::create_green;
            cuGreenCtxDestroy = context::destroy_green;
            cuCtxFromGreenCtx = context::from_green;

            cuStreamCreate = handle::create_stream;
            cuStreamCreateWithPriority = handle::create_stream_with_priority;
            cuGreenCtxStreamCreate = handle::create_green_stream;
            cuStreamDestroy = handle::destroy_stream;
            cuStreamDestroy_v2 = handle::destroy_stream;
            cuEventCreate = handle::create_event;
            cuEventCreateFromEGLSync = handle::create_event_from_egl;
            cuEventDestroy = handle::destroy_event;
            cuEventDestroy_v2 = handle::destroy_event;

            cuModuleLoad = module::load;
            cuModuleLoadData = module::load_data;
            cuModuleLoadDataEx = module::load_data_ex;
            cuModuleLoadFatBinary = module::load_data;
            cuModuleUnload = module::unload;
            cuLibraryLoadData = module::load_library_data;
            cuLibraryLoadFromFile = module::load_library_file;
            cuLibraryUnload = module::unload_library;
            cuModuleGetFunction = part::function_of_module;
            cuModuleEnumerateFunctions = part::functions_of_module;
            cuModuleGetGlobal = part::variable_of_module_v1;
            cuModuleGetGlobal_v2 = part::variable_of_module;
            cuLibraryGetKernel = part::kernel_of_library;
            cuLibraryEnumerateKernels = part::kernels_of_library;
            cuLibraryGetModule = part::module_of_library;
            cuLibraryGetGlobal = part::variable_of_library;
            cuLibraryGetManaged = part::variable_of_library;
            cuKernelGetFunction = part::function_of_kernel;

            cuGraphCreate = graph::create;
            cuGraphClone = graph::clone;
            cuGraphDestroy = graph::destroy;
            cuGraphAddNode = graph::add_node;
            cuGraphAddNode_v2 = graph::add_node_v2;
            cuGraphAddNode_v3 = graph::add_node_v2;
            cuGraphAddMemAllocNode = graph::add_alloc_node;
            cuGraphAddMemFreeNode = graph::add_free_node;
            cuGraphInstantiate = graph::instantiate;
            cuGraphInstantiate_v2 = graph::instantiate;
            cuGraphInstantiateWithFlags = graph::instantiate_with_flags;
            cuGraphInstantiateWithParams = graph::instantiate_with_params;
            cuGraphInstantiateWithParams_ptsz = graph::instantiate_with_params;
            cuGraphLaunch = graph::launch;
            cuGraphLaunch_ptsz = graph::launch;
            cuGraphExecDestroy = graph::destroy_exec;
            cuStreamBeginCapture = capture::begin;
            cuStreamBeginCapture_ptsz = capture::begin;
            cuStreamBeginCapture_v2 = capture::begin_v2;
            cuStreamBeginCapture_v2_ptsz = capture::begin_v2;
            cuStreamBeginCaptureToGraph = capture::begin_to_graph;
            cuStreamBeginCaptureToGraph_ptsz = capture::begin_to_graph;
            cuStreamBeginRecaptureToGraph = capture::begin_again;
            cuStreamBeginRecaptureToGraph_ptsz = capture::begin_again;
            cuStreamEndCapture = capture::end;
            cuStreamEndCapture_ptsz = capture::end;

            cuCtxSynchronize = synchronize::current_context;
            cuCtxSynchronize_v2 = synchronize::context;
            cuStreamSynchronize = synchronize::stream;
            cuStreamSynchronize_ptsz = synchronize::stream;
            cuEventSynchronize = synchronize::event;
        }
    };
}
pub(super) use with_recorded;

/// Calls the macro `$callback` with functions that neither free nor create anything of guards that is recorded, but whose calls
/// by guards decide what becomes of the resources that others allocate; and with the function that notes such a call.
macro_rules! with_noted {
    ($callback:ident) => {
        $callback! {
            cuDevicePrimaryCtxRetain = context::retain_primary_by_guard;
            cuDevicePrimaryCtxRelease = context::release_primary_by_guard;
            cuDevicePrimaryCtxRelease_v2 = context::release_primary_by_guard;
            cuStreamBeginCapture = capture::begin;
            cuStreamBeginCapture_ptsz = capture::begin;
            cuStreamBeginCapture_v2 = capture::begin_v2;
            cuStreamBeginCapture_v2_ptsz = capture::begin_v2;
            cuStreamBeginCaptureToGraph = capture::begin_to_graph;
            cuStreamBeginCaptureToGraph_ptsz = capture::begin_to_graph;
            cuStreamBeginRecaptureToGraph = capture::begin_again;
            cuStreamBeginRecaptureToGraph_ptsz = capture::begin_again;
            cuStreamEndCapture = capture::end_by_guard;
            cuStreamEndCapture_ptsz = capture::end_by_guard;
        }
    };
}
pub(super) use with_noted;

macro_rules! functions {
    ($($name:ident = $body:path;)*) => {
        /// A recorded function.
        #[allow(
            non_camel_case_types,
            clippy::enum_variant_names,
            reason = "the driver's own names"
        )]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub(crate) enum Function {
            $($name),*
        }

        impl Function {
            /// All of them, in order.
            pub(crate) const ALL: &[Self] = &[$(Self::$name),*];

            const NAMES: &[&str] = &[$(stringify!($name)),*];

            const C_NAMES: &[&CStr] = &[$(c_str(concat!(stringify!($name), "\0"))),*];
        }
    };
}
with_recorded!(functions);

/// Called in constants alone: a name with a NUL inside does not compile.
const fn c_str(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name has a NUL inside"),
    }
}

/// What follows this library in the global scope, once it is found; in the order of [`Function`].
static NEXT: [AtomicPtr<c_void>; Function::ALL.len()] =
    [const { AtomicPtr::new(ptr::null_mut()) }; Function::ALL.len()];

/// The driver's functions, once they are found; in the order of [`Function`].
static TARGETS: [AtomicPtr<c_void>; Function::ALL.len()] =
    [const { AtomicPtr::new(ptr::null_mut()) }; Function::ALL.len()];

impl Function {
    /// The exported name.
    pub(crate) fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The function with an exported name.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        let named = |function: &&Self| function.name().as_bytes() == name;
        Self::ALL.iter().find(named).copied()
    }

    /// Whether it finds functions, and does nothing else.
    pub(crate) const fn is_lookup(self) -> bool {
        matches!(self, Self::cuGetProcAddress | Self::cuGetProcAddress_v2)
    }

    /// Whether it frees or destroys one resource. The release of a primary context does not: it ends one of several uses, and
    /// those of guards are not recorded.
    pub(crate) const fn is_freeing(self) -> bool {
        use Function as F;
        matches!(
            self,
            F::cuMemFree
                | F::cuMemFree_v2
                | F::cuMemFreeHost
                | F::cuMemHostUnregister
                | F::cuMemFreeAsync
                | F::cuMemFreeAsync_ptsz
                | F::cuMemPoolDestroy
                | F::cuMemRelease
                | F::cuMemUnmap
                | F::cuMemAddressFree
                | F::cuArrayDestroy
                | F::cuMipmappedArrayDestroy
                | F::cuIpcCloseMemHandle
                | F::cuDestroyExternalMemory
                | F::cuCtxDestroy
                | F::cuCtxDestroy_v2
                | F::cuDevicePrimaryCtxReset
                | F::cuDevicePrimaryCtxReset_v2
                | F::cuGreenCtxDestroy
                | F::cuStreamDestroy
                | F::cuStreamDestroy_v2
                | F::cuEventDestroy
                | F::cuEventDestroy_v2
                | F::cuModuleUnload
                | F::cuLibraryUnload
                | F::cuGraphDestroy
                | F::cuGraphExecDestroy
        )
    }

    /// The driver's own function. `None` without a driver, and where the driver does not have it.
    #[inline]
    pub(crate) fn target(self) -> Option<*const c_void> {
        let target = TARGETS[self as usize].load(Relaxed);
        match target.is_null() {
            false => Some(target),
            true => self.find_target(),
        }
    }

    /// The function that a program is linked against without this library: the driver's, or that of a library which stands
    /// before the driver. `None` if the driver is in no global scope.
    #[inline]
    pub(crate) fn next(self) -> Option<*const c_void> {
        let next = NEXT[self as usize].load(Relaxed);
        match next.is_null() {
            false => Some(next),
            true => self.find_next(),
        }
    }

    #[cold]
    fn find_next(self) -> Option<*const c_void> {
        let next = match self.find_behind_own() {
            Ok(found) => found.cast_mut(),
            Err(Unclear) => {
                let name = Self::C_NAMES[self as usize];
                // SAFETY: a C string. Called from here, this is a search behind this library.
                unsafe { real::call_dlsym(libc::RTLD_NEXT, name.as_ptr()) }
            }
        };
        NEXT[self as usize].store(next, Relaxed);
        (!next.is_null()).then_some(next)
    }

    /// What `dlsym` finds behind this library, without the dynamic linker's lock: the first definition, in a library that was
    /// loaded with the program, or the driver's, where nothing else defines the function.
    fn find_behind_own(self) -> Result<*const c_void, Unclear> {
        let (target, own) = (self.target(), Self::find_next as *const () as usize);
        let (mut is_behind, mut found) = (false, Err(Unclear));
        real::find_module(|module| {
            if !is_behind {
                is_behind = module.contains(own);
                return false;
            }
            let Some(defined) = module.function(self.name().as_bytes()) else {
                return false;
            };
            let is_clear = module.is_first() || Some(defined) == target;
            found = is_clear.then_some(defined).ok_or(Unclear);
            // Behind the driver, another library may define it for the global scope.
            module.is_first() || !is_clear
        });
        found
    }

    #[cold]
    fn find_target(self) -> Option<*const c_void> {
        let target = real::driver()?.function(self.name())?;
        TARGETS[self as usize].store(target.cast_mut(), Relaxed);
        Some(target)
    }
}

/// A library that was loaded later defines the function. Only the dynamic linker knows whether it is in the global scope.
struct Unclear;

#[cfg(test)]
mod tests {
    use cuguard_sys::FunctionInfo;

    use super::Function;

    /// A version that is missing here would be called unrecorded.
    #[test]
    fn all_versions_of_a_recorded_function_are_recorded() {
        for function in Function::ALL {
            let info = FunctionInfo::named(function.name());
            let base = info.map(|info| info.base).unwrap_or_default();
            let versions = cuguard_sys::FUNCTIONS.iter().filter(|f| f.base == base);
            for version in versions {
                let recorded = Function::named(version.name.as_bytes());
                assert!(recorded.is_some(), "{}", version.name);
            }
        }
    }
}
