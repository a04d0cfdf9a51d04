//! The newest records of each thread, before they go into the table.
//!
//! Most of what a program allocates it frees soon, on the same thread. Such a record never gets to the
//! table, whose locks are most of what a record costs: each [lane](crate::lanes) has a few slots that
//! only its own thread writes to, by plain loads and stores. A record that stays moves to the table
//! when its slot is needed, or when somebody else wants to see it.
//!
//! ```text
//!     the lane's thread               another thread (a visitor)
//!     -----------------               --------------------------
//!     busy = true                     state = WANTED
//!     state is OPEN? else the table   busy is false? else wait
//!     reads and writes slots          moves all slots to the table
//!     busy = false                    state = OPEN, or OFF after some visits
//! ```
//!
//! Each writes first and reads then, with a [barrier](crate::fence) between that costs the lane's thread
//! nothing: biased locking. A visit costs some microseconds, so a lane whose records others keep freeing
//! is switched off for good, and its records go to the table at once.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::kind::Kind;
use super::record::{Key, Record, WORDS};
use cuguard_sync::PerThread;
use cuguard_sync::fence;

/// How many records a lane keeps. Their keys fill one line of the cache.
const SLOTS: usize = 8;

/// After how many frees by others a lane is switched off.
const VISITS: u64 = 4;

const OPEN: u8 = 0;
const WANTED: u8 = 1;
const OFF: u8 = 2;

/// The slots of one lane.
#[derive(Default)]
struct Slots {
    /// Kind and address of each record; 0 is a free slot.
    keys: [AtomicU64; SLOTS],
    /// The slot for the next record.
    next: AtomicUsize,
    /// The lane's thread is at work here.
    busy: AtomicBool,
    state: AtomicU8,
    /// How many records others looked for here.
    visits: AtomicU64,
    records: [[AtomicU64; WORDS]; SLOTS],
}

/// The newest records of all threads.
pub(super) struct Recent {
    lanes: PerThread<Slots>,
    /// One visitor at a time.
    visitor: Mutex<()>,
}

/// Where a record is.
pub(super) enum Found {
    /// It was here, and is taken out.
    Here(Record),
    /// In the table, if anywhere.
    InTable,
    /// In the table, or in slots that the calling thread cannot look into by itself.
    Hidden,
}

/// The calling thread is at work in its own slots until this is dropped.
struct Own<'a> {
    slots: &'a Slots,
    lane: u32,
}

impl Drop for Own<'_> {
    #[inline]
    fn drop(&mut self) {
        self.slots.busy.store(false, Ordering::Release);
    }
}

impl Recent {
    pub(super) fn new() -> Self {
        fence::prepare();
        let lanes = PerThread::<Slots>::default();
        if !fence::is_asymmetric() {
            // With ordinary barriers this would cost more than the table.
            for slots in lanes.all() {
                slots.state.store(OFF, Ordering::Relaxed);
            }
        }
        Self {
            lanes,
            visitor: Mutex::default(),
        }
    }

