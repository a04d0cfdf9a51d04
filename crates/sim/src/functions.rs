//! The driver functions by number: what is special about some of them, and how often each was
//! called.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use cuguard_sys::{NAMES, with_names};

use crate::simulated::with_simulated;

macro_rules! functions {
    ($($name:ident)*) => {
        /// Every function, in the order of [`NAMES`].
        #[allow(
            non_camel_case_types,
            clippy::enum_variant_names,
            reason = "the driver's own names"
        )]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Function {
            $($name),*
        }
    };
}
with_names!(functions);

static CALLS: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];

/// How often each function was called, without those that never were.
pub(crate) fn calls() -> BTreeMap<&'static str, u64> {
    let counts = NAMES.iter().zip(&CALLS);
    counts
        .map(|(name, calls)| (*name, calls.load(Ordering::Relaxed)))
        .filter(|(_, calls)| *calls > 0)
        .collect()
}

impl Function {
    pub(crate) fn name(self) -> &'static str {
        NAMES[self as usize]
    }

    /// Whether `crate::api` implements it. Functions that only call another one do not get here: their calls are
    /// those of the other.
    pub(crate) fn is_simulated(self) -> bool {
        Self::is_simulated_name(self.name())
    }

    /// Whether `crate::api` implements a function of this name.
    pub(crate) fn is_simulated_name(name: &str) -> bool {
        macro_rules! names {
            ($($name:ident)*) => { [$(stringify!($name)),*] };
        }
        with_simulated!(names).contains(&name)
    }

    pub(crate) fn count_call(self) {
        CALLS[self as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Queries the driver itself: works before `cuInit` and inside host functions, and no fault
    /// makes it fail.
    pub(crate) fn is_driver_query(self) -> bool {
        matches!(
            self,
            Self::cuDriverGetVersion
                | Self::cuGetErrorName
                | Self::cuGetErrorString
                | Self::cuGetProcAddress
                | Self::cuGetProcAddress_v2
        )
    }

    /// Writes null where it fails. It checks for faults and sticky errors itself, after that.
    pub(crate) fn allocates(self) -> bool {
        matches!(
            self,
            Self::cuMemAlloc_v2
                | Self::cuMemAllocPitch_v2
                | Self::cuMemAllocAsync
                | Self::cuMemAllocFromPoolAsync
                | Self::cuMemAllocHost_v2
                | Self::cuMemHostAlloc
                | Self::cuMemAllocManaged
        )
    }

    /// Waits for work, or reports whether it is complete.
    pub(crate) fn waits(self) -> bool {
        matches!(
            self,
            Self::cuCtxSynchronize
                | Self::cuCtxSynchronize_v2
                | Self::cuStreamSynchronize
                | Self::cuStreamQuery
                | Self::cuEventSynchronize
                | Self::cuEventQuery
        )
    }

    /// Its success means that work is complete.
    pub(crate) fn confirms_completion(self) -> bool {
        self.waits() || self.name().starts_with("cuMemcpy") || self.name().starts_with("cuMemset")
    }

    /// May wait for work of other streams, which a capture may prohibit. (Functions that are prohibited
    /// or not depending on their arguments check that themselves.)
    pub(crate) fn is_unsafe_in_capture(self) -> bool {
        matches!(
            self,
            Self::cuMemAlloc_v2
                | Self::cuMemAllocPitch_v2
                | Self::cuMemFree_v2
                | Self::cuMemAllocHost_v2
                | Self::cuMemHostAlloc
                | Self::cuMemFreeHost
                | Self::cuMemHostRegister_v2
                | Self::cuMemHostUnregister
                | Self::cuMemAllocManaged
                | Self::cuMemPoolCreate
                | Self::cuMemPoolTrimTo
                | Self::cuMemPoolDestroy
                | Self::cuMemPoolGetAttribute
                | Self::cuMemPoolSetAttribute
                | Self::cuDeviceSetMemPool
                | Self::cuPointerSetAttribute
                | Self::cuArrayCreate_v2
                | Self::cuArray3DCreate_v2
                | Self::cuArrayDestroy
                | Self::cuGraphInstantiateWithFlags
                | Self::cuGraphInstantiateWithParams
                | Self::cuGraphExecDestroy
                | Self::cuMemAdvise
                | Self::cuMemAdvise_v2
                | Self::cuCtxSetLimit
                | Self::cuStreamGetId
        )
    }

    /// Launches kernels, which fails for compiled code unless launches are skipped.
    pub(crate) fn launches_kernel(self) -> bool {
        matches!(
            self,
            Self::cuLaunchKernel
                | Self::cuLaunchKernelEx
                | Self::cuLaunchCooperativeKernel
                | Self::cuLaunch
                | Self::cuLaunchGrid
                | Self::cuLaunchGridAsync
                | Self::cuGraphLaunch
        )
    }

    /// Waits for kernels, whose output is written then. What completed kernels have printed is also written before a launch.
    pub(crate) fn writes_output(self) -> bool {
        let name = self.name();
        let copies = name.starts_with("cuMemcpy") && !name.contains("Async");
        copies
            || matches!(
                self,
                Self::cuCtxSynchronize
                    | Self::cuCtxSynchronize_v2
                    | Self::cuStreamSynchronize
                    | Self::cuEventSynchronize
                    | Self::cuCtxDestroy_v2
                    | Self::cuDevicePrimaryCtxRelease
                    | Self::cuDevicePrimaryCtxRelease_v2
                    | Self::cuDevicePrimaryCtxReset_v2
                    | Self::cuModuleUnload
                    | Self::cuLibraryUnload
            )
    }

    pub(crate) fn creates_context(self) -> bool {
        matches!(
            self,
            Self::cuDevicePrimaryCtxRetain
                | Self::cuCtxCreate_v2
                | Self::cuCtxCreate_v3
                | Self::cuCtxCreate_v4
        )
    }

    /// Still works after a sticky error, as measured on a real driver: what needs no context, what
    /// only manages current contexts, and what destroys contexts.
    pub(crate) fn works_after_sticky_error(self) -> bool {
        matches!(
            self,
            Self::cuInit
                | Self::cuDeviceGet
                | Self::cuDeviceGetCount
                | Self::cuDeviceGetName
                | Self::cuDeviceGetUuid
                | Self::cuDeviceGetUuid_v2
                | Self::cuDeviceTotalMem
                | Self::cuDeviceTotalMem_v2
                | Self::cuDeviceGetExecAffinitySupport
                | Self::cuDeviceGetLuid
                | Self::cuDeviceGetP2PAttribute
                | Self::cuDeviceGetProperties
                | Self::cuDeviceGetTexture1DLinearMaxWidth
                | Self::cuDeviceCanAccessPeer
                | Self::cuDeviceGetAttribute
                | Self::cuDeviceComputeCapability
                | Self::cuDeviceGetByPCIBusId
                | Self::cuDeviceGetPCIBusId
                | Self::cuDevicePrimaryCtxGetState
                | Self::cuDevicePrimaryCtxRelease
                | Self::cuDevicePrimaryCtxRelease_v2
                | Self::cuDevicePrimaryCtxReset_v2
                | Self::cuCtxDestroy_v2
                | Self::cuCtxGetCurrent
                | Self::cuCtxSetCurrent
                | Self::cuCtxPushCurrent_v2
                | Self::cuCtxPopCurrent_v2
                | Self::cuCtxGetDevice
                | Self::cuCtxGetDevice_v2
                | Self::cuCtxGetId
                | Self::cuCtxSetFlags
                | Self::cuCtxAttach
                | Self::cuCtxDetach
                | Self::cuThreadExchangeStreamCaptureMode
                | Self::cuCtxGetFlags
                | Self::cuMemPoolGetAttribute
                | Self::cuMemPoolTrimTo
                | Self::cuPointerGetAttribute
        ) || self.allocates()
    }
}
