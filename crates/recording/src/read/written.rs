//! A file that may still be written: what is read of it is as the recording was at one moment.
//!
//! Chunks are copied one after the other while threads append to them. So a second copy is made where the file has changed, and of
//! it only events are used that are not newer than the newest one of the first copy: all of them were written before the
//! second one began.
//!
//! ```text
//! first copy ──► newest event ──► pending chunks ──► other chunks ──► heads of chunks ──► header
//! ```
//!
//! - Pending chunks come first: an allocation that leaves its slot is an event before.
//! - Heads of chunks come again: a chunk that was overwritten meanwhile is left out.
//! - The header comes last: it has what the limit dropped before a chunk is overwritten.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::assemble;
use super::error::ReadError;
use crate::data::{End, Recording};
use crate::format::{chunk, header, u32_at, u64_at};
use crate::slot::SLOT;

/// Where a file is read from, again.
pub(crate) trait Source {
    /// How many bytes it has.
    fn length(&self) -> io::Result<u64>;
    /// Reads some bytes from an offset on; none at the end.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl Source for File {
    fn length(&self) -> io::Result<u64> {
        self.metadata().map(|metadata| metadata.len())
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, bytes, offset)
    }
}

/// Reads a recording. `bytes` were read from the file.
pub(crate) fn read(file: &impl Source, bytes: Vec<u8>) -> Result<Recording, ReadError> {
    let recording = assemble::read(&bytes, u64::MAX)?;
    // What cannot be read again, as a pipe, is as it is.
    if !has_changed(file, &bytes).unwrap_or(false) {
        return Ok(recording);
    }
    let until = match recording.end {
        End::Open => recording.events.last().map_or(0, |event| event.time),
        // It ended meanwhile: nothing is written any more.
        End::Exit { .. } => u64::MAX,
    };
    let size = u32_at(&bytes, header::CHUNK_SIZE).unwrap_or_default() as usize;
    // They need more memory than the file.
    drop((recording, bytes));
    let recording = assemble::read(&copy(file, size)?, until)?;
    match recording.end {
        End::Exit { .. } if until != u64::MAX => assemble::read(&copy(file, size)?, u64::MAX),
        _ => Ok(recording),
    }
}

/// Reads as many bytes as there are, and returns how many.
fn fill(file: &impl Source, bytes: &mut [u8], offset: usize) -> io::Result<usize> {
    let mut length = 0;
    while length < bytes.len() {
        match file.read_at(&mut bytes[length..], (offset + length) as u64) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

/// Whether the file is not what was read.
fn has_changed(file: &impl Source, bytes: &[u8]) -> io::Result<bool> {
    let mut part = vec![0; 64 << 10];
    let mut offset = 0;
    for old in bytes.chunks(part.len()) {
        let length = fill(file, &mut part[..old.len()], offset)?;
        if part[..length] != *old {
            return Ok(true);
        }
        offset += length;
    }
    Ok(fill(file, &mut part[..1], offset)? != 0)
}

/// Copies the file, with chunks of this size.
fn copy(file: &impl Source, size: usize) -> io::Result<Vec<u8>> {
    let length = usize::try_from(file.length()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut bytes = vec![0; length];
    // The file may have become shorter, by chunks that were never used.
    let (first, chunks) = bytes.split_at_mut(size.min(length));
    let mut again = vec![0; size];
    let mut others = Vec::new();
    for (at, bytes) in (size..).step_by(size).zip(chunks.chunks_mut(size)) {
        let head = chunk::RECORDS.min(bytes.len());
        fill(file, &mut bytes[..head], at)?;
        if u32_at(bytes, chunk::KIND) != Some(chunk::PENDING) {
            others.push((at, bytes));
            continue;
        }
        fill(file, bytes, at)?;
        let again = &mut again[..bytes.len()];
        fill(file, again, at)?;
        leave_out_changed_slots(bytes, again);
    }
    for (at, bytes) in &mut others {
        fill(file, bytes, *at)?;
    }
    for (at, bytes) in others {
        let mut head = [0; chunk::RECORDS];
        fill(file, &mut head, at)?;
        if is_overwritten(bytes, &head) {
            bytes.fill(0);
        }
    }
    fill(file, first, 0)?;
    // Chunks that were added since are left out, and not cut off.
    if let Some(field) = bytes.get_mut(header::CHUNKS..header::CHUNKS + 4) {
        field.fill(0);
    }
    Ok(bytes)
}

/// Empties the slots of a pending chunk that were written while they were read: those allocations are events, or left out.
fn leave_out_changed_slots(bytes: &mut [u8], again: &[u8]) {
    let slots = bytes.get_mut(chunk::RECORDS..).unwrap_or_default();
    let again = again.get(chunk::RECORDS..).unwrap_or_default();
    for (slot, again) in slots.chunks_mut(SLOT).zip(again.chunks(SLOT)) {
        if slot != again {
            slot.fill(0);
        }
    }
}

/// Whether a chunk was overwritten after it was read.
fn is_overwritten(bytes: &[u8], head: &[u8]) -> bool {
    let sequence = |bytes: &[u8]| u64_at(bytes, chunk::SEQUENCE);
    let committed = |bytes: &[u8]| u32_at(bytes, chunk::COMMITTED);
    sequence(bytes) != sequence(head) || committed(bytes) > committed(head)
}
