//! The linker: joins PTX into one image that can be loaded.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};

use cuguard_sys::{CUjit_option, CUjitInputType, CUlinkState, CUresult, jit_input_type};

use super::jit_log::{JitLog, is_known};
use super::module::read_file;
use super::{write_optional, write_out};
use crate::code::{self, Image, ImageError};
use crate::handle::{self, Id, Kind};
use crate::result::{DriverResult, check, valid};
use crate::state::{DriverState, Linker, lock};
use crate::trace::not_simulated;

/// How an archive of object files starts.
const ARCHIVE: &[u8] = b"!<arch>\n";

/// The flags in the header of the image.
const FLAGS: std::ops::Range<usize> = 48..52;

/// The id of a linker. One that was destroyed is misuse: a real driver crashes.
fn find(state: &DriverState, linker: CUlinkState) -> DriverResult<Id> {
    let is_live = |id| state.code.linkers.contains_key(&id);
    state.live_id(Kind::Linker, linker.0, CUresult::INVALID_HANDLE, is_live)
}

pub unsafe fn cuLinkCreate_v2(
    count: u32,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
    out: *mut CUlinkState,
) -> DriverResult {
    let mut state = lock();
    state.current()?;
    valid(!out.is_null())?;
    // SAFETY: as the caller guarantees.
    let log = unsafe { JitLog::new(count, options, values) }?;
    let id = state.ids.next(Kind::Linker);
    let linker = Linker {
        target: log.target,
        log: log.into_addresses(),
        ..Linker::default()
    };
    state.code.linkers.insert(id, linker);
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, CUlinkState(handle::encode(Kind::Linker, id))) }
}

/// A linker that code can be added to.
fn find_open(state: &mut DriverState, linker: CUlinkState) -> DriverResult<&mut Linker> {
    let id = find(state, linker)?;
    let linker = state.code.linkers.get_mut(&id);
    let linker = linker.ok_or(CUresult::INVALID_HANDLE)?;
    valid(linker.output.is_none())?;
    linker.failed.map_or(Ok(linker), Err)
}

/// Adds code to a linker. `name` is for the log.
///
/// # Safety
///
/// The buffers of the log, which the program named when it created the linker, are still valid.
unsafe fn add(linker: CUlinkState, kind: CUjitInputType, file: &[u8], name: &str) -> DriverResult {
    let target = find_open(&mut lock(), linker)?.target;
    check(target.is_none_or(is_known), CUresult::INVALID_IMAGE)?;
    // Without the lock, since it takes a while.
    let is_binary = file.starts_with(b"\x7fELF");
    let read = match kind {
        jit_input_type::INPUT_PTX if !is_binary => code::read(file),
        jit_input_type::INPUT_PTX => Err(ImageError::new(CUresult::INVALID_IMAGE)),
        // Only relocatable code can be linked, and its symbols are not read.
        jit_input_type::INPUT_CUBIN if is_binary => {
            Err(ImageError::new(CUresult::NO_BINARY_FOR_GPU))
        }
        jit_input_type::INPUT_CUBIN => Err(ImageError::new(CUresult::INVALID_IMAGE)),
        // Only what other code refers to is linked from a library, and references are not read.
        jit_input_type::INPUT_LIBRARY if file.starts_with(ARCHIVE) => Ok(Image::default()),
        jit_input_type::INPUT_LIBRARY => Err(ImageError::new(CUresult::INVALID_IMAGE)),
        _ => Err(ImageError::new(not_simulated())),
    };
    let mut state = lock();
    let linker = find_open(&mut state, linker)?;
    let image = read.map_err(|error| {
        if error.code == CUresult::NO_BINARY_FOR_GPU {
            linker.failed = Some(error.code);
        }
        // SAFETY: as the caller guarantees.
        unsafe { JitLog::from_addresses(linker.log) }.failed(&error)
    })?;
    join(linker, image, name).map_err(|error| {
        linker.failed = Some(error.code);
        // SAFETY: as the caller guarantees.
        unsafe { JitLog::from_addresses(linker.log) }.failed(&error)
    })
}

