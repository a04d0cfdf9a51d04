//! The modules of the process: the program and its shared libraries, with their build ids.
//!
//! An address in a stripped program has no name. Module, offset and build id are what another machine
//! needs to find the name in the debug information.

use std::ops::Range;
use std::path::{Path, PathBuf};

#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
use crate::elf;

/// The program or a shared library.
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
    /// What the dynamic linker added to the addresses in the file.
    pub(crate) base: usize,
    /// The addresses of the loaded segments.
    pub(crate) ranges: Vec<Range<usize>>,
    /// Of the segments with code.
    pub(crate) code: Vec<Range<usize>>,
    /// The file that was loaded; of modules without a build id that [`locate`](crate::locate) returns. `None` if it had been
    /// removed or replaced when its module was seen first.
    pub(crate) stamp: Option<FileStamp>,
}

/// Tells a file from one that replaces it: device, inode, and the seconds and nanoseconds of its last change. No program can set
/// the time of a change, as it can that of the last write.
pub(crate) type FileStamp = (u64, u64, i64, i64);

/// The stamp of the file at a path. `None` without one.
#[cfg(unix)]
pub(crate) fn file_stamp(path: &Path) -> Option<FileStamp> {
    use std::os::unix::fs::MetadataExt;
    let file = path.metadata().ok()?;
    Some((file.dev(), file.ino(), file.ctime(), file.ctime_nsec()))
}

#[cfg(not(unix))]
pub(crate) fn file_stamp(_: &Path) -> Option<FileStamp> {
    None
}

impl Module {
    /// Whether the address is in this module.
    #[must_use]
    pub fn contains(&self, address: usize) -> bool {
        self.ranges.iter().any(|range| range.contains(&address))
    }

    /// The addresses from its first segment to its last one.
    ///
    /// ```
    /// for module in cuguard_stack::modules() {
    ///     assert!(module.range().is_empty() || module.contains(module.range().start));
    /// }
    /// ```
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        let start = self.ranges.iter().map(|range| range.start).min();
        let end = self.ranges.iter().map(|range| range.end).max();
        start.unwrap_or_default()..end.unwrap_or_default()
    }

    /// The address as the file has it: what `addr2line` takes.
    #[must_use]
    pub fn offset(&self, address: usize) -> usize {
        address.wrapping_sub(self.base)
    }

    /// The inverse of [`offset`](Self::offset).
    #[must_use]
    pub fn address(&self, offset: usize) -> usize {
        offset.wrapping_add(self.base)
    }

    /// Whether the file at the path is the one that was loaded, as far as can be told without reading it: with a build id it may
    /// be, which is then to be compared; without one, it is if nothing has changed it since.
    #[must_use]
    pub fn is_same_file(&self) -> bool {
        !self.build_id.is_empty() || (self.stamp.is_some() && self.stamp == file_stamp(&self.path))
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
    list().0
}

/// The modules that are loaded now, and how many were unloaded before.
pub(crate) fn list() -> (Vec<Module>, u64) {
    #[allow(unused_mut, reason = "filled on Linux with glibc only")]
    let (mut modules, mut unloaded): (Vec<Module>, u64) = (Vec::new(), 0);
    #[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
    elf::each(|info| {
        unloaded = info.dlpi_subs;
        modules.push(Module {
            path: elf::path(info),
            build_id: elf::build_id(info),
            base: info.dlpi_addr as usize,
            ranges: elf::segments(info).collect(),
            code: elf::code(info).collect(),
            stamp: None,
        });
        false
    });
    // The dynamic linker has no name for the program itself, which comes first.
    if let Some(program) = modules
        .first_mut()
        .filter(|m| m.path.as_os_str().is_empty())
    {
        program.path = std::env::current_exe().unwrap_or_default();
    }
    (modules, unloaded)
}

/// How many times modules were loaded or unloaded so far: as long as it stays the same, so does what [`modules`] returns. 0 on
/// systems other than Linux with glibc.
///
/// ```
/// let changes = cuguard_stack::module_changes();
/// let modules = cuguard_stack::modules();
/// if cuguard_stack::module_changes() == changes {
///     assert_eq!(cuguard_stack::modules(), modules);
/// }
/// ```
#[must_use]
pub fn module_changes() -> u64 {
    #[allow(unused_mut, reason = "counted on Linux with glibc only")]
    let mut changes = 0_u64;
    #[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
    elf::each(|info| {
        changes = info.dlpi_adds.wrapping_add(info.dlpi_subs);
        true
    });
    changes
}

#[cfg(test)]
mod tests {
    use super::modules;

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
