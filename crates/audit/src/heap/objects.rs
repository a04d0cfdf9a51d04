//! Loaded ELF objects, in the order in which the dynamic linker looks symbols up, and their dynamic symbols.
//!
//! Without `dlsym`, which this library replaces, and without allocating: it is needed before there is a `malloc`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::Range;
use std::slice;

use libc::{Elf64_Phdr, Elf64_Sym, dl_phdr_info, size_t};

/// A loaded object.
pub(crate) struct Object<'a> {
    info: &'a dl_phdr_info,
}

impl<'a> Object<'a> {
    /// The address by which the object was moved.
    pub(crate) fn base(&self) -> usize {
        self.info.dlpi_addr as usize
    }

    /// The path; empty for the program itself.
    pub(crate) fn path(&self) -> &'a [u8] {
        if self.info.dlpi_name.is_null() {
            return b"";
        }
        // SAFETY: the dynamic linker's string, valid while the object is loaded.
        unsafe { CStr::from_ptr(self.info.dlpi_name) }.to_bytes()
    }

    pub(crate) fn file_name(&self) -> &'a [u8] {
        self.path()
            .rsplit(|byte| *byte == b'/')
            .next()
            .unwrap_or(b"")
    }

    pub(crate) fn headers(&self) -> &'a [Elf64_Phdr] {
        if self.info.dlpi_phdr.is_null() {
            return &[];
        }
        // SAFETY: the dynamic linker's array, valid while the object is loaded.
        unsafe { slice::from_raw_parts(self.info.dlpi_phdr, self.info.dlpi_phnum as usize) }
    }

    /// The number by which the thread's table of TLS blocks knows the object; zero without thread-local variables.
    pub(crate) fn tls_module(&self) -> usize {
        self.info.dlpi_tls_modid
    }

    /// The addresses of the segments that have the flags.
    pub(crate) fn segments(&self, flags: u32) -> impl Iterator<Item = Range<usize>> + use<'a> {
        let base = self.base();
        self.headers()
            .iter()
            .filter(move |header| header.p_type == libc::PT_LOAD && header.p_flags & flags == flags)
            .map(move |header| {
                let start = base.wrapping_add(header.p_vaddr as usize);
                start..start.wrapping_add(header.p_memsz as usize)
            })
    }

    pub(crate) fn contains(&self, address: usize) -> bool {
        self.segments(0).any(|segment| segment.contains(&address))
    }

    /// The address of a dynamic symbol that the object defines.
    pub(crate) fn symbol(&self, name: &[u8]) -> Option<usize> {
        let dynamic = Dynamic::of(self)?;
        let index = match dynamic.gnu_hash {
            0 => dynamic.find_by_hash(name),
            _ => dynamic.find_by_gnu_hash(name),
        }?;
        // SAFETY: the index is that of a symbol of the table.
        let symbol = unsafe { &*dynamic.symbols.add(index) };
        Some(self.base().wrapping_add(symbol.st_value as usize))
    }
}

const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_GNU_HASH: i64 = 0x6fff_fef5;

/// The tables of the dynamic section that a lookup needs. Addresses; zero where one is missing.
struct Dynamic {
    symbols: *const Elf64_Sym,
    strings: *const c_char,
    hash: usize,
    gnu_hash: usize,
}

impl Dynamic {
    fn of(object: &Object<'_>) -> Option<Dynamic> {
        let mut headers = object.headers().iter();
        let header = headers.rfind(|header| header.p_type == libc::PT_DYNAMIC)?;
        let base = object.base();
        let mut entry = (base + header.p_vaddr as usize) as *const [i64; 2];
        let (mut symbols, mut strings, mut hash, mut gnu_hash) = (0, 0, 0, 0);
        loop {
            // SAFETY: the dynamic section ends with an entry of tag zero.
            let [tag, value] = unsafe { *entry };
            // The dynamic linker turned offsets into addresses, but not those of the vDSO.
            let value = value as usize;
            let address = if value < base { base + value } else { value };
            match tag {
                0 => break,
                DT_HASH => hash = address,
                DT_STRTAB => strings = address,
                DT_SYMTAB => symbols = address,
                DT_GNU_HASH => gnu_hash = address,
                _ => {}
            }
            // SAFETY: as above.
            entry = unsafe { entry.add(1) };
        }
        if symbols == 0 || strings == 0 || (hash == 0 && gnu_hash == 0) {
            return None;
        }
        Some(Dynamic {
            symbols: symbols as *const Elf64_Sym,
            strings: strings as *const c_char,
            hash,
            gnu_hash,
        })
    }

