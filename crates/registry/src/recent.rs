//! The newest records of each thread, which are not in the table yet.
//!
//! Most resources are freed soon, by the thread that allocated them. Their records never reach the
//! table, whose locks are most of a record's cost: each [per-thread slot](cuguard_sync::per_thread) has
//! a small buffer that only its own thread writes, with plain loads and stores. A record moves to the
//! table when its place in the buffer is needed, or when another thread looks for it.
//!
//! ```text
//!     the owner of the slot           another thread
//!     ---------------------           --------------
//!     busy = true                     state = WANTED
//!     state is OPEN? else the table   busy is false? else wait
//!     reads and writes the buffer     moves all records to the table
//!     busy = false                    state = OPEN, or OFF after some times
//! ```
//!
//! This is biased locking: each side writes first and then reads, with an
//! [asymmetric barrier](cuguard_sync::fence) between that costs the owner nothing. The other side pays
//! some microseconds, so a buffer whose records other threads keep freeing is turned off for good.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use cuguard_sync::{PerThread, fence};

use crate::kind::ResourceKind;
use crate::record::{self, Key, Record, WORDS};

/// Records in a buffer. Their keys fill one cache line.
const CAPACITY: usize = 8;

/// A buffer is turned off after this many frees by other threads.
const MAX_FOREIGN_FREES: u64 = 4;

/// The low bits of a key in a buffer are the kind, then comes whether the key is by address; the others are the address.
const KIND_BITS: u32 = 5;
const KIND_MASK: u64 = (1 << KIND_BITS) - 1;
const BY_ADDRESS: u64 = 1 << KIND_BITS;
const ADDRESS_SHIFT: u32 = KIND_BITS + 1;
const _: () = assert!(ResourceKind::COUNT <= 1 << KIND_BITS);

const OPEN: u8 = 0;
const WANTED: u8 = 1;
const OFF: u8 = 2;

/// The newest records of one slot.
#[derive(Default)]
struct Buffer {
    /// Kind and address of each record; 0 is free.
    keys: [AtomicU64; CAPACITY],
    /// The index of the next record.
    next: AtomicUsize,
    /// The owner is reading or writing.
    busy: AtomicBool,
    state: AtomicU8,
    foreign_frees: AtomicU64,
    records: [[AtomicU64; WORDS]; CAPACITY],
}

/// The newest records of all threads.
pub(crate) struct RecentRecords {
    buffers: PerThread<Buffer>,
    /// Held by a thread that empties buffers of others.
    flushing: Mutex<()>,
}

/// Where a record is.
pub(crate) enum Removed {
    /// It was in the buffer.
    Record(Record),
    /// In the table, if anywhere.
    InTable,
    /// In the table, or in a buffer that the calling thread must not read.
    Elsewhere,
}

/// Why a thread empties the buffer of another.
#[derive(Clone, Copy)]
pub(crate) enum Reason {
    /// It frees a resource of the other thread. Where that happens again and again, the buffer costs more than it saves.
    Free,
    /// It reads or changes a record.
    Look,
}

/// The calling thread's own buffer, busy until this is dropped.
struct OwnBuffer<'a> {
    buffer: &'a Buffer,
    slot: u32,
}

impl Drop for OwnBuffer<'_> {
    #[inline]
    fn drop(&mut self) {
        self.buffer.busy.store(false, Ordering::Release);
    }
}

impl RecentRecords {
    pub(crate) fn new() -> Self {
        fence::prepare();
        let buffers = PerThread::<Buffer>::default();
        if !fence::is_asymmetric() {
            // With ordinary barriers a buffer costs more than the table.
            for buffer in buffers.all() {
                buffer.state.store(OFF, Ordering::Relaxed);
            }
        }
        Self {
            buffers,
            flushing: Mutex::default(),
        }
    }

