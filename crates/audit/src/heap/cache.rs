//! Small blocks that a thread has freed and keeps for itself, so that what the driver allocates and frees with every call
//! needs no lock; those of the driver and of this library apart.
//!
//! To its slab, such a block is in use. A thread that ends returns its blocks to their slabs, by a key of its own: a destructor
//! of the standard library would be registered in memory that there may not be. In a child of `fork` the blocks of other
//! threads are lost, and so are those of a thread that frees for the first time in the last round of its keys' destructors.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};

use super::classes;
use super::user::User;

/// The classes up to 1 KiB.
const CLASSES: usize = 20;

/// The lists of both users.
const LISTS: usize = CLASSES * User::COUNT;

/// How many blocks of a class a thread keeps: 100 KiB of all classes, for each user. Their slabs cannot be used for other classes.
const MOST: u8 = 16;

/// Whether a thread keeps blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// It has freed none yet.
    New,
    Open,
    /// The thread ends.
    Closed,
}

struct Cache {
    /// The block of each class that was freed last, the driver's first. It begins with the address of the one before.
    heads: [Cell<*mut u8>; LISTS],
    counts: [Cell<u8>; LISTS],
    /// A signal handler that interrupts an operation, and allocates, goes past the cache.
    is_busy: Cell<bool>,
    state: Cell<State>,
}

thread_local! {
    // Without a destructor, so that an access is no more than that, also while the thread's variables are dropped.
    static CACHE: Cache = const {
        Cache {
            heads: [const { Cell::new(ptr::null_mut()) }; LISTS],
            counts: [const { Cell::new(0) }; LISTS],
            is_busy: Cell::new(false),
            state: Cell::new(State::New),
        }
    };
}

/// The key whose destructor is [`close`], or [`NO_KEY`]: then nothing is kept.
static KEY: AtomicU32 = AtomicU32::new(NO_KEY);
const NO_KEY: libc::pthread_key_t = libc::pthread_key_t::MAX;

/// Frees a block of the arena.
static FREE: OnceLock<unsafe fn(*mut c_void)> = OnceLock::new();

/// Creates the key, once, before threads keep blocks, which `free` frees when a thread ends.
pub(super) fn prepare(free: unsafe fn(*mut c_void)) {
    let _ = FREE.set(free);
    let mut key = NO_KEY;
    // SAFETY: the key can be written to, and the function is one of this library, which is never unloaded.
    if unsafe { libc::pthread_key_create(&mut key, Some(close)) } == 0 {
        KEY.store(key, Ordering::Release);
    }
}

/// Returns the blocks when the thread ends.
unsafe extern "C" fn close(_: *mut c_void) {
    let Some(free) = FREE.get() else {
        return;
    };
    CACHE.with(|cache| {
        cache.state.set(State::Closed);
        for list in 0..LISTS {
            while let Some(block) = cache.pop(list) {
                // SAFETY: nobody else has the block, and from here on no block is kept.
                unsafe { free(block.cast()) };
            }
        }
    });
}

/// A block that the calling thread has freed.
#[inline]
pub(super) fn pop(user: User, class: usize) -> Option<*mut u8> {
    if class >= CLASSES {
        return None;
    }
    CACHE.with(|cache| cache.pop(user as usize * CLASSES + class))
}

/// Keeps a freed block. False if there is no room.
///
/// # Safety
/// The block is one of a slab of this user and class, and the caller does not use it any more.
#[inline]
pub(super) unsafe fn push(user: User, class: usize, block: *mut u8) -> bool {
    if class >= CLASSES {
        return false;
    }
    // SAFETY: as the caller promises.
    CACHE.with(|cache| unsafe { cache.push(user as usize * CLASSES + class, block) })
}

impl Cache {
    #[inline]
    fn pop(&self, list: usize) -> Option<*mut u8> {
        let operation = Operation::begin(self)?;
        let block = self.heads[list].get();
        if block.is_null() {
            return None;
        }
        // SAFETY: a block in the list begins with the address of the next one.
        self.heads[list].set(unsafe { block.cast::<*mut u8>().read() });
        // A program that frees twice makes the list a ring: it must not panic here.
        self.counts[list].set(self.counts[list].get().saturating_sub(1));
        drop(operation);
        Some(block)
    }

