//! Kernel launches. Kernels of modules with PTX execute, in the order of their streams; others fail to launch. With
//! `kernels=skip`, launches are checked and skipped.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cuguard_sys::{CUfunction, CUlaunchConfig, CUresult, CUstream, launch_attribute_id};

use super::begin_work;
use super::function::find_any;
use super::launch_arguments::{Arguments, check_addresses, read_arguments};
use super::launch_limits::{Launch, check_limits};
use super::read;
use crate::graph::{KernelParams, NodeParams};
use crate::handle::Id;
use crate::memory::MemoryBlock;
use crate::result::{DriverResult, valid};
use crate::state::{DriverState, KernelLaunch, StateGuard, lock};
use crate::streams::Run;
use crate::trace::{not_simulated, require};
use crate::{stderr, thread_state};

/// Fails if the kernel is not in the context of the stream.
fn check_context(state: &DriverState, stream: Id, context: Id) -> DriverResult {
    let own = state.streams.get(&stream).map(|stream| stream.context);
    let why = || "the stream belongs to another context than the kernel".to_owned();
    require(own == Some(context), CUresult::INVALID_HANDLE, why)
}

/// Launches a kernel. Fails unless a real driver would: the dimensions, the shared memory and the arguments must be valid,
/// and the arguments that are addresses of device memory must be those of live memory.
///
/// # Safety
///
/// The arguments are those of the function.
pub(super) unsafe fn launch(
    stream: CUstream,
    launch: &Launch,
    arguments: Arguments,
) -> DriverResult {
    let (mut state, stream) = begin_launch(stream, launch.function)?;
    if state.is_capturing(stream) {
        // SAFETY: as the caller guarantees.
        let params = unsafe { node_params(&mut state, launch, arguments) }?;
        return state.capture(stream, params);
    }
    let id = find_any(&mut state, launch.function)?;
    let own = state.code.function(id)?;
    check_context(&state, stream, own.module.context)?;
    let launch = launch.for_kernel(own.kernel, &own.settings);
    check_limits(own.kernel, &own.settings, &launch)?;
    // SAFETY: as the caller guarantees.
    let bytes = unsafe { read_arguments(&state, own.kernel, arguments) }?;
    let run = work(&mut state, stream, id, &launch, bytes)?;
    state.submit(stream, None, run, None).map(drop)
}

/// The work of a launch on a stream.
fn work(
    state: &mut DriverState,
    stream: Id,
    function: Id,
    launch: &Launch,
    arguments: Vec<u8>,
) -> DriverResult<Option<Run>> {
    let own = state.code.function(function)?;
    let blocks = check_addresses(state, stream, own.kernel, &arguments)?;
    if state.config.skip_kernels {
        return Ok(skipped(blocks));
    }
    let context = own.module.context;
    let kernel = KernelLaunch {
        image: own.module.image.clone(),
        kernel: own.index,
        grid: launch.grid,
        block: launch.block,
        cluster: launch.cluster,
        shared: launch.shared,
        cooperative: launch.cooperative,
        arguments,
        variables: own.module.variables.clone(),
    };
    let work = state.kernel_work(context, kernel, blocks);
    work.map(Some).ok_or_else(not_simulated)
}

/// The work of a launch that is skipped: the memory counts as used until the stream has passed it.
fn skipped(blocks: Vec<Arc<MemoryBlock>>) -> Option<Run> {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        stderr::print_line(
            "kernels=skip: kernel launches are checked and skipped; kernels do not run",
        );
    }
    (!blocks.is_empty()).then(|| Box::new(move || drop(blocks)) as _)
}

/// A launch as a node of a graph, with a copy of the arguments.
///
/// # Safety
///
/// As [`launch`].
pub(super) unsafe fn node_params(
    state: &mut DriverState,
    launch: &Launch,
    arguments: Arguments,
) -> DriverResult<NodeParams> {
    let id = find_any(state, launch.function)?;
    let own = state.code.function(id)?;
    let kernel = own.kernel;
    let launch = launch.for_kernel(kernel, &own.settings);
    check_limits(kernel, &own.settings, &launch)?;
    // SAFETY: as the caller guarantees.
    let mut bytes = unsafe { read_arguments(state, kernel, arguments) }?;
    let offsets: Vec<_> = kernel.parameters.iter().map(|own| own.offset).collect();
    let start = bytes.as_mut_ptr();
    let pointers = offsets
        .iter()
        .map(|offset| start.wrapping_add(*offset).cast());
    Ok(NodeParams::Kernel(Arc::new(KernelParams {
        function: launch.function.0,
        grid: launch.grid,
        block: launch.block,
        shared: launch.shared,
        cluster: launch.cluster,
        cooperative: launch.cooperative,
        pointers: pointers.collect(),
        arguments: bytes,
    })))
}