    /// The calling thread's buffer, if that is the one of `key`. `None` where the thread has none, or
    /// another thread is emptying it.
    #[inline]
    fn own(&self, key: Key) -> Option<OwnBuffer<'_>> {
        self.own_buffer().filter(|own| own.slot == key.slot)
    }

    /// The calling thread's buffer. `None` where the thread has none, or another thread is emptying it.
    #[inline]
    fn own_buffer(&self) -> Option<OwnBuffer<'_>> {
        let own = self.buffers.slot();
        let (slot, buffer) = own.exclusive()?;
        buffer.busy.store(true, Ordering::Relaxed);
        fence::light();
        let own = OwnBuffer {
            buffer,
            slot: slot as u32,
        };
        let is_open = buffer.state.load(Ordering::Acquire) == OPEN;
        is_open.then_some(own)
    }

    /// Inserts a record of the calling thread. Returns false if it belongs into the table. A record that must make room
    /// goes to `table`.
    #[inline(always)]
    pub(crate) fn insert(
        &self,
        key: Key,
        record: [u64; WORDS],
        table: impl FnOnce(Key, [u64; WORDS]),
    ) -> bool {
        let (Some(word), Some(own)) = (to_word(key), self.own(key)) else {
            return false;
        };
        own.push(word, record, table);
        true
    }

    /// Inserts a record under a key by address. Returns the record that the calling thread had under this key, which was
    /// freed unseen; or the new one, if it belongs into the table.
    #[inline]
    pub(crate) fn insert_by_address(
        &self,
        key: Key,
        record: Record,
        table: impl FnOnce(Key, Record),
    ) -> Result<Option<Record>, Record> {
        let (Some(word), Some(own)) = (to_word(key), self.own_buffer()) else {
            return Err(record);
        };
        let buffer = own.buffer;
        let old = buffer.position(|known| known == word);
        let old = old.map(|index| {
            let old = buffer.record(index);
            buffer.put(index, word, record.to_words());
            old
        });
        if old.is_none() {
            let table = |key, words| table(key, Record::from_words(words));
            own.push(word, record.to_words(), table);
        }
        Ok(old)
    }

    /// Removes a record under a key by address, of one of these kinds, that the calling thread inserted.
    #[inline]
    pub(crate) fn remove_by_address(
        &self,
        kinds: &[ResourceKind],
        address: u64,
    ) -> Option<record::Removed> {
        let own = self.own_buffer()?;
        let buffer = own.buffer;
        // Mostly the newest is freed first.
        let newest = (buffer.next.load(Ordering::Relaxed) + CAPACITY - 1) % CAPACITY;
        let is_wanted = |word: u64| is_by_address(word, kinds, address);
        let index = match is_wanted(buffer.keys[newest].load(Ordering::Relaxed)) {
            true => newest,
            false => buffer.position(is_wanted)?,
        };
        let word = buffer.keys[index].load(Ordering::Relaxed);
        let removed = record::Removed {
            kind: *ResourceKind::ALL.get((word & KIND_MASK) as usize)?,
            address,
            record: buffer.record(index),
        };
        buffer.keys[index].store(0, Ordering::Release);
        if index == newest {
            buffer.next.store(index, Ordering::Relaxed);
        }
        Some(removed)
    }

    /// A slot whose buffer has a record under a key by address, of one of these kinds. The record may be in the table
    /// when this returns.
    #[cold]
    pub(crate) fn holder(&self, kinds: &[ResourceKind], address: u64) -> Option<u32> {
        let is_wanted = |word: u64| is_by_address(word, kinds, address);
        let mut buffers = self.buffers.all();
        let slot = buffers.position(|buffer| buffer.position(is_wanted).is_some());
        slot.map(|slot| slot as u32)
    }

    /// Removes a record.
    #[inline]
    pub(crate) fn remove(&self, key: Key) -> Removed {
        let Some(own) = self.own(key) else {
            return self.not_own(key);
        };
        match own.remove(key, |index| own.buffer.record(index)) {
            Some(record) => Removed::Record(record),
            None => Removed::InTable,
        }
    }

    /// Removes a record, and returns its size. `None` if it is not in the calling thread's buffer.
    #[inline]
    pub(crate) fn erase(&self, key: Key) -> Option<u64> {
        let own = self.own(key)?;
        own.remove(key, |index| own.buffer.bytes(index))
    }

    #[inline(never)]
    fn not_own(&self, key: Key) -> Removed {
        let buffer = self.buffers.at(key.slot as usize);
        match buffer.state.load(Ordering::Acquire) {
            OFF => Removed::InTable,
            _ => Removed::Elsewhere,
        }
    }

    /// Moves the records of one slot to the table.
    #[cold]
    pub(crate) fn flush(&self, slot: u32, reason: Reason, mut table: impl FnMut(Key, Record)) {
        if let Some(own) = self.own_buffer().filter(|own| own.slot == slot) {
            return own.buffer.empty(slot, &mut table);
        }
        let _flushing = self.lock();
        // The calling thread's own again: a snapshot had it, and this is not a free by another thread.
        if let Some(own) = self.own_buffer().filter(|own| own.slot == slot) {
            return own.buffer.empty(slot, &mut table);
        }
        let buffer = self.buffers.at(slot as usize);
        if buffer.state.load(Ordering::Acquire) == OFF {
            return;
        }
        buffer.state.store(WANTED, Ordering::SeqCst);
        fence::heavy();
        let frees = match reason {
            Reason::Free => buffer.foreign_frees.fetch_add(1, Ordering::Relaxed) + 1,
            Reason::Look => 0,
        };
        let state = if frees < MAX_FOREIGN_FREES { OPEN } else { OFF };
        buffer.empty_when_idle(slot, state, &mut table);
    }

    /// Moves all records to the table.
    #[cold]
    pub(crate) fn flush_all(&self, mut table: impl FnMut(Key, Record)) {
        let _flushing = self.lock();
        let is_on = |buffer: &&Buffer| buffer.state.load(Ordering::Acquire) != OFF;
        for buffer in self.buffers.all().filter(is_on) {
            buffer.state.store(WANTED, Ordering::SeqCst);
        }
        fence::heavy();
        for (slot, buffer) in self.buffers.all().enumerate() {
            if is_on(&buffer) {
                buffer.empty_when_idle(slot as u32, OPEN, &mut table);
            }
        }
    }

    fn lock(&self) -> impl Drop + '_ {
        cuguard_sync::lock(&self.flushing)
    }
}

