//! The file: grows, and hands out chunks that threads own.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::create::{self, identity};
use super::{mapped, ranges};
use crate::format::{self, chunk, header};
use crate::options::{Options, Policy};

/// The file grows by at least this, and at most [`MAX_STEP`]: a process that is killed leaves at most so much unused.
const MIN_STEP: u64 = 1 << 20;

/// The most that the file grows by at once.
const MAX_STEP: u64 = 32 << 20;

/// How often signals may interrupt the growth of the file.
const MAX_INTERRUPTED: u32 = 64;

/// A part of the file that one owner appends to.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) bytes: &'static mut [u8],
    /// The end of what is committed.
    end: usize,
    /// How many events it has, for the count of those that are dropped.
    pub(super) events: u64,
}

impl Chunk {
    fn begin(bytes: &'static mut [u8], kind: u32, sequence: u64) -> Self {
        // A reused chunk is empty before it changes.
        mapped::commit(bytes, chunk::COMMITTED, 0);
        bytes[..chunk::RECORDS][chunk::LEFT_OUT..].fill(0);
        bytes[chunk::SEQUENCE..][..8].copy_from_slice(&sequence.to_le_bytes());
        bytes[chunk::KIND..][..4].copy_from_slice(&kind.to_le_bytes());
        bytes[..4].copy_from_slice(chunk::MAGIC);
        Self {
            bytes,
            end: chunk::RECORDS,
            events: 0,
        }
    }

    /// Appends a record. Returns whether there was room for it.
    #[inline]
    pub(super) fn append(&mut self, record: &[u8]) -> bool {
        let end = self.end + record.len();
        let Some(place) = self.bytes.get_mut(self.end..end) else {
            return false;
        };
        place.copy_from_slice(record);
        mapped::commit(self.bytes, chunk::COMMITTED, (end - chunk::RECORDS) as u32);
        self.end = end;
        true
    }

    pub(super) fn has_room(&self) -> bool {
        self.bytes.len() - self.end >= self.bytes.len() / 8
    }
}

/// Why there is no chunk.
#[derive(Debug)]
pub(super) enum NoChunk {
    /// The recording has ended.
    Closed,
    /// The size limit is reached.
    Limit,
    /// The file cannot grow.
    Io(io::Error),
}

/// A full chunk.
#[derive(Debug)]
struct Retired {
    chunk: Chunk,
    /// The time of its last event.
    last: u64,
}

#[derive(Debug)]
struct Inner {
    /// Used only while it is this file: see [`Inner::check_descriptor`].
    file: File,
    /// Its number, for forked children.
    descriptor: &'static AtomicI32,
    /// Device and inode.
    identity: (u64, u64),
    path: PathBuf,
    header: &'static mut [u8],
    /// Chunks of the file that were never handed out.
    free: std::slice::ChunksExactMut<'static, u8>,
    /// The length of the file.
    length: u64,
    /// How much of it was handed out.
    used: u64,
    sequence: u64,
    /// Full chunks in the order in which they became full, to be overwritten.
    retired: VecDeque<Retired>,
    /// Chunks of ended threads that have room for more.
    partial: Vec<Chunk>,
    /// Pending chunks of ended threads.
    pending: Vec<Chunk>,
    dropped: u64,
    complete_from: u64,
    is_closed: bool,
}

/// The file of a recording.
#[derive(Debug)]
pub(super) struct ChunkFile {
    inner: Mutex<Inner>,
    /// The descriptor of the file, and its device and inode: a forked child cannot lock.
    descriptor: &'static AtomicI32,
    identity: (u64, u64),
    /// In the header.
    lost: &'static AtomicU64,
    /// In the header.
    sample: &'static AtomicU64,
    chunk_size: u64,
    limit: u64,
    policy: Policy,
}