/// The work of a kernel node on a stream, as checked as a launch is.
pub(super) fn node_work(
    state: &mut DriverState,
    stream: Id,
    node: &KernelParams,
) -> DriverResult<Option<Run>> {
    let id = find_any(state, CUfunction(node.function))?;
    check_context(state, stream, state.code.function(id)?.module.context)?;
    let launch = Launch {
        function: CUfunction(node.function),
        grid: node.grid,
        block: node.block,
        shared: node.shared,
        cluster: node.cluster,
        cooperative: node.cooperative,
    };
    work(state, stream, id, &launch, node.arguments.clone())
}

/// Locks the state and finds the stream of a launch. Without a current context, the default stream is that of the
/// function's context.
fn begin_launch(stream: CUstream, function: CUfunction) -> DriverResult<(StateGuard, Id)> {
    let is_default = matches!(stream, CUstream::NULL | CUstream::LEGACY);
    if is_default && thread_state::current().is_none() {
        let mut state = lock();
        let id = find_any(&mut state, function)?;
        let context = state.code.function(id)?.module.context;
        state.check_alive(context)?;
        let stream = state.contexts[&context].legacy;
        state.join_implicit_dependencies(stream);
        return Ok((state, stream));
    }
    begin_work(stream)
}

#[allow(clippy::too_many_arguments, reason = "the driver's own signature")]
pub unsafe fn cuLaunchKernel(
    function: CUfunction,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared: u32,
    stream: CUstream,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> DriverResult {
    let own = Launch {
        function,
        grid: [grid_x, grid_y, grid_z],
        block: [block_x, block_y, block_z],
        shared,
        cluster: [1; 3],
        cooperative: false,
    };
    // SAFETY: as the caller guarantees.
    unsafe { launch(stream, &own, Arguments { parameters, extra }) }
}

#[allow(clippy::too_many_arguments, reason = "the driver's own signature")]
pub unsafe fn cuLaunchCooperativeKernel(
    function: CUfunction,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared: u32,
    stream: CUstream,
    parameters: *mut *mut c_void,
) -> DriverResult {
    let own = Launch {
        function,
        grid: [grid_x, grid_y, grid_z],
        block: [block_x, block_y, block_z],
        shared,
        cluster: [1; 3],
        cooperative: true,
    };
    let extra = std::ptr::null_mut();
    // SAFETY: as the caller guarantees.
    unsafe { launch(stream, &own, Arguments { parameters, extra }) }
}

/// A launch by a configuration, and the attributes that the configuration has.
///
/// # Safety
///
/// The configuration's attributes are null or can be read.
pub(super) unsafe fn read_config(
    function: CUfunction,
    config: &CUlaunchConfig,
) -> DriverResult<(Launch, Vec<u32>)> {
    let mut own = Launch {
        function,
        grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
        block: [config.blockDimX, config.blockDimY, config.blockDimZ],
        shared: config.sharedMemBytes,
        cluster: [1; 3],
        cooperative: false,
    };
    let mut attributes = Vec::new();
    valid(config.numAttrs == 0 || !config.attrs.is_null())?;
    for index in 0..config.numAttrs as usize {
        // SAFETY: the caller guarantees as many attributes.
        let attribute = unsafe { config.attrs.add(index).read() };
        valid(attribute.id <= launch_attribute_id::SHARED_MEMORY_MODE)?;
        attributes.push(attribute.id);
        match attribute.id {
            launch_attribute_id::COOPERATIVE => {
                // SAFETY: the id says which value it is.
                own.cooperative = unsafe { attribute.value.cooperative } != 0;
            }
            launch_attribute_id::CLUSTER_DIMENSION => {
                // SAFETY: the id says which value it is.
                let dims = unsafe { attribute.value.clusterDim };
                own.cluster = [dims.x, dims.y, dims.z];
            }
            _ => {}
        }
    }
    Ok((own, attributes))
}

pub unsafe fn cuLaunchKernelEx(
    config: *const CUlaunchConfig,
    function: CUfunction,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let config = unsafe { read(config) }?;
    // SAFETY: as the caller guarantees.
    let (own, _) = unsafe { read_config(function, &config) }?;
    // SAFETY: as the caller guarantees.
    unsafe { launch(config.hStream, &own, Arguments { parameters, extra }) }
}
