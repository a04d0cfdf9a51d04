//! Loaded ELF objects, in the order in which the dynamic linker looks symbols up, and their dynamic symbols.
//!
//! Without `dlsym`, which this library replaces, and without allocating: it is needed before there is a `malloc`.

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{Elf64_Phdr, Elf64_Sym, dl_phdr_info, size_t};

pub(crate) use super::tables::Tables;

/// A loaded object.
pub(crate) struct Object<'a> {
    info: &'a dl_phdr_info,
    /// How many objects were loaded before it.
    index: usize,
}

impl<'a> Object<'a> {
    /// The address by which the object was moved.
    pub(crate) fn base(&self) -> usize {
        self.info.dlpi_addr as usize
    }

    /// The path as the dynamic linker has it.
    pub(crate) fn c_path(&self) -> Option<&'a CStr> {
        let name = self.info.dlpi_name;
        // SAFETY: the dynamic linker's string, valid while the object is loaded.
        (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })
    }

    /// The path; empty for the program itself.
    pub(crate) fn path(&self) -> &'a [u8] {
        self.c_path().map_or(b"", CStr::to_bytes)
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

    /// Whether it was loaded with the program. Then it is never unloaded, and in the global scope.
    pub(crate) fn is_first(&self) -> bool {
        self.index < FIRST.load(Ordering::Relaxed)
    }

    pub(crate) fn contains(&self, address: usize) -> bool {
        self.segments(0).any(|segment| segment.contains(&address))
    }

    /// The address of a dynamic symbol that the object defines.
    pub(crate) fn symbol(&self, name: &[u8]) -> Option<usize> {
        let is_defined = |symbol: &Elf64_Sym, _| symbol.st_value != 0;
        let tables = Tables::of(self)?;
        let symbol = tables.find(name, is_defined)?;
        Some(self.base().wrapping_add(symbol.st_value as usize))
    }
}

/// Calls the function for each object until it returns false. It must not load or unload objects.
pub(crate) fn for_each(mut visit: impl FnMut(&Object<'_>) -> bool) {
    type State<'a> = (&'a mut dyn FnMut(&Object<'_>) -> bool, usize);
    let mut state: State<'_> = (&mut visit, 0);

    unsafe extern "C" fn callback(
        info: *mut dl_phdr_info,
        _size: size_t,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: `data` is the `state` below; `info` is valid during the call.
        let ((visit, count), info) = unsafe { (&mut *data.cast::<State<'_>>(), &*info) };
        let index = *count;
        *count += 1;
        c_int::from(!visit(&Object { info, index }))
    }

    // SAFETY: the callback gets the pointer to `state`, which outlives the call.
    unsafe {
        libc::dl_iterate_phdr(Some(callback), (&raw mut state).cast());
    }
}

/// How many objects were loaded with the program. They stay the first ones.
static FIRST: AtomicUsize = AtomicUsize::new(0);

/// What is loaded now was loaded with the program.
pub(super) fn note_first() {
    let mut count = 0;
    for_each(|_| {
        count += 1;
        true
    });
    FIRST.store(count, Ordering::Relaxed);
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
