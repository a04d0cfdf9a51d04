//! The tables of a loaded ELF object's dynamic section, and the lookup of its dynamic symbols.

use std::ffi::{CStr, c_char};

use libc::{Elf64_Sym, PT_DYNAMIC};

use super::objects::Object;

const DT_NULL: u64 = 0;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_SONAME: u64 = 14;
const DT_VERSYM: u64 = 0x6fff_fff0;
const DT_GNU_HASH: u64 = 0x6fff_fef5;

/// Undefined here: another library has it.
const SHN_UNDEF: u16 = 0;
/// Set for a version of a symbol that is not the default one.
const HIDDEN: u16 = 0x8000;

/// Addresses of the tables; zero where one is missing. They stay mapped for as long as the object stays loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tables {
    strings: usize,
    symbols: usize,
    versions: usize,
    hash: usize,
    gnu_hash: usize,
    soname: usize,
}

impl Tables {
    /// `None` for an object without a table of symbols.
    pub(crate) fn of(object: &Object<'_>) -> Option<Self> {
        let mut headers = object.headers().iter();
        let header = headers.rfind(|header| header.p_type == PT_DYNAMIC)?;
        let base = object.base();
        let mut tables = Self {
            strings: 0,
            symbols: 0,
            versions: 0,
            hash: 0,
            gnu_hash: 0,
            soname: 0,
        };
        let mut soname = None;
        let mut entry = base.wrapping_add(header.p_vaddr as usize) as *const [u64; 2];
        loop {
            // SAFETY: the section ends with `DT_NULL`, and the object is loaded.
            let [tag, value] = unsafe { *entry };
            // glibc stores addresses; other linkers, and the kernel's own library, offsets from the base.
            let address = match value as usize {
                value if value < base => base.wrapping_add(value),
                value => value,
            };
            match tag {
                DT_NULL => break,
                DT_STRTAB => tables.strings = address,
                DT_SYMTAB => tables.symbols = address,
                DT_VERSYM => tables.versions = address,
                DT_HASH => tables.hash = address,
                DT_GNU_HASH => tables.gnu_hash = address,
                DT_SONAME => soname = Some(value as usize),
                _ => {}
            }
            // SAFETY: as above: this was not the last entry.
            entry = unsafe { entry.add(1) };
        }
        if tables.strings == 0 || tables.symbols == 0 {
            return None;
        }
        tables.soname = soname.map_or(0, |offset| tables.strings + offset);
        Some(tables)
    }

    /// `DT_SONAME`.
    pub(crate) fn soname(&self) -> Option<&CStr> {
        // SAFETY: a C string in the table of strings.
        (self.soname != 0).then(|| unsafe { CStr::from_ptr(self.soname as *const c_char) })
    }

    #[cfg(test)]
    pub(crate) fn without_gnu_hash(mut self) -> Option<Self> {
        let has_both = self.hash != 0 && self.gnu_hash != 0;
        self.gnu_hash = 0;
        has_both.then_some(self)
    }

    /// The first definition of this name that is accepted. The function gets the symbol, and whether it is in its default
    /// version.
    pub(crate) fn find(
        &self,
        name: &[u8],
        accept: impl Fn(&Elf64_Sym, bool) -> bool,
    ) -> Option<&Elf64_Sym> {
        match (self.gnu_hash, self.hash) {
            (0, 0) => None,
            (0, _) => self.by_hash(name, accept),
            _ => self.by_gnu_hash(name, accept),
        }
    }

    /// A word of 32 bits of a hash table.
    fn word(address: usize, index: usize) -> u32 {
        // SAFETY: the callers stay within the tables, as the format describes them.
        unsafe { (address as *const u32).add(index).read() }
    }

    fn by_gnu_hash(
        &self,
        name: &[u8],
        accept: impl Fn(&Elf64_Sym, bool) -> bool,
    ) -> Option<&Elf64_Sym> {
        let hash = name.iter().fold(5381_u32, |hash, byte| {
            hash.wrapping_mul(33).wrapping_add(u32::from(*byte))
        });
        let table = self.gnu_hash;
        let buckets = Self::word(table, 0) as usize;
        let first = Self::word(table, 1) as usize;
        let bloom_words = Self::word(table, 2) as usize;
        if buckets == 0 {
            return None;
        }
        let bucket_table = table + 16 + bloom_words * 8;
        let chains = bucket_table + buckets * 4;
        let mut index = Self::word(bucket_table, hash as usize % buckets) as usize;
        if index < first {
            return None;
        }
        loop {
            let chained = Self::word(chains, index - first);
            if chained | 1 == hash | 1
                && let Some(symbol) = self.defined(index, name, &accept)
            {
                return Some(symbol);
            }
            // The last of a chain has its lowest bit set.
            if chained & 1 != 0 {
                return None;
            }
            index += 1;
        }
    }

    fn by_hash(
        &self,
        name: &[u8],
        accept: impl Fn(&Elf64_Sym, bool) -> bool,
    ) -> Option<&Elf64_Sym> {
        let hash = name.iter().fold(0_u32, |hash, byte| {
            let hash = (hash << 4).wrapping_add(u32::from(*byte));
            let high = hash & 0xf000_0000;
            (hash ^ (high >> 24)) & !high
        });
        let buckets = Self::word(self.hash, 0) as usize;
        if buckets == 0 {
            return None;
        }
        let mut index = Self::word(self.hash, 2 + hash as usize % buckets) as usize;
        while index != 0 {
            if let Some(symbol) = self.defined(index, name, &accept) {
                return Some(symbol);
            }
            index = Self::word(self.hash, 2 + buckets + index) as usize;
        }
        None
    }

    /// The symbol, if it is defined here under this name and accepted.
    fn defined(
        &self,
        index: usize,
        name: &[u8],
        accept: &impl Fn(&Elf64_Sym, bool) -> bool,
    ) -> Option<&Elf64_Sym> {
        // SAFETY: the index is from the object's own hash table.
        let symbol = unsafe { &*(self.symbols as *const Elf64_Sym).add(index) };
        if symbol.st_shndx == SHN_UNDEF {
            return None;
        }
        // SAFETY: an offset in the object's table of strings.
        let own = unsafe { CStr::from_ptr((self.strings + symbol.st_name as usize) as *const _) };
        if own.to_bytes() != name {
            return None;
        }
        let version = match self.versions {
            0 => 0,
            // SAFETY: there is one number for each symbol.
            versions => unsafe { (versions as *const u16).add(index).read() },
        };
        accept(symbol, version & HIDDEN == 0).then_some(symbol)
    }
}
