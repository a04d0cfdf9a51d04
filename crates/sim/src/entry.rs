//! The C functions of the simulated driver, one for each of the 353 names, and what is common to
//! all calls: they are counted, may be made to fail, and are refused where a real driver refuses
//! them.
//!
//! What a function does stands in the modules of `api`; here it is only wrapped. A function that the
//! simulation lacks answers `CUDA_ERROR_NOT_SUPPORTED`, never success.

#![allow(
    non_snake_case,
    missing_docs,
    clippy::missing_safety_doc,
    reason = "the driver's own functions, documented by the driver"
)]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use cuguard_sys::*;

use crate::lock::lock;
use crate::machine::{self, Answer};
use crate::{api, current, engine, fault};

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

        /// The C functions, in the order of [`NAMES`].
        static FUNCTIONS: [Pointer; NAMES.len()] = [$(Pointer($name as *const c_void)),*];
    };
}
with_names!(functions);

struct Pointer(*const c_void);

// SAFETY: these point to functions, which any thread may call.
unsafe impl Sync for Pointer {}

/// The C function of a name, for each of the 353 names.
///
/// ```
/// assert!(cuguard_sim::lookup("cuMemAlloc_v2").is_some());
/// assert!(cuguard_sim::lookup("cuNoSuchThing").is_none());
/// ```
#[must_use]
pub fn lookup(name: &str) -> Option<*const c_void> {
    let index = NAMES.iter().position(|known| *known == name)?;
    Some(FUNCTIONS[index].0)
}

static CALLS: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];

/// How often each function was called.
pub(crate) fn calls() -> BTreeMap<&'static str, u64> {
    let counts = NAMES.iter().zip(&CALLS);
    counts
        .map(|(name, calls)| (*name, calls.load(Ordering::Relaxed)))
        .filter(|(_, calls)| *calls > 0)
        .collect()
}

impl Function {
    /// Tells something about the driver itself: works before `cuInit` and inside host functions,
    /// and is never made to fail.
    fn is_about_driver(self) -> bool {
        matches!(
            self,
            Self::cuDriverGetVersion
                | Self::cuGetErrorName
                | Self::cuGetErrorString
                | Self::cuGetProcAddress
        )
    }

