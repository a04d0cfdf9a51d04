//! The files that modules are mapped from, as the kernel names them.
//!
//! The dynamic linker has the name that a module was loaded by. It may be relative to a folder that the program has left, and another
//! file may have it by now. The kernel has the file itself: its list of mappings follows a file that is renamed, and marks
//! one that was removed or replaced.
//!
//! The list also has device and inode. They are not compared with those of `stat`: overlayfs and btrfs list others than `stat` returns,
//! and every file of a container would be called replaced.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Behind the name of a file that was removed or replaced.
const DELETED: &[u8] = b" (deleted)";

/// A file that is mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MappedFile {
    /// Absolute.
    pub(super) path: PathBuf,
    /// Whether the file still has this name.
    pub(super) is_there: bool,
}

/// The mappings of the process at one time.
#[derive(Debug)]
pub(super) struct Mappings(Vec<u8>);

impl Mappings {
    /// Empty where they cannot be read.
    pub(super) fn read() -> Self {
        // Not `/proc/self/maps`, which is that of the main thread, and empty once it has ended.
        Self(fs::read("/proc/thread-self/maps").unwrap_or_default())
    }

    /// The file that is mapped at an address.
    pub(super) fn file_at(&self, address: usize) -> Option<MappedFile> {
        let mut lines = self.0.split(|byte| *byte == b'\n');
        lines.find_map(|line| file_in(line, address)).flatten()
    }
}

/// `None` if the address is not in the mapping of this line, `Some(None)` if that is of no file.
fn file_in(line: &[u8], address: usize) -> Option<Option<MappedFile>> {
    // ADDRESS-ADDRESS rwxp OFFSET DEVICE INODE      NAME
    let mut fields = line.splitn(6, |byte| *byte == b' ');
    let range = str::from_utf8(fields.next()?).ok()?;
    let (start, end) = range.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    if !(start..end).contains(&address) {
        return None;
    }
    let name = fields.nth(4).unwrap_or_default().trim_ascii_start();
    let (name, is_there) = match name.strip_suffix(DELETED) {
        Some(name) => (name, false),
        None => (name, true),
    };
    let is_file = name.starts_with(b"/");
    Some(is_file.then(|| MappedFile {
        path: OsStr::from_bytes(name).into(),
        is_there,
    }))
}

#[cfg(test)]
mod tests {
    use super::Mappings;

    #[test]
    fn files_are_found_by_address() {
        let mappings = Mappings(
            b"1000-2000 r-xp 00000000 fe:01 12   /usr/lib/a name.so\n\
            2000-3000 r-xp 00000000 fe:01 13   /tmp/b.so (deleted)\n\
            3000-4000 rw-p 00000000 00:00 0   [heap]\n\
            4000-5000 rw-p 00000000 00:00 0 \n\
            nonsense\n"
                .to_vec(),
        );
        let at = |address| mappings.file_at(address);
        let found = at(0x1fff).map(|file| (file.path, file.is_there));
        assert_eq!(found, Some(("/usr/lib/a name.so".into(), true)));
        let found = at(0x2000).map(|file| (file.path, file.is_there));
        assert_eq!(found, Some(("/tmp/b.so".into(), false)));
        assert_eq!(
            [at(0xfff), at(0x3000), at(0x4000), at(0x5000)],
            [const { None }; 4]
        );
    }

    #[test]
    fn this_program_is_mapped_from_its_file() {
        let here = Mappings::read as fn() -> _ as usize;
        let file = Mappings::read().file_at(here).unwrap();
        assert!(file.is_there);
        assert_eq!(file.path, std::env::current_exe().unwrap());
    }
}
