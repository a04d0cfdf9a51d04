//! A file that a command overwrites: not a recording, and not what another user put in its place.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use cuguard_report::open_report_file;

/// What a recording begins with.
const RECORDING: &[u8] = b"CUGUARDR";

/// Whether a recording has this name.
pub(crate) fn is_recording(path: &Path) -> bool {
    // Opening a pipe would wait for its writer.
    let is_file = fs::metadata(path).is_ok_and(|info| info.is_file());
    let begin = || -> io::Result<Vec<u8>> {
        let mut begin = Vec::new();
        let file = File::open(path)?;
        file.take(RECORDING.len() as u64).read_to_end(&mut begin)?;
        Ok(begin)
    };
    is_file && begin().is_ok_and(|begin| begin == RECORDING)
}

/// Writes a file, in place of what it has. Pipes and devices are written to.
///
/// # Errors
///
/// Those of the system, and for a recording, or for a link or file of another user in a folder that others can write to.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if is_recording(path) {
        let why = "it is a recording; remove it first, or choose another name";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    let mut file = open_report_file(path)?;
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    file.write_all(bytes)
}