/// Adds the code of another input. A kernel must not be defined twice: the log names both inputs.
fn join(to: &mut Linker, from: Image, name: &str) -> Result<(), ImageError> {
    let defined = to.image.kernels.iter().map(|kernel| &kernel.name);
    let defined: HashMap<_, _> = defined.zip(&to.inputs).collect();
    let mut names = from.kernels.iter().map(|kernel| &kernel.name);
    if let Some((symbol, first)) = names.find_map(|name| defined.get_key_value(name)) {
        let symbol = symbol.to_string_lossy();
        return Err(ImageError {
            code: CUresult::UNKNOWN,
            log: format!(
                "error   : Multiple definition of '{symbol}' in '{name}', first defined in '{first}'"
            ),
        });
    }
    let names = from.kernels.iter().map(|_| name.to_owned());
    to.inputs.extend(names);
    to.image.text = match (to.image.text.take(), from.text) {
        (Some(text), Some(more)) => Some(code::join_texts(&text, &more).into()),
        (text, more) => text.or(more),
    };
    to.image.kernels.extend(from.kernels);
    to.image.variables.extend(from.variables);
    Ok(())
}

/// The name of an input, which the log refers to.
///
/// # Safety
///
/// `name` is null or a string that ends in a NUL.
unsafe fn input_name(name: *const c_char) -> String {
    if name.is_null() {
        return String::new();
    }
    // SAFETY: as the caller guarantees.
    unsafe { CStr::from_ptr(name) }
        .to_string_lossy()
        .into_owned()
}

#[allow(clippy::too_many_arguments, reason = "the driver's own signature")]
pub unsafe fn cuLinkAddData_v2(
    linker: CUlinkState,
    kind: CUjitInputType,
    data: *mut c_void,
    size: usize,
    name: *const c_char,
    count: u32,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> DriverResult {
    find(&lock(), linker)?;
    valid(!data.is_null() && size > 0 && kind < jit_input_type::NUM_INPUT_TYPES)?;
    // No memory is larger.
    valid(isize::try_from(size).is_ok())?;
    // The log for errors is that of the linker. These options are checked, and what they return is written.
    // SAFETY: as the caller guarantees.
    unsafe { JitLog::new(count, options, values) }?;
    // SAFETY: the caller guarantees `size` bytes, not more than `isize::MAX`.
    let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) };
    // SAFETY: as the caller guarantees.
    unsafe { add(linker, kind, bytes, &input_name(name)) }
}

pub unsafe fn cuLinkAddFile_v2(
    linker: CUlinkState,
    kind: CUjitInputType,
    path: *const c_char,
    count: u32,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> DriverResult {
    find(&lock(), linker)?;
    valid(kind < jit_input_type::NUM_INPUT_TYPES)?;
    // The log for errors is that of the linker. These options are checked, and what they return is written.
    // SAFETY: as the caller guarantees.
    unsafe { JitLog::new(count, options, values) }?;
    // SAFETY: as the caller guarantees.
    let file = unsafe { read_file(path) }?;
    // SAFETY: as the caller guarantees.
    unsafe { add(linker, kind, &file, &input_name(path)) }
}

/// The image is valid until the linker is destroyed.
pub unsafe fn cuLinkComplete(
    linker: CUlinkState,
    out: *mut *mut c_void,
    size: *mut usize,
) -> DriverResult {
    let mut state = lock();
    let id = find(&state, linker)?;
    let linker = state.code.linkers.get_mut(&id);
    let linker = linker.ok_or(CUresult::INVALID_HANDLE)?;
    check(linker.output.is_none(), CUresult::INVALID_HANDLE)?;
    valid(!out.is_null())?;
    linker.failed.map_or(Ok(()), Err)?;
    let output = code::write_cubin(&linker.image).ok_or(CUresult::NOT_SUPPORTED)?;
    let output = linker.output.insert(output);
    if let (Some(target), Some(flags)) = (linker.target, output.get_mut(FLAGS)) {
        // The architecture is in the second byte.
        flags.copy_from_slice(&((target & 0xff) << 8).to_le_bytes());
    }
    // SAFETY: as the caller guarantees.
    unsafe {
        write_optional(size, output.len());
        write_out(out, output.as_mut_ptr().cast())
    }
}

pub unsafe fn cuLinkDestroy(linker: CUlinkState) -> DriverResult {
    let mut state = lock();
    let id = find(&state, linker)?;
    state.code.linkers.remove(&id);
    Ok(())
}
