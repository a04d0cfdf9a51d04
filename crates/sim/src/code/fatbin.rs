//! Fatbins: several images of the same code, for different architectures.

use cuguard_sys::CUresult;

use super::elf::{u16_at, u32_at, usize_at};
use super::image::{Image, ImageError};
use super::{cubin, ptx};

/// The first word of a container, and of the struct that points to one.
pub(crate) const MAGIC: [u8; 4] = 0xBA55_ED50_u32.to_le_bytes();
pub(crate) const WRAPPER_MAGIC: [u8; 4] = 0x4662_43B1_u32.to_le_bytes();
/// The bytes of a container's header.
pub(crate) const HEADER: usize = 16;

/// The kinds of an entry.
const PTX: u16 = 1;
const CUBIN: u16 = 2;
/// Flags of an entry whose image is compressed.
const COMPRESSED: u64 = 0x2000 | 0x8000;

/// The bytes of a container, by its header.
pub(crate) fn file_len(header: &[u8]) -> Option<usize> {
    let header_size = usize::from(u16_at(header, 6)?);
    usize_at(header, 8)?.checked_add(header_size)
}

/// One image in a container.
#[derive(Clone, Copy, Debug)]
struct Entry<'a> {
    kind: u16,
    architecture: u32,
    is_compressed: bool,
    bytes: &'a [u8],
}

/// Reads the image for the simulated device: a cubin, or else PTX. Compressed images are not read.
pub(super) fn read(container: &[u8]) -> Result<Image, ImageError> {
    let entries = entries(container).ok_or_else(|| ImageError::new(CUresult::INVALID_IMAGE))?;
    let usable = |entry: &&Entry<'_>| !entry.is_compressed;
    let cubins = entries.iter().filter(usable).filter(|e| e.kind == CUBIN);
    for entry in cubins {
        // Its header decides, not the cubin's own.
        if cubin::runs_on_device(entry.architecture) {
            return cubin::read(entry.bytes);
        }
    }
    // The newest PTX that the device runs.
    let ptx = entries.iter().filter(usable);
    let ptx = ptx.filter(|e| e.kind == PTX && e.architecture <= 90);
    match ptx.max_by_key(|entry| entry.architecture) {
        Some(entry) => ptx::read_image(entry.bytes),
        None => Err(ImageError::new(CUresult::NO_BINARY_FOR_GPU)),
    }
}

/// The images in a container; `None` if it is malformed.
fn entries(container: &[u8]) -> Option<Vec<Entry<'_>>> {
    let start = usize::from(u16_at(container, 6)?);
    if u16_at(container, 4)? != 1 || start < HEADER {
        return None;
    }
    let mut rest = container.get(start..file_len(container)?)?;
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let header = u32_at(rest, 4)? as usize;
        let size = usize_at(rest, 8)?;
        // An entry without a header would never end.
        let (entry, tail) = rest.split_at_checked(header.max(1).checked_add(size)?)?;
        let flags = super::elf::u64_at(entry, 40)?;
        entries.push(Entry {
            kind: u16_at(entry, 0)?,
            architecture: u32_at(entry, 28)?,
            is_compressed: flags & COMPRESSED != 0,
            bytes: entry.get(header..)?,
        });
        rest = tail;
    }
    Some(entries)
}
