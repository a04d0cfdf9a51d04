//! Images of device code: which kernels and variables are in them, read from PTX, cubins and fatbins. Code is not
//! executed, and instructions are not checked.
//!
//! Must not know the driver's state. No image makes these functions panic.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod cubin;
mod elf;
mod fatbin;
mod image;
mod ptx;
mod ptx_declarations;
mod raw;
mod tokens;

pub(crate) use image::{Image, ImageError, Kernel, Variable};
pub(crate) use raw::image_at;

use cuguard_sys::CUresult;

/// Reads an image of any kind.
pub(crate) fn read(image: &[u8]) -> Result<Image, ImageError> {
    if image.starts_with(elf::MAGIC) {
        cubin::read(image)
    } else if image.starts_with(&fatbin::MAGIC) {
        fatbin::read(image)
    } else {
        ptx_text(image)
    }
}

/// Reads PTX, up to a NUL if there is one.
fn ptx_text(bytes: &[u8]) -> Result<Image, ImageError> {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    if !ptx::is_ptx(&text) {
        return Err(ImageError::new(CUresult::INVALID_IMAGE));
    }
    ptx::read(&text)
}
