//! Images at an address, whose length only they themselves have.

use std::ffi::c_void;

use super::{elf, fatbin};

/// The longest image that is read, so that a malformed size does not use up the host's memory.
const MAX: usize = 1 << 30;

/// Copies `len` bytes at an offset.
///
/// # Safety
///
/// They are valid for reads.
unsafe fn bytes(start: *const u8, offset: usize, len: usize) -> Option<Vec<u8>> {
    if offset > MAX || len > MAX {
        return None;
    }
    // SAFETY: as the caller guarantees.
    Some(unsafe { std::slice::from_raw_parts(start.add(offset), len) }.to_vec())
}

/// Whether memory starts with these bytes. Reads up to the first that differs, so that text may be shorter.
///
/// # Safety
///
/// `start` points to an image; text ends in a NUL.
unsafe fn starts_with(start: *const u8, magic: &[u8]) -> bool {
    let mut offsets = magic.iter().enumerate();
    // SAFETY: the bytes before this one are those of the image, and no NUL.
    offsets.all(|(offset, byte)| unsafe { start.add(offset).read() } == *byte)
}

/// The bytes of an image in memory; `None` if its headers are malformed.
///
/// # Safety
///
/// `image` is not null and points to a complete image: text that ends in a NUL, a cubin, a fatbin, or a struct that
/// points to a fatbin.
pub(crate) unsafe fn image_at(image: *const c_void) -> Option<Vec<u8>> {
    let start = image.cast::<u8>();
    // SAFETY: as the caller guarantees, here and below; sizes are those in the image.
    unsafe {
        if starts_with(start, elf::MAGIC) {
            let header = bytes(start, 0, elf::HEADER)?;
            let (offset, size) = elf::section_table(&header)?;
            let table = bytes(start, offset, size)?;
            bytes(start, 0, elf::file_len(&header, &table)?)
        } else if starts_with(start, &fatbin::WRAPPER_MAGIC) {
            // Magic, version, pointer.
            let container = start.add(8).cast::<*const c_void>().read_unaligned();
            let is_container =
                !container.is_null() && starts_with(container.cast(), &fatbin::MAGIC);
            if is_container {
                image_at(container)
            } else {
                None
            }
        } else if starts_with(start, &fatbin::MAGIC) {
            let header = bytes(start, 0, fatbin::HEADER)?;
            bytes(start, 0, fatbin::file_len(&header)?)
        } else {
            Some(std::ffi::CStr::from_ptr(image.cast()).to_bytes().to_vec())
        }
    }
}
