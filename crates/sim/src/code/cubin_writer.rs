//! Writes what is known of linked code as a cubin, so that a program can load or store it. Its code is the PTX.

use super::image::{Image, Kernel};

/// The flags of a file for compute capability 9.0.
const FLAGS: u32 = 0x0600_5a04;
/// `SHT_PROGBITS`, `SHT_SYMTAB`, `SHT_STRTAB`, `SHT_NOBITS`, and NVIDIA's own kind.
const PROGRAM: u32 = 1;
const SYMBOLS: u32 = 2;
const STRINGS: u32 = 3;
const NO_BITS: u32 = 8;
const INFO: u32 = 0x7000_0000;
/// The numbers of sections that are always there.
const NAMES_SECTION: u16 = 1;
const STRINGS_SECTION: u32 = 2;
const GLOBALS_SECTION: u16 = 4;
const CONSTANTS_SECTION: u16 = 5;
/// The section with the PTX, which only the simulated driver writes and reads.
pub(super) const TEXT_SECTION: &str = ".cuguard.ptx";
/// The largest parameter that an entry of `.nv.info` can describe.
const MAX_PARAMETER: usize = (1 << 14) - 1;

/// The most bytes of variables, all of which are written, zeros included.
const MAX_VARIABLES: usize = 1 << 28;

struct Section {
    name: String,
    kind: u32,
    link: u32,
    /// The size in memory; that of the bytes, but for sections without any.
    size: usize,
    bytes: Vec<u8>,
}

impl Section {
    fn new(name: &str, kind: u32, bytes: Vec<u8>) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            link: 0,
            size: bytes.len(),
            bytes,
        }
    }
}

/// A cubin; `None` if the format has no room for all of it, or the variables are too large for a file.
pub(crate) fn write(image: &Image) -> Option<Vec<u8>> {
    let sizes = image.variables.iter().map(|variable| variable.size);
    if sizes.fold(0, usize::saturating_add) > MAX_VARIABLES {
        return None;
    }
    let mut strings = vec![0];
    // The first symbol is empty.
    let mut symbols = vec![0; 24];
    let mut globals = Vec::new();
    let mut constants = Vec::new();
    for variable in &image.variables {
        let (section, bytes) = match variable.is_const {
            true => (CONSTANTS_SECTION, &mut constants),
            false => (GLOBALS_SECTION, &mut globals),
        };
        let offset = bytes.len();
        bytes.extend_from_slice(&variable.value);
        bytes.resize(offset + variable.size, 0);
        let name = add_text(&mut strings, variable.name.as_bytes());
        add_symbol(
            &mut symbols,
            name,
            0x11,
            0,
            section,
            (offset, variable.size),
        );
    }
    let mut of_kernels = Vec::new();
    for kernel in &image.kernels {
        let name = add_text(&mut strings, kernel.name.as_bytes());
        let section = GLOBALS_SECTION;
        add_symbol(&mut symbols, name, 0x12, 0x10, section, (0, 0));
        let name = kernel.name.to_str().ok()?;
        of_kernels.push(Section::new(
            &format!(".nv.info.{name}"),
            INFO,
            describe(kernel)?,
        ));
        if kernel.shared > 0 {
            let mut shared = Section::new(&format!(".nv.shared.{name}"), NO_BITS, Vec::new());
            shared.size = kernel.shared;
            of_kernels.push(shared);
        }
    }
    let mut symbols = Section::new(".symtab", SYMBOLS, symbols);
    symbols.link = STRINGS_SECTION;
    let mut sections = vec![
        Section::new("", 0, Vec::new()),
        Section::new(".shstrtab", STRINGS, Vec::new()),
        Section::new(".strtab", STRINGS, strings),
        symbols,
        Section::new(".nv.global.init", PROGRAM, globals),
        Section::new(".nv.constant3", PROGRAM, constants),
    ];
    sections.extend(of_kernels);
    if let Some(text) = &image.text {
        sections.push(Section::new(
            TEXT_SECTION,
            PROGRAM,
            text.as_bytes().to_vec(),
        ));
    }
    assemble(sections)
}

