//! The caches in front of a model that knows the state of every block.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use super::class::Class;
use super::lists::LIMIT;
use super::{Backend, Caches};

/// Each block is allocated or free, on a stream; it fails where that is not what the caches do with it.
#[derive(Default)]
struct Model {
    state: Mutex<State>,
    calls: AtomicUsize,
    drops: Arc<AtomicUsize>,
    /// Called while blocks are freed.
    on_free: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

#[derive(Default)]
struct State {
    /// Size, and whether it is allocated.
    blocks: HashMap<u64, (u64, bool)>,
    free: HashMap<(u64, u64), Vec<u64>>,
}

impl Model {
    fn allocated(&self) -> usize {
        let state = self.state.lock().unwrap();
        state
            .blocks
            .values()
            .filter(|(_, is_used)| *is_used)
            .count()
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::SeqCst);
    }
}

impl Backend for Model {
    type Stream = u64;
    type Error = ();

    fn stream_id(stream: &u64) -> u64 {
        *stream
    }

    fn allocate_many(
        &self,
        stream: &u64,
        bytes: u64,
        more: usize,
        out: &mut Vec<u64>,
    ) -> Result<u64, ()> {
        assert!(out.is_empty());
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock().unwrap();
        let State { blocks, free } = &mut *state;
        let free = free.entry((*stream, bytes)).or_default();
        let mut next = || {
            let address = free.pop().unwrap_or((blocks.len() as u64 + 1) << 20);
            let before = blocks.insert(address, (bytes, true));
            assert!(before.is_none_or(|before| before == (bytes, false)));
            address
        };
        out.extend((0..more).map(|_| next()));
        Ok(next())
    }

    fn free_many(&self, stream: &u64, bytes: u64, addresses: &[u64]) {
        assert!(!addresses.is_empty());
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock().unwrap();
        for address in addresses {
            let before = state.blocks.insert(*address, (bytes, false));
            assert_eq!(before, Some((bytes, true)), "a wrong or double free");
        }
        let free = state.free.entry((*stream, bytes)).or_default();
        free.extend(addresses);
        drop(state);
        let on_free = self.on_free.lock().unwrap().take();
        if let Some(on_free) = on_free {
            on_free();
        }
    }
}

fn caches() -> Arc<Caches<Model>> {
    Caches::new(Model::default())
}

fn class(bytes: u64) -> Class {
    Class::of(bytes).unwrap()
}

/// A generator of numbers that are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// Small sizes are as likely as large ones.
fn class_of_any_size(numbers: &mut Numbers) -> Class {
    let doubling = numbers.below(13);
    class(numbers.below(256 << doubling))
}

#[test]
fn a_freed_block_is_reused_without_the_backend() {
    let caches = caches();
    let first = caches.allocate(&1, class(1 << 20)).unwrap();
    caches.free(&1, class(1 << 20), first);
    let calls = caches.backend().calls.load(Ordering::Relaxed);
    for _ in 0..100 {
        let again = caches.allocate(&1, class(1 << 20)).unwrap();
        assert_eq!(again, first);
        caches.free(&1, class(1 << 20), again);
    }
    assert_eq!(caches.backend().calls.load(Ordering::Relaxed), calls);
    assert_eq!((caches.bytes(), caches.count()), (1 << 20, 1));
    // Not on another stream, nor in another size.
    assert_ne!(caches.allocate(&2, class(1 << 20)).unwrap(), first);
    assert_ne!(caches.allocate(&1, class(1 << 19)).unwrap(), first);
    assert_eq!(caches.flush(), 1 << 20);
    assert_eq!(caches.bytes(), 0);
}

/// The first refills are small, later ones half a list; overflows are half a list.
#[test]
fn blocks_come_and_leave_in_batches() {
    let caches = caches();
    let class = class(16 << 10);
    let blocks: Vec<u64> = (0..1000)
        .map(|_| caches.allocate(&1, class).unwrap())
        .collect();
    let calls = caches.backend().calls.swap(0, Ordering::Relaxed);
    // 1 + 2 + 4 + 8 + 16, then 32 at a time.
    assert_eq!(calls, 5 + (1000_usize - 31).div_ceil(32));
    blocks
        .iter()
        .for_each(|block| caches.free(&1, class, *block));
    assert!(caches.backend().calls.load(Ordering::Relaxed) <= 1000 / 32);
    caches.flush();
    assert_eq!(caches.backend().allocated(), 0);
}

