//! Names of symbols, symbol tables of files, and the memory of an interpreter.
//!
//! The preloaded library cannot be linked here: it replaces `malloc`. Its readers are compiled out of its own sources.

use std::io;

use cuguard_report::demangle;

use super::bounded;

#[path = "../../../audit/src/search/variables.rs"]
mod variables;
#[expect(dead_code, reason = "the preloaded library uses the rest")]
#[path = "../../../audit/src/python/walk.rs"]
mod walk;

/// Any bytes as a symbol; by the first of them, behind a prefix of C++ or of Rust.
///
/// # Panics
///
/// Where a name is longer than 4 KiB and its sign for that, or memory is not bounded.
pub fn symbol_name(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else {
        assert_eq!(demangle(""), "");
        return;
    };
    let text = match first {
        b'Z' => format!("_Z{}", String::from_utf8_lossy(rest)),
        b'N' => format!("_ZN{}", String::from_utf8_lossy(rest)),
        b'R' => format!("_R{}", String::from_utf8_lossy(rest)),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    };
    // The parser of C++ symbols tries alternatives: what it keeps of those that failed doubles with their depth, up to a limit.
    let name = bounded(text.len(), 1 << 20, 16 << 10, || demangle(&text));
    assert!(name.len() <= (4 << 10) + 3);
    if !text.starts_with('_') && text.len() <= 4 << 10 {
        assert_eq!(name, text);
    }
}

impl variables::Source for &[u8] {
    fn length(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let from = self.get(offset..).unwrap_or_default();
        let count = from.len().min(bytes.len());
        bytes[..count].copy_from_slice(&from[..count]);
        Ok(count)
    }
}

/// Any bytes as an ELF file with variables.
///
/// # Panics
///
/// Where memory is not bounded.
pub fn elf_variables(bytes: &[u8]) {
    let mut file = bytes.to_vec();
    if let Some(first) = file.get_mut(..6) {
        first.copy_from_slice(b"\x7fELF\x02\x01");
    }
    // Tables may overlap: sections, symbols and variables, each as large as the file.
    bounded(file.len(), 16, 4 << 10, || {
        let Some(variables) = variables::Variables::read(&file[..]) else {
            return;
        };
        for value in [0, 8, 0x1000, u64::MAX, u64::from(bytes[bytes.len() - 1])] {
            for thread_local in [false, true] {
                if let Some(name) = variables.find(value, thread_local) {
                    assert!(name.len() < 4 * 1024);
                }
            }
        }
    });
}

/// Memory from an address on.
struct At<'a>(usize, &'a [u8]);

impl walk::Memory for At<'_> {
    fn read(&self, address: usize, into: &mut [u8]) -> usize {
        let offset = address.checked_sub(self.0);
        let from = offset.and_then(|offset| self.1.get(offset..));
        let from = from.unwrap_or_default();
        let count = from.len().min(into.len());
        into[..count].copy_from_slice(&from[..count]);
        count
    }
}

/// Any bytes as memory of an interpreter, in which its thread is. The first byte chooses the version.
///
/// # Panics
///
/// Where memory is not bounded.
pub fn python_frames(bytes: &[u8]) {
    const START: usize = 0x1000;
    let Some((version, bytes)) = bytes.split_first() else {
        return;
    };
    let layout = match 9 + version % 5 {
        13 => {
            let mut table = [0; walk::WORDS * 8];
            let count = bytes.len().min(table.len());
            table[..count].copy_from_slice(&bytes[..count]);
            // The cookie, the version, and an interpreter with a lock.
            table[..8].copy_from_slice(b"xdebugpy");
            table[8..24].fill(0);
            table[10..12].copy_from_slice(&0x030d_u16.to_le_bytes());
            walk::Layout::published(&table)
        }
        minor => walk::Layout::fixed(minor.into()),
    };
    let Some(layout) = layout else { return };
    let memory = At(START, bytes);
    // A string has at most 1024 characters of at most 4 bytes.
    bounded(bytes.len(), 1, 32 << 10, || {
        let frames = walk::walk(&memory, &layout, START, 64).unwrap_or_default();
        assert!(frames.len() <= 64);
        for frame in frames.iter().take(4) {
            for at in [frame.code, frame.offset as usize] {
                let kind = walk::read_word(&memory, at.wrapping_add(layout.kind));
                let text = walk::text(&memory, &layout, kind.unwrap_or(0), at);
                assert!(text.is_none_or(|text| text.chars().count() <= 1024));
            }
        }
    });
}
