//! Recordings, as files that anybody may have written or damaged.

use cuguard_recording::{Recording, What};
use cuguard_view::{Offsets, Run};

use super::bounded;

/// An event of three bytes is a structure of some sixty, in lists that double; a view of it has as much again.
const MULTIPLE: usize = 512;
/// Names for the numbers of 256 kinds, and the tables of a run.
const CONSTANT: usize = 256 << 10;

/// The smallest chunk.
const CHUNK: usize = 4 << 10;

/// Reads a recording, makes a run of it, and checks that all its numbers are those of something.
fn read(bytes: &[u8]) {
    bounded(bytes.len(), MULTIPLE, CONSTANT, || {
        let Ok(recording) = Recording::read(bytes) else {
            return;
        };
        check(&recording);
        let (events, sites) = (recording.events.len(), recording.stacks.len());
        let mut offsets = Offsets::new(&recording.modules);
        let run = Run::from_recording(recording, &mut offsets);
        assert!(run.allocations.len() <= events && run.sites.len() <= sites + 1);
        for allocation in &run.allocations {
            assert!(allocation.start <= allocation.end);
        }
    });
}

fn check(recording: &Recording) {
    let (stacks, names) = (recording.stacks.len(), recording.names.len());
    let stack = |number: u32| assert!((number as usize) < stacks);
    let name = |number: u32| assert!((number as usize) < names);
    assert!(recording.events.is_sorted_by_key(|event| event.time));
    for event in &recording.events {
        name(event.thread);
        match event.what {
            What::Allocated {
                kind,
                stack: number,
                label,
                ..
            } => {
                stack(number);
                name(label);
                assert!(usize::from(kind) < recording.kinds.len().max(1));
            }
            What::OutOfMemory { stack: number, .. } => stack(number),
            _ => {}
        }
    }
    for diagnosis in &recording.diagnoses {
        name(diagnosis.thread);
    }
    for found in &recording.found {
        assert!(usize::from(found.kind) < recording.kinds.len());
    }
}

/// Any bytes as a recording. Those that do not begin as one are the records of one chunk: its kind, and all that follows.
///
/// # Panics
///
/// Where the recording refers to what it does not have, or memory is not bounded.
pub fn recording_file(bytes: &[u8]) {
    if bytes.starts_with(b"CUGUARDR") || bytes.len() < 2 {
        return read(bytes);
    }
    let mut file = header();
    // Several chunks, of which each begins where a zero and its kind are.
    let (kind, records) = (bytes[0] % 5, &bytes[1..]);
    let mut sequence = 0;
    for part in records.split(|byte| *byte == 0xff) {
        let records = &part[..part.len().min(CHUNK - 32)];
        let kind = (kind + sequence) % 5;
        file.extend(b"CHNK");
        file.extend(u32::from(kind).to_le_bytes());
        file.extend(u64::from(sequence).to_le_bytes());
        file.extend((records.len() as u32).to_le_bytes());
        file.resize(file.len() + 12, 0);
        file.extend(records);
        sequence += 1;
        if sequence == 4 {
            break;
        }
        file.resize((usize::from(sequence) + 1) * CHUNK, 0);
    }
    read(&file);
}

/// The header of a recording with the smallest chunks.
fn header() -> Vec<u8> {
    let mut file = b"CUGUARDR".to_vec();
    file.extend(1_u32.to_le_bytes());
    file.extend((CHUNK as u32).to_le_bytes());
    file.resize(CHUNK, 0);
    file
}

/// A recording with chunks of 4 KiB: a program that allocates in several threads, with labels, stack traces and an error.
const VALID: &[u8] = include_bytes!("valid.cgr.bin");

/// Changes bytes of a valid recording: three bytes of the input are an offset and a value, and a last one cuts the file.
///
/// # Panics
///
/// As [`recording_file`].
pub fn recording_flips(bytes: &[u8]) {
    let mut file = VALID.to_vec();
    let mut changes = bytes.chunks_exact(3);
    for change in &mut changes {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % file.len();
        file[at] = change[2];
    }
    if let [cut, ..] = *changes.remainder() {
        file.truncate(file.len() * usize::from(cut) / 256);
    }
    read(&file);
}
