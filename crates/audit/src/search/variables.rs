//! The variables of an ELF file, out of its symbol table. The file may be damaged, or another one than was loaded: no length in
//! it is believed before it is compared with that of the file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const SHT_SYMTAB: u32 = 2;
const SHT_DYNSYM: u32 = 11;
const STT_OBJECT: u8 = 1;
const STT_TLS: u8 = 6;

/// Larger tables are not read.
const TABLE_LIMIT: u64 = 512 << 20;

/// Longer names are not read.
const LONGEST: usize = 1024;

/// A file, or its bytes.
pub(super) trait Source {
    fn length(&self) -> io::Result<u64>;
    /// Reads some bytes from an offset on; none at the end.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl Source for File {
    fn length(&self) -> io::Result<u64> {
        self.metadata().map(|metadata| metadata.len())
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, bytes, offset)
    }
}

/// Bytes of the file; `None` where it has fewer.
fn range(source: &impl Source, offset: u64, length: u64) -> Option<Vec<u8>> {
    let end = offset.checked_add(length)?;
    if length > TABLE_LIMIT || end > source.length().ok()? {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    let mut filled = 0;
    while filled < bytes.len() {
        match source.read_at(&mut bytes[filled..], offset + filled as u64) {
            Ok(0) => return None,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    Some(bytes)
}

/// An integer of a structure in a file.
fn number<const SIZE: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut value = [0; 8];
    value[..SIZE].copy_from_slice(bytes.get(at..at + SIZE)?);
    Some(u64::from_le_bytes(value))
}

/// The variables of a file.
pub(super) struct Variables<S> {
    source: S,
    /// Where the names are in the file.
    names: u64,
    /// Sorted by value, thread-local ones behind the others.
    variables: Vec<Variable>,
}

struct Variable {
    thread_local: bool,
    value: u64,
    size: u64,
    name: u32,
}

impl<S: Source> Variables<S> {
    /// Reads the symbol table. `None` for a file without one, or another kind of file.
    pub(super) fn read(source: S) -> Option<Self> {
        let header = range(&source, 0, 64)?;
        if !header.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let at = number::<8>(&header, 40)?;
        let (size, count) = (number::<2>(&header, 58)?, number::<2>(&header, 60)?);
        if size < 64 {
            return None;
        }
        let sections = range(&source, at, size * count)?;
        let sections = || sections.chunks_exact(size as usize);
        let of_kind =
            |kind| sections().find(|section| number::<4>(section, 4) == Some(u64::from(kind)));
        // With static variables where the file has them.
        let table = of_kind(SHT_SYMTAB).or_else(|| of_kind(SHT_DYNSYM))?;
        let strings = sections().nth(number::<4>(table, 40)? as usize)?;
        let symbols = range(&source, number::<8>(table, 24)?, number::<8>(table, 32)?)?;
        let mut variables: Vec<_> = symbols
            .chunks_exact(24)
            .filter_map(Variable::read)
            .collect();
        variables.sort_by_key(|variable| (variable.thread_local, variable.value, variable.size));
        Some(Self {
            names: number::<8>(strings, 24)?,
            variables,
            source,
        })
    }

    /// The symbol of the variable that contains a value.
    pub(super) fn find(&self, value: u64, thread_local: bool) -> Option<String> {
        let behind = self.variables.partition_point(|variable| {
            (variable.thread_local, variable.value) <= (thread_local, value)
        });
        let variable = self.variables.get(behind.checked_sub(1)?)?;
        let offset = value.checked_sub(variable.value)?;
        if variable.thread_local != thread_local || offset >= variable.size.max(8) {
            return None;
        }
        let mut name = vec![0; LONGEST];
        let at = self.names.checked_add(variable.name.into())?;
        let read = self.source.read_at(&mut name, at);
        name.truncate(read.ok()?);
        let length = name.iter().position(|byte| *byte == 0)?;
        Some(String::from_utf8_lossy(&name[..length]).into_owned())
    }
}

impl Variable {
    fn read(entry: &[u8]) -> Option<Self> {
        let kind = entry.get(4)? & 15;
        let is_defined = number::<2>(entry, 6)? != 0;
        if !is_defined || (kind != STT_OBJECT && kind != STT_TLS) {
            return None;
        }
        Some(Self {
            thread_local: kind == STT_TLS,
            value: number::<8>(entry, 8)?,
            size: number::<8>(entry, 16)?,
            name: number::<4>(entry, 0)? as u32,
        })
    }
}
