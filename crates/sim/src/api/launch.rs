//! Kernel launches. Kernels do not run: a launch fails, or is checked and skipped, as configured.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cuguard_sys::{CUfunction, CUlaunchConfig, CUresult, CUstream, launch_attribute_id};

use super::function::find_any;
use super::launch_limits::{Launch, check_dimensions, check_limits};
use super::{begin_work, read};
use crate::code::Kernel;
use crate::graph::{KernelParams, NodeParams};
use crate::handle::Id;
use crate::memory::MemoryBlock;
use crate::result::{DriverResult, valid};
use crate::state::{DriverState, StateGuard, any_capture, lock};
use crate::streams::Run;
use crate::trace::{not_simulated, require};
use crate::{stderr, thread_state};

/// The arguments of a launch: a pointer to each, or keys and values with a pointer to all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arguments {
    pub(super) parameters: *mut *mut c_void,
    pub(super) extra: *mut *mut c_void,
}

/// Fails unless a real driver would launch the kernel: the dimensions, the shared memory and the arguments are
/// valid, and the arguments that are addresses of device memory are those of live memory. `stream` is the one that
/// the kernel would run on. Returns the memory that the arguments refer to.
///
/// # Safety
///
/// The arguments are those of the function.
pub(super) unsafe fn check_launch(
    state: &mut DriverState,
    stream: Id,
    launch: &Launch,
    arguments: Arguments,
) -> DriverResult<Vec<Arc<MemoryBlock>>> {
    let id = find_any(state, launch.function)?;
    let own = state.code.function(id)?;
    let kernel = own.kernel;
    check_context(state, stream, own.module.context)?;
    check_limits(kernel, &own.settings, launch)?;
    // SAFETY: as the caller guarantees.
    let bytes = unsafe { read_arguments(state, kernel, arguments) }?;
    check_addresses(state, stream, kernel, &bytes)
}

/// Fails if the kernel is not in the context of the stream.
fn check_context(state: &DriverState, stream: Id, context: Id) -> DriverResult {
    let own = state.streams.get(&stream).map(|stream| stream.context);
    let why = || "the stream belongs to another context than the kernel".to_owned();
    require(own == Some(context), CUresult::INVALID_HANDLE, why)
}

/// The keys of `extra`.
const END: usize = 0;
const BUFFER: usize = 1;
const BUFFER_SIZE: usize = 2;

impl Arguments {
    /// The list of keys and values for arguments in a buffer.
    pub(super) fn list(buffer: &mut [u8], size: &mut usize) -> [*mut c_void; 5] {
        let key = std::ptr::without_provenance_mut;
        [
            key(BUFFER),
            buffer.as_mut_ptr().cast(),
            key(BUFFER_SIZE),
            std::ptr::from_mut(size).cast(),
            key(END),
        ]
    }
}

/// Copies the arguments to where the kernel would read them.
///
/// # Safety
///
/// As [`check_launch`].
unsafe fn read_arguments(
    state: &DriverState,
    kernel: &Kernel,
    arguments: Arguments,
) -> DriverResult<Vec<u8>> {
    let size = kernel.parameter_bytes();
    let mut bytes = vec![0; size];
    let name = kernel.name.to_string_lossy();
    // SAFETY: as the caller guarantees.
    if let Some((buffer, len)) = unsafe { read_extra(arguments.extra) }? {
        require(
            arguments.parameters.is_null(),
            CUresult::INVALID_VALUE,
            || "the arguments are in a list and in a buffer".to_owned(),
        )?;
        require(len <= size, CUresult::LAUNCH_OUT_OF_RESOURCES, || {
            format!(
                "the argument buffer of the kernel {name} has {len} bytes, its parameters have {size}"
            )
        })?;
        if len < size {
            let description = format!(
                "the argument buffer of the kernel {name} has {len} bytes, its parameters have {size}"
            );
            return Err(state.misuse(CUresult::INVALID_VALUE, description));
        }
        // SAFETY: the caller guarantees `len` bytes.
        unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(buffer, size) };
        return Ok(bytes);
    }
    let count = kernel.parameters.len();
    require(
        count == 0 || !arguments.parameters.is_null(),
        CUresult::INVALID_VALUE,
        || format!("the launch has no arguments, the kernel {name} has {count} parameters"),
    )?;
    for (index, parameter) in kernel.parameters.iter().enumerate() {
        // SAFETY: the caller guarantees a pointer for each parameter.
        let argument = unsafe { arguments.parameters.add(index).read() }.cast::<u8>();
        require(!argument.is_null(), CUresult::INVALID_VALUE, || {
            let number = index + 1;
            format!("the pointer to argument {number} of the kernel {name} is null")
        })?;
        let to = bytes.get_mut(parameter.offset..parameter.offset + parameter.size);
        if let Some(to) = to {
            // SAFETY: the caller guarantees that each argument has the size of its parameter.
            unsafe { to.as_mut_ptr().copy_from_nonoverlapping(argument, to.len()) };
        }
    }
    Ok(bytes)
}