/// Whatever is freed in whatever order, no list and no cache holds more than it may.
#[test]
fn a_cache_holds_no_more_than_its_caps() {
    let caches = caches();
    let mut numbers = Numbers(88172645463325252);
    let mut largest = 0;
    for round in 0..40 {
        let sizes: Vec<Class> = Class::all().collect();
        let one = sizes[numbers.below(sizes.len() as u64) as usize];
        let before = caches.bytes();
        let blocks: Vec<u64> = (0..100)
            .map(|_| caches.allocate(&1, one).unwrap())
            .collect();
        for block in blocks {
            caches.free(&1, one, block);
            assert!(caches.bytes() <= LIMIT);
        }
        let list = caches.bytes() as i64 - before as i64;
        assert!(list <= one.cap() as i64 * one.bytes() as i64, "{round}");
        for class in sizes {
            let block = caches.allocate(&1, class).unwrap();
            caches.free(&1, class, block);
            largest = largest.max(caches.bytes());
            assert!(caches.bytes() <= LIMIT);
        }
    }
    assert!(largest > LIMIT / 2, "the cap was not reached: {largest}");
    caches.flush();
    assert_eq!(caches.backend().allocated(), 0);
}

/// A full cache makes room by evicting its lists in turn: one that is in use again stays.
#[test]
fn a_full_cache_evicts_its_lists_in_turn() {
    let caches = caches();
    let classes: Vec<Class> = Class::all().collect();
    let use_at_once = |class: Class, count: usize| {
        let before = caches.backend().calls.load(Ordering::Relaxed);
        let blocks: Vec<u64> = (0..count)
            .map(|_| caches.allocate(&1, class).unwrap())
            .collect();
        let calls = caches.backend().calls.load(Ordering::Relaxed) - before;
        blocks
            .into_iter()
            .for_each(|block| caches.free(&1, class, block));
        calls
    };
    for class in &classes {
        use_at_once(*class, class.cap());
    }
    let largest = classes.iter().map(|class| class.bytes()).max().unwrap();
    assert!(
        caches.bytes() > LIMIT - largest && caches.bytes() <= LIMIT,
        "the lists do not fill it: {}",
        caches.bytes()
    );
    // The first ones were evicted. The first one is used again, and is in use from now on.
    assert_ne!(use_at_once(classes[0], 1), 0);
    let mut evicted = 0;
    for class in &classes[1..classes.len() / 4] {
        assert_eq!(use_at_once(classes[0], 1), 0, "evicted before {class:?}");
        evicted += usize::from(use_at_once(*class, class.cap()) != 0);
    }
    assert_ne!(evicted, 0, "no other list was evicted");
}

/// The end of a stream waits for another thread that flushes its cache: no block is freed on a stream that has ended.
#[test]
fn a_stream_does_not_end_while_its_cache_is_flushed() {
    let caches = caches();
    let block = caches.allocate(&1, class(4096)).unwrap();
    caches.free(&1, class(4096), block);
    let is_freeing = Arc::new(AtomicBool::new(false));
    let (begun, wait) = mpsc::channel();
    let freeing = is_freeing.clone();
    *caches.backend().on_free.lock().unwrap() = Some(Box::new(move || {
        freeing.store(true, Ordering::SeqCst);
        begun.send(()).unwrap();
        // Long enough for the other thread, did it not wait.
        thread::sleep(std::time::Duration::from_millis(200));
        freeing.store(false, Ordering::SeqCst);
    }));
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(caches.flush(), 4096));
        wait.recv().unwrap();
        caches.stream_ends(&1);
        assert!(!is_freeing.load(Ordering::SeqCst), "freed after its end");
    });
    assert_eq!(caches.backend().allocated(), 0);
}

