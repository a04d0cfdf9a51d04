//! Notes: few, from any thread, in chunks of their own.

use std::sync::Mutex;

use super::file::{Chunk, ChunkFile, NoChunk};
use crate::note::Note;

/// Writes notes.
#[derive(Debug, Default)]
pub(super) struct Notes(Mutex<Option<Chunk>>);

impl Notes {
    /// Writes them one after the other, so that the parts of a text stay together.
    pub(super) fn write(
        &self,
        file: &ChunkFile,
        notes: impl Iterator<Item = Note>,
    ) -> Result<(), NoChunk> {
        let mut chunk = cuguard_sync::lock(&self.0);
        for note in notes {
            let record = note.encode();
            if chunk.as_mut().is_some_and(|chunk| chunk.append(&record)) {
                continue;
            }
            let mut new = file.notes()?;
            // A new chunk has room for the largest note.
            new.append(&record);
            *chunk = Some(new);
        }
        Ok(())
    }
}
