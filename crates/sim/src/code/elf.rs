//! ELF files of 64 bits, little-endian: sections and symbols.

use std::collections::HashMap;

/// The first bytes of a file.
pub(crate) const MAGIC: &[u8] = b"\x7fELF";
/// `EM_CUDA`
pub(super) const MACHINE: u16 = 190;
/// The bytes of a file header, a section header and a symbol.
pub(crate) const HEADER: usize = 64;
const SECTION: usize = 64;
const SYMBOL: usize = 24;
/// `SHT_SYMTAB`, `SHT_NOBITS`
pub(super) const SYMBOL_TABLE: u32 = 2;
pub(super) const NO_BITS: u32 = 8;
/// More sections than any compiler writes.
const MAX_SECTIONS: usize = 1 << 20;
/// Names may share bytes. Together they are no longer than this many files: a name that all symbols share would take
/// time and memory out of proportion to the file.
const MAX_SHARED_NAMES: usize = 8;

/// A little-endian number at an offset.
pub(super) fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    array_at(bytes, offset).map(u16::from_le_bytes)
}

pub(super) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    array_at(bytes, offset).map(u32::from_le_bytes)
}

pub(super) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    array_at(bytes, offset).map(u64::from_le_bytes)
}

/// The same for offsets and sizes.
pub(super) fn usize_at(bytes: &[u8], offset: usize) -> Option<usize> {
    usize::try_from(u64_at(bytes, offset)?).ok()
}

fn array_at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}

fn range(bytes: &[u8], offset: usize, len: usize) -> Option<&[u8]> {
    bytes.get(offset..offset.checked_add(len)?)
}

/// Text up to a NUL.
fn text_at(bytes: &[u8], offset: usize) -> Option<&str> {
    let rest = bytes.get(offset..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(rest.get(..end)?).ok()
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Section<'a> {
    pub(super) name: &'a str,
    pub(super) kind: u32,
    pub(super) link: usize,
    /// In memory; a section of zeros has no bytes in the file.
    pub(super) size: usize,
    pub(super) bytes: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol<'a> {
    pub(super) name: &'a str,
    /// `STT_OBJECT`: 1, `STT_FUNC`: 2
    pub(super) kind: u8,
    pub(super) other: u8,
    pub(super) section: usize,
    pub(super) value: usize,
    pub(super) size: usize,
}

/// The sections of a file.
#[derive(Clone, Debug)]
pub(super) struct Elf<'a> {
    /// The bytes of the file.
    pub(super) len: usize,
    pub(super) flags: u32,
    pub(super) sections: Vec<Section<'a>>,
    /// The number of a section. There are some for each kernel, and files with thousands of kernels.
    by_name: HashMap<&'a str, usize>,
}

/// The names in a table of strings.
struct Names<'a> {
    table: &'a [u8],
    /// The bytes that further names may have.
    left: usize,
}

impl<'a> Names<'a> {
    fn new(table: &'a [u8], file_len: usize) -> Self {
        let left = file_len.saturating_mul(MAX_SHARED_NAMES);
        Self { table, left }
    }

    /// The name at an offset; `None` also if the names are too long.
    fn at(&mut self, offset: u32) -> Option<&'a str> {
        let name = text_at(self.table, offset as usize)?;
        self.left = self.left.checked_sub(name.len())?;
        Some(name)
    }
}

/// The offset and the size of the table of section headers.
pub(crate) fn section_table(header: &[u8]) -> Option<(usize, usize)> {
    let offset = usize_at(header, 40)?;
    let count = usize::from(u16_at(header, 60)?);
    Some((offset, count.checked_mul(SECTION)?))
}

/// The end of the file's last part, according to its headers.
pub(crate) fn file_len(header: &[u8], table: &[u8]) -> Option<usize> {
    let (offset, size) = section_table(header)?;
    let mut end = HEADER.max(offset.checked_add(size)?);
    for section in table.chunks_exact(SECTION) {
        if u32_at(section, 4)? != NO_BITS {
            end = end.max(usize_at(section, 24)?.checked_add(usize_at(section, 32)?)?);
        }
    }
    let segments = usize_at(header, 32)?.checked_add(usize::from(u16_at(header, 56)?) * 56)?;
    Some(end.max(segments))
}

impl<'a> Elf<'a> {
    /// The sections of a file for CUDA devices; `None` if it is malformed.
    pub(super) fn read(file: &'a [u8]) -> Option<Self> {
        let header = file.get(..HEADER)?;
        let is_elf = header.starts_with(MAGIC);
        // 64 bits, little-endian.
        let is_known = header.get(4..6)? == [2, 1] && u16_at(header, 18)? == MACHINE;
        if !is_elf || !is_known {
            return None;
        }
        let (offset, size) = section_table(header)?;
        let table = range(file, offset, size)?;
        if table.len() / SECTION > MAX_SECTIONS {
            return None;
        }
        let names = usize::from(u16_at(header, 62)?);
        let names = table.chunks_exact(SECTION).nth(names)?;
        let mut names = Names::new(contents(file, names)?, file.len());
        let sections = table.chunks_exact(SECTION).map(|header| {
            Some(Section {
                name: names.at(u32_at(header, 0)?)?,
                kind: u32_at(header, 4)?,
                link: u32_at(header, 40)? as usize,
                size: usize_at(header, 32)?,
                bytes: contents(file, header)?,
            })
        });
        let sections: Vec<Section<'_>> = sections.collect::<Option<_>>()?;
        let numbers = sections.iter().enumerate();
        Some(Self {
            len: file.len(),
            flags: u32_at(header, 48)?,
            by_name: numbers.map(|(at, section)| (section.name, at)).collect(),
            sections,
        })
    }

    pub(super) fn section(&self, name: &str) -> Option<&Section<'a>> {
        self.sections.get(*self.by_name.get(name)?)
    }

    /// All symbols, with their numbers; `None` if the table is malformed.
    pub(super) fn symbols(&self) -> Option<Vec<Symbol<'a>>> {
        let tables = self.sections.iter();
        let Some(table) = tables.clone().find(|s| s.kind == SYMBOL_TABLE) else {
            return Some(Vec::new());
        };
        let mut names = Names::new(self.sections.get(table.link)?.bytes, self.len);
        let symbols = table.bytes.chunks_exact(SYMBOL).map(|symbol| {
            let info = *symbol.get(4)?;
            Some(Symbol {
                name: names.at(u32_at(symbol, 0)?)?,
                kind: info & 0xf,
                other: *symbol.get(5)?,
                section: usize::from(u16_at(symbol, 6)?),
                value: usize_at(symbol, 8)?,
                size: usize_at(symbol, 16)?,
            })
        });
        symbols.collect()
    }
}

/// What a section header refers to.
fn contents<'a>(file: &'a [u8], header: &[u8]) -> Option<&'a [u8]> {
    if u32_at(header, 4)? == NO_BITS {
        return Some(&[]);
    }
    range(file, usize_at(header, 24)?, usize_at(header, 32)?)
}
