//! Which driver functions are simulated. `crate::api` implements those of [`with_simulated!`], under the
//! same names; the signatures come from `cuguard_sys`.

/// Calls the macro `$callback` with the names of the functions that are implemented, in the order of the
/// driver's header.
macro_rules! with_simulated {
    ($callback:ident) => {
        $callback! {
            cuGetErrorString
            cuGetErrorName
            cuInit
            cuDriverGetVersion
            cuDeviceGet
            cuDeviceGetCount
            cuDeviceGetName
            cuDeviceGetUuid
            cuDeviceGetUuid_v2
            cuDeviceGetLuid
            cuDeviceTotalMem
            cuDeviceTotalMem_v2
            cuDeviceGetTexture1DLinearMaxWidth
            cuDeviceGetAttribute
            cuDeviceSetMemPool
            cuDeviceGetMemPool
            cuDeviceGetDefaultMemPool
            cuDeviceGetExecAffinitySupport
            cuDeviceGetProperties
            cuDeviceComputeCapability
            cuDevicePrimaryCtxRetain
            cuDevicePrimaryCtxRelease
            cuDevicePrimaryCtxRelease_v2
            cuDevicePrimaryCtxSetFlags
            cuDevicePrimaryCtxSetFlags_v2
            cuDevicePrimaryCtxGetState
            cuDevicePrimaryCtxReset_v2
            cuCtxCreate_v2
            cuCtxCreate_v3
            cuCtxCreate_v4
            cuCtxDestroy_v2
            cuCtxPushCurrent_v2
            cuCtxPopCurrent_v2
            cuCtxSetCurrent
            cuCtxGetCurrent
            cuCtxGetDevice
            cuCtxGetDevice_v2
            cuCtxGetFlags
            cuCtxSetFlags
            cuCtxGetId
            cuCtxSynchronize
            cuCtxSynchronize_v2
            cuCtxSetLimit
            cuCtxGetLimit
            cuCtxGetCacheConfig
            cuCtxSetCacheConfig
            cuCtxGetApiVersion
            cuCtxGetStreamPriorityRange
            cuCtxResetPersistingL2Cache
            cuCtxGetExecAffinity
            cuCtxRecordEvent
            cuCtxWaitEvent
            cuCtxAttach
            cuCtxDetach
            cuCtxGetSharedMemConfig
            cuCtxSetSharedMemConfig
            cuModuleLoad
            cuModuleLoadData
            cuModuleLoadDataEx
            cuModuleLoadFatBinary
            cuModuleUnload
            cuModuleGetLoadingMode
            cuModuleGetFunction
            cuModuleGetFunctionCount
            cuModuleEnumerateFunctions
            cuModuleGetGlobal_v2
            cuLinkCreate_v2
            cuLinkAddData_v2
            cuLinkAddFile_v2
            cuLinkComplete
            cuLinkDestroy
            cuLibraryLoadData
            cuLibraryLoadFromFile
            cuLibraryUnload
            cuLibraryGetKernel
            cuLibraryGetKernelCount
            cuLibraryEnumerateKernels
            cuLibraryGetModule
            cuKernelGetFunction
            cuKernelGetLibrary
            cuLibraryGetGlobal
            cuLibraryGetManaged
            cuKernelGetAttribute
            cuKernelSetAttribute
            cuKernelSetCacheConfig
            cuKernelGetName
            cuKernelGetParamInfo
            cuMemGetInfo_v2
            cuMemAlloc_v2
            cuMemAllocPitch_v2
            cuMemFree_v2
            cuMemGetAddressRange_v2
            cuMemAllocHost_v2
            cuMemFreeHost
            cuMemHostAlloc
            cuMemHostGetDevicePointer_v2
            cuMemHostGetFlags
            cuMemAllocManaged
            cuDeviceGetByPCIBusId
            cuDeviceGetPCIBusId
            cuMemHostRegister_v2
            cuMemHostUnregister
            cuMemcpy
            cuMemcpyPeer
            cuMemcpyHtoD_v2
            cuMemcpyDtoH_v2
            cuMemcpyDtoD_v2
            cuMemcpyDtoA_v2
            cuMemcpyAtoD_v2
            cuMemcpyHtoA_v2
            cuMemcpyAtoH_v2
            cuMemcpyAtoA_v2
            cuMemcpy2D_v2
            cuMemcpy2DUnaligned_v2
            cuMemcpy3D_v2
            cuMemcpy3DPeer
            cuMemcpyAsync
            cuMemcpyPeerAsync
            cuMemcpyHtoDAsync_v2
            cuMemcpyDtoHAsync_v2
            cuMemcpyDtoDAsync_v2
            cuMemcpyHtoAAsync_v2
            cuMemcpyAtoHAsync_v2
            cuMemcpy2DAsync_v2
            cuMemcpy3DAsync_v2
            cuMemcpy3DPeerAsync
            cuMemcpyBatchAsync
            cuMemcpyBatchAsync_v2
            cuMemcpy3DBatchAsync
            cuMemcpy3DBatchAsync_v2
            cuMemsetD8_v2
            cuMemsetD16_v2
            cuMemsetD32_v2
            cuMemsetD2D8_v2
            cuMemsetD2D16_v2
            cuMemsetD2D32_v2
            cuMemsetD8Async
            cuMemsetD16Async
            cuMemsetD32Async
            cuMemsetD2D8Async
            cuMemsetD2D16Async
            cuMemsetD2D32Async
            cuArrayCreate_v2
            cuArrayGetDescriptor_v2
            cuArrayDestroy
            cuArray3DCreate_v2
            cuArray3DGetDescriptor_v2
            cuMemAddressReserve
            cuMemAddressFree
            cuMemCreate
            cuMemRelease
            cuMemMap
            cuMemUnmap
            cuMemSetAccess
            cuMemGetAccess
            cuMemGetAllocationGranularity
            cuMemGetAllocationPropertiesFromHandle
            cuMemRetainAllocationHandle
            cuMemFreeAsync
            cuMemAllocAsync
            cuMemPoolTrimTo
            cuMemPoolSetAttribute
            cuMemPoolGetAttribute
            cuMemPoolSetAccess
            cuMemPoolGetAccess
            cuMemPoolCreate
            cuMemPoolDestroy
            cuMemGetDefaultMemPool
            cuMemGetMemPool
            cuMemSetMemPool
            cuMemAllocFromPoolAsync
            cuPointerGetAttribute
            cuMemPrefetchAsync
            cuMemPrefetchAsync_v2
            cuMemAdvise
            cuMemAdvise_v2
            cuMemPrefetchBatchAsync
            cuMemDiscardBatchAsync
            cuMemDiscardAndPrefetchBatchAsync
            cuMemRangeGetAttribute
            cuMemRangeGetAttributes
            cuPointerSetAttribute
            cuPointerGetAttributes
            cuStreamCreate
            cuStreamCreateWithPriority
            cuStreamGetPriority
            cuStreamGetDevice
            cuStreamGetFlags
            cuStreamGetId
            cuStreamGetCtx
            cuStreamGetCtx_v2
            cuStreamWaitEvent
            cuStreamAddCallback
            cuStreamBeginCapture
            cuStreamBeginCapture_v2
            cuStreamBeginCaptureToGraph
            cuThreadExchangeStreamCaptureMode
            cuStreamEndCapture
            cuStreamIsCapturing
            cuStreamGetCaptureInfo
            cuStreamGetCaptureInfo_v2
            cuStreamGetCaptureInfo_v3
            cuStreamUpdateCaptureDependencies
            cuStreamUpdateCaptureDependencies_v2
            cuStreamAttachMemAsync
            cuStreamQuery
            cuStreamSynchronize
            cuStreamDestroy_v2
            cuStreamCopyAttributes
            cuStreamGetAttribute
            cuStreamSetAttribute
            cuEventCreate
            cuEventRecord
            cuEventRecordWithFlags
            cuEventQuery
            cuEventSynchronize
            cuEventDestroy_v2
            cuEventElapsedTime
            cuEventElapsedTime_v2
            cuFuncGetAttribute
            cuFuncSetAttribute
            cuFuncSetCacheConfig
            cuFuncGetModule
            cuFuncGetName
            cuFuncGetParamInfo
            cuFuncIsLoaded
            cuFuncLoad
            cuLaunchKernel
            cuLaunchKernelEx
            cuLaunchCooperativeKernel
            cuLaunchHostFunc
            cuFuncSetBlockShape
            cuFuncSetSharedSize
            cuParamSetSize
            cuParamSeti
            cuParamSetf
            cuParamSetv
            cuLaunch
            cuLaunchGrid
            cuLaunchGridAsync
            cuFuncSetSharedMemConfig
            cuGraphCreate
            cuGraphAddKernelNode
            cuGraphAddKernelNode_v2
            cuGraphKernelNodeGetParams
            cuGraphKernelNodeGetParams_v2
            cuGraphKernelNodeSetParams
            cuGraphKernelNodeSetParams_v2
            cuGraphAddMemcpyNode
            cuGraphMemcpyNodeGetParams
            cuGraphMemcpyNodeSetParams
            cuGraphAddMemsetNode
            cuGraphMemsetNodeGetParams
            cuGraphMemsetNodeSetParams
            cuGraphAddHostNode
            cuGraphHostNodeGetParams
            cuGraphHostNodeSetParams
            cuGraphAddChildGraphNode
            cuGraphChildGraphNodeGetGraph
            cuGraphAddEmptyNode
            cuGraphAddEventRecordNode
            cuGraphEventRecordNodeGetEvent
            cuGraphEventRecordNodeSetEvent
            cuGraphAddEventWaitNode
            cuGraphEventWaitNodeGetEvent
            cuGraphEventWaitNodeSetEvent
            cuGraphAddMemAllocNode
            cuGraphMemAllocNodeGetParams
            cuGraphAddMemFreeNode
            cuGraphMemFreeNodeGetParams
            cuDeviceGraphMemTrim
            cuDeviceGetGraphMemAttribute
            cuDeviceSetGraphMemAttribute
            cuGraphClone
            cuGraphNodeFindInClone
            cuGraphNodeGetType
            cuGraphGetNodes
            cuGraphGetRootNodes
            cuGraphGetEdges
            cuGraphGetEdges_v2
            cuGraphNodeGetDependencies
            cuGraphNodeGetDependencies_v2
            cuGraphNodeGetDependentNodes
            cuGraphNodeGetDependentNodes_v2
            cuGraphAddDependencies
            cuGraphAddDependencies_v2
            cuGraphRemoveDependencies
            cuGraphRemoveDependencies_v2
            cuGraphDestroyNode
            cuGraphInstantiateWithFlags
            cuGraphInstantiateWithParams
            cuGraphExecGetFlags
            cuGraphExecKernelNodeSetParams
            cuGraphExecKernelNodeSetParams_v2
            cuGraphExecMemcpyNodeSetParams
            cuGraphExecMemsetNodeSetParams
            cuGraphExecHostNodeSetParams
            cuGraphExecChildGraphNodeSetParams
            cuGraphExecEventRecordNodeSetEvent
            cuGraphExecEventWaitNodeSetEvent
            cuGraphNodeSetEnabled
            cuGraphNodeGetEnabled
            cuGraphUpload
            cuGraphLaunch
            cuGraphExecDestroy
            cuGraphDestroy
            cuGraphExecUpdate
            cuGraphExecUpdate_v2
            cuGraphDebugDotPrint
            cuUserObjectCreate
            cuUserObjectRetain
            cuUserObjectRelease
            cuGraphRetainUserObject
            cuGraphReleaseUserObject
            cuGraphAddNode
            cuGraphAddNode_v2
            cuGraphNodeSetParams
            cuGraphExecNodeSetParams
            cuOccupancyMaxActiveBlocksPerMultiprocessor
            cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
            cuOccupancyMaxPotentialBlockSize
            cuOccupancyMaxPotentialBlockSizeWithFlags
            cuOccupancyAvailableDynamicSMemPerBlock
            cuOccupancyMaxPotentialClusterSize
            cuOccupancyMaxActiveClusters
            cuDeviceCanAccessPeer
            cuCtxEnablePeerAccess
            cuCtxDisablePeerAccess
            cuDeviceGetP2PAttribute
            cuGetProcAddress
            cuGetProcAddress_v2
            cuProfilerStart
            cuProfilerStop
        }
    };
}
pub(crate) use with_simulated;

