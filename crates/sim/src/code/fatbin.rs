//! Fatbins: several images of the same code, for different architectures.

use std::borrow::Cow;

use cuguard_sys::CUresult;

use super::elf::{u16_at, u32_at, usize_at};
use super::image::{Image, ImageError};
use super::{cubin, decompress, ptx};

/// The first word of a container, and of the struct that points to one.
pub(crate) const MAGIC: [u8; 4] = 0xBA55_ED50_u32.to_le_bytes();
pub(crate) const WRAPPER_MAGIC: [u8; 4] = 0x4662_43B1_u32.to_le_bytes();
/// The bytes of a container's header.
pub(crate) const HEADER: usize = 16;

/// The kinds of an entry.
const PTX: u16 = 1;
const CUBIN: u16 = 2;
/// Flags of an entry whose image is compressed.
const LZ4: u64 = 0x2000;
const ZSTANDARD: u64 = 0x8000;

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
    flags: u64,
    /// The bytes of a compressed image, without and with compression.
    len: usize,
    compressed_len: usize,
    bytes: &'a [u8],
}

impl<'a> Entry<'a> {
    /// The image; `None` if it cannot be decompressed.
    fn image(&self) -> Option<Cow<'a, [u8]>> {
        if self.flags & (LZ4 | ZSTANDARD) == 0 {
            return Some(Cow::Borrowed(self.bytes));
        }
        let bytes = self.bytes.get(..self.compressed_len)?;
        let image = match self.flags & LZ4 {
            0 => decompress::zstd(bytes, self.len),
            _ => decompress::lz4(bytes, self.len),
        };
        image.map(Cow::Owned)
    }
}

/// Reads the image for the simulated device: PTX, which it can execute, with what a cubin knows of the same kernels; or a
/// cubin alone.
pub(super) fn read(container: &[u8]) -> Result<Image, ImageError> {
    let entries = entries(container).ok_or_else(|| ImageError::new(CUresult::INVALID_IMAGE))?;
    // Its header decides, not the cubin's own.
    let mut cubins = entries
        .iter()
        .filter(|entry| entry.kind == CUBIN && cubin::runs_on_device(entry.architecture));
    let compiled = cubins.find_map(Entry::image);
    let compiled = compiled.map(|image| cubin::read(&image));
    // The newest PTX that the device runs.
    let texts = entries
        .iter()
        .filter(|entry| entry.kind == PTX && entry.architecture <= 90);
    let mut texts: Vec<_> = texts.collect();
    texts.sort_by_key(|entry| entry.architecture);
    let text = texts.into_iter().rev().find_map(Entry::image);
    let text = text.map(|image| ptx::read_image(&image));
    match (compiled, text) {
        (None, None) => Err(ImageError::new(CUresult::NO_BINARY_FOR_GPU)),
        (None, Some(text)) => text,
        (Some(Ok(compiled)), Some(Ok(text))) => Ok(with_registers(text, &compiled)),
        (Some(compiled), _) => compiled,
    }
}

/// The text, with what compiled code knows of the same kernels.
fn with_registers(mut text: Image, compiled: &Image) -> Image {
    text.has_binary = true;
    text.architecture = compiled.architecture;
    for kernel in &mut text.kernels {
        let mut all = compiled.kernels.iter();
        if let Some(same) = all.find(|own| own.name == kernel.name) {
            (kernel.registers, kernel.local) = (same.registers, same.local);
        }
    }
    text
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
        entries.push(Entry {
            kind: u16_at(entry, 0)?,
            architecture: u32_at(entry, 28)?,
            flags: super::elf::u64_at(entry, 40)?,
            // Only compressed images need it.
            len: usize_at(entry, 56).unwrap_or(0),
            compressed_len: u32_at(entry, 16)? as usize,
            bytes: entry.get(header..)?,
        });
        rest = tail;
    }
    Some(entries)
}
