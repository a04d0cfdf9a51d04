//! The caches of threads, through [`Pool`].

mod driver;
mod exit;
mod fork;
mod stress;

use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use cuguard_pool::{Central, Pool, Settings};
use driver::FakeDriver;

const MIB: u64 = 1 << 20;

fn pool(capacity: u64) -> (FakeDriver, Pool<FakeDriver>) {
    let driver = FakeDriver::new(capacity);
    (driver.clone(), Pool::new(driver, Settings::default()))
}

/// Runs `check` while another thread lives that has run `first` and so has caches.
fn with_another_thread<R: Send>(first: impl FnOnce() + Send, check: impl FnOnce() -> R) -> R {
    thread::scope(|scope| {
        let (ready, wait) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let other = scope.spawn(move || {
            first();
            ready.send(()).unwrap();
            let _ = ended.recv();
        });
        wait.recv().expect("the other thread got this far");
        let result = check();
        drop(end);
        // The scope itself does not wait until the thread's locals are dropped.
        other.join().unwrap();
        result
    })
}

/// Allocates and frees one block of many sizes on the stream.
fn fill_cache(pool: &Pool<FakeDriver>, stream: u64) {
    for size in (1..=16).map(|step| step << 16) {
        let block = pool.allocate(&stream, size).unwrap();
        pool.free(&stream, block);
    }
}

/// From the cache or not, a block occupies what the engine says.
#[test]
fn a_block_occupies_what_the_engine_says() {
    let (_, pool) = pool(u64::MAX);
    for doubling in 4..22 {
        for part in 8..16 {
            let size = (part << doubling) >> 3;
            for bytes in [size - 1, size, size + 1] {
                for _ in 0..2 {
                    let block = pool.allocate(&1, bytes).unwrap();
                    assert_eq!(block.bytes, Central::<FakeDriver>::rounded(bytes));
                    pool.free(&1, block);
                }
            }
        }
    }
    assert!(pool.cached_by_threads() <= Pool::<FakeDriver>::CACHE_LIMIT);
    pool.flush();
    let stats = pool.stats();
    assert_eq!((stats.used, stats.wrong_frees), (0, 0));
}

#[test]
fn trim_releases_what_other_threads_have_cached() {
    let (driver, pool) = pool(u64::MAX);
    with_another_thread(
        || fill_cache(&pool, 1),
        || {
            assert_ne!(pool.cached_by_threads(), 0);
            pool.trim(0).unwrap();
            assert_eq!((pool.cached_by_threads(), driver.usage().0), (0, 0));
        },
    );
}

#[test]
fn compact_and_decay_flush_all_caches() {
    let (_, pool) = pool(u64::MAX);
    with_another_thread(
        || fill_cache(&pool, 1),
        || {
            fill_cache(&pool, 1);
            assert_eq!(pool.cache_count(), 2);
            pool.compact(u64::MAX).unwrap();
            assert_eq!((pool.cached_by_threads(), pool.stats().used), (0, 0));
            fill_cache(&pool, 1);
            pool.decay(Instant::now()).unwrap();
            assert_eq!(pool.cached_by_threads(), 0);
        },
    );
}

/// The memory that an allocation lacks is in the cache of another thread, which does not come back to it.
#[test]
fn an_allocation_uses_what_other_threads_have_cached() {
    let (driver, pool) = pool(16 * MIB);
    with_another_thread(
        || fill_cache(&pool, 1),
        || {
            let cached = pool.cached_by_threads();
            assert_ne!(cached, 0);
            let block = pool.allocate(&2, 16 * MIB).expect("all of it");
            assert_eq!((pool.cached_by_threads(), driver.usage().0), (0, 16 * MIB));
            assert!(pool.allocate(&2, 1).is_err(), "nothing is left");
            pool.free(&2, block);
            // The same for a size that caches hold.
            let blocks: Vec<_> = (0..16).map(|_| pool.allocate(&2, MIB).unwrap()).collect();
            assert!(pool.allocate(&2, MIB).is_err());
            blocks.iter().for_each(|block| pool.free(&2, *block));
        },
    );
    let limited = Pool::new(
        FakeDriver::new(u64::MAX),
        Settings {
            limit: 16 * MIB,
            ..Settings::default()
        },
    );
    with_another_thread(
        || fill_cache(&limited, 1),
        || assert!(limited.allocate(&2, 16 * MIB).is_ok()),
    );
}