/// Threads allocate on a few streams, hand blocks to each other, and free; other threads flush and end streams meanwhile.
/// The model fails on a double free; here, a block that is handed out twice.
#[test]
fn threads_hand_blocks_to_each_other() {
    const THREADS: usize = 6;
    const STEPS: u64 = 30_000;
    let caches = caches();
    let owned = Mutex::new(HashMap::new());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS)
            .map(|_| mpsc::channel::<(u64, Class, u64)>())
            .unzip();
        let mut workers = Vec::new();
        for (number, receiver) in receivers.into_iter().enumerate() {
            let (senders, caches, owned) = (senders.clone(), caches.clone(), &owned);
            workers.push(scope.spawn(move || {
                let mut numbers = Numbers(number as u64 * 7919 + 1);
                let mut mine = Vec::new();
                let free = |(stream, class, address): (u64, Class, u64)| {
                    assert_eq!(owned.lock().unwrap().remove(&address), Some(class.bytes()));
                    caches.free(&stream, class, address);
                };
                for _ in 0..STEPS {
                    mine.extend(receiver.try_iter().take(4));
                    match numbers.below(8) {
                        0..4 if mine.len() < 200 => {
                            let stream = numbers.below(3);
                            let class = class_of_any_size(&mut numbers);
                            let address = caches.allocate(&stream, class).unwrap();
                            let before = owned.lock().unwrap().insert(address, class.bytes());
                            assert_eq!(before, None, "handed out twice");
                            mine.push((stream, class, address));
                        }
                        4 => {
                            if let Some(block) = mine.pop() {
                                let _ = senders[numbers.below(THREADS as u64) as usize].send(block);
                            }
                        }
                        _ if !mine.is_empty() => {
                            let at = numbers.below(mine.len() as u64) as usize;
                            free(mine.swap_remove(at));
                        }
                        _ => {}
                    }
                }
                drop(senders);
                mine.into_iter().for_each(&free);
                receiver.iter().for_each(&free);
            }));
        }
        drop(senders);
        let flushing = scope.spawn(|| {
            let mut rounds = 0_u64;
            while !over.load(Ordering::Relaxed) {
                caches.flush();
                if rounds.is_multiple_of(16) {
                    caches.stream_ends(&(rounds / 16 % 3));
                }
                rounds += 1;
                thread::yield_now();
            }
        });
        // The scope itself does not wait until the threads' caches are dropped.
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        over.store(true, Ordering::Relaxed);
        flushing.join().unwrap();
        results.into_iter().for_each(|result| result.unwrap());
    });
    assert!(owned.lock().unwrap().is_empty());
    caches.flush();
    assert_eq!((caches.bytes(), caches.backend().allocated()), (0, 0));
}

#[test]
fn a_thread_that_ends_frees_its_caches_to_the_backend() {
    let caches = caches();
    for _ in 0..100 {
        thread::scope(|scope| {
            scope
                .spawn(|| {
                    for stream in 0..3 {
                        let block = caches.allocate(&stream, class(1000)).unwrap();
                        caches.free(&stream, class(1000), block);
                    }
                    assert_eq!(caches.count(), 3);
                })
                .join()
                .unwrap();
        });
        assert_eq!((caches.bytes(), caches.count()), (0, 0));
        assert_eq!(caches.backend().allocated(), 0);
    }
    // Those of ended threads do not pile up.
    assert!(caches.registered().caches.len() <= 3);
}

