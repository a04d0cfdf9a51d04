//! Graphs: work that is captured once, instantiated, and launched any number of times.

use cuguard_sys::{
    CUgraph, CUgraphExec, CUgraphExecUpdateResult, CUgraphExecUpdateResultInfo, CUstream,
    graph_mem_attribute,
};

use super::{CallError, Result, call, out};

/// Destroys a graph. Executables of it stay valid.
///
/// # Errors
///
/// Any driver error.
///
/// # Safety
///
/// The graph is alive and not used afterwards.
#[inline]
pub unsafe fn destroy(graph: CUgraph) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuGraphDestroy(graph)) }
}

/// Returns how many nodes a graph has.
///
/// # Errors
///
/// Any driver error.
///
/// # Safety
///
/// The graph is alive.
#[inline]
pub unsafe fn node_count(graph: CUgraph) -> Result<usize> {
    // SAFETY: without an array, only the number is written; the rest is as the caller ensures.
    out(|count| unsafe { call!(cuGraphGetNodes(graph, std::ptr::null_mut(), count)) })
}

/// Creates an executable of a graph in the current context; `flags` is of
/// [`graph_instantiate_flags`](cuguard_sys::graph_instantiate_flags).
///
/// # Errors
///
/// `CUDA_ERROR_OUT_OF_MEMORY`; `CUDA_ERROR_NOT_SUPPORTED` if a graph that allocates has an executable already; or any
/// other driver error.
///
/// # Safety
///
/// The graph is alive.
#[inline]
pub unsafe fn instantiate(graph: CUgraph, flags: u64) -> Result<CUgraphExec> {
    // SAFETY: the variable can be written to; the rest is as the caller ensures.
    out(|exec| unsafe { call!(cuGraphInstantiateWithFlags(exec, graph, flags)) })
}

/// Destroys an executable. Launches that are in flight complete.
///
/// # Errors
///
/// Any driver error.
///
/// # Safety
///
/// The executable is alive and not used afterwards.
#[inline]
pub unsafe fn exec_destroy(exec: CUgraphExec) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuGraphExecDestroy(exec)) }
}

/// Enqueues the work of an executable, after its launches before.
///
/// # Errors
///
/// `CUDA_ERROR_OUT_OF_MEMORY`, or any other driver error.
///
/// # Safety
///
/// Both are alive and of one context. What the work uses is valid until it is done.
#[inline]
pub unsafe fn launch(exec: CUgraphExec, stream: CUstream) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuGraphLaunch(exec, stream)) }
}

/// Replaces the parameters of all nodes of an executable by those of a graph with the same nodes and dependencies.
/// Launches from now on use them. If it fails, the executable is unchanged.
///
/// # Errors
///
/// `CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE` with a reason, a value of
/// [`graph_exec_update_result`](cuguard_sys::graph_exec_update_result), or any other driver error.
///
/// # Safety
///
/// Both are alive.
#[inline]
pub unsafe fn exec_update(
    exec: CUgraphExec,
    graph: CUgraph,
) -> Result<(), (CallError, CUgraphExecUpdateResult)> {
    let mut info = CUgraphExecUpdateResultInfo::default();
    // SAFETY: the variable can be written to; the rest is as the caller ensures.
    let updated = unsafe { call!(cuGraphExecUpdate_v2(exec, graph, &mut info)) };
    updated.map_err(|error| (error, info.result))
}

/// Releases the memory of a device that graphs have allocated and no executable uses.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_DEVICE`, or any other driver error.
#[inline]
pub fn trim_memory(device: i32) -> Result {
    // SAFETY: the driver checks the device.
    unsafe { call!(cuDeviceGraphMemTrim(device)) }
}

/// Returns how much memory of a device its graphs have reserved, in bytes.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_DEVICE`, or any other driver error.
#[inline]
pub fn reserved_memory(device: i32) -> Result<u64> {
    memory(device, graph_mem_attribute::RESERVED_MEM_CURRENT)
}

/// Returns how much of [`reserved_memory`] graphs use, or the driver keeps for their launches, in bytes. The rest was reserved
/// by launches that failed for lack of memory, and stays reserved until the process ends.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_DEVICE`, or any other driver error.
#[inline]
pub fn used_memory(device: i32) -> Result<u64> {
    memory(device, graph_mem_attribute::USED_MEM_CURRENT)
}

fn memory(device: i32, attribute: u32) -> Result<u64> {
    out(|bytes: &mut u64| {
        let bytes = std::ptr::from_mut(bytes).cast();
        // SAFETY: these attributes are 64 bits wide, which can be written to; the driver checks the device.
        unsafe { call!(cuDeviceGetGraphMemAttribute(device, attribute, bytes)) }
    })
}