impl OwnBuffer<'_> {
    /// Removes a record, after `read` has read it.
    #[inline]
    fn remove<R>(&self, key: Key, read: impl FnOnce(usize) -> R) -> Option<R> {
        let (buffer, word) = (self.buffer, to_word(key)?);
        // Mostly the newest is freed first.
        let newest = buffer.next.load(Ordering::Relaxed) + CAPACITY - 1;
        for back in 0..CAPACITY {
            let index = (newest - back) % CAPACITY;
            if buffer.keys[index].load(Ordering::Relaxed) == word {
                let result = read(index);
                buffer.keys[index].store(0, Ordering::Relaxed);
                if back == 0 {
                    buffer.next.store(index, Ordering::Relaxed);
                }
                return Some(result);
            }
        }
        None
    }

    /// Adds a record. One that must make room goes to `table`.
    #[inline]
    fn push(&self, word: u64, record: [u64; WORDS], table: impl FnOnce(Key, [u64; WORDS])) {
        let buffer = self.buffer;
        let next = buffer.next.load(Ordering::Relaxed) % CAPACITY;
        if buffer.keys[next].load(Ordering::Relaxed) != 0
            && let Some((old, record)) = buffer.get(next, self.slot)
        {
            table(old, record.to_words());
        }
        buffer.put(next, word, record);
        buffer.next.store(next + 1, Ordering::Relaxed);
    }
}

impl Buffer {
    /// The index of the first wanted key.
    #[inline]
    fn position(&self, is_wanted: impl Fn(u64) -> bool) -> Option<usize> {
        // Acquire: a record whose key was overwritten here is found in the table.
        let is_wanted = |key: &AtomicU64| is_wanted(key.load(Ordering::Acquire));
        self.keys.iter().position(is_wanted)
    }

    /// Waits until the owner is not busy, and moves all records to the table.
    fn empty_when_idle(&self, slot: u32, state: u8, table: &mut impl FnMut(Key, Record)) {
        let is_idle = fence::wait_while(&self.busy);
        if is_idle {
            self.empty(slot, table);
        }
        // An owner that stays busy at exit keeps its records, and is not waited for again.
        let state = if is_idle { state } else { OFF };
        self.state.store(state, Ordering::Release);
    }

    /// Moves all records to the table: first inserted there, then removed here, so that a record is
    /// always in one of them. The oldest moves first, so that of two with one key the newer one remains;
    /// there are two only where the program freed the first without its guard.
    fn empty(&self, slot: u32, table: &mut impl FnMut(Key, Record)) {
        let oldest = self.next.load(Ordering::Relaxed);
        for index in (oldest..oldest + CAPACITY).map(|index| index % CAPACITY) {
            if let Some((key, record)) = self.get(index, slot) {
                table(key, record);
                self.keys[index].store(0, Ordering::Release);
            }
        }
        self.next.store(0, Ordering::Relaxed);
    }

    #[inline]
    fn put(&self, index: usize, word: u64, record: [u64; WORDS]) {
        for (to, from) in self.records[index].iter().zip(record) {
            to.store(from, Ordering::Relaxed);
        }
        self.keys[index].store(word, Ordering::Release);
    }

    /// The size in a record.
    #[inline]
    fn bytes(&self, index: usize) -> u64 {
        Record::bytes_in(|word| self.records[index][word].load(Ordering::Relaxed))
    }

    #[inline]
    fn record(&self, index: usize) -> Record {
        let words = &self.records[index];
        Record::from_words(std::array::from_fn(|i| words[i].load(Ordering::Relaxed)))
    }

    fn get(&self, index: usize, slot: u32) -> Option<(Key, Record)> {
        let word = self.keys[index].load(Ordering::Relaxed);
        let kind = *ResourceKind::ALL.get((word & KIND_MASK) as usize)?;
        let address = word >> ADDRESS_SHIFT;
        let key = match word & BY_ADDRESS {
            0 => Key {
                kind,
                slot,
                address,
            },
            _ => Key::by_address(kind, address),
        };
        (word != 0).then(|| (key, self.record(index)))
    }
}

/// Kind and address in one word, which is not 0. `None` for an address that leaves no room for the kind.
#[inline]
fn to_word(key: Key) -> Option<u64> {
    let flag = if key.is_by_address() { BY_ADDRESS } else { 0 };
    let word = key.address << ADDRESS_SHIFT | flag | key.kind.index() as u64;
    (word != 0 && word >> ADDRESS_SHIFT == key.address).then_some(word)
}

/// Whether this is a key by address, of one of these kinds.
#[inline]
fn is_by_address(word: u64, kinds: &[ResourceKind], address: u64) -> bool {
    // An address that leaves no room for the kind is in no buffer.
    word >> KIND_BITS == address << 1 | 1
        && address <= u64::MAX >> ADDRESS_SHIFT
        && kinds
            .iter()
            .any(|kind| kind.index() as u64 == word & KIND_MASK)
}