/// Pools, dropped in any order while threads have caches of them: the blocks are freed, and the backend is dropped once, by
/// the thread that drops the pool.
#[test]
fn a_pool_ends_while_threads_have_caches() {
    for round in 0..50 {
        let drops = Arc::new(AtomicUsize::new(0));
        let mut backend = Model::default();
        backend.drops = drops.clone();
        let caches = Caches::new(backend);
        let kept: [u64; 2] = [(); 2].map(|()| caches.allocate(&1, class(1000)).unwrap());
        let (ready, wait) = mpsc::channel();
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let (ready, caches) = (ready.clone(), caches.clone());
                let (end, ended) = mpsc::channel::<()>();
                let thread = thread::spawn(move || {
                    let block = caches.allocate(&1, class(1000)).unwrap();
                    caches.free(&1, class(1000), block);
                    drop(caches);
                    ready.send(()).unwrap();
                    // Ends before, while or after the pool is dropped.
                    let _ = ended.recv();
                });
                (thread, end)
            })
            .collect();
        (0..3).for_each(|_| wait.recv().unwrap());
        let (threads, ends): (Vec<_>, Vec<_>) = threads.into_iter().unzip();
        let mut ends = Some(ends);
        if round % 2 == 0 {
            ends = None;
        }
        caches.close();
        // Late frees are not cached, neither where the thread has a cache nor where it has none.
        assert_eq!(caches.backend().allocated(), 2);
        caches.free(&1, class(1000), kept[0]);
        caches.free(&2, class(1000), kept[1]);
        assert_eq!(caches.backend().allocated(), 0);
        assert_eq!(drops.load(Ordering::SeqCst), 0);
        // No thread has it any more, ended or not.
        assert!(Arc::into_inner(caches).is_some());
        assert_eq!(drops.load(Ordering::SeqCst), 1);
        drop(ends);
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(drops.load(Ordering::SeqCst), 1);
    }
}

/// Caches of an ended stream are emptied on all threads and hold nothing any more.
#[test]
fn a_stream_ends() {
    let caches = caches();
    let one = class(1000);
    let (ready, wait) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let caches = &caches;
        let other = scope.spawn(move || {
            let (kept, freed) = (
                caches.allocate(&1, one).unwrap(),
                caches.allocate(&1, one).unwrap(),
            );
            caches.free(&1, one, freed);
            ready.send(()).unwrap();
            let _ = ended.recv();
            // Late: not kept.
            caches.free(&1, one, kept);
            let after = caches.allocate(&1, one).unwrap();
            caches.free(&1, one, after);
            (caches.bytes(), caches.backend().allocated())
        });
        wait.recv().unwrap();
        let here = caches.allocate(&1, one).unwrap();
        caches.free(&1, one, here);
        assert_eq!(caches.count(), 2);
        caches.stream_ends(&1);
        assert_eq!((caches.count(), caches.bytes()), (0, 0));
        assert_eq!(caches.backend().allocated(), 1);
        drop(end);
        assert_eq!(other.join().unwrap(), (0, 0));
    });
    // A cache for another stream replaces the one that is of no more use.
    let block = caches.allocate(&2, one).unwrap();
    caches.free(&2, one, block);
    assert_eq!(caches.count(), 1);
}

/// Thread-local values that use the pool when they are dropped, before or after the thread's caches are.
#[test]
fn a_thread_uses_the_pool_while_its_locals_are_dropped() {
    struct AtEnd(Arc<Caches<Model>>);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            for stream in 0..4 {
                let block = self.0.allocate(&stream, class(3000)).unwrap();
                self.0.free(&stream, class(3000), block);
            }
        }
    }
    thread_local!(static FIRST: std::cell::OnceCell<AtEnd> = const { std::cell::OnceCell::new() });
    thread_local!(static LAST: std::cell::OnceCell<AtEnd> = const { std::cell::OnceCell::new() });
    let caches = caches();
    let inside = caches.clone();
    thread::spawn(move || {
        FIRST.with(|first| drop(first.set(AtEnd(inside.clone()))));
        let block = inside.allocate(&1, class(3000)).unwrap();
        inside.free(&1, class(3000), block);
        LAST.with(|last| drop(last.set(AtEnd(inside.clone()))));
    })
    .join()
    .unwrap();
    caches.flush();
    assert_eq!((caches.bytes(), caches.backend().allocated()), (0, 0));
    assert_eq!(caches.count(), 0);
    assert!(Arc::into_inner(caches).is_some());
}

/// More streams on one thread than it remembers positions of.
#[test]
fn many_streams_on_a_thread() {
    let caches = caches();
    let first: Vec<u64> = (0..600)
        .map(|stream| {
            let block = caches.allocate(&stream, class(256)).unwrap();
            caches.free(&stream, class(256), block);
            block
        })
        .collect();
    for (stream, block) in first.iter().enumerate().rev() {
        assert_eq!(
            caches.allocate(&(stream as u64), class(256)).unwrap(),
            *block
        );
    }
}
