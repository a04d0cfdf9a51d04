//! A recording that is being written.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use cuguard_sync::{clock, since_start};

use super::define::Definer;
use super::file::{Chunk, ChunkFile, NoChunk};
use super::notes::Notes;
use crate::data::{Embedded, Meta};
use crate::definition::Definition;
use crate::meta;
use crate::note::Note;
use crate::options::{Definitions, Options, StartError};

/// A recording that is being written. It lasts until the process ends.
pub(crate) struct Writer {
    file: ChunkFile,
    definer: Definer,
    notes: Notes,
    source: &'static dyn Definitions,
    path: PathBuf,
    /// The clock at the begin.
    begin: u64,
    has_failed: AtomicBool,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Writer {
    /// Creates the file.
    pub(crate) fn create(
        options: &Options,
        source: &'static dyn Definitions,
    ) -> Result<&'static Self, StartError> {
        let failed = |source| StartError::File {
            path: options.path.clone(),
            source,
        };
        let begin = clock::nanoseconds();
        let meta = meta::encode(&meta(options));
        let age = options.age.unwrap_or_else(|| since_start(begin));
        let (file, path) = ChunkFile::create(options, &meta, age).map_err(failed)?;
        let definer = Definer::new(options.keep_addresses);
        match definer.begin(&file, source) {
            Err(NoChunk::Io(error)) => return Err(failed(error)),
            // Neither closed nor limited.
            Ok(()) | Err(NoChunk::Closed | NoChunk::Limit) => {}
        }
        Ok(Box::leak(Box::new(Self {
            file,
            definer,
            notes: Notes::default(),
            source,
            path,
            begin,
            has_failed: AtomicBool::new(false),
        })))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Releases the file in a forked child. Async-signal-safe.
    pub(crate) fn release_in_child(&self) {
        self.file.release_in_child();
    }

    /// A time of the clock, since the begin of the recording.
    #[inline]
    pub(crate) fn since_begin(&self, time: u64) -> u64 {
        time.saturating_sub(self.begin)
    }

    #[inline]
    pub(super) fn define_stack(&self, id: u32) -> Result<(), NoChunk> {
        self.definer.stack(&self.file, self.source, id)
    }

    #[inline]
    pub(super) fn define_name(&self, id: u32) -> Result<(), NoChunk> {
        self.definer.name(&self.file, self.source, id)
    }

    pub(super) fn events_chunk(&self) -> Result<(Chunk, bool), NoChunk> {
        self.file.events()
    }

    pub(super) fn pending_chunk(&self) -> Result<Chunk, NoChunk> {
        self.file.pending()
    }

    pub(super) fn retire(&self, chunk: Chunk, last: u64) {
        self.file.retire(chunk, last);
    }

    pub(super) fn retire_pending(&self, chunk: Chunk) {
        self.file.retire_pending(chunk);
    }

    /// Counts an event that was not written. Without a lock: a signal handler may call it.
    pub(crate) fn lose_event(&self) {
        self.file.lose_event();
    }

    /// Notes that one resource in this many is recorded.
    pub(crate) fn note_sampling(&self, one_in: u32) {
        self.file.note_sampling(one_in);
    }

    /// Whether it ended because of an error.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// An event was not written: ends the recording, with one line on stderr.
    #[cold]
    pub(super) fn fail(&self, error: NoChunk, time: u64) {
        let why = match error {
            // It ended before.
            NoChunk::Closed => return,
            NoChunk::Limit => "the size limit is reached".to_owned(),
            NoChunk::Io(error) => error.to_string(),
        };
        self.lose_event();
        if !self.has_failed.swap(true, Ordering::Relaxed) {
            // Standard error may be closed.
            let _ = writeln!(
                std::io::stderr(),
                "cuguard: recording ends: {}: {why}",
                self.path.display()
            );
            let _ = self
                .definer
                .write(&self.file, &Definition::Stopped { time, why });
            self.file.close();
        }
    }

    /// The addresses of all stacks so far.
    pub(crate) fn addresses(&self) -> Vec<u64> {
        self.definer.addresses()
    }

    /// Writes names of functions.
    pub(crate) fn symbols(&self, symbols: impl Iterator<Item = Embedded>) {
        if let Err(error) = self.definer.symbols(&self.file, symbols) {
            self.fail(error, self.since_begin(clock::nanoseconds()));
        }
    }

    /// Writes notes. The thread's name is defined, as that of an event is.
    pub(crate) fn notes(&self, thread: u32, notes: impl Iterator<Item = Note>) {
        let written = self.define_name(thread);
        if let Err(error) = written.and_then(|()| self.notes.write(&self.file, notes)) {
            self.fail(error, self.since_begin(clock::nanoseconds()));
        }
    }

    /// The process exits, at this time of the clock. Nothing is written from now on.
    pub(crate) fn exit(&self, time: u64) {
        if self.has_failed() {
            return;
        }
        let time = self.since_begin(time);
        match self.definer.write(&self.file, &Definition::Exit { time }) {
            Ok(()) => self.file.close(),
            Err(error) => self.fail(error, time),
        }
    }
}

fn meta(options: &Options) -> Meta {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    let arguments = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    Meta {
        version: options.version.clone(),
        command: arguments.collect::<Vec<_>>().join(" "),
        pid: std::process::id(),
        host: host(),
        rank: options.rank,
        started: since_1970.map_or(0, |time| time.as_nanos() as u64),
    }
}

/// The name of the machine.
pub(crate) fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.unwrap_or_default().trim().to_owned()
}
