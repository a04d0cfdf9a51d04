//! The modules that a process has loaded: the program and its libraries, with their build ids.
//!
//! An address in a stripped program has no name. The module, the offset in it and the build id are
//! what another machine needs to find the name with the debug information.

use std::ops::Range;
use std::path::PathBuf;

/// The program or a library of it.
///
/// ```
/// let here = modules_here as fn() as usize;
/// let modules = cuguard_stack::modules();
/// if let Some(module) = modules.iter().find(|module| module.contains(here)) {
///     println!("{}+{:#x}", module.path.display(), module.offset(here));
/// }
/// fn modules_here() {}
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Module {
    /// The file. Empty where it is not known.
    pub path: PathBuf,
    /// The build id that the linker wrote into the file. Empty where it wrote none.
    pub build_id: Vec<u8>,
    /// What the loader added to the addresses in the file.
    base: usize,
    /// The addresses that are the module's.
    ranges: Vec<Range<usize>>,
}

impl Module {
    /// Whether the address is in this module.
    ///
    /// ```
    /// assert!(!cuguard_stack::modules().iter().any(|module| module.contains(1)));
    /// ```
    #[must_use]
    pub fn contains(&self, address: usize) -> bool {
        self.ranges.iter().any(|range| range.contains(&address))
    }

    /// The address as the file has it: what `addr2line` takes.
    ///
    /// ```
    /// for module in cuguard_stack::modules() {
    ///     println!("{} begins at {:#x}", module.path.display(), 0 - module.offset(0) as isize);
    /// }
    /// ```
    #[must_use]
    pub fn offset(&self, address: usize) -> usize {
        address.wrapping_sub(self.base)
    }
}

/// The modules that are loaded now. Empty on systems other than Linux with glibc.
///
/// ```
/// let modules = cuguard_stack::modules();
/// # #[cfg(all(target_os = "linux", target_env = "gnu"))]
/// assert!(!modules.is_empty());
/// ```
#[must_use]
pub fn modules() -> Vec<Module> {
    list()
}

#[cfg(not(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64")))]
fn list() -> Vec<Module> {
    Vec::new()
}

#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
fn list() -> Vec<Module> {
    use std::ffi::{c_int, c_void};

    unsafe extern "C" fn add(
        info: *mut libc::dl_phdr_info,
        _: libc::size_t,
        list: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes what it knows of a module, and the list that it was given.
        let (info, list) = unsafe { (&*info, &mut *list.cast::<Vec<Module>>()) };
        // SAFETY: the loader describes a module that stays loaded during this call.
        list.push(unsafe { read(info) });
        0
    }

    let mut list: Vec<Module> = Vec::new();
    // SAFETY: the function takes the list that is passed with it. It does not unwind: where there is
    // no memory left, Rust aborts.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut list).cast()) };
    // The loader has no name for the program itself, and it is the first.
    if let Some(program) = list.first_mut().filter(|m| m.path.as_os_str().is_empty()) {
        program.path = std::env::current_exe().unwrap_or_default();
    }
    list
}

/// # Safety
///
/// What the loader says of a module that is loaded.
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
unsafe fn read(info: &libc::dl_phdr_info) -> Module {
    use std::ffi::{CStr, OsStr};
    use std::os::unix::ffi::OsStrExt;

    let path = match info.dlpi_name.is_null() {
        true => PathBuf::new(),
        // SAFETY: the loader's own string.
        false => OsStr::from_bytes(unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes()).into(),
    };
    let headers: &[libc::Elf64_Phdr] = match info.dlpi_phdr.is_null() {
        true => &[],
        // SAFETY: the module's own headers, so many of them.
        false => unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) },
    };
    let base = info.dlpi_addr as usize;
    let range = |header: &libc::Elf64_Phdr| {
        let begin = base.wrapping_add(header.p_vaddr as usize);
        begin..begin.saturating_add(header.p_memsz as usize)
    };
    let loaded = headers.iter().filter(|h| h.p_type == libc::PT_LOAD);
    let ranges: Vec<_> = loaded.clone().map(range).collect();
    let mut build_id = Vec::new();
    for header in headers.iter().filter(|h| h.p_type == libc::PT_NOTE) {
        let notes = range(header);
        // Only what is mapped and can be read.
        let readable = loaded.clone().any(|segment| {
            let segment_range = range(segment);
            segment.p_flags & libc::PF_R != 0
                && segment_range.start <= notes.start
                && notes.end <= segment_range.end
        });
        if !readable {
            continue;
        }
        let (begin, length) = (notes.start as *const u8, notes.len());
        // SAFETY: these bytes belong to a segment that the loader has mapped for reading.
        let notes = unsafe { std::slice::from_raw_parts(begin, length) };
        if let Some(found) = build_id_in(notes, header.p_align as usize) {
            build_id = found.to_vec();
            break;
        }
    }
    Module {
        path,
        build_id,
        base,
        ranges,
    }
}

/// The build id among the notes of a module: the note of type 3 whose name is `GNU`.
#[cfg_attr(
    not(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64")),
    allow(dead_code)
)]
fn build_id_in(notes: &[u8], align: usize) -> Option<&[u8]> {
    let align = if align == 8 { 8 } else { 4 };
    let word = |notes: &[u8], at: usize| {
        let bytes = notes.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_ne_bytes(bytes) as usize)
    };
    let mut rest = notes;
    loop {
        let (name, length, kind) = (word(rest, 0)?, word(rest, 4)?, word(rest, 8)?);
        let begin = 12_usize.checked_add(name)?.next_multiple_of(align);
        let end = begin.checked_add(length)?;
        if kind == 3 && rest.get(12..12 + name)? == b"GNU\0" {
            return rest.get(begin..end);
        }
        rest = rest.get(end.next_multiple_of(align)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::{build_id_in, modules};

    fn note(name: &[u8], kind: u32, content: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        for number in [name.len() as u32, content.len() as u32, kind] {
            note.extend(number.to_ne_bytes());
        }
        for part in [name, content] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    #[test]
    fn the_build_id_is_found_among_other_notes() {
        let mut notes = note(b"GNU\0", 1, &[0; 16]);
        notes.extend(note(b"stapsdt\0", 3, &[1; 5]));
        notes.extend(note(b"GNU\0", 3, &[7; 20]));
        assert_eq!(build_id_in(&notes, 4), Some(&[7; 20][..]));
        assert_eq!(build_id_in(&notes[..notes.len() - 24], 4), None);
        for length in 0..notes.len() {
            let _ = build_id_in(&notes[..length], 8);
        }
        let huge = note(b"", 1, &[]).iter().map(|_| 0xff).collect::<Vec<u8>>();
        assert_eq!(build_id_in(&huge, 4), None);
        assert_eq!(build_id_in(&[], 4), None);
    }

    #[test]
    fn this_program_is_a_module_of_its_own() {
        let here = modules as fn() -> _ as usize;
        let all = modules();
        let Some(first) = all.first() else {
            return;
        };
        assert!(first.contains(here), "{first:?}");
        assert_eq!(first.path, std::env::current_exe().unwrap());
        assert!(first.offset(here) < here);
        assert_eq!(all.iter().filter(|m| m.contains(here)).count(), 1);
    }
}
