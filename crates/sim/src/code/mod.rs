//! Images of device code: which kernels and variables are in them, read from PTX, cubins and fatbins. PTX is compiled for
//! execution by `cuguard-ptx`.
//!
//! Must not know the driver's state. No image makes these functions panic.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod compile;
mod cubin;
mod cubin_writer;
mod decompress;
mod elf;
mod fatbin;
mod image;
mod ptx;
mod ptx_declarations;
mod raw;
mod tokens;

pub(crate) use compile::{compile, join_texts};
pub(crate) use cubin_writer::write as write_cubin;
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
        ptx::read_image(image)
    }
}

/// Reads an image of any kind, and returns how many kernels and variables it has. Public for fuzzing alone.
///
/// # Errors
///
/// As loading a module with that image.
#[doc(hidden)]
pub fn count_in_image(image: &[u8]) -> Result<(usize, usize), CUresult> {
    let image = read(image).map_err(|error| error.code)?;
    Ok((image.kernels.len(), image.variables.len()))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const LINKED: &[u8] = include_bytes!("../../tests/data/linked.cubin");
    const TEXT: &str = include_str!("../../../../kernels/heap.ptx");

    /// A container with one image.
    fn container(kind: u16, image: &[u8]) -> Vec<u8> {
        let mut bytes = fatbin::MAGIC.to_vec();
        bytes.extend([1, 0, 16, 0]);
        bytes.extend((64 + image.len() as u64).to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        bytes.extend([1, 1, 64, 0, 0, 0]);
        bytes.extend((image.len() as u64).to_le_bytes());
        bytes.resize(16 + 28, 0);
        bytes.extend(90_u32.to_le_bytes());
        bytes.resize(16 + 64, 0);
        bytes.extend(image);
        bytes
    }

    #[test]
    fn a_container_holds_ptx_or_a_cubin() {
        let cubin = read(&container(2, LINKED)).unwrap();
        let alone = read(LINKED).unwrap();
        assert_eq!(cubin.kernels, alone.kernels);
        assert_eq!(cubin.variables, alone.variables);
        assert!(cubin.has_binary && cubin.text.is_none());
        let text = read(&container(1, TEXT.as_bytes())).unwrap();
        assert_eq!(text.kernels, read(TEXT.as_bytes()).unwrap().kernels);
        assert_eq!(text.text.as_deref(), Some(TEXT));
        // What is marked as compressed, and is not.
        let mut compressed = container(2, LINKED);
        compressed[16 + 41] = 0x20;
        let error = read(&compressed).unwrap_err();
        assert_eq!(error.code, CUresult::NO_BINARY_FOR_GPU);
    }

    proptest! {
        #![proptest_config(cuguard_testing::property_config!())]

        #[test]
        fn random_images_do_not_panic(bytes in vec(any::<u8>(), 0..300), kind in 0_usize..4) {
            let start: &[u8] = match kind {
                0 => b"",
                1 => b".version 7.0\n.target sm_52\n.visible .entry e(",
                2 => elf::MAGIC,
                _ => &fatbin::MAGIC,
            };
            let _ = read(&[start, &bytes].concat());
        }

        #[test]
        fn changed_images_do_not_panic(
            changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
            end in any::<prop::sample::Index>(),
            kind in 0_usize..3,
        ) {
            let mut image = match kind {
                0 => TEXT.as_bytes().to_vec(),
                1 => LINKED.to_vec(),
                _ => container(2, LINKED),
            };
            for (at, byte) in changes {
                let at = at.index(image.len());
                image[at] = byte;
            }
            let end = end.index(image.len());
            let _ = read(&image);
            let _ = read(&image[..end]);
        }
    }
}
