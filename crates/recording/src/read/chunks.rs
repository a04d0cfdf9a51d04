//! The chunks of a file, and the records in them.

use super::error::{ReadError, describe};
use crate::data::{Event, Meta};
use crate::definition::Definition;
use crate::event::{State, Written};
use crate::format::{
    Bytes, MAGIC, MAX_CHUNK_SIZE, MIN_CHUNK_SIZE, VERSION, chunk, header, u32_at, u64_at,
};
use crate::meta;
use crate::note::Note;
use crate::slot::{self, SLOT};

/// A file, not yet put together: numbers are those of the process.
#[derive(Debug, Default)]
pub(super) struct Raw {
    pub(super) meta: Meta,
    pub(super) dropped: u64,
    pub(super) complete_from: u64,
    pub(super) lost: u64,
    pub(super) sample: u32,
    /// When the recording began. All times count from the same as this.
    pub(super) begin: u64,
    pub(super) definitions: Vec<Definition>,
    pub(super) events: Vec<Event>,
    /// Names that things alive got: time, kind, address, label.
    pub(super) labels: Vec<(u64, u8, u64, u32)>,
    pub(super) notes: Vec<Note>,
    pub(super) problems: Vec<String>,
}

/// Reads all chunks.
pub(super) fn read(bytes: &[u8]) -> Result<Raw, ReadError> {
    if bytes.is_empty() {
        return Err(ReadError::Empty);
    }
    if !bytes.starts_with(MAGIC) {
        let found = match MAGIC.starts_with(bytes) {
            true => "a file of only a few bytes".to_owned(),
            false => describe(bytes),
        };
        return Err(ReadError::Foreign { found });
    }
    let cut = || ReadError::Header(format!("the file ends after {} bytes", bytes.len()));
    match u32_at(bytes, header::VERSION).ok_or_else(cut)? {
        VERSION => {}
        found => return Err(ReadError::Version { found }),
    }
    let size = u32_at(bytes, header::CHUNK_SIZE).ok_or_else(cut)?;
    if !(MIN_CHUNK_SIZE..=MAX_CHUNK_SIZE).contains(&size) || size % 64 != 0 {
        return Err(ReadError::Header(format!("chunks of {size} bytes")));
    }
    let mut raw = Raw {
        dropped: u64_at(bytes, header::DROPPED).unwrap_or_default(),
        complete_from: u64_at(bytes, header::COMPLETE_FROM).unwrap_or_default(),
        lost: u64_at(bytes, header::LOST).unwrap_or_default(),
        sample: u32_at(bytes, header::SAMPLE).unwrap_or_default(),
        begin: u64_at(bytes, header::AGE).unwrap_or_default(),
        ..Raw::default()
    };
    match meta::decode(bytes) {
        Some(meta) => raw.meta = meta,
        None => raw
            .problems
            .push("the description of the process is not readable".to_owned()),
    }
    let written = u64::from(u32_at(bytes, header::CHUNKS).unwrap_or_default()) * u64::from(size);
    if written > bytes.len() as u64 {
        let (length, part) = (bytes.len(), "what is missing is not in the figures");
        raw.problems.push(format!(
            "the file was cut off: {length} of {written} bytes are left; {part}"
        ));
    }
    let size = size as usize;
    let mut chunks: Vec<(u64, usize)> = Vec::new();
    for at in (size..bytes.len()).step_by(size) {
        let head = &bytes[at..bytes.len().min(at + chunk::RECORDS)];
        match head.get(..4) {
            Some(magic) if magic == chunk::MAGIC && head.len() == chunk::RECORDS => {
                chunks.push((u64_at(head, chunk::SEQUENCE).unwrap_or_default(), at));
            }
            // Not used yet.
            _ if head.iter().all(|byte| *byte == 0) => {}
            _ => raw.problems.push(format!(
                "offset {at:#x}: no chunk begins here; it is skipped"
            )),
        }
    }
    chunks.sort_unstable();
    for (_, at) in chunks {
        let end = bytes.len().min(at + size);
        raw.read_chunk(&bytes[at..end], at, size);
    }
    raw.count_from_the_start();
    Ok(raw)
}