/// The buffer and the size in a list of keys and values; `None` if there are neither.
///
/// # Safety
///
/// The list is null or ends in `CU_LAUNCH_PARAM_END`, and its values are what their keys say.
unsafe fn read_extra(extra: *mut *mut c_void) -> DriverResult<Option<(*const u8, usize)>> {
    let (mut buffer, mut size) = (None, None);
    let mut at = extra;
    while !at.is_null() {
        // SAFETY: within the list, as the caller guarantees.
        let key = unsafe { at.read() }.addr();
        if key == END {
            break;
        }
        // SAFETY: each key has a value.
        let value = unsafe { at.add(1).read() };
        match key {
            BUFFER => buffer = Some(value.cast_const().cast::<u8>()),
            // SAFETY: the value points to a size, as the caller guarantees.
            BUFFER_SIZE => size = Some(unsafe { read(value.cast::<usize>()) }?),
            _ => return Err(CUresult::INVALID_VALUE),
        }
        // SAFETY: the list goes on until its end.
        at = unsafe { at.add(2) };
    }
    match (buffer, size) {
        // pycuda passes a buffer of no bytes for a kernel without parameters.
        (None, None) | (Some(_), Some(0)) => Ok(None),
        (Some(buffer), Some(size)) if !buffer.is_null() => Ok(Some((buffer, size))),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

/// Fails if an argument is the address of memory that was freed. The end of live memory is allowed, unless freed
/// memory starts there.
fn check_addresses(
    state: &DriverState,
    stream: Id,
    kernel: &Kernel,
    bytes: &[u8],
) -> DriverResult<Vec<Arc<MemoryBlock>>> {
    let mut blocks = Vec::new();
    for (index, parameter) in kernel.parameters.iter().enumerate() {
        let value = bytes.get(parameter.offset..parameter.offset + parameter.size);
        let Some(Ok(value)) = value.map(<[u8; 8]>::try_from) else {
            continue;
        };
        if !parameter.may_be_address {
            continue;
        }
        let address = u64::from_ne_bytes(value);
        if let Some(range) = state.map.find(address) {
            state.check_allocated(range, stream)?;
            blocks.push(range.block.clone());
        } else if state.is_freed(address) {
            let name = kernel.name.to_string_lossy();
            let number = index + 1;
            let description = format!(
                "argument {number} of the kernel {name} is {address:#x}, in memory that was freed"
            );
            return Err(state.misuse(CUresult::INVALID_VALUE, description));
        }
    }
    Ok(blocks)
}

/// Checks a launch and skips it, or fails, as configured.
///
/// # Safety
///
/// As [`check_launch`].
pub(super) unsafe fn launch(
    stream: CUstream,
    launch: &Launch,
    arguments: Arguments,
) -> DriverResult {
    if !lock().config.skip_kernels {
        let mut state = lock();
        state.current()?;
        // A launch that no driver accepts fails as on a real one.
        let id = find_any(&mut state, launch.function)?;
        let own = state.code.function(id)?;
        check_dimensions(own.kernel, &own.settings, launch)?;
        if any_capture() {
            // Otherwise the capture would end with a graph that lacks the kernel.
            let stream = state.stream(stream)?;
            state.invalidate_capture(stream);
        }
        return Err(not_simulated());
    }
    let (mut state, stream) = begin_launch(stream, launch.function)?;
    if state.is_capturing(stream) {
        // SAFETY: as the caller guarantees.
        let params = unsafe { node_params(&mut state, launch, arguments) }?;
        return state.capture(stream, params);
    }
    // SAFETY: as the caller guarantees.
    let blocks = unsafe { check_launch(&mut state, stream, launch, arguments) }?;
    say_once();
    // The memory counts as used until the stream has passed the launch.
    let run = (!blocks.is_empty()).then(|| Box::new(move || drop(blocks)) as _);
    state.submit(stream, None, run, None).map(drop)
}

/// A launch as a node of a graph, with a copy of the arguments.
///
/// # Safety
///
/// As [`check_launch`].
pub(super) unsafe fn node_params(
    state: &mut DriverState,
    launch: &Launch,
    arguments: Arguments,
) -> DriverResult<NodeParams> {
    if !state.config.skip_kernels {
        return Err(not_simulated());
    }
    let id = find_any(state, launch.function)?;
    let own = state.code.function(id)?;
    let kernel = own.kernel;
    check_limits(kernel, &own.settings, launch)?;
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
    let own = state.code.function(id)?;
    check_context(state, stream, own.module.context)?;
    let blocks = check_addresses(state, stream, own.kernel, &node.arguments)?;
    say_once();
    Ok((!blocks.is_empty()).then(|| Box::new(move || drop(blocks)) as Run))
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

/// Says once that kernels do not run.
fn say_once() {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        stderr::print_line(
            "kernels=skip: kernel launches are checked and skipped; kernels do not run",
        );
    }
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
