//! The arguments of a launch: how they are read, and the memory that they refer to.

use std::ffi::c_void;
use std::sync::Arc;

use cuguard_sys::CUresult;

use super::read;
use crate::code::Kernel;
use crate::handle::Id;
use crate::memory::MemoryBlock;
use crate::result::DriverResult;
use crate::state::DriverState;
use crate::trace::require;

/// The arguments of a launch: a pointer to each, or keys and values with a pointer to all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arguments {
    pub(super) parameters: *mut *mut c_void,
    pub(super) extra: *mut *mut c_void,
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
/// The arguments are those of the kernel.
pub(super) unsafe fn read_arguments(
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
pub(super) fn check_addresses(
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
