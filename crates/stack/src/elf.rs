//! The loaded ELF modules, as the dynamic linker lists them.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use libc::{Elf64_Phdr, PF_R, PF_X, PT_DYNAMIC, PT_LOAD, PT_NOTE, dl_phdr_info};

/// Tags of a dynamic section.
const DT_NULL: usize = 0;
const DT_NEEDED: usize = 1;
const DT_STRTAB: usize = 5;
const DT_SONAME: usize = 14;

/// Calls `visit` with each module until it returns `true`. The modules stay loaded meanwhile.
pub(crate) fn each<F: FnMut(&dl_phdr_info) -> bool>(mut visit: F) {
    unsafe extern "C" fn call<F: FnMut(&dl_phdr_info) -> bool>(
        info: *mut dl_phdr_info,
        size: usize,
        visit: *mut c_void,
    ) -> c_int {
        if size < size_of::<dl_phdr_info>() {
            // A dynamic linker from before it counted unloaded modules: treat all modules as unknown.
            return 1;
        }
        // SAFETY: the dynamic linker passes a valid `info` of this size.
        let info = unsafe { &*info };
        // SAFETY: it is the pointer that is passed below, to a value that outlives the call.
        let visit = unsafe { &mut *visit.cast::<F>() };
        c_int::from(visit(info))
    }
    // SAFETY: `call::<F>` fits the pointer to an `F` that goes with it.
    unsafe { libc::dl_iterate_phdr(Some(call::<F>), (&raw mut visit).cast()) };
}

/// The program headers of a module that [`each`] visits.
fn headers(info: &dl_phdr_info) -> &[Elf64_Phdr] {
    match info.dlpi_phdr.is_null() {
        true => &[],
        // SAFETY: the dynamic linker states that there are as many headers.
        false => unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) },
    }
}

/// The headers of one type, with the addresses that they describe.
fn ranges(info: &dl_phdr_info, kind: u32) -> impl Iterator<Item = (&Elf64_Phdr, Range<usize>)> {
    let base = info.dlpi_addr as usize;
    let of_kind = headers(info).iter().filter(move |h| h.p_type == kind);
    of_kind.map(move |header| {
        let start = base.wrapping_add(header.p_vaddr as usize);
        (header, start..start.saturating_add(header.p_memsz as usize))
    })
}

/// The loaded segments of a module.
pub(crate) fn segments(info: &dl_phdr_info) -> impl Iterator<Item = Range<usize>> {
    ranges(info, PT_LOAD).map(|(_, range)| range)
}

/// The segments with the code of a module.
pub(crate) fn code(info: &dl_phdr_info) -> impl Iterator<Item = Range<usize>> {
    let is_code = |header: &Elf64_Phdr| header.p_flags & PF_X != 0;
    ranges(info, PT_LOAD).filter_map(move |(header, range)| is_code(header).then_some(range))
}

/// The dynamic section of a module: its name, and the names of the libraries that it needs.
#[derive(Clone, Copy)]
pub(crate) struct Dynamic {
    /// Pairs of a tag and a value, up to the tag [`DT_NULL`].
    section: *const [usize; 2],
    strings: usize,
    path: *const c_char,
}

impl Dynamic {
    /// `None` for a module without one. The result is valid for as long as the module is loaded.
    pub(crate) fn of(info: &dl_phdr_info) -> Option<Self> {
        let (_, range) = ranges(info, PT_DYNAMIC).next()?;
        let dynamic = Self {
            section: std::ptr::with_exposed_provenance(range.start),
            strings: 0,
            path: info.dlpi_name,
        };
        // glibc stores addresses; the kernel's own library has offsets from its base.
        let base = info.dlpi_addr as usize;
        let strings = dynamic.values(DT_STRTAB).next()?;
        let strings = if strings < base {
            base + strings
        } else {
            strings
        };
        Some(Self { strings, ..dynamic })
    }

    fn values(&self, tag: usize) -> impl Iterator<Item = usize> + '_ {
        // SAFETY: the section ends with `DT_NULL`, after which nothing is read.
        let entries = (0..).map(|at| unsafe { *self.section.add(at) });
        let entries = entries.take_while(|[tag, _]| *tag != DT_NULL);
        entries.filter_map(move |[own, value]| (own == tag).then_some(value))
    }

    fn texts(&self, tag: usize) -> impl Iterator<Item = &CStr> {
        let address = |value| std::ptr::with_exposed_provenance(self.strings + value);
        // SAFETY: the values of these tags are offsets of C strings in the module's table of strings.
        self.values(tag)
            .map(move |value| unsafe { CStr::from_ptr(address(value)) })
    }

    /// The names of the libraries that it needs.
    pub(crate) fn needed(&self) -> impl Iterator<Item = &CStr> {
        self.texts(DT_NEEDED)
    }

    /// Whether the dynamic linker finds this module under a name that another one needs.
    pub(crate) fn is_named(&self, name: &CStr) -> bool {
        let path = match self.path.is_null() {
            true => c"",
            // SAFETY: the dynamic linker's own string.
            false => unsafe { CStr::from_ptr(self.path) },
        };
        if name.to_bytes().contains(&b'/') {
            return path == name;
        }
        match self.texts(DT_SONAME).next() {
            Some(own) => own == name,
            None => path.to_bytes().rsplit(|byte| *byte == b'/').next() == Some(name.to_bytes()),
        }
    }
}

/// The file of a module; empty where the dynamic linker does not name it.
pub(crate) fn path(info: &dl_phdr_info) -> PathBuf {
    match info.dlpi_name.is_null() {
        true => PathBuf::new(),
        // SAFETY: the dynamic linker's own string.
        false => OsStr::from_bytes(unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes()).into(),
    }
}

/// The build id of a module; empty where it has none.
pub(crate) fn build_id(info: &dl_phdr_info) -> Vec<u8> {
    let readable = |notes: &Range<usize>| {
        ranges(info, PT_LOAD).any(|(header, segment)| {
            header.p_flags & PF_R != 0 && segment.start <= notes.start && notes.end <= segment.end
        })
    };
    let mut notes = ranges(info, PT_NOTE).filter(|(_, notes)| readable(notes));
    let build_id = notes.find_map(|(header, notes)| {
        let begin = std::ptr::with_exposed_provenance::<u8>(notes.start);
        // SAFETY: these bytes belong to a segment that the dynamic linker has mapped for reading.
        let notes = unsafe { std::slice::from_raw_parts(begin, notes.len()) };
        build_id_in(notes, header.p_align as usize)
    });
    build_id.unwrap_or_default().to_vec()
}

/// The build id among the notes of a module: the note of type 3 whose name is `GNU`.
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
    use super::build_id_in;

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
}
