//! Loaded libraries and their dynamic symbols.

use std::ffi::{CStr, c_int, c_void};

use libc::{Elf64_Phdr, Elf64_Sym, PT_DYNAMIC, PT_LOAD, dl_phdr_info, size_t};

const DT_NULL: u64 = 0;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_SONAME: u64 = 14;
const DT_VERSYM: u64 = 0x6fff_fff0;
const DT_GNU_HASH: u64 = 0x6fff_fef5;

/// Undefined here: another library has it.
const SHN_UNDEF: u16 = 0;
const STT_FUNC: u8 = 2;
const STT_NOTYPE: u8 = 0;
/// Set for a version of a symbol that is not the default one.
const HIDDEN: u16 = 0x8000;

/// A loaded library, or the program. Its tables stay mapped for as long as it stays loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Module {
    base: usize,
    /// The addresses from the first to the last segment.
    start: usize,
    end: usize,
    strings: usize,
    symbols: usize,
    versions: usize,
    hash: usize,
    gnu_hash: usize,
    soname: usize,
    /// The path that the dynamic linker has; empty for the program.
    path: usize,
}

/// One word of a `.dynamic` section.
#[repr(C)]
struct Dynamic {
    tag: u64,
    value: u64,
}

impl Module {
    /// Reads what the dynamic linker lists. `None` for a module without a dynamic section.
    fn read(info: &dl_phdr_info) -> Option<Self> {
        if info.dlpi_phdr.is_null() {
            return None;
        }
        // SAFETY: the dynamic linker states that there are as many headers.
        let headers: &[Elf64_Phdr] =
            unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let base = info.dlpi_addr as usize;
        let mut module = Self {
            base,
            start: usize::MAX,
            end: 0,
            strings: 0,
            symbols: 0,
            versions: 0,
            hash: 0,
            gnu_hash: 0,
            soname: 0,
            path: info.dlpi_name as usize,
        };
        let mut dynamic = 0;
        for header in headers {
            let start = base.wrapping_add(header.p_vaddr as usize);
            match header.p_type {
                PT_LOAD => {
                    module.start = module.start.min(start);
                    module.end = module.end.max(start.wrapping_add(header.p_memsz as usize));
                }
                PT_DYNAMIC => dynamic = start,
                _ => {}
            }
        }
        if dynamic == 0 {
            return None;
        }
        let mut soname = None;
        let mut at = dynamic as *const Dynamic;
        loop {
            // SAFETY: the section ends with `DT_NULL`, and the module is loaded.
            let entry = unsafe { &*at };
            // glibc stores addresses; other linkers, and the kernel's own library, offsets from the base.
            let address = match entry.value as usize {
                value if value < base => base.wrapping_add(value),
                value => value,
            };
            match entry.tag {
                DT_NULL => break,
                DT_STRTAB => module.strings = address,
                DT_SYMTAB => module.symbols = address,
                DT_VERSYM => module.versions = address,
                DT_HASH => module.hash = address,
                DT_GNU_HASH => module.gnu_hash = address,
                DT_SONAME => soname = Some(entry.value as usize),
                _ => {}
            }
            // SAFETY: as above: this was not the last entry.
            at = unsafe { at.add(1) };
        }
        if module.strings == 0 || module.symbols == 0 {
            return None;
        }
        module.soname = soname.map_or(0, |offset| module.strings + offset);
        Some(module)
    }

    /// Its `DT_SONAME`; empty if it has none.
    pub(crate) fn soname(&self) -> &[u8] {
        match self.soname {
            0 => b"",
            // SAFETY: a C string in the module's string table.
            address => unsafe { CStr::from_ptr(address as *const _) }.to_bytes(),
        }
    }

    /// The file that the dynamic linker opened.
    pub(crate) fn path(&self) -> &CStr {
        match self.path {
            0 => c"",
            // SAFETY: the dynamic linker's string, which lives as long as the module.
            address => unsafe { CStr::from_ptr(address as *const _) },
        }
    }

    /// Whether an address lies in it.
    pub(crate) fn contains(&self, address: usize) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// The address of a function that it defines, in the default version.
    pub(crate) fn function(&self, name: &[u8]) -> Option<*const c_void> {
        match (self.gnu_hash, self.hash) {
            (0, 0) => None,
            (0, _) => self.by_hash(name),
            _ => self.by_gnu_hash(name),
        }
    }