#[test]
fn caches_of_an_ended_stream_are_dropped_on_all_threads() {
    let (_, pool) = pool(u64::MAX);
    with_another_thread(
        || (0..3).for_each(|stream| fill_cache(&pool, stream)),
        || {
            (0..3).for_each(|stream| fill_cache(&pool, stream));
            assert_eq!(pool.cache_count(), 6);
            let before = pool.cached_by_threads();
            pool.stream_ends(&1).unwrap();
            assert_eq!(pool.cache_count(), 4);
            assert_eq!(pool.cached_by_threads() * 3, before * 2);
            for stream in [0, 2] {
                pool.stream_ends(&stream).unwrap();
            }
            assert_eq!((pool.cached_by_threads(), pool.stats().used), (0, 0));
        },
    );
}

#[test]
fn a_thread_that_ends_flushes_its_caches() {
    let (_, pool) = pool(u64::MAX);
    for _ in 0..20 {
        with_another_thread(|| fill_cache(&pool, 1), || assert_ne!(pool.stats().used, 0));
        assert_eq!((pool.stats().used, pool.cache_count()), (0, 0));
    }
}

/// After a destroy nothing is held, and blocks that are freed late are not cached.
#[test]
fn a_destroyed_pool_holds_nothing() {
    let (driver, pool) = pool(u64::MAX);
    let kept = pool.allocate(&1, 1000).unwrap();
    with_another_thread(
        || fill_cache(&pool, 1),
        || {
            pool.destroy().unwrap();
            assert_eq!((driver.usage().0, pool.cached_by_threads()), (0, 0));
            pool.free(&1, kept);
            assert_eq!(pool.cached_by_threads(), 0);
        },
    );
}

/// Threads outlive the pool, and use another one after it.
#[test]
fn a_pool_is_dropped_before_the_threads_that_used_it() {
    let (mut drivers, mut pools) = (Vec::new(), Vec::new());
    for _ in 0..8 {
        let (driver, pool) = pool(u64::MAX);
        drivers.push(driver);
        pools.push(pool);
    }
    let use_all = |pools: &[Pool<FakeDriver>]| pools.iter().for_each(|pool| fill_cache(pool, 1));
    let (send, receive) = mpsc::channel::<Vec<Pool<FakeDriver>>>();
    let (used, wait) = mpsc::channel();
    let other = thread::spawn(move || {
        for pools in receive {
            use_all(&pools);
            used.send(pools).unwrap();
        }
    });
    while !pools.is_empty() {
        send.send(pools).unwrap();
        pools = wait.recv().unwrap();
        use_all(&pools);
        let pool = pools.swap_remove(pools.len() / 2);
        assert_eq!(pool.cache_count(), 2);
        pool.trim(0).unwrap();
        drop(pool);
    }
    drop(send);
    other.join().unwrap();
    let held: u64 = drivers.iter().map(|driver| driver.usage().0).sum();
    assert_eq!(held, 0);
}

/// Values that are dropped with the thread's locals use the pool then, before and after the thread's caches are dropped.
#[test]
fn the_pool_works_while_a_threads_locals_are_dropped() {
    struct AtEnd(std::sync::Arc<Pool<FakeDriver>>);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            (1..4).for_each(|stream| fill_cache(&self.0, stream));
        }
    }
    thread_local!(static BEFORE: std::cell::OnceCell<AtEnd> = const { std::cell::OnceCell::new() });
    thread_local!(static AFTER: std::cell::OnceCell<AtEnd> = const { std::cell::OnceCell::new() });
    let pool = std::sync::Arc::new(pool(u64::MAX).1);
    let shared = pool.clone();
    thread::spawn(move || {
        BEFORE.with(|value| assert!(value.set(AtEnd(shared.clone())).is_ok()));
        fill_cache(&shared, 1);
        AFTER.with(|value| assert!(value.set(AtEnd(shared.clone())).is_ok()));
    })
    .join()
    .unwrap();
    assert_eq!((pool.cached_by_threads(), pool.stats().used), (0, 0));
    assert_eq!(pool.stats().wrong_frees, 0);
}

/// A pinned block that is freed does not keep its pin in a cache.
#[test]
fn the_pin_of_a_block_ends_when_it_is_freed() {
    let (driver, pool) = pool(u64::MAX);
    let (one, other) = (
        pool.allocate(&1, 1000).unwrap(),
        pool.allocate(&1, 1000).unwrap(),
    );
    assert!(pool.pin(one.address));
    pool.free(&1, one);
    assert!(!pool.unpin(one.address));
    assert!(pool.pages().iter().all(|page| !page.pinned));
    let cached = pool.cached_by_threads();
    pool.free(&1, other);
    assert!(pool.cached_by_threads() > cached, "it had no pin");
    pool.trim(0).unwrap();
    assert_eq!(driver.usage().0, 0);
}