impl Raw {
    /// Reads a chunk, of which a file that was cut may have only a part.
    fn read_chunk(&mut self, bytes: &[u8], at: usize, size: usize) {
        let kind = u32_at(bytes, chunk::KIND).unwrap_or_default();
        let committed = u32_at(bytes, chunk::COMMITTED).unwrap_or_default() as usize;
        let records = &bytes[chunk::RECORDS..];
        if kind == chunk::PENDING {
            if bytes.len() < size {
                self.problems
                    .push(format!("offset {at:#x}: the file ends within a chunk"));
            }
            self.dropped = self
                .dropped
                .saturating_add(u64_at(bytes, chunk::LEFT_OUT).unwrap_or_default());
            let slots = records.chunks_exact(SLOT);
            self.events.extend(slots.filter_map(slot::read));
            return;
        }
        if committed > size - chunk::RECORDS {
            let problem = format!(
                "offset {at:#x}: a chunk with a length of {committed} bytes, which is too long"
            );
            self.problems.push(problem);
        } else if committed > records.len() {
            self.problems
                .push(format!("offset {at:#x}: the file ends within a chunk"));
        }
        let mut from = Bytes::new(&records[..committed.min(records.len())]);
        let read = match kind {
            chunk::EVENTS => self.read_events(&mut from),
            chunk::DEFINITIONS => self.read_definitions(&mut from),
            chunk::NOTES => self.read_notes(&mut from),
            _ => {
                self.problems.push(format!(
                    "offset {at:#x}: a chunk of an unknown kind ({kind})"
                ));
                return;
            }
        };
        if let Err(position) = read {
            let problem = format!(
                "offset {:#x}: no valid record; the remaining {} bytes of the chunk are skipped",
                at + chunk::RECORDS + position,
                committed.min(records.len()) - position
            );
            self.problems.push(problem);
        }
    }

    /// Returns the position of the first record that cannot be read.
    fn read_events(&mut self, from: &mut Bytes<'_>) -> Result<(), usize> {
        let (mut state, mut thread) = (State::default(), None);
        while !from.is_empty() {
            let position = from.position();
            let written = state.decode(from).ok_or(position)?;
            // Without a begin, differences are to nothing.
            let begun = thread.ok_or(position);
            match written {
                Written::Begin { thread: new, .. } => thread = Some(new),
                Written::Event { time, what } => self.events.push(Event {
                    time,
                    thread: begun?,
                    what,
                }),
                Written::Labelled {
                    time,
                    kind,
                    address,
                    label,
                } => {
                    begun?;
                    self.labels.push((time, kind, address, label));
                }
            }
        }
        Ok(())
    }

    fn read_definitions(&mut self, from: &mut Bytes<'_>) -> Result<(), usize> {
        while !from.is_empty() {
            let position = from.position();
            let definition = Definition::decode(from).ok_or(position)?;
            self.definitions.push(definition);
        }
        Ok(())
    }

    fn read_notes(&mut self, from: &mut Bytes<'_>) -> Result<(), usize> {
        while !from.is_empty() {
            let position = from.position();
            self.notes.extend(Note::decode(from).ok_or(position)?);
        }
        Ok(())
    }

    /// The file has times since the begin of the recording.
    fn count_from_the_start(&mut self) {
        let begin = self.begin;
        if begin == 0 {
            return;
        }
        let shift = |time: &mut u64| *time = time.saturating_add(begin);
        self.meta.started = self.meta.started.saturating_sub(begin);
        if self.complete_from != 0 {
            shift(&mut self.complete_from);
        }
        self.events
            .iter_mut()
            .for_each(|event| shift(&mut event.time));
        self.labels.iter_mut().for_each(|label| shift(&mut label.0));
        for definition in &mut self.definitions {
            if let Definition::Exit { time } | Definition::Stopped { time, .. } = definition {
                shift(time);
            }
        }
        for note in &mut self.notes {
            if let Note::Diagnosis { time, .. }
            | Note::ExitBegins { time }
            | Note::Work { time, .. } = note
            {
                shift(time);
            }
        }
    }
}
