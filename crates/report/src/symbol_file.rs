//! Names out of the file of a program or library: its debug information, its symbol table, its build id.

use std::fs::File;
use std::path::{Path, PathBuf};

use addr2line::Loader;

use object::read::{Object, ReadCache};

use crate::demangle::demangle;

/// A function and the line that runs, as far as a file has them.
///
/// ```
/// assert_eq!(cuguard_report::symbol_file::Name::default().function, None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Name {
    /// The function, demangled.
    pub function: Option<String>,
    /// Its file.
    pub file: Option<String>,
    /// 0 where it is unknown.
    pub line: u32,
    /// 0 where it is unknown.
    pub column: u32,
}

/// The functions at an address of a file, inlined ones first: from its debug information, or its symbol table. Empty where it
/// has none.
#[must_use]
pub fn names_at(loader: &Loader, address: u64) -> Vec<Name> {
    let mut names = Vec::new();
    if let Ok(mut frames) = loader.find_frames(address) {
        while let Ok(Some(frame)) = frames.next() {
            let function = frame.function.as_ref();
            let function = function.and_then(|function| function.raw_name().ok());
            let location = frame.location.as_ref();
            let number = |number: Option<u32>| number.unwrap_or_default();
            names.push(Name {
                function: function.map(|name| demangle(&name)),
                file: location.and_then(|location| Some(location.file?.to_owned())),
                line: number(location.and_then(|location| location.line)),
                column: number(location.and_then(|location| location.column)),
            });
        }
    }
    let has_name = names.last().is_some_and(|name| name.function.is_some());
    if !has_name && let Some(symbol) = loader.find_symbol(address) {
        if names.is_empty() {
            names.push(Name::default());
        }
        // The symbol table has no inlined functions: the name is the outermost one's.
        if let Some(last) = names.last_mut() {
            last.function = Some(demangle(symbol));
        }
    }
    names
}

/// Whether no other file can have more.
///
/// ```
/// assert!(!cuguard_report::symbol_file::have_lines(&[]));
/// ```
#[must_use]
pub fn have_lines(names: &[Name]) -> bool {
    names
        .last()
        .is_some_and(|name| name.function.is_some() && name.file.is_some())
}

/// Whether these say more than those.
///
/// ```
/// assert!(!cuguard_report::symbol_file::are_better(&[], &[]));
/// ```
#[must_use]
pub fn are_better(these: &[Name], those: &[Name]) -> bool {
    let score = |names: &[Name]| {
        let named = names.iter().filter(|name| name.function.is_some()).count();
        (have_lines(names), named)
    };
    score(these) > score(those)
}

/// The build id of a file in hexadecimal, empty where it has none. `None` for what is not a program or library.
///
/// Reads headers and notes alone: a library may have gigabytes.
///
/// ```
/// use cuguard_report::symbol_file::build_id;
///
/// assert!(build_id(&std::env::current_exe()?).is_some());
/// assert_eq!(build_id("/nowhere".as_ref()), None);
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub fn build_id(path: &Path) -> Option<String> {
    let cache = ReadCache::new(File::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    let id = file.build_id().ok()?.unwrap_or_default();
    Some(hexadecimal(id))
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The files that distributions install the debug information of a file in, if they are there: by build id, and by the name that
/// the file has of it.
pub(crate) fn debug_files(path: &Path, build_id: &str) -> Vec<PathBuf> {
    const SYSTEM: &str = "/usr/lib/debug";
    let mut files = Vec::new();
    let parts = build_id.split_at_checked(2);
    if let Some((first, rest)) = parts.filter(|(_, rest)| !rest.is_empty()) {
        files.push(format!("{SYSTEM}/.build-id/{first}/{rest}.debug").into());
    }
    if let (Some(name), Some(folder)) = (debug_link(path), path.parent()) {
        let inner = folder.strip_prefix("/").unwrap_or(folder);
        files.push(folder.join(&name));
        files.push(folder.join(".debug").join(&name));
        files.push(Path::new(SYSTEM).join(inner).join(&name));
    }
    let is_other =
        |file: &PathBuf| file != path && self::build_id(file).as_deref() == Some(build_id);
    files.retain(is_other);
    files
}

fn debug_link(path: &Path) -> Option<String> {
    let cache = ReadCache::new(File::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    let (name, _) = file.gnu_debuglink().ok()??;
    String::from_utf8(name.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::{Name, are_better};
    use crate::demangle::demangle;

    #[test]
    fn rust_and_c_plus_plus_are_demangled_and_c_is_not() {
        for (raw, expected) in [
            ("w", "w"),
            ("main", "main"),
            ("_Z4leakPKc", "leak(char const*)"),
            ("_ZN5model4loadEi", "model::load(int)"),
            (
                "_ZN4core3fmt5Write9write_str17h0123456789abcdefE",
                "core::fmt::Write::write_str",
            ),
            ("_RNvC6_123foo3bar", "123foo::bar"),
        ] {
            assert_eq!(demangle(raw), expected);
        }
    }

    #[test]
    fn lines_are_better_than_names_and_names_than_nothing() {
        let name = |function: &str, file: &str| Name {
            function: Some(function.to_owned()).filter(|name| !name.is_empty()),
            file: Some(file.to_owned()).filter(|file| !file.is_empty()),
            line: 1,
            column: 1,
        };
        let order = [vec![], vec![name("f", "")], vec![name("f", "f.c")]];
        assert!(are_better(&order[1], &order[0]) && are_better(&order[2], &order[1]));
        assert!(!are_better(&order[1], &order[1]) && !are_better(&order[0], &[name("", "")]));
    }
}