/// Puts sections after each other, and their headers at the end.
fn assemble(mut sections: Vec<Section>) -> Option<Vec<u8>> {
    let mut names = vec![0];
    let numbers: Vec<u32> = sections
        .iter()
        .map(|section| add_text(&mut names, section.name.as_bytes()))
        .collect();
    if let Some(own) = sections.get_mut(usize::from(NAMES_SECTION)) {
        own.size = names.len();
        own.bytes = names;
    }
    let mut file = vec![0; 64];
    let mut headers = Vec::new();
    for (section, name) in sections.iter().zip(numbers) {
        file.resize(file.len().next_multiple_of(8), 0);
        let mut header = Vec::with_capacity(64);
        put(&mut header, name);
        put(&mut header, section.kind);
        // Flags and address.
        header.extend_from_slice(&[0; 16]);
        put_long(&mut header, file.len());
        put_long(&mut header, section.size);
        put(&mut header, section.link);
        header.resize(64, 0);
        headers.extend(header);
        file.extend_from_slice(&section.bytes);
    }
    file.resize(file.len().next_multiple_of(8), 0);
    let header = file_header(file.len(), u16::try_from(sections.len()).ok()?);
    file.get_mut(..64)?.copy_from_slice(&header);
    file.extend(headers);
    Some(file)
}

fn file_header(table: usize, sections: u16) -> Vec<u8> {
    // 64 bits, little-endian, version 1.
    let mut header = b"\x7fELF\x02\x01\x01".to_vec();
    header.resize(16, 0);
    for half in [2, super::elf::MACHINE] {
        header.extend(half.to_le_bytes());
    }
    put(&mut header, 1);
    // The entry point and the segments: none.
    header.extend_from_slice(&[0; 16]);
    put_long(&mut header, table);
    put(&mut header, FLAGS);
    for half in [64, 56, 0, 64, sections, NAMES_SECTION] {
        header.extend(half.to_le_bytes());
    }
    header
}

fn put(to: &mut Vec<u8>, number: u32) {
    to.extend(number.to_le_bytes());
}

fn put_long(to: &mut Vec<u8>, number: usize) {
    to.extend((number as u64).to_le_bytes());
}

/// Adds a text with a NUL; returns its offset.
fn add_text(to: &mut Vec<u8>, text: &[u8]) -> u32 {
    let offset = to.len();
    to.extend_from_slice(text);
    to.push(0);
    offset as u32
}

fn add_symbol(
    to: &mut Vec<u8>,
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    (value, size): (usize, usize),
) {
    put(to, name);
    to.extend([info, other]);
    to.extend(section.to_le_bytes());
    put_long(to, value);
    put_long(to, size);
}

/// The entries of a kernel's `.nv.info` section.
fn describe(kernel: &Kernel) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for (index, parameter) in kernel.parameters.iter().enumerate() {
        bytes.extend([4, 0x17, 12, 0]);
        put(&mut bytes, 0);
        bytes.extend(u16::try_from(index).ok()?.to_le_bytes());
        bytes.extend(u16::try_from(parameter.offset).ok()?.to_le_bytes());
        let size = Some(parameter.size).filter(|size| *size <= MAX_PARAMETER)?;
        put(&mut bytes, (size as u32) << 18);
    }
    let limits = [
        (0x05, kernel.max_threads.map(|threads| [threads, 1, 1])),
        (0x10, kernel.block),
    ];
    for (attribute, dims) in limits {
        if let Some(dims) = dims {
            bytes.extend([4, attribute, 12, 0]);
            dims.iter().for_each(|dim| put(&mut bytes, *dim));
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::{cubin, ptx};
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let text = ".version 7.0\n.target sm_90\n.address_size 64\n\
            .visible .global .align 4 .u32 counter[2] = {7, 8};\n.visible .const .b8 table[100];\n\
            .visible .entry one(.param .u8 a, .param .u64 b) .maxntid 64 { .shared .b8 own[10]; ret; }\n\
            .visible .entry two() .reqntid 32, 2 { ret; }\n";
        let text = text.replace("7.0", "8.0");
        let image = ptx::read(&text).unwrap();
        let back = cubin::read(&write(&image).unwrap()).unwrap();
        assert_eq!(back.kernels, image.kernels);
        let summary = |image: &Image| {
            let variables = image.variables.iter();
            let all = variables.map(|v| (v.name.clone(), v.size, v.is_const));
            all.collect::<Vec<_>>()
        };
        assert_eq!(summary(&back), summary(&image));
        assert_eq!(back.variables[0].value, image.variables[0].value);
        let empty = write(&Image::default()).unwrap();
        assert_eq!(cubin::read(&empty).unwrap().kernels, []);
    }
}