/// Whether caches can be used without a barrier of the processor; if not, prints to stderr that a test was not run.
fn caches_are_kept(test: &str) -> bool {
    let is_so = cuguard_sync::fence::is_asymmetric();
    if !is_so {
        cuguard_testing::not_run(cuguard_testing::Requirement::Membarrier, test);
    }
    is_so
}

/// A cache that is kept beside the stream hands out what it holds, and takes what is freed, on its own thread alone.
#[test]
fn a_kept_cache_is_of_its_thread() {
    let (_, pool) = pool(u64::MAX);
    if !caches_are_kept("a_kept_cache_is_of_its_thread") {
        return;
    }
    let cache = pool.thread_cache(&1).expect("this thread can have caches");
    assert_eq!(pool.allocate_from(&cache, 1000), None, "nothing was freed");
    let block = pool.allocate(&1, 1000).unwrap();
    assert!(pool.free_to(&cache, block.address, 1000));
    assert_eq!(pool.cached_by_threads(), block.bytes);
    // Found by `allocate` as well, and of another size not.
    assert_eq!(pool.allocate(&1, 1000).unwrap(), block);
    assert!(pool.free_to(&cache, block.address, block.bytes));
    assert_eq!(pool.allocate_from(&cache, 2000), None);
    let elsewhere = thread::scope(|scope| {
        let use_it = || {
            (
                pool.allocate_from(&cache, 1000),
                pool.free_to(&cache, 0, 1000),
            )
        };
        scope.spawn(use_it).join().unwrap()
    });
    assert_eq!(elsewhere, (None, false));
    assert_eq!(pool.allocate_from(&cache, 1000), Some(block.address));
    assert!(pool.free_to(&cache, block.address, 1000));
    // The same cache for the same stream, another for another.
    let other = pool.thread_cache(&2).expect("this thread can have caches");
    assert_eq!(pool.allocate_from(&other, 1000), None);
    let same = pool.thread_cache(&1).expect("this thread can have caches");
    assert_eq!(pool.allocate_from(&same, 1000), Some(block.address));
    pool.free(&1, block);
}

#[test]
fn a_kept_cache_holds_no_large_and_no_pinned_block() {
    let (_, pool) = pool(u64::MAX);
    let cache = pool.thread_cache(&1).expect("this thread can have caches");
    let large = pool.allocate(&1, MIB + 1).unwrap();
    assert!(!pool.free_to(&cache, large.address, MIB + 1));
    pool.free(&1, large);
    assert_eq!(pool.allocate_from(&cache, MIB + 1), None);
    let pinned = pool.allocate(&1, 1000).unwrap();
    assert!(pool.pin(pinned.address));
    assert!(!pool.free_to(&cache, pinned.address, 1000));
    pool.free(&1, pinned);
    assert_eq!(pool.stats().wrong_frees, 0);
}

/// It neither hands out nor keeps anything once its stream, its pool or its thread has ended.
#[test]
fn a_kept_cache_ends() {
    let (driver, pool) = pool(u64::MAX);
    if !caches_are_kept("a_kept_cache_ends") {
        return;
    }
    let fill = |stream| {
        let cache = pool
            .thread_cache(&stream)
            .expect("this thread can have caches");
        let block = pool.allocate(&stream, 1000).unwrap();
        assert!(pool.free_to(&cache, block.address, 1000));
        cache
    };
    let is_over = |cache, stream: u64| {
        let block = pool.allocate(&stream, 1000).unwrap();
        let kept = pool.free_to(cache, block.address, 1000);
        pool.free(&stream, block);
        pool.allocate_from(cache, 1000).is_none() && !kept
    };
    let of_stream = fill(1);
    pool.stream_ends(&1).unwrap();
    assert!(is_over(&of_stream, 1));
    let of_thread = thread::scope(|scope| scope.spawn(|| fill(2)).join().unwrap());
    assert!(is_over(&of_thread, 2));
    let of_pool = fill(3);
    pool.destroy().unwrap();
    assert_eq!(pool.allocate_from(&of_pool, 1000), None);
    assert!(pool.thread_cache(&4).is_none());
    assert_eq!((driver.usage().0, pool.cached_by_threads()), (0, 0));
}
