//! A forked child in which threads that hold the pool's locks do not exist.

#![cfg(target_os = "linux")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use cuguard_pool::{Pool, Settings};

use super::driver::FakeDriver;
use super::fill_cache;

#[test]
fn a_forked_child_waits_for_no_lock() {
    let pool = Pool::new(FakeDriver::new(u64::MAX), Settings::default());
    fill_cache(&pool, 1);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                fill_cache(&pool, 1);
                pool.flush();
            }
        });
        for _ in 0..50 {
            let blocks: Vec<_> = (0..40)
                .map(|_| pool.allocate(&1, 1 << 18).unwrap())
                .collect();
            // SAFETY: the child runs what a child may do with a pool, and ends without running anything of the parent.
            let status = unsafe {
                let child = libc::fork();
                if child == 0 {
                    libc::alarm(20);
                    cuguard_sync::process::mark_forked();
                    // More than the cache holds.
                    blocks.iter().for_each(|block| pool.free(&1, *block));
                    pool.flush();
                    drop(std::ptr::read(&raw const pool));
                    libc::_exit(0);
                }
                let mut status = -1;
                libc::waitpid(child, &raw mut status, 0);
                status
            };
            assert_eq!(status, 0, "the child waits, or has failed");
            blocks.iter().for_each(|block| pool.free(&1, *block));
        }
        over.store(true, Ordering::Relaxed);
    });
}