/// Calls the macro `$callback` with `name = implementation;` for functions that do the same as another
/// one: older versions whose signature did not change.
///
/// Older versions about contexts are none of them. On a real driver `cuCtxCreate` of CUDA 2.0 creates contexts
/// with 32-bit addresses, beside which no others can be created; `cuCtxPushCurrent` fails for a context that is
/// current; and a context that `cuCtxDestroy` destroyed is unknown afterwards.
macro_rules! with_aliases {
    ($callback:ident) => {
        $callback! {
            cuDevicePrimaryCtxReset = cuDevicePrimaryCtxReset_v2;
            cuCtxPopCurrent = cuCtxPopCurrent_v2;
            cuMemHostRegister = cuMemHostRegister_v2;
            cuStreamDestroy = cuStreamDestroy_v2;
            cuEventDestroy = cuEventDestroy_v2;
        }
    };
}
pub(crate) use with_aliases;

/// Calls the macro `$callback` with `name = implementation;` for functions whose default stream is the
/// calling thread's own.
macro_rules! with_per_thread {
    ($callback:ident) => {
        $callback! {
            cuMemcpy_ptds = cuMemcpy;
            cuMemcpyPeer_ptds = cuMemcpyPeer;
            cuMemcpyHtoD_v2_ptds = cuMemcpyHtoD_v2;
            cuMemcpyDtoH_v2_ptds = cuMemcpyDtoH_v2;
            cuMemcpyDtoD_v2_ptds = cuMemcpyDtoD_v2;
            cuMemcpyDtoA_v2_ptds = cuMemcpyDtoA_v2;
            cuMemcpyAtoD_v2_ptds = cuMemcpyAtoD_v2;
            cuMemcpyHtoA_v2_ptds = cuMemcpyHtoA_v2;
            cuMemcpyAtoH_v2_ptds = cuMemcpyAtoH_v2;
            cuMemcpyAtoA_v2_ptds = cuMemcpyAtoA_v2;
            cuMemcpy2D_v2_ptds = cuMemcpy2D_v2;
            cuMemcpy2DUnaligned_v2_ptds = cuMemcpy2DUnaligned_v2;
            cuMemcpy3D_v2_ptds = cuMemcpy3D_v2;
            cuMemcpy3DPeer_ptds = cuMemcpy3DPeer;
            cuMemcpyAsync_ptsz = cuMemcpyAsync;
            cuMemcpyPeerAsync_ptsz = cuMemcpyPeerAsync;
            cuMemcpyHtoDAsync_v2_ptsz = cuMemcpyHtoDAsync_v2;
            cuMemcpyDtoHAsync_v2_ptsz = cuMemcpyDtoHAsync_v2;
            cuMemcpyDtoDAsync_v2_ptsz = cuMemcpyDtoDAsync_v2;
            cuMemcpyHtoAAsync_v2_ptsz = cuMemcpyHtoAAsync_v2;
            cuMemcpyAtoHAsync_v2_ptsz = cuMemcpyAtoHAsync_v2;
            cuMemcpy2DAsync_v2_ptsz = cuMemcpy2DAsync_v2;
            cuMemcpy3DAsync_v2_ptsz = cuMemcpy3DAsync_v2;
            cuMemcpy3DPeerAsync_ptsz = cuMemcpy3DPeerAsync;
            cuMemcpyBatchAsync_ptsz = cuMemcpyBatchAsync;
            cuMemcpyBatchAsync_v2_ptsz = cuMemcpyBatchAsync_v2;
            cuMemcpy3DBatchAsync_ptsz = cuMemcpy3DBatchAsync;
            cuMemcpy3DBatchAsync_v2_ptsz = cuMemcpy3DBatchAsync_v2;
            cuMemsetD8_v2_ptds = cuMemsetD8_v2;
            cuMemsetD16_v2_ptds = cuMemsetD16_v2;
            cuMemsetD32_v2_ptds = cuMemsetD32_v2;
            cuMemsetD2D8_v2_ptds = cuMemsetD2D8_v2;
            cuMemsetD2D16_v2_ptds = cuMemsetD2D16_v2;
            cuMemsetD2D32_v2_ptds = cuMemsetD2D32_v2;
            cuMemsetD8Async_ptsz = cuMemsetD8Async;
            cuMemsetD16Async_ptsz = cuMemsetD16Async;
            cuMemsetD32Async_ptsz = cuMemsetD32Async;
            cuMemsetD2D8Async_ptsz = cuMemsetD2D8Async;
            cuMemsetD2D16Async_ptsz = cuMemsetD2D16Async;
            cuMemsetD2D32Async_ptsz = cuMemsetD2D32Async;
            cuMemFreeAsync_ptsz = cuMemFreeAsync;
            cuMemAllocAsync_ptsz = cuMemAllocAsync;
            cuMemAllocFromPoolAsync_ptsz = cuMemAllocFromPoolAsync;
            cuMemPrefetchAsync_ptsz = cuMemPrefetchAsync;
            cuMemPrefetchAsync_v2_ptsz = cuMemPrefetchAsync_v2;
            cuMemPrefetchBatchAsync_ptsz = cuMemPrefetchBatchAsync;
            cuMemDiscardBatchAsync_ptsz = cuMemDiscardBatchAsync;
            cuMemDiscardAndPrefetchBatchAsync_ptsz = cuMemDiscardAndPrefetchBatchAsync;
            cuStreamGetPriority_ptsz = cuStreamGetPriority;
            cuStreamGetDevice_ptsz = cuStreamGetDevice;
            cuStreamGetFlags_ptsz = cuStreamGetFlags;
            cuStreamGetId_ptsz = cuStreamGetId;
            cuStreamGetCtx_ptsz = cuStreamGetCtx;
            cuStreamGetCtx_v2_ptsz = cuStreamGetCtx_v2;
            cuStreamWaitEvent_ptsz = cuStreamWaitEvent;
            cuStreamAddCallback_ptsz = cuStreamAddCallback;
            cuStreamIsCapturing_ptsz = cuStreamIsCapturing;
            cuStreamBeginCapture_ptsz = cuStreamBeginCapture;
            cuStreamBeginCapture_v2_ptsz = cuStreamBeginCapture_v2;
            cuStreamBeginCaptureToGraph_ptsz = cuStreamBeginCaptureToGraph;
            cuStreamEndCapture_ptsz = cuStreamEndCapture;
            cuStreamGetCaptureInfo_ptsz = cuStreamGetCaptureInfo;
            cuStreamGetCaptureInfo_v2_ptsz = cuStreamGetCaptureInfo_v2;
            cuStreamGetCaptureInfo_v3_ptsz = cuStreamGetCaptureInfo_v3;
            cuStreamUpdateCaptureDependencies_ptsz = cuStreamUpdateCaptureDependencies;
            cuStreamUpdateCaptureDependencies_v2_ptsz = cuStreamUpdateCaptureDependencies_v2;
            cuStreamAttachMemAsync_ptsz = cuStreamAttachMemAsync;
            cuStreamQuery_ptsz = cuStreamQuery;
            cuStreamSynchronize_ptsz = cuStreamSynchronize;
            cuStreamCopyAttributes_ptsz = cuStreamCopyAttributes;
            cuStreamGetAttribute_ptsz = cuStreamGetAttribute;
            cuStreamSetAttribute_ptsz = cuStreamSetAttribute;
            cuEventRecord_ptsz = cuEventRecord;
            cuEventRecordWithFlags_ptsz = cuEventRecordWithFlags;
            cuLaunchKernel_ptsz = cuLaunchKernel;
            cuLaunchKernelEx_ptsz = cuLaunchKernelEx;
            cuLaunchCooperativeKernel_ptsz = cuLaunchCooperativeKernel;
            cuLaunchHostFunc_ptsz = cuLaunchHostFunc;
            cuGraphInstantiateWithParams_ptsz = cuGraphInstantiateWithParams;
            cuGraphUpload_ptsz = cuGraphUpload;
            cuGraphLaunch_ptsz = cuGraphLaunch;
        }
    };
}
pub(crate) use with_per_thread;

#[cfg(test)]
mod tests {
    use cuguard_sys::{DefaultStream, FUNCTIONS};

    macro_rules! names {
        ($($name:ident)*) => { vec![$(stringify!($name)),*] };
    }
    macro_rules! pairs {
        ($($name:ident = $other:ident;)*) => { vec![$((stringify!($name), stringify!($other))),*] };
    }

    #[test]
    fn every_simulated_function_has_its_per_thread_variant() {
        let simulated = with_simulated!(names);
        let per_thread = with_per_thread!(pairs);
        for function in FUNCTIONS
            .iter()
            .filter(|f| f.default_stream == DefaultStream::PerThread)
        {
            let plain = function
                .name
                .trim_end_matches("_ptsz")
                .trim_end_matches("_ptds");
            let listed = per_thread.contains(&(function.name, plain));
            assert_eq!(simulated.contains(&plain), listed, "{}", function.name);
        }
    }

    #[test]
    fn no_function_is_listed_twice() {
        let mut names = with_simulated!(names);
        names.extend(
            with_aliases!(pairs)
                .iter()
                .chain(&with_per_thread!(pairs))
                .map(|pair| pair.0),
        );
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
