//! Images of device code.

use cuguard_sim::count_in_image;

use super::bounded;

/// A kernel of a few bytes has a structure of some two hundred, in lists that double.
const MULTIPLE: usize = 96;
const CONSTANT: usize = 16 << 10;

/// The most bytes of each byte that is compressed, and what a decompressor allocates at once.
const RATIO: usize = 256;
const WINDOW: usize = 128 << 20;

/// Reads an image, and checks that it has no more kernels and variables than its bytes can name.
fn read(image: &[u8]) {
    read_bounded(image, image.len(), CONSTANT);
}

/// The same for a fatbin, whose images may be compressed.
fn read_fatbin(container: &[u8]) {
    read_bounded(container, container.len() * RATIO, CONSTANT + WINDOW);
}

fn read_bounded(image: &[u8], bytes: usize, constant: usize) {
    let counts = bounded(bytes, MULTIPLE, constant, || count_in_image(image));
    if let Ok((kernels, variables)) = counts {
        assert!(kernels + variables <= bytes);
        assert_eq!(count_in_image(image), Ok((kernels, variables)));
    }
}

/// Any text as PTX that kernels are decoded from: what follows the header, or all of it.
///
/// # Panics
///
/// Where memory is not bounded.
pub fn ptx_module(bytes: &[u8]) {
    let header = ".version 8.7\n.target sm_90\n.address_size 64\n";
    let text = String::from_utf8_lossy(bytes);
    let text = match text.starts_with(".version") {
        true => text.into_owned(),
        false => format!("{header}{text}"),
    };
    // An instruction is a syntax tree, a closure and a few lists; initial values are filled up to 4 MiB.
    let loaded = bounded(text.len(), 4096, 32 << 20, || {
        cuguard_ptx::Module::new(&text).map(drop)
    });
    if let Err(errors) = loaded {
        assert!(!errors.0.is_empty(), "an error says something");
    }
}

/// Any text as PTX: what follows the header.
///
/// # Panics
///
/// Where the image has more contents than bytes, or memory is not bounded.
pub fn ptx(bytes: &[u8]) {
    let header = b".version 7.8\n.target sm_90\n.address_size 64\n";
    match bytes.split_first() {
        // The header is fuzzed, too.
        Some((b'.', _)) | None => read(bytes),
        Some(_) => read(&[header, bytes].concat()),
    }
}

/// Any bytes as a cubin.
///
/// # Panics
///
/// As [`ptx`].
pub fn cubin(bytes: &[u8]) {
    read(bytes);
    if bytes.len() > 64 && !bytes.starts_with(b"\x7fELF") {
        // All that a file needs to be looked into: ELF of 64 bits, little-endian, for CUDA devices, for the architecture.
        let mut file = bytes.to_vec();
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[18..20].copy_from_slice(&190_u16.to_le_bytes());
        file[49] = 90;
        read(&file);
    }
}

/// Any bytes as a fatbin, and as what is in one: PTX or a cubin behind a header of a container.
///
/// # Panics
///
/// As [`ptx`].
pub fn fatbin(bytes: &[u8]) {
    const MAGIC: [u8; 4] = 0xBA55_ED50_u32.to_le_bytes();
    if bytes.starts_with(&MAGIC) {
        return read_fatbin(bytes);
    }
    let mut file = MAGIC.to_vec();
    file.extend([1, 0, 16, 0]);
    file.extend((bytes.len() as u64).to_le_bytes());
    file.extend(bytes);
    read_fatbin(&file);
}
