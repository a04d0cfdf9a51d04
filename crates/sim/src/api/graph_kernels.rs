//! Kernel nodes. Their kernels run, or are skipped or fail to launch, as every launch.

use cuguard_sys::{
    CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1, CUcontext, CUfunction, CUgraph,
    CUgraphExec, CUgraphNode, CUkernel,
};

use super::graph_nodes::{Place, add, get, set};
use super::graph_update::replace;
use super::launch::node_params;
use super::launch_arguments::Arguments;
use super::launch_limits::Launch;
use super::{read, write_out};
use crate::graph::NodeParams;
use crate::result::DriverResult;
use crate::state::DriverState;

/// The parameters of a kernel node. The arguments are copied.
///
/// # Safety
///
/// The arguments are those of the function.
pub(super) unsafe fn kernel_params(
    state: &mut DriverState,
    params: CUDA_KERNEL_NODE_PARAMS,
) -> DriverResult<NodeParams> {
    let function = match params.func.is_null() {
        true => CUfunction(params.kern.0),
        false => params.func,
    };
    let launch = Launch {
        function,
        grid: [params.gridDimX, params.gridDimY, params.gridDimZ],
        block: [params.blockDimX, params.blockDimY, params.blockDimZ],
        shared: params.sharedMemBytes,
        cluster: [1; 3],
        cooperative: false,
    };
    let arguments = Arguments {
        parameters: params.kernelParams,
        extra: params.extra,
    };
    // SAFETY: as the caller guarantees.
    unsafe { node_params(state, &launch, arguments) }
}

/// The parameters as of CUDA 12, from those of CUDA 10.
fn newer(params: CUDA_KERNEL_NODE_PARAMS_v1) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func: params.func,
        gridDimX: params.gridDimX,
        gridDimY: params.gridDimY,
        gridDimZ: params.gridDimZ,
        blockDimX: params.blockDimX,
        blockDimY: params.blockDimY,
        blockDimZ: params.blockDimZ,
        sharedMemBytes: params.sharedMemBytes,
        kernelParams: params.kernelParams,
        extra: params.extra,
        kern: CUkernel::NULL,
        ctx: CUcontext::NULL,
    }
}

pub unsafe fn cuGraphAddKernelNode_v2(
    out: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
    params: *const CUDA_KERNEL_NODE_PARAMS,
) -> DriverResult {
    let place = Place {
        out,
        graph,
        after,
        count,
    };
    // SAFETY: as the caller guarantees.
    unsafe {
        let found = read(params)?;
        add(place, |state, _| kernel_params(state, found))
    }
}

pub unsafe fn cuGraphAddKernelNode(
    out: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
    params: *const CUDA_KERNEL_NODE_PARAMS_v1,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe {
        let found = newer(read(params)?);
        cuGraphAddKernelNode_v2(out, graph, after, count, &raw const found)
    }
}

/// The arguments that are written stay valid until the node's parameters change.
pub unsafe fn cuGraphKernelNodeGetParams_v2(
    node: CUgraphNode,
    out: *mut CUDA_KERNEL_NODE_PARAMS,
) -> DriverResult {
    let kernel = get(node, |params| match params {
        NodeParams::Kernel(kernel) => Some(kernel),
        _ => None,
    })?;
    let params = CUDA_KERNEL_NODE_PARAMS {
        func: CUfunction(kernel.function),
        gridDimX: kernel.grid[0],
        gridDimY: kernel.grid[1],
        gridDimZ: kernel.grid[2],
        blockDimX: kernel.block[0],
        blockDimY: kernel.block[1],
        blockDimZ: kernel.block[2],
        sharedMemBytes: kernel.shared,
        kernelParams: kernel.pointers.as_ptr().cast_mut(),
        ..CUDA_KERNEL_NODE_PARAMS::default()
    };
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, params) }
}

pub unsafe fn cuGraphKernelNodeGetParams(
    node: CUgraphNode,
    out: *mut CUDA_KERNEL_NODE_PARAMS_v1,
) -> DriverResult {
    let mut params = CUDA_KERNEL_NODE_PARAMS::default();
    // SAFETY: as the caller guarantees.
    unsafe { cuGraphKernelNodeGetParams_v2(node, &raw mut params) }?;
    let older = CUDA_KERNEL_NODE_PARAMS_v1 {
        func: params.func,
        gridDimX: params.gridDimX,
        gridDimY: params.gridDimY,
        gridDimZ: params.gridDimZ,
        blockDimX: params.blockDimX,
        blockDimY: params.blockDimY,
        blockDimZ: params.blockDimZ,
        sharedMemBytes: params.sharedMemBytes,
        kernelParams: params.kernelParams,
        extra: params.extra,
    };
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, older) }
}

pub unsafe fn cuGraphKernelNodeSetParams_v2(
    node: CUgraphNode,
    params: *const CUDA_KERNEL_NODE_PARAMS,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe {
        let found = read(params)?;
        set(node, |state| kernel_params(state, found))
    }
}

pub unsafe fn cuGraphKernelNodeSetParams(
    node: CUgraphNode,
    params: *const CUDA_KERNEL_NODE_PARAMS_v1,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe {
        let found = newer(read(params)?);
        cuGraphKernelNodeSetParams_v2(node, &raw const found)
    }
}

pub unsafe fn cuGraphExecKernelNodeSetParams_v2(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: *const CUDA_KERNEL_NODE_PARAMS,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe {
        let found = read(params)?;
        replace(exec, node, |state| kernel_params(state, found))
    }
}

pub unsafe fn cuGraphExecKernelNodeSetParams(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: *const CUDA_KERNEL_NODE_PARAMS_v1,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe {
        let found = newer(read(params)?);
        cuGraphExecKernelNodeSetParams_v2(exec, node, &raw const found)
    }
}
