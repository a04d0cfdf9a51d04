//! The free blocks of one cache: a list for each size.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cuguard_sync::Biased;

use super::class::{CLASSES, Class};

/// What a cache may hold, in bytes.
pub(crate) const LIMIT: u64 = 64 << 20;

/// One cache. The thread that uses it is the owner of the lock.
#[derive(Debug)]
pub(crate) struct Cache {
    pub(crate) lists: Biased<Lists>,
    /// What the lists hold, in bytes. Written by the thread inside `lists` alone; outside of it so that others can read it.
    pub(crate) bytes: AtomicU64,
    /// The owner has ended and has emptied it.
    pub(crate) has_ended: AtomicBool,
}

/// The lists of a cache.
#[derive(Debug)]
pub(crate) struct Lists {
    by_class: [List; CLASSES],
    /// Holds nothing, for good: the stream has ended, or the pool.
    is_retired: bool,
    /// Where the next eviction begins.
    evict_next: usize,
    /// A buffer for batches, kept so that a batch allocates nothing.
    buffer: Vec<u64>,
}

#[derive(Debug)]
struct List {
    /// Last in, first out: the block that was freed last is the one most likely in the device's L2 cache.
    addresses: Vec<u64>,
    /// How many addresses it may hold: 0 until it has memory for them, and once it is retired.
    room: u8,
    /// How many blocks the next refill asks for. It doubles, so that a size that is used once caches nothing.
    refill: u8,
}

impl Cache {
    /// Owned by the calling thread.
    pub(crate) fn new() -> Self {
        const EMPTY: List = List {
            addresses: Vec::new(),
            room: 0,
            refill: 1,
        };
        Self {
            lists: Biased::new(Lists {
                by_class: [EMPTY; CLASSES],
                is_retired: false,
                evict_next: 0,
                buffer: Vec::new(),
            }),
            bytes: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
        }
    }

    /// A block of the class, on the owner's thread.
    #[inline]
    pub(crate) fn pop(&self, class: Class) -> Option<u64> {
        let mut lists = self.lists.enter()?;
        self.pop_from(&mut lists, class)
    }

    /// The same in the usual case, on the hot path. `None` also while another thread is inside.
    #[inline(always)]
    pub(crate) fn try_pop(&self, class: Class) -> Option<u64> {
        let mut lists = self.lists.try_enter()?;
        self.pop_from(&mut lists, class)
    }

    #[inline(always)]
    fn pop_from(&self, lists: &mut Lists, class: Class) -> Option<u64> {
        let address = lists.by_class[class.index()].addresses.pop()?;
        self.set_bytes(self.bytes() - class.bytes());
        Some(address)
    }

    /// Keeps a block, on the owner's thread. False if there is no room.
    #[inline]
    pub(crate) fn push(&self, class: Class, address: u64) -> bool {
        match self.lists.enter() {
            Some(mut lists) => self.push_to(&mut lists, class, address),
            None => false,
        }
    }

    /// The same in the usual case, on the hot path. False also while another thread is inside.
    #[inline(always)]
    pub(crate) fn try_push(&self, class: Class, address: u64) -> bool {
        // Not a closure, which may be compiled as a function of its own.
        match self.lists.try_enter() {
            Some(mut lists) => self.push_to(&mut lists, class, address),
            None => false,
        }
    }

    /// Keeps a block. False if there is no room.
    #[inline(always)]
    pub(crate) fn push_to(&self, lists: &mut Lists, class: Class, address: u64) -> bool {
        let list = &mut lists.by_class[class.index()];
        let bytes = self.bytes() + class.bytes();
        let has_room = list.addresses.len() < usize::from(list.room) && bytes <= LIMIT;
        if has_room {
            list.addresses.push(address);
            self.set_bytes(bytes);
        }
        has_room
    }

    /// What it holds, in bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Not an atomic addition: the caller is inside `lists`.
    #[inline]
    fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Moves a list's blocks to `out`, the oldest first, at most `count`.
    fn take(&self, lists: &mut Lists, class: Class, count: usize, out: &mut Vec<u64>) {
        let list = &mut lists.by_class[class.index()].addresses;
        let count = count.min(list.len());
        out.extend(list.drain(..count));
        self.set_bytes(self.bytes() - count as u64 * class.bytes());
    }

    /// Makes room for a block of the class: moves blocks that must leave the cache to `out` and returns their class. `None`
    /// if the block fits now, or if the cache is retired.
    pub(crate) fn evict(
        &self,
        lists: &mut Lists,
        class: Class,
        out: &mut Vec<u64>,
    ) -> Option<Class> {
        if !lists.prepare(class) {
            return None;
        }
        let list = &lists.by_class[class.index()];
        if list.addresses.len() >= usize::from(list.room) {
            self.take(lists, class, class.batch(), out);
            return Some(class);
        }
        if self.bytes() + class.bytes() <= LIMIT {
            return None;
        }
        // All other lists in turn, one list a call.
        let start = lists.evict_next;
        let classes = Class::all().cycle().skip(start).take(CLASSES);
        for other in classes {
            let is_empty = lists.by_class[other.index()].addresses.is_empty();
            if other != class && !is_empty {
                lists.evict_next = (other.index() + 1) % CLASSES;
                self.take(lists, other, usize::MAX, out);
                return Some(other);
            }
        }
        None
    }

    /// Moves all blocks out, a class at a time.
    pub(crate) fn drain(&self, lists: &mut Lists) -> Vec<(Class, Vec<u64>)> {
        let mut all = Vec::new();
        for class in Class::all() {
            let list = &mut lists.by_class[class.index()];
            if !list.addresses.is_empty() {
                all.push((class, list.addresses.clone()));
                list.addresses.clear();
            }
        }
        self.set_bytes(0);
        all
    }
}

impl Lists {
    /// Gives the list of the class its memory. False if the cache is retired.
    fn prepare(&mut self, class: Class) -> bool {
        let list = &mut self.by_class[class.index()];
        if list.room == 0 && !self.is_retired {
            list.addresses.reserve_exact(class.cap());
            list.room = class.cap() as u8;
        }
        !self.is_retired
    }

    /// How many blocks to allocate for this class at once; 1 if the cache is retired.
    pub(crate) fn begin_refill(&mut self, class: Class) -> usize {
        if !self.prepare(class) {
            return 1;
        }
        let list = &mut self.by_class[class.index()];
        let count = usize::from(list.refill);
        list.refill = (2 * count).min(class.batch()) as u8;
        count
    }

    /// From now on it holds nothing. The caller has drained it.
    pub(crate) fn retire(&mut self) {
        self.is_retired = true;
        for list in &mut self.by_class {
            list.room = 0;
            list.addresses = Vec::new();
        }
    }

    /// Whether it is retired.
    pub(crate) fn is_retired(&self) -> bool {
        self.is_retired
    }

    /// The buffer for a batch, empty. [Returned](Self::return_buffer) when the batch is done.
    pub(crate) fn take_buffer(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.buffer)
    }

    /// Keeps the buffer for the next batch.
    pub(crate) fn return_buffer(&mut self, mut buffer: Vec<u64>) {
        buffer.clear();
        self.buffer = buffer;
    }
}
