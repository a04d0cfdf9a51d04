//! Files that the command writes: never one of its inputs, never a recording, and whole or not at all.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cuguard_report::open_report_file;
use cuguard_view::ViewError;

use super::failure::Failure;
use crate::output_file::is_recording;

/// Refuses to write to a file that is read, or to a recording: `--html a.cgr b.cgr` lacks a name.
pub(super) fn check(path: &Path, inputs: &[PathBuf]) -> Result<(), Failure> {
    let refused = |why| {
        Err(Failure::Refused {
            path: path.to_owned(),
            why,
        })
    };
    // A file that does not exist is neither.
    let Ok(info) = fs::metadata(path) else {
        return Ok(());
    };
    let identity = |info: &fs::Metadata| (info.dev(), info.ino());
    let is_input = |input: &PathBuf| {
        fs::metadata(input).is_ok_and(|input| identity(&input) == identity(&info))
    };
    if inputs.iter().any(is_input) {
        return refused("it is one of the files to read");
    }
    if is_recording(path) {
        return refused("it is a recording; remove it first, or choose another name");
    }
    Ok(())
}

/// Writes a file. An existing one is replaced at the end: a failure leaves it as it is.
pub(super) fn to_file(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<(), ViewError>,
) -> Result<(), Failure> {
    let failed = |error| Failure::Output {
        path: path.to_owned(),
        error,
    };
    let (mut out, target) = create(path).map_err(failed)?;
    let written = match write(&mut out) {
        Err(ViewError::Write { error, .. }) => Err(failed(error)),
        Err(error) => Err(error.into()),
        Ok(()) => out.flush().map_err(failed),
    };
    let Some(target) = target else {
        return written;
    };
    let written =
        written.and_then(|()| fs::rename(&target.temporary, &target.path).map_err(failed));
    if written.is_err() {
        let _ = fs::remove_file(&target.temporary);
    }
    written
}

/// A file that is written under another name first.
struct Target {
    temporary: PathBuf,
    path: PathBuf,
}

/// Opens a file to write to. Pipes and devices, such as `/dev/stdout`, are written to directly: they cannot be replaced.
fn create(path: &Path) -> io::Result<(BufWriter<File>, Option<Target>)> {
    let old = fs::metadata(path);
    if old.as_ref().is_ok_and(|old| !old.is_file()) {
        let file = OpenOptions::new().write(true).open(path)?;
        return Ok((BufWriter::new(file), None));
    }
    if old.is_ok() {
        // Fails for a link or file of another user in a folder that others can write to.
        open_report_file(path)?;
    }
    // Behind a symbolic link the file is replaced, not the link.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let Some(name) = path.file_name() else {
        return Err(io::ErrorKind::InvalidFilename.into());
    };
    if let Ok(old) = &old
        && old.permissions().readonly()
    {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut temporary = OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(temporary);
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&temporary)?;
    if let Ok(old) = old {
        // Who may read it stays the same.
        let _ = file.set_permissions(old.permissions());
    }
    Ok((BufWriter::new(file), Some(Target { temporary, path })))
}
