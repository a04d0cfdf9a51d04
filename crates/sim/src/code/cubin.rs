//! Cubins: ELF files of compiled code. Kernels and variables are symbols; sections called `.nv.info` describe the
//! kernels.

use std::collections::HashMap;

use cuguard_sys::CUresult;

use super::cubin_writer::TEXT_SECTION;
use super::elf::{Elf, NO_BITS, Section, Symbol, u16_at, u32_at};
use super::image::{
    Image, ImageError, Kernel, MAX_LOCAL, MAX_REGISTERS, MAX_SHARED, Parameter, Variable, c_name,
};

/// Symbol types and flags of the ELF format for CUDA.
const OBJECT: u8 = 1;
const FUNCTION: u8 = 2;
const ENTRY: u8 = 0x10;

/// The attributes of kernels that matter here.
mod attribute {
    pub(super) const MAX_THREADS: u8 = 0x05;
    pub(super) const REQUIRED_BLOCK: u8 = 0x10;
    pub(super) const FRAME_SIZE: u8 = 0x11;
    pub(super) const PARAMETER: u8 = 0x17;
    pub(super) const REGISTERS: u8 = 0x2f;
}

const RESERVED_SHARED: usize = 1024;
/// The architecture of the simulated device.
const ARCHITECTURE: u32 = 90;

/// Reads a cubin.
pub(super) fn read(file: &[u8]) -> Result<Image, ImageError> {
    let invalid = || ImageError::new(CUresult::INVALID_IMAGE);
    let elf = Elf::read(file).ok_or_else(invalid)?;
    let architecture = architecture(elf.flags);
    if !runs_on_device(architecture) {
        return Err(ImageError::new(CUresult::NO_BINARY_FOR_GPU));
    }
    image(&elf, architecture).ok_or_else(invalid)
}

/// Whether the simulated device runs code for an architecture: that of its own generation, up to its own.
pub(super) fn runs_on_device(architecture: u32) -> bool {
    architecture / 10 == ARCHITECTURE / 10 && architecture <= ARCHITECTURE
}

/// The architecture in the flags of the header: in the second byte since CUDA 13, in the first before that.
fn architecture(flags: u32) -> u32 {
    match (flags >> 8) & 0xff {
        second @ 50..=200 => second,
        _ => flags & 0xff,
    }
}

fn image(elf: &Elf<'_>, architecture: u32) -> Option<Image> {
    let symbols = elf.symbols()?;
    let text = elf.section(TEXT_SECTION);
    let text = text.and_then(|section| std::str::from_utf8(section.bytes).ok());
    let mut image = Image {
        architecture,
        ptx_architecture: architecture,
        text: text.map(Into::into),
        has_binary: text.is_none(),
        ..Image::default()
    };
    let registers = by_function(elf, attribute::REGISTERS)?;
    let frames = by_function(elf, attribute::FRAME_SIZE)?;
    // Compilers for newer architectures count the system's part of a block's shared memory.
    let reserves = symbols
        .iter()
        .any(|symbol| symbol.name.starts_with(".nv.reservedSmem"));
    let reserved = if reserves { RESERVED_SHARED } else { 0 };
    // What is copied is part of the file once, or the file is malformed.
    let mut left = elf.len;
    for (number, symbol) in symbols.iter().enumerate() {
        if symbol.name.is_empty() {
            continue;
        }
        if symbol.kind == FUNCTION && symbol.other & ENTRY != 0 {
            let info = elf.section(&format!(".nv.info.{}", symbol.name));
            let info_len = info.map_or(0, |section| section.bytes.len());
            left = left.checked_sub(symbol.name.len() + info_len)?;
            let mut kernel = kernel(elf, symbol.name, info)?;
            kernel.shared = kernel.shared.saturating_sub(reserved);
            let count = registers.get(&number);
            kernel.registers = count.map(|count| (*count).min(MAX_REGISTERS));
            kernel.local = frames
                .get(&number)
                .map_or(0, |bytes| (*bytes).min(MAX_LOCAL));
            image.kernels.push(kernel);
        } else if symbol.kind == OBJECT
            && let Some((value, is_const)) = value(elf, symbol)
        {
            left = left.checked_sub(symbol.name.len() + value.len())?;
            image.variables.push(Variable {
                name: symbol.name.to_owned(),
                size: symbol.size,
                align: 1,
                value: value.to_vec(),
                is_const,
                is_managed: false,
            });
        }
    }
    Some(image)
}

