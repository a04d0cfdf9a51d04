//! Loaded libraries and their dynamic symbols.

use std::ffi::{CStr, c_void};

use libc::Elf64_Sym;

use crate::heap::objects::{self, Object, Tables};

/// A loaded library, or the program. Its tables stay mapped for as long as it stays loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Module {
    base: usize,
    /// The addresses from the first to the last segment.
    start: usize,
    end: usize,
    tables: Tables,
    /// The path that the dynamic linker has; empty for the program.
    path: usize,
    is_first: bool,
}

const STT_FUNC: u8 = 2;
const STT_NOTYPE: u8 = 0;

impl Module {
    /// `None` for a module without a table of dynamic symbols.
    fn of(object: &Object<'_>) -> Option<Self> {
        let segments = || object.segments(0);
        Some(Self {
            base: object.base(),
            start: segments().map(|segment| segment.start).min()?,
            end: segments().map(|segment| segment.end).max()?,
            tables: Tables::of(object)?,
            path: object.c_path().map_or(0, |path| path.as_ptr() as usize),
            is_first: object.is_first(),
        })
    }

    /// Its `DT_SONAME`; empty if it has none.
    pub(crate) fn soname(&self) -> &[u8] {
        self.tables.soname().map_or(b"", CStr::to_bytes)
    }

    /// The file that the dynamic linker opened.
    pub(crate) fn path(&self) -> &CStr {
        match self.path {
            0 => c"",
            // SAFETY: the dynamic linker's string, which lives as long as the module.
            address => unsafe { CStr::from_ptr(address as *const _) },
        }
    }

    /// Whether it was loaded with the program. Then it is never unloaded, and in the global scope.
    pub(crate) fn is_first(&self) -> bool {
        self.is_first
    }

    /// Whether an address lies in it.
    pub(crate) fn contains(&self, address: usize) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Whether it defines a symbol.
    pub(crate) fn defines(&self, name: &[u8]) -> bool {
        self.tables
            .find(name, |symbol, _| symbol.st_value != 0)
            .is_some()
    }

    /// The address of a function that it defines, in the default version.
    pub(crate) fn function(&self, name: &[u8]) -> Option<*const c_void> {
        let is_function = |symbol: &Elf64_Sym, is_default: bool| {
            is_default && matches!(symbol.st_info & 15, STT_FUNC | STT_NOTYPE)
        };
        let symbol = self.tables.find(name, is_function)?;
        Some(self.base.wrapping_add(symbol.st_value as usize) as *const c_void)
    }
}

/// The first loaded module for which `is_wanted` returns true, in the order in which they were loaded.
pub(crate) fn find_module(mut is_wanted: impl FnMut(&Module) -> bool) -> Option<Module> {
    let mut found = None;
    objects::for_each(|object| {
        found = Module::of(object).filter(&mut is_wanted);
        found.is_none()
    });
    found
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
            assert!(libc.defines(name.to_bytes()), "{name:?}");
        }
        // Data, and names that it has not.
        assert!(libc.defines(b"environ") && !libc.defines(b"cuInit"));
        for name in ["environ", "cuInit", "getpi", "getpidd", ""] {
            assert_eq!(libc.function(name.as_bytes()), None, "{name:?}");
        }
    }

    #[test]
    fn both_hash_tables_lead_to_the_same_functions() {
        // The loader of glibc has both.
        let both = find_module(|module| module.tables.without_gnu_hash().is_some());
        let Some(module) = both else {
            println!("no loaded module has both tables");
            return;
        };
        let other = super::Module {
            tables: module.tables.without_gnu_hash().expect("it has both"),
            ..module
        };
        for name in ["__tls_get_addr", "_dl_allocate_tls", "no_such_name"] {
            let name = name.as_bytes();
            assert_eq!(module.function(name), other.function(name));
        }
    }

    #[test]
    fn the_module_of_an_address_is_found() {
        let own = the_module_of_an_address_is_found as *const () as usize;
        assert!(find_module(|module| module.contains(own)).is_some());
        assert!(find_module(|module| module.contains(8)).is_none());
    }
}