    /// A word of 32 bits of a hash table.
    fn word(address: usize, index: usize) -> u32 {
        // SAFETY: the callers stay within the tables, as the format describes them.
        unsafe { (address as *const u32).add(index).read() }
    }

    fn by_gnu_hash(&self, name: &[u8]) -> Option<*const c_void> {
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
                && let Some(address) = self.defined(index, name)
            {
                return Some(address);
            }
            // The last of a chain has its lowest bit set.
            if chained & 1 != 0 {
                return None;
            }
            index += 1;
        }
    }

    fn by_hash(&self, name: &[u8]) -> Option<*const c_void> {
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
            if let Some(address) = self.defined(index, name) {
                return Some(address);
            }
            index = Self::word(self.hash, 2 + buckets + index) as usize;
        }
        None
    }

    /// The address of a symbol, if it is a function that is defined here under this name.
    fn defined(&self, index: usize, name: &[u8]) -> Option<*const c_void> {
        // SAFETY: the index is from the module's own hash table.
        let symbol = unsafe { &*(self.symbols as *const Elf64_Sym).add(index) };
        let kind = symbol.st_info & 15;
        if symbol.st_shndx == SHN_UNDEF || !matches!(kind, STT_FUNC | STT_NOTYPE) {
            return None;
        }
        // SAFETY: an offset in the module's string table.
        let own = unsafe { CStr::from_ptr((self.strings + symbol.st_name as usize) as *const _) };
        if own.to_bytes() != name {
            return None;
        }
        if self.versions != 0 {
            // SAFETY: there is one number for each symbol.
            let version = unsafe { (self.versions as *const u16).add(index).read() };
            if version & HIDDEN != 0 {
                return None;
            }
        }
        Some(self.base.wrapping_add(symbol.st_value as usize) as *const c_void)
    }
}

/// The first loaded module for which `is_wanted` returns true, in the order in which they were loaded.
pub(crate) fn find_module<F: FnMut(&Module) -> bool>(is_wanted: F) -> Option<Module> {
    struct Search<F> {
        is_wanted: F,
        found: Option<Module>,
    }
    unsafe extern "C" fn visit<F: FnMut(&Module) -> bool>(
        info: *mut dl_phdr_info,
        _size: size_t,
        search: *mut c_void,
    ) -> c_int {
        // SAFETY: the dynamic linker passes a valid `info`.
        let Some(module) = Module::read(unsafe { &*info }) else {
            return 0;
        };
        // SAFETY: it is the pointer that is passed below, to a value that outlives the call.
        let search = unsafe { &mut *search.cast::<Search<F>>() };
        if !(search.is_wanted)(&module) {
            return 0;
        }
        search.found = Some(module);
        1
    }
    let mut search = Search {
        is_wanted,
        found: None,
    };
    // SAFETY: `visit::<F>` fits the pointer that goes with it.
    unsafe { libc::dl_iterate_phdr(Some(visit::<F>), (&raw mut search).cast()) };
    search.found
}

#[cfg(test)]
mod tests {
    use super::find_module;

    #[test]
    fn functions_are_found_as_the_dynamic_linker_finds_them() {
        let libc = find_module(|module| module.soname() == b"libc.so.6").expect("libc is loaded");
        assert!(libc.path().to_string_lossy().contains("libc"), "{libc:?}");
        for name in [c"getpid", c"abort", c"qsort", c"dlsym"] {
            // SAFETY: a C string.
            let expected = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            let found = libc.function(name.to_bytes());
            assert_eq!(found, Some(expected.cast_const()), "{name:?}");
            assert!(libc.contains(expected as usize), "{name:?}");
        }
        // Data, and names that it has not.
        for name in ["environ", "cuInit", "getpi", "getpidd", ""] {
            assert_eq!(libc.function(name.as_bytes()), None, "{name:?}");
        }
    }

    #[test]
    fn both_hash_tables_lead_to_the_same_functions() {
        // The loader of glibc has both.
        let both = find_module(|module| module.hash != 0 && module.gnu_hash != 0);
        let Some(module) = both else {
            println!("no loaded module has both tables");
            return;
        };
        for name in ["__tls_get_addr", "_dl_allocate_tls", "no_such_name"] {
            let name = name.as_bytes();
            assert_eq!(module.by_hash(name), module.by_gnu_hash(name));
        }
    }

    #[test]
    fn the_module_of_an_address_is_found() {
        let own = the_module_of_an_address_is_found as *const () as usize;
        assert!(find_module(|module| module.contains(own)).is_some());
        assert!(find_module(|module| module.contains(8)).is_none());
    }
}