/// One entry of an `.nv.info` section.
#[derive(Clone, Copy, Debug)]
struct Info<'a> {
    attribute: u8,
    /// Empty for short entries, whose value does not matter here.
    value: &'a [u8],
}

/// The entries of a section; `None` if it is malformed.
fn entries<'a>(section: &Section<'a>) -> Option<Vec<Info<'a>>> {
    /// The format of an entry with a value of its own size.
    const SIZED: u8 = 4;
    let mut rest = section.bytes;
    let mut entries = Vec::new();
    while let Some((&[format, attribute, low, high], tail)) = rest.split_first_chunk() {
        let size = match format {
            SIZED => usize::from(u16::from_le_bytes([low, high])),
            _ => 0,
        };
        let (value, tail) = tail.split_at_checked(size)?;
        entries.push(Info { attribute, value });
        rest = tail;
    }
    Some(entries)
}

/// An attribute of functions, by the numbers of their symbols.
fn by_function(elf: &Elf<'_>, attribute: u8) -> Option<HashMap<usize, u32>> {
    let Some(section) = elf.section(".nv.info") else {
        return Some(HashMap::new());
    };
    let counts = entries(section)?
        .into_iter()
        .filter(|info| info.attribute == attribute)
        .filter_map(|info| Some((u32_at(info.value, 0)? as usize, u32_at(info.value, 4)?)));
    Some(counts.collect())
}

/// A kernel with the section that describes it, if there is one.
fn kernel(elf: &Elf<'_>, name: &str, info: Option<&Section<'_>>) -> Option<Kernel> {
    let mut kernel = Kernel {
        name: c_name(name),
        ..Kernel::default()
    };
    let shared = elf.section(&format!(".nv.shared.{name}"));
    kernel.shared = shared.map_or(0, |section| section.size.min(MAX_SHARED));
    let Some(section) = info else {
        return Some(kernel);
    };
    let mut parameters = Vec::new();
    for info in entries(section)? {
        match info.attribute {
            attribute::PARAMETER => {
                let (ordinal, offset) = (u16_at(info.value, 4)?, u16_at(info.value, 6)?);
                let size = u32_at(info.value, 8)? >> 18;
                let parameter = Parameter {
                    offset: offset.into(),
                    size: size as usize,
                    may_be_address: size == 8,
                };
                parameters.push((ordinal, parameter));
            }
            attribute::MAX_THREADS => {
                let threads = dimensions(info.value)?;
                let product = threads.iter().try_fold(1_u32, |all, n| all.checked_mul(*n));
                kernel.max_threads = Some(product.unwrap_or(u32::MAX));
            }
            attribute::REQUIRED_BLOCK => kernel.block = Some(dimensions(info.value)?),
            _ => {}
        }
    }
    parameters.sort_by_key(|(ordinal, _)| *ordinal);
    kernel.parameters = parameters.into_iter().map(|(_, p)| p).collect();
    Some(kernel)
}

fn dimensions(value: &[u8]) -> Option<[u32; 3]> {
    Some([u32_at(value, 0)?, u32_at(value, 4)?, u32_at(value, 8)?])
}