    /// # Safety
    /// As [`push`].
    #[inline]
    unsafe fn push(&self, list: usize, block: *mut u8) -> bool {
        if self.state.get() != State::Open && !self.open() {
            return false;
        }
        let Some(operation) = Operation::begin(self) else {
            return false;
        };
        let count = self.counts[list].get();
        if count == MOST {
            return false;
        }
        // SAFETY: the block is the caller's, of at least 16 bytes and aligned to them.
        unsafe { block.cast::<*mut u8>().write(self.heads[list].get()) };
        self.heads[list].set(block);
        self.counts[list].set(count + 1);
        drop(operation);
        true
    }

    /// Begins to keep blocks, if the thread does not end.
    #[cold]
    fn open(&self) -> bool {
        let key = KEY.load(Ordering::Acquire);
        if self.state.get() == State::Closed || key == NO_KEY {
            return false;
        }
        // What it allocates, in the C library, is not of the arena.
        // SAFETY: the key exists; the value is not used, but is not null.
        let result = unsafe { libc::pthread_setspecific(key, ptr::without_provenance(1)) };
        let state = if result == 0 {
            State::Open
        } else {
            State::Closed
        };
        self.state.set(state);
        result == 0
    }
}

/// While it exists, the cache is busy.
struct Operation<'a>(&'a Cache);

impl<'a> Operation<'a> {
    #[inline]
    fn begin(cache: &'a Cache) -> Option<Self> {
        if cache.is_busy.replace(true) {
            return None;
        }
        compiler_fence(Ordering::SeqCst);
        Some(Self(cache))
    }
}

impl Drop for Operation<'_> {
    #[inline]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        self.0.is_busy.set(false);
    }
}

const _: () = assert!(classes::COUNT > CLASSES);

#[cfg(test)]
mod tests {
    use super::super::arena;
    use super::super::range::{Reserved, Use};
    use super::*;

    /// Blocks of the arena, of the size, as addresses.
    fn blocks(count: usize, size: usize) -> Vec<usize> {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| prepare(arena::free));
        (0..count)
            .map(|_| arena::allocate(User::Driver, size, 16).expose_provenance())
            .collect()
    }

    fn free(block: usize) {
        // SAFETY: the tests free each block once.
        unsafe { arena::free(ptr::with_exposed_provenance_mut(block)) };
    }

    #[test]
    fn the_largest_class_is_that_of_1_kib() {
        assert_eq!(classes::size(CLASSES - 1), 1024);
    }

    #[test]
    fn a_thread_has_its_last_freed_blocks_again() {
        // Not a class of the vectors here, which are of the arena too.
        let all = blocks(40, 600);
        all.iter().for_each(|block| free(*block));
        // No more than these are kept.
        let kept: Vec<_> = all[..MOST as usize].iter().rev().copied().collect();
        let again = blocks(40, 600);
        assert_eq!(again[..MOST as usize], kept);
        let mut sorted = again.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 40, "no block twice");
        again.into_iter().for_each(free);
    }

    #[test]
    fn a_thread_that_ends_returns_its_blocks() {
        /// The blocks in use of the slab with this block; none if the slab is no more.
        fn used(block: usize) -> u32 {
            let reserved = Reserved::get().expect("there are blocks");
            let entry = reserved.entry(reserved.unit_of(block));
            // SAFETY: no other thread of the tests uses this class.
            match unsafe { (*entry).usage == Use::Slab } {
                // SAFETY: as above.
                true => unsafe { (*entry).used },
                false => 0,
            }
        }
        let thread = std::thread::spawn(|| {
            let all = blocks(4, 700);
            let before = used(all[3]);
            all.iter().for_each(|block| free(*block));
            assert_eq!(used(all[3]), before, "kept");
            (all[3], before)
        });
        let (block, before) = thread.join().expect("no panic");
        assert_eq!(used(block), before - 4);
    }

    #[test]
    fn an_operation_that_is_interrupted_is_left_alone() {
        let block = blocks(1, 900)[0];
        free(block);
        CACHE.with(|cache| {
            let interrupted = Operation::begin(cache).expect("not busy");
            let other = blocks(1, 900)[0];
            assert_ne!(other, block);
            free(other);
            drop(interrupted);
        });
        assert_eq!(blocks(1, 900)[0], block);
        free(block);
    }
}