impl ChunkFile {
    /// Creates the file. Returns the path, too, which has the process id appended where the file is in use.
    pub(super) fn create(options: &Options, meta: &[u8], age: u64) -> io::Result<(Self, PathBuf)> {
        let (file, path) = create::create(&options.path, options.replace)?;
        let chunk_size = u64::from(options.chunk_size);
        let step = MIN_STEP.min(64 * chunk_size);
        let step = allocate(&file, 0, step, chunk_size)?;
        let (header, free) =
            mapped::map(&file, 0, step as usize)?.split_at_mut(chunk_size as usize);
        mapped::populate(header)?;
        let room = header.len() - header::META;
        let meta = &meta[..meta.len().min(room)];
        header[header::META..][..meta.len()].copy_from_slice(meta);
        header[header::LENGTH..][..4].copy_from_slice(&(meta.len() as u32).to_le_bytes());
        header[header::AGE..][..8].copy_from_slice(&age.to_le_bytes());
        header[header::CHUNK_SIZE..][..4].copy_from_slice(&options.chunk_size.to_le_bytes());
        header[header::VERSION..][..4].copy_from_slice(&format::VERSION.to_le_bytes());
        header[..8].copy_from_slice(format::MAGIC);
        let (header, rest) = header.split_at_mut(header::LOST);
        let (lost, rest) = rest.split_at_mut(header::SAMPLE - header::LOST);
        let (sample, _) = rest.split_at_mut(header::AGE - header::SAMPLE);
        let identity = identity(&file)?;
        let descriptor: &'static AtomicI32 = Box::leak(Box::new(AtomicI32::new(file.as_raw_fd())));
        let inner = Inner {
            descriptor,
            identity,
            // The program may change its folder.
            path: std::path::absolute(&path)?,
            file,
            header,
            free: free.chunks_exact_mut(chunk_size as usize),
            length: step,
            used: chunk_size,
            sequence: 0,
            retired: VecDeque::new(),
            partial: Vec::new(),
            pending: Vec::new(),
            dropped: 0,
            complete_from: 0,
            is_closed: false,
        };
        let file = Self {
            inner: Mutex::new(inner),
            descriptor,
            identity,
            lost: mapped::counter(lost),
            sample: mapped::counter(sample),
            chunk_size,
            limit: if options.limit == 0 {
                u64::MAX
            } else {
                options.limit
            },
            policy: options.policy,
        };
        Ok((file, path))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        cuguard_sync::lock(&self.inner)
    }

    /// A chunk for events. The second value says that the limit is reached and short-lived allocations are to be left
    /// out.
    pub(super) fn events(&self) -> Result<(Chunk, bool), NoChunk> {
        let mut inner = self.lock();
        let is_full = inner.used + self.chunk_size > self.limit;
        let aggregate = is_full && self.policy == Policy::Aggregate;
        if inner.is_closed {
            return Err(NoChunk::Closed);
        }
        if let Some(chunk) = inner.partial.pop() {
            return Ok((chunk, aggregate));
        }
        if aggregate && inner.used + self.chunk_size > self.limit.saturating_mul(2) {
            return Err(NoChunk::Limit);
        }
        if is_full
            && self.policy == Policy::Last
            && let Some(Retired { chunk: old, last }) = inner.retired.pop_front()
        {
            inner.drop_events(old.events, last);
            inner.sequence += 1;
            let chunk = Chunk::begin(old.bytes, chunk::EVENTS, inner.sequence);
            return Ok((chunk, false));
        }
        // Also by the policy `last`, where every chunk belongs to a thread that may still write to it.
        Ok((inner.new_chunk(chunk::EVENTS, self.chunk_size)?, aggregate))
    }

    /// A chunk for definitions, whatever the limit.
    pub(super) fn definitions(&self) -> Result<Chunk, NoChunk> {
        self.unlimited(chunk::DEFINITIONS)
    }

    /// A chunk for notes, whatever the limit.
    pub(super) fn notes(&self) -> Result<Chunk, NoChunk> {
        self.unlimited(chunk::NOTES)
    }

    fn unlimited(&self, kind: u32) -> Result<Chunk, NoChunk> {
        let mut inner = self.lock();
        if inner.is_closed {
            return Err(NoChunk::Closed);
        }
        inner.new_chunk(kind, self.chunk_size)
    }

    /// A chunk for allocations that may be short-lived.
    pub(super) fn pending(&self) -> Result<Chunk, NoChunk> {
        let mut inner = self.lock();
        match inner.pending.pop() {
            _ if inner.is_closed => Err(NoChunk::Closed),
            Some(chunk) => Ok(chunk),
            None => inner.new_chunk(chunk::PENDING, self.chunk_size),
        }
    }

    /// Returns a chunk for events that is full, or whose thread ends. `last` is the time of its last event.
    pub(super) fn retire(&self, chunk: Chunk, last: u64) {
        if chunk.has_room() {
            self.lock().partial.push(chunk);
        } else if self.policy == Policy::Last {
            self.lock().retired.push_back(Retired { chunk, last });
        }
    }

    /// Returns a pending chunk, whose thread ends.
    pub(super) fn retire_pending(&self, chunk: Chunk) {
        self.lock().pending.push(chunk);
    }

    /// Counts an event that could not be written.
    pub(super) fn lose_event(&self) {
        mapped::add(self.lost, 1);
    }

    /// Notes that one resource in this many is recorded, unless it is one in more already.
    pub(super) fn note_sampling(&self, one_in: u32) {
        mapped::raise(self.sample, one_in.into());
    }

    /// Releases the file in a forked child, which may live longer than this process: the next one that records would find
    /// it in use. Async-signal-safe.
    pub(super) fn release_in_child(&self) {
        ranges::mapped_ranges().for_each(mapped::detach);
        mapped::close(self.descriptor.load(Ordering::Relaxed), self.identity);
    }