/// The first value of a variable in global or constant memory, and whether the memory is constant.
fn value<'a>(elf: &Elf<'a>, symbol: &Symbol<'_>) -> Option<(&'a [u8], bool)> {
    let section = elf.sections.get(symbol.section)?;
    let is_const = section.name.starts_with(".nv.constant");
    if !is_const && !section.name.starts_with(".nv.global") {
        return None;
    }
    let value = match section.kind {
        NO_BITS => &[],
        _ => section
            .bytes
            .get(symbol.value..symbol.value.checked_add(symbol.size)?)?,
    };
    Some((value, is_const))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the linker of a driver made of PTX, for an H200.
    const LINKED: &[u8] = include_bytes!("../../tests/data/linked.cubin");

    #[test]
    fn kernels_and_variables_are_found() {
        let image = read(LINKED).unwrap();
        let kernel = |name: &str| {
            let mut kernels = image.kernels.iter();
            kernels.find(|k| k.name.to_str() == Ok(name)).unwrap()
        };
        assert_eq!(image.kernels.len(), 9);
        let first = kernel("first");
        let places: Vec<_> = first
            .parameters
            .iter()
            .map(|p| (p.offset, p.size))
            .collect();
        assert_eq!(places, [(0, 1), (8, 8), (16, 24), (40, 4)]);
        assert_eq!(first.max_threads, Some(128));
        assert_eq!(kernel("required").block, Some([32, 1, 1]));
        assert_eq!(kernel("withshared").shared, 2048);
        assert_eq!(kernel("usevars").registers, Some(14));
        assert_eq!(kernel("empty").parameters, []);
        assert_eq!(kernel("usevars").local, 0);
        let mut variables: Vec<_> = image
            .variables
            .iter()
            .map(|v| (v.name.as_str(), v.size, v.is_const))
            .collect();
        variables.sort_unstable();
        assert_eq!(
            variables,
            [
                ("coeffs", 16, true),
                ("counter", 4, false),
                ("hidden", 4, false),
                ("table", 100, false)
            ]
        );
        let counter = image.variables.iter().find(|v| v.name == "counter");
        assert_eq!(counter.unwrap().value, [7, 0, 0, 0]);
        assert_eq!(image.architecture, 90);
    }

    #[test]
    fn local_memory_is_the_size_of_the_frame() {
        let mut file = LINKED.to_vec();
        let entry = [4, attribute::FRAME_SIZE, 8, 0];
        let places: Vec<_> = (0..file.len())
            .filter(|at| file[*at..].starts_with(&entry))
            .collect();
        for at in places {
            file[at + 8..at + 12].copy_from_slice(&4000_u32.to_le_bytes());
        }
        let image = read(&file).unwrap();
        assert!(image.kernels.iter().all(|kernel| kernel.local == 4000));
        assert_eq!(image.kernels.len(), 9);
    }

    #[test]
    fn other_architectures_have_no_binary_for_the_device() {
        let mut file = LINKED.to_vec();
        file[49] = 80;
        assert_eq!(read(&file).unwrap_err().code, CUresult::NO_BINARY_FOR_GPU);
        // `EM_X86_64`
        file[18] = 62;
        assert_eq!(read(&file).unwrap_err().code, CUresult::INVALID_IMAGE);
    }

    #[test]
    fn a_truncated_file_is_invalid() {
        // The headers of its segments, which do not matter here, are at the end.
        for len in (0..0x3808 + 44 * 64).step_by(7) {
            let error = read(&LINKED[..len]).unwrap_err();
            assert_eq!(error.code, CUresult::INVALID_IMAGE, "{len}");
        }
    }

    /// A file of a table of strings and symbols of one kind, which are all alike.
    fn file_of_symbols(names: &[u8], symbol: [u8; 24], count: usize) -> Vec<u8> {
        let sections = [
            (3_u32, 0_u32, b"\0.nv.global\0".to_vec()),
            (3, 0, names.to_vec()),
            (2, 1, symbol.repeat(count)),
            (1, 0, vec![7; 4096]),
        ];
        let mut file = vec![0; 64];
        let mut headers = Vec::new();
        for (index, (kind, link, bytes)) in sections.into_iter().enumerate() {
            let name = u32::from(index == 3);
            headers.extend([name, kind].map(u32::to_le_bytes).concat());
            headers.extend([0; 16]);
            headers.extend((file.len() as u64).to_le_bytes());
            headers.extend((bytes.len() as u64).to_le_bytes());
            headers.extend(link.to_le_bytes());
            headers.resize((index + 1) * 64, 0);
            file.extend(bytes);
        }
        let offset = file.len() as u64;
        file.extend(headers);
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[18..20].copy_from_slice(&190_u16.to_le_bytes());
        file[40..48].copy_from_slice(&offset.to_le_bytes());
        file[49] = 90;
        file[60] = 4;
        file
    }

    /// Many symbols with one long name or one long value would take memory out of proportion to the file.
    #[test]
    fn names_and_values_are_not_longer_than_the_file() {
        let name = [&[b'a'; 10_000][..], &[0]].concat();
        let mut entry = [0; 24];
        entry[4..6].copy_from_slice(&[FUNCTION, ENTRY]);
        let mut object = [0; 24];
        // In the last section, all of whose bytes are the value.
        object[4..8].copy_from_slice(&[OBJECT, 0, 3, 0]);
        object[16..24].copy_from_slice(&4096_u64.to_le_bytes());
        let object_name = [b'a', 0];
        for (names, symbol) in [(&name[..], entry), (&object_name[..], object)] {
            let image = read(&file_of_symbols(names, symbol, 1)).unwrap();
            assert_eq!(image.kernels.len() + image.variables.len(), 1);
            for count in [4, 1000] {
                let error = read(&file_of_symbols(names, symbol, count)).unwrap_err();
                assert_eq!(error.code, CUresult::INVALID_IMAGE, "{count}");
            }
        }
    }
}
