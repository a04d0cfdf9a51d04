//! Threads that allocate, hand blocks to each other and free, on a device that is too small for all of it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;

use cuguard_pool::{Block, Pool};

use super::driver::FakeDriver;

/// Live blocks by address. No two overlap.
#[derive(Default)]
struct Live(Mutex<BTreeMap<u64, u64>>);

impl Live {
    fn insert(&self, block: Block) {
        let mut live = self.0.lock().unwrap();
        let before = live.range(..block.address + block.bytes).next_back();
        if let Some((address, bytes)) = before {
            assert!(address + bytes <= block.address, "{block:?} overlaps");
        }
        live.insert(block.address, block.bytes);
    }

    fn remove(&self, block: Block) {
        let removed = self.0.lock().unwrap().remove(&block.address);
        assert_eq!(removed, Some(block.bytes));
    }
}

/// A generator of numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }

    /// Small sizes are as likely as large ones; a few are too large for caches.
    fn size(&mut self) -> u64 {
        let doubling = self.below(14);
        self.below(256 << doubling) + 1
    }
}

#[test]
fn no_block_is_handed_out_twice_and_none_is_lost() {
    const THREADS: usize = 5;
    const STEPS: usize = 8_000;
    let driver = FakeDriver::new(160 << 20);
    let pool = Pool::new(driver.clone(), cuguard_pool::Settings::default());
    let (live, refused) = (Live::default(), AtomicU64::new(0));
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS)
            .map(|_| mpsc::channel::<(u64, Block)>())
            .unzip();
        let mut threads = Vec::new();
        for (number, receiver) in receivers.into_iter().enumerate() {
            let (senders, pool, live, refused) = (senders.clone(), &pool, &live, &refused);
            threads.push(scope.spawn(move || {
                let mut numbers = Numbers(number as u64 + 1);
                let mut mine = Vec::new();
                let free = |(stream, block): (u64, Block)| {
                    live.remove(block);
                    pool.free(&stream, block);
                };
                for _ in 0..STEPS {
                    mine.extend(receiver.try_iter());
                    let choice = numbers.below(10);
                    let at = numbers.below(mine.len().max(1) as u64) as usize;
                    if choice < 5 && mine.len() < 120 {
                        // One stream of its own, and one that all use.
                        let stream = numbers.below(2) * (number as u64 + 1);
                        match pool.allocate(&stream, numbers.size()) {
                            Ok(block) => {
                                live.insert(block);
                                mine.push((stream, block));
                            }
                            Err(_) => {
                                refused.fetch_add(1, Ordering::Relaxed);
                                mine.drain(mine.len() / 2..).for_each(free);
                            }
                        }
                    } else if mine.is_empty() {
                        continue;
                    } else if choice == 9 {
                        let to = numbers.below(THREADS as u64) as usize;
                        // A thread that has ended frees nothing.
                        if let Err(mpsc::SendError(block)) = senders[to].send(mine.swap_remove(at))
                        {
                            free(block);
                        }
                    } else {
                        free(mine.swap_remove(at));
                    }
                }
                drop(senders);
                mine.into_iter().for_each(free);
                receiver.iter().for_each(free);
            }));
        }
        drop(senders);
        let flushing = scope.spawn(|| {
            let mut round = 0_u64;
            while !over.load(Ordering::Relaxed) {
                match round % 4 {
                    0 => drop(pool.flush()),
                    1 => drop(pool.trim(0).unwrap()),
                    2 => drop(pool.stats()),
                    _ => assert!(pool.cached_by_threads() <= 16 * (64 << 20)),
                }
                round += 1;
                thread::yield_now();
            }
        });
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        over.store(true, Ordering::Relaxed);
        flushing.join().unwrap();
    });
    assert!(live.0.lock().unwrap().is_empty());
    pool.flush();
    let stats = pool.stats();
    assert_eq!((stats.used, stats.wrong_frees), (0, 0));
    pool.trim(0).unwrap();
    assert_eq!(driver.usage().0, 0);
    assert_ne!(refused.into_inner(), 0, "memory never ran short");
}