    /// Ends the recording: no chunk is handed out any more, and the file loses what was not used.
    pub(super) fn close(&self) {
        let mut inner = self.lock();
        if !inner.is_closed {
            inner.is_closed = true;
            inner.free = <&mut [u8]>::default().chunks_exact_mut(1);
            // Beyond all chunks that were handed out. A longer file is as good.
            if inner.check_descriptor().is_ok() {
                let _ = inner.file.set_len(inner.used);
                mapped::unlock(&inner.file);
            }
        }
    }
}

impl Inner {
    fn drop_events(&mut self, events: u64, last: u64) {
        self.dropped += events;
        self.complete_from = self.complete_from.max(last.saturating_add(1));
        mapped::commit_wide(self.header, header::DROPPED, self.dropped);
        mapped::commit_wide(self.header, header::COMPLETE_FROM, self.complete_from);
    }

    fn new_chunk(&mut self, kind: u32, chunk_size: u64) -> Result<Chunk, NoChunk> {
        if self.free.len() == 0 {
            self.grow(chunk_size).map_err(NoChunk::Io)?;
        }
        let bytes = self.free.next().ok_or(NoChunk::Closed)?;
        mapped::populate(bytes).map_err(NoChunk::Io)?;
        self.used += chunk_size;
        self.sequence += 1;
        let chunks = u32::try_from(self.used / chunk_size).unwrap_or(u32::MAX);
        mapped::commit(self.header, header::CHUNKS, chunks);
        Ok(Chunk::begin(bytes, kind, self.sequence))
    }

    /// Opens the file again if the program has closed its descriptor: some close all that they do not know, and the next file
    /// that they open has the same number.
    fn check_descriptor(&mut self) -> io::Result<()> {
        if identity(&self.file).is_ok_and(|identity| identity == self.identity) {
            return Ok(());
        }
        let file = OpenOptions::new().read(true).write(true).open(&self.path)?;
        if identity(&file)? != self.identity {
            let text =
                "the program closed the descriptor of the recording, whose file was replaced since";
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        let _ = mapped::lock(&file);
        self.descriptor.store(file.as_raw_fd(), Ordering::Relaxed);
        // Not closed: the number is of a file of the program.
        std::mem::forget(std::mem::replace(&mut self.file, file));
        Ok(())
    }

    fn grow(&mut self, chunk_size: u64) -> io::Result<()> {
        self.check_descriptor()?;
        let step = (self.length / 2).clamp(MIN_STEP, MAX_STEP).max(chunk_size);
        let large = step.next_multiple_of(chunk_size);
        let step = allocate(&self.file, self.length, large, chunk_size)?;
        let bytes = mapped::map(&self.file, self.length, step as usize)?;
        self.free = bytes.chunks_exact_mut(chunk_size as usize);
        self.length += step;
        Ok(())
    }
}

/// Allocates a step of the file on the disk, smaller where there is no room for a large one or signals interrupt it: a
/// timer of the program may be faster than the disk. Returns its length.
fn allocate(file: &File, offset: u64, large: u64, chunk_size: u64) -> io::Result<u64> {
    let mut step = large;
    let mut attempts = 0;
    loop {
        match mapped::allocate(file, offset, step) {
            Ok(()) => return Ok(step),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                attempts += 1;
                if attempts == MAX_INTERRUPTED {
                    return Err(error);
                }
                step = (step / 2).next_multiple_of(chunk_size);
            }
            Err(error) if step == chunk_size => return Err(error),
            Err(_) => step = chunk_size,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::{ChunkFile, mapped};
    use crate::options::Options;

    /// A program closes descriptors that it does not know, and opens a file of its own that gets the number.
    #[test]
    fn a_file_of_the_program_with_the_same_descriptor_is_left_alone() {
        let name = |end: &str| {
            let name = format!("cuguard-descriptor-{end}-{}", std::process::id());
            std::env::temp_dir().join(name)
        };
        let (own, other) = (name("own"), name("other"));
        fs::write(&other, "of the program").unwrap();
        let (file, _) = ChunkFile::create(&Options::new(&own), b"", 0).unwrap();
        mapped::replace_descriptor(&file.lock().file, &File::open(&other).unwrap());
        let before = file.lock().length;
        let mut chunks = Vec::new();
        while file.lock().length == before {
            chunks.push(file.definitions().unwrap());
        }
        file.close();
        assert_eq!(fs::read(&other).unwrap(), b"of the program");
        assert_eq!(fs::metadata(&own).unwrap().len(), file.lock().used);
        assert!(file.lock().used > before);

        mapped::replace_descriptor(&file.lock().file, &File::open(&other).unwrap());
        fs::remove_file(&own).unwrap();
        assert!(file.lock().check_descriptor().is_err());
        fs::remove_file(&other).unwrap();
    }
}
