//! What the cuguard crate notes for `cuguard run`, whose audit library does not see a program on the simulated GPU.
//!
//! `crates/audit/src/end/run_folder.rs` describes the records.

use std::env;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Once;

use crate::phrase::printable;

/// The folder of `cuguard run`, in a process of it.
pub(crate) const FOLDER: &str = "CUGUARD_RUN";

/// Notes that the cuguard crate records in this process, and into which file, if `cuguard run` runs it.
pub fn note_recording_of_crate() {
    static NOTED: Once = Once::new();
    let (Some(path), Some(folder)) = (cuguard_recording::path(), env::var_os(FOLDER)) else {
        return;
    };
    NOTED.call_once(|| {
        let (process, path) = (std::process::id(), path.to_string_lossy());
        let path = printable(&path);
        let records = format!("crate\t{process}\nrecording\t{process}\t{path}\n");
        // The command may have ended, and removed the folder.
        let _ = append(Path::new(&folder), &records);
    });
}

/// In one piece: other processes append, too. The audit library has created the file.
fn append(folder: &Path, records: &str) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .append(true)
        .open(folder.join("records"))?;
    file.write_all(records.as_bytes())
}