    /// Leaves null behind where it fails, so it looks for faults and corruption by itself, after
    /// that.
    fn hands_out_memory(self) -> bool {
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

    /// Its success says that work is done.
    fn tells_of_work(self) -> bool {
        let waits = matches!(
            self,
            Self::cuCtxSynchronize
                | Self::cuStreamSynchronize
                | Self::cuStreamQuery
                | Self::cuEventSynchronize
                | Self::cuEventQuery
        );
        let name = NAMES[self as usize];
        waits || name.starts_with("cuMemcpy") || name.starts_with("cuMemset")
    }

    fn makes_context(self) -> bool {
        matches!(self, Self::cuDevicePrimaryCtxRetain | Self::cuCtxCreate_v2)
    }

    /// Still does what it did after a stray access has made all contexts unusable, as measured on
    /// a real driver: what needs no context, what only handles them, and what ends them.
    fn survives_corruption(self) -> bool {
        matches!(
            self,
            Self::cuInit
                | Self::cuDeviceGet
                | Self::cuDeviceGetCount
                | Self::cuDeviceGetName
                | Self::cuDeviceGetUuid
                | Self::cuDeviceGetUuid_v2
                | Self::cuDeviceTotalMem_v2
                | Self::cuDeviceGetAttribute
                | Self::cuDeviceComputeCapability
                | Self::cuDeviceGetByPCIBusId
                | Self::cuDeviceGetPCIBusId
                | Self::cuDevicePrimaryCtxGetState
                | Self::cuDevicePrimaryCtxRelease_v2
                | Self::cuDevicePrimaryCtxReset_v2
                | Self::cuCtxDestroy_v2
                | Self::cuCtxGetCurrent
                | Self::cuCtxSetCurrent
                | Self::cuCtxPushCurrent_v2
                | Self::cuCtxPopCurrent_v2
                | Self::cuCtxGetDevice
                | Self::cuCtxGetFlags
                | Self::cuMemPoolGetAttribute
                | Self::cuMemPoolTrimTo
                | Self::cuPointerGetAttribute
        ) || self.hands_out_memory()
    }
}

/// What every call goes through.
fn call(function: Function, body: impl FnOnce() -> Answer) -> CUresult {
    match admit(function).and_then(|()| body()) {
        // It was let in, and meanwhile the device stopped.
        Ok(()) if function.tells_of_work() => engine::stopped(),
        Ok(()) => CUresult::SUCCESS,
        Err(code) => code,
    }
}

fn admit(function: Function) -> Answer {
    CALLS[function as usize].fetch_add(1, Ordering::Relaxed);
    if function.is_about_driver() {
        return Ok(());
    }
    if current::in_host_function() {
        return Err(CUresult::NOT_PERMITTED);
    }
    // Before anything that takes a lock: a thread of the parent's may have held it.
    if machine::is_forked() {
        return Err(CUresult::NOT_INITIALIZED);
    }
    if !function.hands_out_memory() {
        may_fail(function)?;
    }
    if function == Function::cuInit {
        return Ok(());
    }
    if !machine::is_running() {
        return Err(CUresult::NOT_INITIALIZED);
    }
    if !function.survives_corruption()
        && let Err(code) = machine::corrupted()
    {
        // A context that is gone is the nearer reason, where the function uses one.
        if !function.makes_context() {
            lock().check_current_if_any()?;
        }
        return Err(code);
    }
    Ok(())
}

/// Fails where a fault says so. Asked for every call on its way in, but by what hands out memory
/// itself, after it has left null behind.
pub(crate) fn may_fail(function: Function) -> Answer {
    fault::on_call(function as usize)
}

macro_rules! simulated {
    ($(fn $name:ident($($parameter:ident: $type:ty),*);)*) => {$(
        pub unsafe extern "C" fn $name($($parameter: $type),*) -> CUresult {
            // SAFETY: the caller's promises about the arguments are passed on as they are.
            call(Function::$name, || unsafe { api::$name($($parameter),*) })
        }
    )*};
}
with_functions!(simulated);

macro_rules! not_simulated {
    ($($name:ident)*) => {$(
        pub unsafe extern "C" fn $name() -> CUresult {
            call(Function::$name, || Err(CUresult::NOT_SUPPORTED))
        }
    )*};
}
not_simulated! {
    cuDeviceGetLuid cuDeviceGetTexture1DLinearMaxWidth cuDeviceGetNvSciSyncAttributes
    cuFlushGPUDirectRDMAWrites cuDeviceGetProperties cuDeviceGetExecAffinitySupport
    cuCtxCreate_v3 cuCtxGetExecAffinity cuCtxAttach cuCtxDetach cuModuleLoad cuModuleLoadDataEx
    cuModuleLoadFatBinary cuModuleGetTexRef cuModuleGetSurfRef cuLinkCreate_v2 cuLinkAddData_v2
    cuLinkAddFile_v2 cuLinkComplete cuLinkDestroy cuIpcGetEventHandle cuIpcOpenEventHandle
    cuIpcGetMemHandle cuIpcOpenMemHandle_v2 cuIpcCloseMemHandle cuMemcpyDtoA_v2 cuMemcpyAtoD_v2
    cuMemcpyAtoA_v2 cuMemcpy3D_v2 cuMemcpy3DPeer cuMemcpyHtoAAsync_v2 cuMemcpyAtoHAsync_v2
    cuMemcpy3DAsync_v2 cuMemcpy3DPeerAsync cuArrayCreate_v2 cuArrayGetDescriptor_v2
    cuArrayGetSparseProperties cuMipmappedArrayGetSparseProperties cuArrayGetPlane
    cuMipmappedArrayCreate cuMipmappedArrayGetLevel cuMipmappedArrayDestroy cuMemMapArrayAsync
    cuMemExportToShareableHandle cuMemImportFromShareableHandle cuMemPoolSetAccess
    cuMemPoolGetAccess cuMemPoolExportToShareableHandle cuMemPoolImportFromShareableHandle
    cuMemPoolExportPointer cuMemPoolImportPointer cuMemRangeGetAttribute cuMemRangeGetAttributes
    cuStreamBeginCapture_v2 cuThreadExchangeStreamCaptureMode cuStreamEndCapture
    cuStreamGetCaptureInfo cuStreamGetCaptureInfo_v2 cuStreamUpdateCaptureDependencies
    cuStreamAttachMemAsync cuStreamCopyAttributes cuStreamGetAttribute cuStreamSetAttribute
    cuImportExternalMemory cuExternalMemoryGetMappedBuffer
    cuExternalMemoryGetMappedMipmappedArray cuDestroyExternalMemory cuImportExternalSemaphore
    cuSignalExternalSemaphoresAsync cuWaitExternalSemaphoresAsync cuDestroyExternalSemaphore
    cuStreamWaitValue32 cuStreamWaitValue64 cuStreamWriteValue32 cuStreamWriteValue64
    cuStreamBatchMemOp cuFuncGetAttribute cuFuncSetAttribute cuFuncSetCacheConfig
    cuFuncSetSharedMemConfig cuFuncGetModule cuLaunchCooperativeKernel
    cuLaunchCooperativeKernelMultiDevice cuFuncSetBlockShape cuFuncSetSharedSize cuParamSetSize
    cuParamSeti cuParamSetf cuParamSetv cuLaunch cuLaunchGrid cuLaunchGridAsync cuParamSetTexRef
    cuGraphCreate cuGraphAddKernelNode cuGraphKernelNodeGetParams cuGraphKernelNodeSetParams
    cuGraphAddMemcpyNode cuGraphMemcpyNodeGetParams cuGraphMemcpyNodeSetParams
    cuGraphAddMemsetNode cuGraphMemsetNodeGetParams cuGraphMemsetNodeSetParams
    cuGraphAddHostNode cuGraphHostNodeGetParams cuGraphHostNodeSetParams
    cuGraphAddChildGraphNode cuGraphChildGraphNodeGetGraph cuGraphAddEmptyNode
    cuGraphAddEventRecordNode cuGraphEventRecordNodeGetEvent cuGraphEventRecordNodeSetEvent
    cuGraphAddEventWaitNode cuGraphEventWaitNodeGetEvent cuGraphEventWaitNodeSetEvent
    cuGraphAddExternalSemaphoresSignalNode cuGraphExternalSemaphoresSignalNodeGetParams
    cuGraphExternalSemaphoresSignalNodeSetParams cuGraphAddExternalSemaphoresWaitNode
    cuGraphExternalSemaphoresWaitNodeGetParams cuGraphExternalSemaphoresWaitNodeSetParams
    cuGraphAddMemAllocNode cuGraphMemAllocNodeGetParams cuGraphAddMemFreeNode
    cuGraphMemFreeNodeGetParams cuDeviceGraphMemTrim cuDeviceGetGraphMemAttribute
    cuDeviceSetGraphMemAttribute cuGraphClone cuGraphNodeFindInClone cuGraphNodeGetType
    cuGraphGetNodes cuGraphGetRootNodes cuGraphGetEdges cuGraphNodeGetDependencies
    cuGraphNodeGetDependentNodes cuGraphAddDependencies cuGraphRemoveDependencies
    cuGraphDestroyNode cuGraphInstantiate_v2 cuGraphInstantiateWithFlags
    cuGraphExecKernelNodeSetParams cuGraphExecMemcpyNodeSetParams cuGraphExecMemsetNodeSetParams
    cuGraphExecHostNodeSetParams cuGraphExecChildGraphNodeSetParams
    cuGraphExecEventRecordNodeSetEvent cuGraphExecEventWaitNodeSetEvent
    cuGraphExecExternalSemaphoresSignalNodeSetParams
    cuGraphExecExternalSemaphoresWaitNodeSetParams cuGraphUpload cuGraphLaunch
    cuGraphExecDestroy cuGraphDestroy cuGraphExecUpdate cuGraphKernelNodeCopyAttributes
    cuGraphKernelNodeGetAttribute cuGraphKernelNodeSetAttribute cuGraphDebugDotPrint
    cuUserObjectCreate cuUserObjectRetain cuUserObjectRelease cuGraphRetainUserObject
    cuGraphReleaseUserObject cuOccupancyMaxActiveBlocksPerMultiprocessor
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cuOccupancyMaxPotentialBlockSize
    cuOccupancyMaxPotentialBlockSizeWithFlags cuOccupancyAvailableDynamicSMemPerBlock
    cuTexRefSetArray cuTexRefSetMipmappedArray cuTexRefSetAddress_v2 cuTexRefSetAddress2D_v3
    cuTexRefSetFormat cuTexRefSetAddressMode cuTexRefSetFilterMode cuTexRefSetMipmapFilterMode
    cuTexRefSetMipmapLevelBias cuTexRefSetMipmapLevelClamp cuTexRefSetMaxAnisotropy
    cuTexRefSetBorderColor cuTexRefSetFlags cuTexRefGetAddress_v2 cuTexRefGetArray
    cuTexRefGetMipmappedArray cuTexRefGetAddressMode cuTexRefGetFilterMode cuTexRefGetFormat
    cuTexRefGetMipmapFilterMode cuTexRefGetMipmapLevelBias cuTexRefGetMipmapLevelClamp
    cuTexRefGetMaxAnisotropy cuTexRefGetBorderColor cuTexRefGetFlags cuTexRefCreate
    cuTexRefDestroy cuSurfRefSetArray cuSurfRefGetArray cuTexObjectCreate cuTexObjectDestroy
    cuTexObjectGetResourceDesc cuTexObjectGetTextureDesc cuTexObjectGetResourceViewDesc
    cuSurfObjectCreate cuSurfObjectDestroy cuSurfObjectGetResourceDesc cuCtxEnablePeerAccess
    cuCtxDisablePeerAccess cuDeviceGetP2PAttribute cuGraphicsUnregisterResource
    cuGraphicsSubResourceGetMappedArray cuGraphicsResourceGetMappedMipmappedArray
    cuGraphicsResourceGetMappedPointer_v2 cuGraphicsResourceSetMapFlags_v2
    cuGraphicsMapResources cuGraphicsUnmapResources cuGetExportTable cuProfilerInitialize
}