    /// Whether the symbol of this index is a definition with this name.
    fn defines(&self, index: usize, name: &[u8]) -> bool {
        // SAFETY: the index comes from the object's hash table; names are terminated strings.
        unsafe {
            let symbol = &*self.symbols.add(index);
            symbol.st_shndx != 0
                && symbol.st_value != 0
                && CStr::from_ptr(self.strings.add(symbol.st_name as usize)).to_bytes() == name
        }
    }

    fn find_by_gnu_hash(&self, name: &[u8]) -> Option<usize> {
        let wanted = name.iter().fold(5381_u32, |hash, byte| {
            hash.wrapping_mul(33).wrapping_add(u32::from(*byte))
        });
        // SAFETY: the layout is that of DT_GNU_HASH: four words, a Bloom filter of 64-bit words, the buckets, and the
        // chains, each of which ends with an odd hash.
        unsafe {
            let header = self.gnu_hash as *const u32;
            let (buckets, first) = (*header, *header.add(1));
            let filter_words = *header.add(2);
            if buckets == 0 {
                return None;
            }
            let bucket = header.add(4 + 2 * filter_words as usize);
            let chain = bucket.add(buckets as usize);
            let mut index = *bucket.add((wanted % buckets) as usize);
            if index < first {
                return None;
            }
            loop {
                let hash = *chain.add((index - first) as usize);
                if hash | 1 == wanted | 1 && self.defines(index as usize, name) {
                    return Some(index as usize);
                }
                if hash & 1 != 0 {
                    return None;
                }
                index += 1;
            }
        }
    }

    fn find_by_hash(&self, name: &[u8]) -> Option<usize> {
        // SAFETY: the layout is that of DT_HASH: two counts, the buckets, the chains.
        let count = unsafe { *(self.hash as *const u32).add(1) };
        (0..count as usize).find(|index| self.defines(*index, name))
    }
}

/// Calls the function for each object until it returns false. It must not load or unload objects.
pub(crate) fn for_each(mut visit: impl FnMut(&Object<'_>) -> bool) {
    let mut visit: &mut dyn FnMut(&Object<'_>) -> bool = &mut visit;

    unsafe extern "C" fn callback(
        info: *mut dl_phdr_info,
        _size: size_t,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: `data` is the `visit` below; `info` is valid during the call.
        let (visit, info) = unsafe {
            (
                &mut *data.cast::<&mut dyn FnMut(&Object<'_>) -> bool>(),
                &*info,
            )
        };
        c_int::from(!visit(&Object { info }))
    }

    // SAFETY: the callback gets the pointer to `visit`, which outlives the call.
    unsafe {
        libc::dl_iterate_phdr(Some(callback), (&raw mut visit).cast());
    }
}

/// A number that changes when an object was loaded or unloaded.
pub(crate) fn generation() -> u64 {
    let mut generation = 0;
    for_each(|object| {
        generation = (object.info.dlpi_adds << 32) ^ object.info.dlpi_subs;
        false
    });
    generation
}

/// The address of a dynamic symbol in the first object that defines it.
pub(crate) fn symbol(name: &[u8]) -> Option<usize> {
    let mut found = None;
    for_each(|object| {
        found = object.symbol(name);
        found.is_none()
    });
    found
}

/// An address inside this library.
pub(crate) fn own_address() -> usize {
    (&raw const MARK).addr()
}

static MARK: u8 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_dlsym_finds() {
        for name in [c"malloc", c"getpid", c"environ", c"pthread_create"] {
            // SAFETY: the name is terminated.
            let expected = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.addr();
            assert_eq!(symbol(name.to_bytes()), Some(expected), "{name:?}");
        }
        assert_eq!(symbol(b"no_function_has_this_name"), None);
    }

    #[test]
    fn one_object_has_this_code() {
        let mut holders = 0;
        for_each(|object| {
            holders += u32::from(object.contains(own_address()));
            true
        });
        assert_eq!(holders, 1);
    }
}