    /// The calling thread's own slots. `None` where it has none, or a visitor is in them.
    #[inline]
    fn own(&self) -> Option<Own<'_>> {
        let mine = self.lanes.slot();
        let (lane, slots) = mine.exclusive()?;
        slots.busy.store(true, Ordering::Relaxed);
        fence::light();
        let own = Own {
            slots,
            lane: lane as u32,
        };
        (slots.state.load(Ordering::Acquire) == OPEN).then_some(own)
    }

    /// Enters a record of the calling thread. `None`: it is in; else it belongs into the table. Where
    /// another one must make room, `table` gets that.
    #[inline]
    pub(super) fn insert(
        &self,
        key: Key,
        record: Record,
        table: impl FnOnce(Key, Record),
    ) -> Option<Record> {
        let Some(word) = word(key) else {
            return Some(record);
        };
        let Some(own) = self.own().filter(|own| own.lane == key.lane) else {
            return Some(record);
        };
        let slots = own.slots;
        let next = slots.next.load(Ordering::Relaxed) % SLOTS;
        if slots.keys[next].load(Ordering::Relaxed) != 0
            && let Some((old, record)) = slots.get(next, key.lane)
        {
            table(old, record);
        }
        slots.put(next, word, record);
        slots.next.store(next + 1, Ordering::Relaxed);
        None
    }

    /// Takes out a record that the calling thread entered.
    #[inline]
    pub(super) fn remove(&self, key: Key) -> Found {
        let Some(own) = self.own().filter(|own| own.lane == key.lane) else {
            return self.elsewhere(key);
        };
        // Nobody else enters records here, so what is not here is not hidden either.
        let Some(word) = word(key) else {
            return Found::InTable;
        };
        let slots = own.slots;
        // What was made last goes first, mostly.
        let newest = slots.next.load(Ordering::Relaxed) + SLOTS - 1;
        for back in 0..SLOTS {
            let index = (newest - back) % SLOTS;
            if slots.keys[index].load(Ordering::Relaxed) == word {
                let record = slots.record(index);
                slots.keys[index].store(0, Ordering::Relaxed);
                if back == 0 {
                    slots.next.store(index, Ordering::Relaxed);
                }
                return Found::Here(record);
            }
        }
        Found::InTable
    }

    /// Where a record is that is in slots of another thread, or of a lane that a visitor is in.
    #[inline(never)]
    fn elsewhere(&self, key: Key) -> Found {
        let slots = self.lanes.at(key.lane as usize);
        match slots.state.load(Ordering::Acquire) {
            OFF => Found::InTable,
            _ => Found::Hidden,
        }
    }

    /// Moves the records of one lane to the table, for one who looks for a record of it.
    #[cold]
    pub(super) fn settle(&self, key: Key, mut table: impl FnMut(Key, Record)) {
        if let Some(own) = self.own().filter(|own| own.lane == key.lane) {
            return own.slots.empty(own.lane, &mut table);
        }
        let _visitor = self.visit();
        let slots = self.lanes.at(key.lane as usize);
        if slots.state.load(Ordering::Acquire) == OFF {
            return;
        }
        slots.state.store(WANTED, Ordering::SeqCst);
        fence::heavy();
        let visits = slots.visits.fetch_add(1, Ordering::Relaxed) + 1;
        let state = if visits < VISITS { OPEN } else { OFF };
        slots.move_out(key.lane, state, &mut table);
    }

    /// Moves all records to the table, for one who looks at all.
    #[cold]
    pub(super) fn settle_all(&self, mut table: impl FnMut(Key, Record)) {
        let _visitor = self.visit();
        let open = |slots: &&Slots| slots.state.load(Ordering::Acquire) != OFF;
        for slots in self.lanes.all().filter(open) {
            slots.state.store(WANTED, Ordering::SeqCst);
        }
        fence::heavy();
        for (lane, slots) in self.lanes.all().enumerate() {
            if open(&slots) {
                slots.move_out(lane as u32, OPEN, &mut table);
            }
        }
    }

    fn visit(&self) -> impl Drop + '_ {
        self.visitor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slots {
    /// Waits until the lane's thread is out and moves everything to the table.
    fn move_out(&self, lane: u32, state: u8, table: &mut impl FnMut(Key, Record)) {
        let is_out = fence::wait_while(&self.busy);
        if is_out {
            self.empty(lane, table);
        }
        // A thread that never comes out keeps its records to itself, and nobody waits for it again.
        let state = if is_out { state } else { OFF };
        self.state.store(state, Ordering::Release);
    }

    /// Moves everything to the table. First into the table and then out of here: a record is always in one
    /// of them. The oldest goes first, so that of two with one key the newer one stays; there are two
    /// only where the first was freed by somebody else.
    fn empty(&self, lane: u32, table: &mut impl FnMut(Key, Record)) {
        let oldest = self.next.load(Ordering::Relaxed);
        for index in (oldest..oldest + SLOTS).map(|index| index % SLOTS) {
            if let Some((key, record)) = self.get(index, lane) {
                table(key, record);
                self.keys[index].store(0, Ordering::Relaxed);
            }
        }
        self.next.store(0, Ordering::Relaxed);
    }

    #[inline]
    fn put(&self, index: usize, word: u64, record: Record) {
        for (to, from) in self.records[index].iter().zip(record.to_words()) {
            to.store(from, Ordering::Relaxed);
        }
        self.keys[index].store(word, Ordering::Relaxed);
    }

    #[inline]
    fn record(&self, index: usize) -> Record {
        let words = &self.records[index];
        Record::from_words(std::array::from_fn(|i| words[i].load(Ordering::Relaxed)))
    }

    fn get(&self, index: usize, lane: u32) -> Option<(Key, Record)> {
        let word = self.keys[index].load(Ordering::Relaxed);
        let kind = *Kind::ALL.get((word & 15) as usize)?;
        let key = Key {
            kind,
            lane,
            address: word >> 4,
        };
        (word != 0).then(|| (key, self.record(index)))
    }
}

/// Kind and address in one word, which is not 0. `None` for an address that leaves no room for the kind.
#[inline]
fn word(key: Key) -> Option<u64> {
    const _: () = assert!(Kind::COUNT <= 16);
    let word = key.address << 4 | key.kind.index() as u64;
    (word != 0 && word >> 4 == key.address).then_some(word)
}
